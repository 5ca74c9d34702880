"""BLIS's own step time, from a coefficient set, a model and a chip's datasheet.

Written from blis-latency-kernel's page "Pricing a step" (docs/concepts/step.md at e9cf217) and,
where the page is silent, from what its source does. Loops over layers; nothing is shared with
the laws of this project but the documents of models and chips.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ruamel.yaml import YAML

from kernelfit.kernel.batch import Batch
from kernelfit.kernel.chip import Chip
from kernelfit.kernel.layers import LayerKind
from kernelfit.kernel.model import Model
from kernelfit.kernel.resolved import Resolution

ACTIVATION_BYTES = 2.0


def chosen(text: str, hardware: str, model: str) -> dict[str, float]:
    """Return the values that apply to a chip and a model: the last applicable entry of a name."""
    out = {}
    for item in YAML(typ="safe", pure=True).load(text)["coefficients"]:
        ((name, entry),) = item.items()
        scope = entry["scope"]
        fits = hardware in scope.get("hardware", [hardware])
        if fits and model in scope.get("model", [model]):
            out[name] = float(entry["value"])
    return out


class Blis:
    """The kernel of one deployment without data or context parallelism."""

    def __init__(
        self,
        values: Mapping[str, float],
        model: Model,
        chip: Chip,
        resolution: Resolution,
        catalogue: str,
    ) -> None:
        self.v, self.model, self.chip, self.r = values, model, chip, resolution
        self.tp = resolution.tensor_parallel_width
        quantised = model.weight_dtype if f"gemm_eps_max_{model.weight_dtype}" in values else "bf16"
        self.eps, self.half = (
            values[f"gemm_eps_max_{quantised}"],
            values[f"gemm_m_half_{quantised}"],
        )
        self.peak = chip.peak(quantised)
        self.hbm = chip.hbm_bytes_per_s * values["hbm_derate"]
        self.catalogue = catalogue.replace("-", "_")

    def step(self, batch: Batch) -> tuple[float, float, float]:
        """Return Overlap, NoOverlap, and the latter without the host's time [s]."""
        overlap = summed = 0.0
        for kind in self.model.layers:
            sm, hbm, link, routed_sm, routed_hbm = self.layer(kind, batch)
            overlap += kind.count * (max(sm, hbm, link) + routed_sm + routed_hbm)
            summed += kind.count * (sm + hbm + link + routed_sm + routed_hbm)
        head = self.model.hidden * self.model.vocab / self.tp
        tokens = batch.tokens()
        head_sm = tokens * 2 * head / (self.peak * self.efficiency(tokens))
        head_hbm = head * ACTIVATION_BYTES / self.hbm
        host = self.host(batch)
        summed += head_sm + head_hbm
        return overlap + max(head_sm, head_hbm) + host, summed + host, summed

    def efficiency(self, tokens: int) -> float:
        return self.eps * tokens / (tokens + self.half)

    def host(self, batch: Batch) -> float:
        layers = self.model.layer_count
        uniform = all(r.scheduled == 1 for r in batch.requests)
        mode = {
            "FULL": "full",
            "FULL_DECODE_ONLY": "full" if uniform else "none",
            "FULL_AND_PIECEWISE": "full" if uniform else "piecewise",
            "PIECEWISE": "piecewise",
            "NONE": "none",
        }[self.r.graph_mode]
        replay = 1e-6 * self.v.get("host_replay_graph_per_step", 0.0)
        if mode == "none":
            return 1e-6 * self.v.get("host_launch_eager_per_layer", 0.0) * layers
        return replay if mode == "full" else replay * (layers + 1)

    def layer(self, kind: LayerKind, batch: Batch) -> tuple[float, ...]:
        m, tokens, tp = self.model, batch.tokens(), self.tp
        weights = float(_attention_weights(m, kind))
        read = weights * _width(kind.attention.weight_dtype or m.weight_dtype)
        if kind.mlp is not None:
            mlp = (3 if kind.mlp.gated else 2) * m.hidden * kind.mlp.intermediate
            weights += mlp
            read += mlp * _width(kind.mlp.weight_dtype or m.weight_dtype)
        routed_sm = routed_hbm = 0.0
        ramp = self.peak * self.efficiency(tokens)
        e = kind.experts
        if e is not None:
            one = (3 if e.gated else 2) * m.hidden * e.intermediate
            shared = (3 if e.gated else 2) * m.hidden * e.shared_intermediate
            weights += m.hidden * e.experts + shared
            read += m.hidden * e.experts * ACTIVATION_BYTES
            read += shared * _width(e.shared_weight_dtype or m.weight_dtype)
            # Every token's experts in full, though each rank holds a slice: a known over-charge.
            routed_sm = tokens * e.per_token * 2 * one / ramp
            touched = e.experts * (1 - (1 - e.per_token / e.experts) ** tokens)
            routed_hbm = touched * one * _width(e.weight_dtype or m.weight_dtype) / tp / self.hbm
        sm = tokens * 2 * weights / tp / ramp
        # Two norms with the residual: read twice and written twice.
        passes = tokens * 8 * m.hidden * ACTIVATION_BYTES / tp
        hbm = (read / tp + passes) / self.hbm
        attention_sm, attention_hbm = self.attention(kind, batch)
        message = tokens * m.hidden * ACTIVATION_BYTES
        link = 2 * self.collective("all_reduce", tp, message) if tp > 1 else 0.0
        return sm + attention_sm, hbm + attention_hbm, link, routed_sm, routed_hbm

    def attention(self, kind: LayerKind, batch: Batch) -> tuple[float, float]:
        a, v = kind.attention, self.v
        suffix = "_mla" if a.latent else "_swa" if a.window_tokens else ""
        if a.latent is not None:
            per_token = (a.latent.kv_rank + a.latent.rope_head_dim) * ACTIVATION_BYTES
        else:
            heads = max(1, a.kv_heads // self.tp)
            per_token = 2 * heads * a.head_dim * ACTIVATION_BYTES
        sm = hbm = 0.0
        decodes = [r for r in batch.requests if r.scheduled <= batch.decode_threshold]
        prompts = [r for r in batch.requests if r.scheduled > batch.decode_threshold]
        if decodes:
            context = sum(
                min(r.computed + r.scheduled, a.window_tokens or 1 << 62) for r in decodes
            )
            hbm += 1e-6 * v.get(f"attention_decode_floor{suffix}", 0.0)
            hbm += 1e-6 * context * per_token / v[f"attention_decode_rate{suffix}"]
        if prompts:
            pairs = sum(_pairs(r.scheduled, r.computed, a.window_tokens) for r in prompts)
            width = a.latent.kv_rank + a.latent.rope_head_dim if a.latent else a.head_dim
            scale = self.efficiency(batch.tokens()) * v["attention_prefill_work_scale"]
            sm += 1e-6 * v.get("attention_prefill_floor", 0.0)
            sm += 4 * pairs * a.heads * width / self.tp / (self.peak * scale)
        return sm, hbm

    def collective(self, op: str, ranks: int, message: float) -> float:
        stem = f"{op}_fp16_{ranks}rank_{self.catalogue}"
        floor, slow, fast = (
            self.v[f"collective_{part}_{stem}"]
            for part in ("floor", "transition_rate", "peak_rate")
        )
        return 1e-6 * max(floor + message / slow, message / fast)


def _pairs(scheduled: int, computed: int, window: int) -> float:
    if not window:
        return scheduled * computed + scheduled**2 / 2
    return float(sum(min(p, window) for p in range(computed + 1, computed + scheduled + 1)))


def _width(dtype: str) -> float:
    return {"bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "int8": 1.0, "int4": 0.5, "fp4": 0.53}[dtype]


def _attention_weights(m: Model, kind: LayerKind) -> int:
    a = kind.attention
    if a.latent is not None:
        x = a.latent
        query = (x.query_rank or m.hidden) * a.heads * (x.nope_head_dim + x.rope_head_dim)
        down = m.hidden * (x.query_rank + x.kv_rank + x.rope_head_dim)
        up = x.kv_rank * a.heads * (x.nope_head_dim + x.value_head_dim)
        return query + down + up + a.heads * x.value_head_dim * m.hidden
    return m.hidden * a.head_dim * (2 * a.heads + 2 * a.kv_heads)


def times(
    text: str, kernel: Any, catalogue: str, batches: list[Batch]
) -> list[tuple[float, float, float]]:
    """Return BLIS's estimates of each batch [s], see ``Blis.step``."""
    plan = kernel.plan
    values = chosen(text, catalogue, plan.model.name)
    blis = Blis(values, plan.model, plan.chip, plan.resolution, catalogue)
    return [blis.step(batch) for batch in batches]
