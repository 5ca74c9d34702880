"""Simulated runs: an independent pricing of random batches with planted coefficients.

The times are computed here from matrix shapes, term by term in plain loops, and not by
the package's own laws, so that a wrong law shows as a planted coefficient not found.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from kernelfit.fit.steps import RunSteps, make_run
from kernelfit.kernel import BatchTotals, Chip, Model, Pool, RequestShape
from kernelfit.kernel.totals import TOTAL_FIELDS

# Every term makes up some percent of the time, so that 2 % noise can pin it to 2 %.
TRUTH: dict[str, float] = {
    "gemm_eff_bf16": 0.62,
    "gemm_m_half_bf16": 40.0,
    "attention_eff_bf16": 0.31,
    "hbm_weight_eff": 0.71,
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


def layer_times(
    model: Model, chip: Chip, tp: int, requests: list[RequestShape], truth: Mapping[str, float]
) -> tuple[list[tuple[float, float, float]], float, float]:
    """Times of (sm, hbm, nvlink) of all layers together and of the head; host time that
    runs ahead of the device, and host time that it waits for."""
    t = truth
    peak, bandwidth, link = (
        dict(chip.peak_flop_per_s)["bf16"],
        chip.hbm_bytes_per_s,
        chip.nvlink_bytes_per_s,
    )
    tokens = sum(r.scheduled for r in requests)
    kind = model.layers[0]
    a, layers = kind.attention, kind.count
    heads, kv = a.heads / tp, max(1, a.kv_heads // tp)

    def gemm(rows: float, elements: float, starts: float = 1.0) -> tuple[float, float]:
        speed = peak * t["gemm_eff_bf16"]
        sm = (2 * elements * rows + 2 * elements * starts * t["gemm_m_half_bf16"]) / speed
        return sm, elements * 2 * starts / (bandwidth * t["hbm_weight_eff"])

    projections = model.hidden * a.head_dim * (2 * heads + 2 * kv)
    sm, hbm = gemm(tokens, projections)
    pairs = sum(r.scheduled * r.computed + r.scheduled * (r.scheduled + 1) / 2 for r in requests)
    sm += 4 * heads * a.head_dim * pairs / (peak * t["attention_eff_bf16"])
    sm += len(requests) * kv * t["attention_head_s"] + t["layer_floor_s"]
    read = sum(r.computed + r.scheduled for r in requests) + tokens
    hbm += read * 2 * kv * a.head_dim * 2 / (bandwidth * t["hbm_kv_eff"])
    elements = 8 * model.hidden + 4 * a.head_dim * (heads + kv)
    if kind.mlp is not None:
        width = kind.mlp.intermediate / tp
        more = gemm(tokens, 3 * model.hidden * width)
        sm, hbm = sm + more[0], hbm + more[1]
        elements += 3 * width
    if kind.experts is not None:
        e = kind.experts
        hit = e.experts * (1 - (1 - e.per_token / e.experts) ** tokens)
        one = 3 * model.hidden * e.intermediate / tp
        speed = peak * t["gemm_eff_bf16"]
        sm += (2 * one * e.per_token * tokens + 2 * one * hit * t["gemm_m_half_bf16"]) / speed
        hbm += one * 2 * hit / (bandwidth * t["hbm_weight_eff"])
        sm += hit * t["expert_floor_s"]
        more = gemm(tokens, model.hidden * e.experts)
        sm, hbm = sm + more[0], hbm + more[1]
        elements += e.per_token * (3 * e.intermediate / tp + 4 * model.hidden)
    hbm += tokens * elements * 2 / (bandwidth * t["hbm_activation_eff"])
    nvlink = 2 * collective(t, "allreduce_custom", tp, link, 2 * tokens * model.hidden * 2)
    head = gemm(len(requests), model.hidden * model.vocab / tp)
    logits = len(requests) * model.vocab
    passes = logits * 12 / (bandwidth * t["hbm_activation_eff"])
    gather = collective(t, "allgather", tp, link, logits * 2)
    stages = [(layers * sm, layers * hbm, layers * nvlink), (head[0], head[1] + passes, gather)]
    ahead = layers * t["launch_layer_s"]
    return stages, ahead, t["launch_step_s"] + len(requests) * t["launch_request_s"]


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
) -> RunSteps:
    """A run with planted coefficients, noise and outliers of 2 to 30 times."""
    rng = np.random.default_rng(seed)
    chosen = random_batches(rng, steps) if batches is None else batches
    durations, hosts = [], []
    for requests in chosen:
        stages, ahead, waited = layer_times(model, chip, pool.tp, requests, truth)
        device = sum((1 - share) * sum(s) + share * max(s) for s in stages)
        host = truth["schedule_step_s"] + len(requests) * truth["schedule_request_s"]
        durations.append(max(device, ahead) + waited + (host if timing != "device" else 0.0))
        hosts.append(host)
    duration = np.asarray(durations) * np.exp(noise * rng.standard_normal(len(chosen)))
    hit = rng.random(len(chosen)) < outliers
    duration[hit] *= 2.0 * 15.0 ** rng.random(int(hit.sum()))
    totals = [BatchTotals.of(requests) for requests in chosen]
    columns: dict[str, np.ndarray] = {
        n: np.asarray([getattr(t, n) for t in totals], dtype=float) for n in TOTAL_FIELDS
    }
    columns["duration_s"] = duration
    if timing == "device":
        columns["host_s"] = np.asarray(hosts) * np.exp(noise * rng.standard_normal(len(chosen)))
    phase = [
        "decode" if p == len(r) else ("mixed" if p else "prefill")
        for r in chosen
        for p in [sum(q.computed >= q.prompt_len for q in r)]
    ]
    return make_run(name, model, chip, pool, "0.32.0", timing, columns, phase=phase)
