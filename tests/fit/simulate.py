"""Simulated runs: an independent pricing of random batches with planted coefficients.

The times are computed here from matrix shapes, term by term in plain loops, and not by
the package's own laws, so that a wrong law shows as a planted coefficient not found.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from kernelfit.fit.steps import RunSteps, make_run
from kernelfit.kernel import BatchTotals, Chip, Model, Pool, RequestShape
from kernelfit.kernel.tables import table_of

# Every term makes up some percent of the time, so that 2 % noise can pin it to 2 %.
TRUTH: dict[str, float] = {
    "gemm_eff_bf16": 0.62,
    "gemm_m_half_bf16": 40.0,
    "attention_eff_bf16": 0.31,
    "hbm_weight_eff": 0.71,
    "hbm_expert_eff": 0.6,
    "hbm_kv_eff": 0.55,
    "hbm_activation_eff": 0.1,
    "allreduce_custom_floor_s": 2.5e-5,
    "allreduce_custom_transition_eff": 0.12,
    "allreduce_custom_eff": 0.05,
    "allgather_floor_s": 2.5e-5,
    "allgather_transition_eff": 0.2,
    "allgather_eff": 0.3,
    "attention_head_s": 1e-6,
    "layer_floor_s": 3e-5,
    "expert_floor_s": 1.5e-5,
    "launch_layer_s": 8e-5,
    "launch_graph_s": 1.2e-5,
    "launch_attention_s": 6e-5,
    "launch_step_s": 1.4e-3,
    "launch_request_s": 5e-5,
    "schedule_step_s": 4e-4,
    "schedule_request_s": 7e-6,
}


def random_batches(rng: np.random.Generator, steps: int) -> list[list[RequestShape]]:
    """Decode batches of 1 to 128 with contexts of 16 to 8,000, and prompts among them."""
    out = []
    for _ in range(steps):
        requests = []
        width = round(128 ** rng.random())
        context = int(16 * (8000 / 16) ** rng.random())
        if rng.random() < 0.85:
            for _ in range(width):
                done = max(1, int(context * rng.uniform(0.5, 1.5)))
                requests.append(RequestShape(1, done, max(1, done - 5)))
        if not requests or rng.random() < 0.25:
            for _ in range(int(rng.integers(1, 4))):
                size = int(16 * (2000 / 16) ** rng.random())
                done = int(rng.choice([0, 0, 512, 3000]))
                requests.append(RequestShape(size, done, done + size + 3))
        out.append(requests)
    return out


@dataclass(frozen=True)
class Step:
    """One step's parts [s]: (sm, hbm, nvlink) of each kind of layer and of the head; host
    work that runs ahead of the device, that it waits for, and of scheduling."""

    stages: list[tuple[float, float, float]]
    ahead: float
    waited: float
    schedule: float


def launched(pool: Pool, requests: list[RequestShape]) -> tuple[str, int]:
    """How a batch is launched, and the tokens that the device then sees."""
    tokens = sum(r.scheduled for r in requests)
    fitting = [size for size in pool.cudagraph_capture_sizes if size >= tokens]
    if pool.enforce_eager or not fitting:
        return "eager", tokens
    assert pool.cudagraph_mode == "FULL_AND_PIECEWISE"
    uniform = all(r.scheduled == 1 for r in requests)
    return ("full" if uniform else "piecewise"), min(fitting)


def price(
    model: Model, chip: Chip, pool: Pool, requests: list[RequestShape], truth: Mapping[str, float]
) -> Step:
    """Price one step from the matrix shapes, layer kind by layer kind."""
    t, tp = truth, pool.tp
    peak, bandwidth, link = (
        dict(chip.peak_flop_per_s)["bf16"],
        chip.hbm_bytes_per_s,
        chip.nvlink_bytes_per_s,
    )
    way, padded = launched(pool, requests)
    new = sum(r.scheduled for r in requests)
    slots = padded if way == "full" else len(requests)

    def gemm(rows: float, elements: float) -> tuple[float, float]:
        speed = peak * t["gemm_eff_bf16"]
        sm = (2 * elements * rows + 2 * elements * t["gemm_m_half_bf16"]) / speed
        return sm, elements * 2 / (bandwidth * t["hbm_weight_eff"])

    stages = []
    for kind in model.layers:
        a = kind.attention
        heads, kv = a.heads / tp, max(1, a.kv_heads // tp)
        sm, hbm = gemm(padded, model.hidden * a.head_dim * (2 * heads + 2 * kv))
        # Every new token scores all before it and itself, or as many as a window leaves;
        # the keys that any of them needs are read, the new ones written.
        window = a.window_tokens or 10**9
        pairs = read = 0
        for r in requests:
            whole = r.computed + r.scheduled
            if whole <= window:
                pairs += r.scheduled * r.computed + r.scheduled * (r.scheduled + 1) // 2
                read += whole
            else:
                pairs += sum(min(r.computed + i + 1, window) for i in range(r.scheduled))
                read += whole - max(0, r.computed + 1 - window)
        sm += 4 * heads * a.head_dim * pairs / (peak * t["attention_eff_bf16"])
        sm += slots * kv * t["attention_head_s"] + t["layer_floor_s"]
        hbm += (read + new) * 2 * kv * a.head_dim * 2 / (bandwidth * t["hbm_kv_eff"])
        elements = 8 * model.hidden + 4 * a.head_dim * (heads + kv)
        if kind.mlp is not None:
            width = kind.mlp.intermediate / tp
            more = gemm(padded, 3 * model.hidden * width)
            sm, hbm = sm + more[0], hbm + more[1]
            elements += 3 * width
        if kind.experts is not None:
            e = kind.experts
            hit = e.experts * (1 - (1 - e.per_token / e.experts) ** padded)
            one = 3 * model.hidden * e.intermediate / tp
            speed = peak * t["gemm_eff_bf16"]
            sm += (2 * one * e.per_token * padded + 2 * one * hit * t["gemm_m_half_bf16"]) / speed
            hbm += one * 2 * hit / (bandwidth * t["hbm_expert_eff"])
            sm += hit * t["expert_floor_s"]
            more = gemm(padded, model.hidden * e.experts)
            sm, hbm = sm + more[0], hbm + more[1]
            elements += e.per_token * (3 * e.intermediate / tp + 4 * model.hidden)
        hbm += padded * elements * 2 / (bandwidth * t["hbm_activation_eff"])
        nvlink = 2 * collective(t, "allreduce_custom", tp, link, 2 * padded * model.hidden * 2)
        stages.append((kind.count * sm, kind.count * hbm, kind.count * nvlink))
    head = gemm(len(requests), model.hidden * model.vocab / tp)
    logits = len(requests) * model.vocab
    passes = logits * 12 / (bandwidth * t["hbm_activation_eff"])
    gather = collective(t, "allgather", tp, link, logits * 2)
    stages.append((head[0], head[1] + passes, gather))
    layers = sum(kind.count for kind in model.layers)
    launch = {
        "eager": layers * t["launch_layer_s"],
        "full": t["launch_graph_s"],
        # One graph between two attentions, one before the first, one after the last.
        "piecewise": (layers + 1) * t["launch_graph_s"] + layers * t["launch_attention_s"],
    }[way]
    rest = t["launch_step_s"] + len(requests) * t["launch_request_s"]
    schedule = t["schedule_step_s"] + len(requests) * t["schedule_request_s"]
    if pool.async_scheduling:
        return Step(stages, launch + rest, 0.0, schedule)
    return Step(stages, launch, rest, schedule)


def collective(t: Mapping[str, float], op: str, ranks: int, link: float, nbytes: float) -> float:
    """A ring: (n - 1) / n of the bytes over each link, slow start or steady stream."""
    if ranks == 1:
        return 0.0
    moved = (ranks - 1) / ranks * nbytes
    small = t[f"{op}_floor_s"] + moved / (link * t[f"{op}_transition_eff"])
    return max(small, moved / (link * t[f"{op}_eff"]))


def simulate(
    name: str,
    model: Model,
    chip: Chip,
    pool: Pool,
    *,
    seed: int,
    steps: int = 1200,
    share: float = 0.0,
    noise: float = 0.02,
    outliers: float = 0.03,
    truth: Mapping[str, float] = TRUTH,
    timing: str = "device",
    batches: list[list[RequestShape]] | None = None,
    per_request: bool = True,
) -> RunSteps:
    """A run with planted coefficients, noise and outliers of 2 to 30 times.

    Without ``per_request`` its columns are those of an aggregated log: no totals of windows.
    """
    rng = np.random.default_rng(seed)
    chosen = random_batches(rng, steps) if batches is None else batches
    durations, hosts = [], []
    for requests in chosen:
        step = price(model, chip, pool, requests, truth)
        device = sum((1 - share) * sum(s) + share * max(s) for s in step.stages)
        # A worker's span does not cover scheduling; asynchronous scheduling runs ahead, too.
        inside = 0.0 if timing == "device" else step.schedule
        ahead = step.ahead + (inside if pool.async_scheduling else 0.0)
        waited = step.waited + (0.0 if pool.async_scheduling else inside)
        durations.append(max(device, ahead) + waited)
        hosts.append(step.schedule)
    duration = np.asarray(durations) * np.exp(noise * rng.standard_normal(len(chosen)))
    hit = rng.random(len(chosen)) < outliers
    duration[hit] *= 2.0 * 15.0 ** rng.random(int(hit.sum()))
    windows = tuple(sorted({k.attention.window_tokens for k in model.layers} - {0}))
    known = windows if per_request else ()
    columns = table_of([BatchTotals.of(requests, 1, known) for requests in chosen])
    columns["duration_s"] = duration
    if timing == "device":
        columns["host_s"] = np.asarray(hosts) * np.exp(noise * rng.standard_normal(len(chosen)))
    phase = [
        "decode" if p == len(r) else ("mixed" if p else "prefill")
        for r in chosen
        for p in [sum(q.computed >= q.prompt_len for q in r)]
    ]
    return make_run(name, model, chip, pool, "0.32.0", timing, columns, phase=phase)
