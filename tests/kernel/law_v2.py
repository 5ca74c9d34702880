"""The laws of file version 2 on one node, worked out from shapes, token by token.

Nothing of the package's laws is used: windows are counted position by position, experts by
inclusion of each token, collectives as rings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kernelfit.kernel import Chip, LayerKind, Model, RequestShape

BYTES = {"fp32": 4.0, "bf16": 2.0, "fp8": 1.0}
# A plain dense layer launches two norms and eight other operations on a GPU.
PLAIN = 10


@dataclass
class Times:
    """Seconds of one stage by resource."""

    sm: float = 0.0
    hbm: float = 0.0
    nvlink: float = 0.0

    def largest(self) -> float:
        return max(self.sm, self.hbm, self.nvlink)

    def together(self) -> float:
        return self.sm + self.hbm + self.nvlink


@dataclass
class Step:
    """What a step is priced from."""

    model: Model
    chip: Chip
    tp: int
    requests: Sequence[RequestShape]
    truth: Mapping[str, float]
    rows: int = 0
    slots: int = 0
    all_reduce: str = "custom"
    cache_dtype: str = "bf16"
    threshold: int = 1
    stages: list[Times] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.tokens = sum(r.scheduled for r in self.requests)
        self.rows = self.rows or self.tokens
        self.slots = self.slots or len(self.requests)
        self.stages = [self._layer(kind) for kind in self.model.layers] + [self._head()]

    def overlap(self) -> float:
        return sum(stage.largest() for stage in self.stages)

    def no_overlap(self) -> float:
        return sum(stage.together() for stage in self.stages)

    def _gemm(
        self,
        out: Times,
        rows: float,
        elements: float,
        starts: float = 1.0,
        read: str = "hbm_weight_eff",
    ) -> None:
        t = self.truth
        speed = dict(self.chip.peak_flop_per_s)["bf16"] * t["gemm_eff_bf16"]
        out.sm += 2 * elements * (rows + starts * t["gemm_m_half_bf16"]) / speed
        out.hbm += elements * 2 * starts / (self.chip.hbm_bytes_per_s * t[read])

    def _flop(self, coefficient: str, flop: float) -> float:
        peak = dict(self.chip.peak_flop_per_s)["bf16"]
        return flop / (peak * self.truth[coefficient])

    def _moved(self, coefficient: str, nbytes: float) -> float:
        return nbytes / (self.chip.hbm_bytes_per_s * self.truth[coefficient])

    def _ring(self, op: str, share: float, nbytes: float) -> float:
        link, t = self.chip.nvlink_bytes_per_s, self.truth
        slow = t[f"{op}_floor_s"] + share * nbytes / (link * t[f"{op}_transition_eff"])
        return max(slow, share * nbytes / (link * t[f"{op}_eff"]))

    def _layer(self, kind: LayerKind) -> Times:
        out = Times()
        attention = kind.attention
        elements, operations = 8.0 * self.model.hidden, 2
        if attention.latent is not None:
            elements += self._latent(out, kind)
            operations = 4 + 8
        elif attention.linear is not None:
            elements += self._linear(out, kind)
            operations = 3 + 6
        else:
            elements += self._heads(out, kind)
            operations += 5 + (2 if attention.qk_norm else 0)
        if kind.mlp is not None:
            width = kind.mlp.intermediate / self.tp
            self._gemm(out, self.rows, 3 * self.model.hidden * width)
            elements += 3 * width
            operations += 3
        if kind.experts is not None:
            elements += self._experts(out, kind)
            operations += 3
        out.hbm += self._moved("hbm_activation_eff", self.rows * elements * 2)
        if self.chip.kind == "gpu":
            out.sm += self.truth["layer_floor_s"] * operations / PLAIN
        if self.tp > 1:
            share = 2 * (self.tp - 1) / self.tp
            nbytes = self.rows * self.model.hidden * 2
            out.nvlink += 2 * self._ring(f"allreduce_{self.all_reduce}", share, nbytes)
        for name in ("sm", "hbm", "nvlink"):
            setattr(out, name, kind.count * getattr(out, name))
        return out

    def _positions(self, window: int) -> tuple[int, int]:
        """Query-key pairs and distinct context tokens, counted one by one."""
        pairs = context = 0
        for r in self.requests:
            seen = set()
            for position in range(r.computed, r.computed + r.scheduled):
                first = max(0, position - window + 1) if window else 0
                pairs += position - first + 1
                seen.update(range(first, position + 1))
            context += len(seen)
        return pairs, context

    def _heads(self, out: Times, kind: LayerKind) -> float:
        a = kind.attention
        heads, kv = a.heads / self.tp, max(1, a.kv_heads // self.tp)
        queries = (3 if a.output_gate else 2) * heads
        self._gemm(out, self.rows, self.model.hidden * a.head_dim * (queries + 2 * kv))
        pairs, context = self._positions(a.window_tokens)
        out.sm += self._flop("attention_eff_bf16", 4 * heads * a.head_dim * pairs)
        token = 2 * kv * a.head_dim * BYTES[self.cache_dtype]
        out.hbm += self._moved("hbm_kv_eff", (context + self.tokens) * token)
        out.sm += self.slots * kv * self.truth["attention_head_s"]
        # Rotary embedding of queries and keys, in and out; then queries in, and keys, values
        # and the output out.
        return 2 * a.head_dim * (heads + kv) + a.head_dim * (heads + 2 * kv + heads)

    def _latent(self, out: Times, kind: LayerKind) -> float:
        a, m, hidden = kind.attention, kind.attention.latent, self.model.hidden
        assert m is not None
        heads, query = a.heads / self.tp, m.nope_head_dim + m.rope_head_dim
        self._gemm(out, self.rows, hidden * m.query_rank)
        self._gemm(out, self.rows, m.query_rank * heads * query)
        self._gemm(out, self.rows, hidden * (m.kv_rank + m.rope_head_dim))
        self._gemm(out, self.rows, heads * m.value_head_dim * hidden)
        expansion = m.kv_rank * heads * (m.nope_head_dim + m.value_head_dim)
        # Whatever path requests take, the expansion's weights are read once.
        self._gemm(out, 0.0, expansion)
        for r in self.requests:
            pairs = sum(range(r.computed + 1, r.computed + r.scheduled + 1))
            context = r.computed + r.scheduled
            if r.scheduled <= self.threshold:
                # Absorbed: each head scores latent and rotary part, and sums latents.
                wide = 2 * heads * (m.kv_rank + m.rope_head_dim + m.kv_rank)
                out.sm += self._flop("gemm_eff_bf16", 2 * expansion)
                out.sm += self._flop("attention_eff_bf16", wide * pairs)
            else:
                out.sm += self._flop("gemm_eff_bf16", 2 * expansion * context)
                plain = 2 * heads * (query + m.value_head_dim)
                out.sm += self._flop("attention_eff_bf16", plain * pairs)
                # Expanded keys and values are written, and read by attention.
                wide = query + m.value_head_dim
                out.hbm += self._moved("hbm_activation_eff", 2 * context * heads * wide * 2)
            token = (m.kv_rank + m.rope_head_dim) * BYTES.get(self.cache_dtype, 0.0)
            if self.cache_dtype == "fp8_ds_mla":
                token = 512 * 1 + 4 * 4 + 64 * 2
            out.hbm += self._moved("hbm_kv_eff", (context + r.scheduled) * token)
        out.sm += self.slots * self.truth["attention_head_s"]
        return 2 * (m.query_rank + m.kv_rank + m.rope_head_dim * (heads + 1))

    def _linear(self, out: Times, kind: LayerKind) -> float:
        n, hidden, tp = kind.attention.linear, self.model.hidden, self.tp
        assert n is not None
        keys, values = n.key_heads * n.key_head_dim, n.value_heads * n.value_head_dim
        channels = 2 * keys + values
        for elements in (
            hidden * channels,  # query, key, value
            hidden * values,  # gate
            hidden * 2 * n.value_heads,  # two scalars per head
            values * hidden,  # output
            channels * n.conv_kernel,
        ):
            self._gemm(out, self.rows, elements / tp)
        # State products of prediction, update and output; three key-wide and two
        # value-wide products within a chunk of 64.
        dk, dv = n.key_head_dim, n.value_head_dim
        token = 3 * 2 * dk * dv + 64 * 2 * (3 * dk + 2 * dv)
        out.sm += self._flop("recurrent_eff_bf16", self.tokens * n.value_heads / tp * token)
        state = n.value_heads * dk * dv * BYTES[n.state_dtype]
        state += channels * (n.conv_kernel - 1) * 2
        out.hbm += self._moved("hbm_kv_eff", self.slots * 2 * state / tp)
        return (2 * channels + 3 * values) / tp

    def _experts(self, out: Times, kind: LayerKind) -> float:
        e = kind.experts
        assert e is not None
        one = 3 * self.model.hidden * e.intermediate / self.tp
        untouched = 1.0
        # Rows that only pad the batch are routed, too.
        for _ in range(self.rows):
            untouched *= 1 - e.per_token / e.experts
        hit = e.experts * (1 - untouched)
        self._gemm(out, 0.0, one, hit, "hbm_expert_eff")
        out.sm += self._flop("gemm_eff_bf16", 2 * one * e.per_token * self.rows)
        out.sm += hit * self.truth["expert_floor_s"]
        self._gemm(out, self.rows, self.model.hidden * e.experts)
        return e.per_token * (3 * e.intermediate / self.tp + 4 * self.model.hidden)

    def _head(self) -> Times:
        out, count = Times(), len(self.requests)
        self._gemm(out, count, self.model.hidden * self.model.vocab / self.tp)
        out.hbm += self._moved("hbm_activation_eff", count * self.model.vocab * 12)
        if self.tp > 1:
            share = (self.tp - 1) / self.tp
            out.nvlink += self._ring("allgather", share, count * self.model.vocab * 2)
        return out
