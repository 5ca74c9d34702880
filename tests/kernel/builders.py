"""Small models, a chip with round numbers, and strategies for batches."""

from __future__ import annotations

from hypothesis import strategies as st

from kernelfit.kernel import (
    Attention,
    Batch,
    Chip,
    Experts,
    LayerKind,
    Mlp,
    Model,
    Pool,
    RequestShape,
)
from kernelfit.kernel.catalog import DEFINITIONS, TYPED, Coefficient, definition
from kernelfit.kernel.handover import Fitted, Range, Residuals

# Round figures, so that expected values can be worked out by hand.
CHIP = Chip(
    name="round-gpu",
    peak_flop_per_s=(("bf16", 100e12), ("fp8", 200e12)),
    hbm_bytes_per_s=1e12,
    hbm_bytes=80 << 30,
    nvlink_bytes_per_s=100e9,
    nic_bytes_per_s=50e9,
    pcie_bytes_per_s=32e9,
    sm_count=100,
    gpus_per_node=8,
)

EAGER = Pool(
    enforce_eager=True,
    async_scheduling=False,
    max_num_seqs=256,
    max_num_batched_tokens=8192,
    block_size=16,
    cache_dtype="auto",
    gpu_memory_utilization=0.9,
)


def dense(
    name: str = "dense",
    hidden: int = 1024,
    layers: int = 4,
    heads: int = 8,
    kv_heads: int = 2,
    intermediate: int = 4096,
    vocab: int = 32000,
) -> Model:
    """A dense model with grouped-query attention."""
    kind = LayerKind("dense", layers, Attention("full", heads, kv_heads, 128), Mlp(intermediate))
    return Model(name, hidden, vocab, (kind,), "bf16", "bf16", tied_head=False)


def mixture(
    name: str = "moe",
    hidden: int = 1024,
    layers: int = 4,
    experts: int = 16,
    per_token: int = 2,
    intermediate: int = 1024,
) -> Model:
    """A mixture-of-experts model."""
    kind = LayerKind(
        "moe",
        layers,
        Attention("full", 8, 2, 128),
        experts=Experts(experts, per_token, intermediate),
    )
    return Model(name, hidden, 32000, (kind,), "bf16", "bf16", tied_head=False)


def coefficients(dtype: str = "bf16", **changes: float) -> tuple[Coefficient, ...]:
    """Every coefficient at its prior, or at what ``changes`` says."""
    out = []
    for entry in DEFINITIONS:
        name = f"{entry.name}_{dtype}" if entry.name in TYPED else entry.name
        value = changes.get(name, entry.prior)
        out.append(
            Coefficient(
                name, value, entry.unit, CHIP.name, "measured", "identified", (value, value)
            )
        )
    return tuple(out)


def fitted(
    share: float = 0.0, draws: tuple[dict[str, float], ...] = (), **changes: float
) -> Fitted:
    """A calibration's hand-over with given coefficients."""
    names = tuple(c.name for c in coefficients())
    base = {c.name: c.value for c in coefficients(**changes)}
    return Fitted(
        calibration="sha256:test",
        coefficients=coefficients(**changes),
        overlap_share=share,
        draw_names=names,
        draws=tuple(tuple({**base, **d}[n] for n in names) for d in draws),
        residuals=(Residuals("decode", 100, (-0.1, -0.05, 0.0, 0.05, 0.1)),),
        domain=(Range("requests", 1.0, 64.0), Range("tokens", 1.0, 4096.0)),
    )


def shapes(longest: int = 2000) -> st.SearchStrategy[RequestShape]:
    """Any request shape that the builders' pools accept."""

    @st.composite
    def shape(draw: st.DrawFn) -> RequestShape:
        computed = draw(st.integers(0, longest))
        scheduled = draw(st.one_of(st.just(1), st.integers(1, 64)))
        cached = draw(st.integers(0, computed))
        prompt = draw(st.integers(1, longest))
        return RequestShape(scheduled, computed, prompt, cached)

    return shape()


def batches(most: int = 12) -> st.SearchStrategy[Batch]:
    """Any batch of a few requests."""
    return st.lists(shapes(), min_size=1, max_size=most).map(lambda rs: Batch(tuple(rs)))


__all__ = [
    "CHIP",
    "EAGER",
    "batches",
    "coefficients",
    "definition",
    "dense",
    "fitted",
    "mixture",
    "shapes",
]
