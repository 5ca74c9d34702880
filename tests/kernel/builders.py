"""Small models, a chip with round numbers, and strategies for batches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from hypothesis import strategies as st

from kernelfit.kernel import (
    Attention,
    Batch,
    Chip,
    Experts,
    FittedKernel,
    Latent,
    LayerKind,
    LinearState,
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


def latent(layers: int = 4, heads: int = 8, query_rank: int = 384) -> Model:
    """A model with latent attention of DeepSeek's head widths."""
    widths = Latent(query_rank, 512, 128, 64, 128)
    kind = LayerKind("mla", layers, Attention("mla", heads, heads, 192, latent=widths), Mlp(4096))
    return Model("mla", 1024, 32000, (kind,), "bf16", "bf16", tied_head=False)


def alternating(window: int = 128) -> Model:
    """Sliding and full attention in turn, with experts, as gpt-oss has them."""
    experts = Experts(16, 2, 1024)
    kinds = (
        LayerKind("sliding", 2, Attention("sliding", 8, 2, 128, window), experts=experts),
        LayerKind("full", 2, Attention("full", 8, 2, 128), experts=experts),
    )
    return Model("alternating", 1024, 32000, kinds, "bf16", "bf16", tied_head=False)


def linear_hybrid() -> Model:
    """Three linear layers to each full one, as Qwen3-Next has them."""
    state = LinearState(8, 16, 128, 128, 4, "fp32")
    kinds = (
        LayerKind("linear", 3, Attention("linear", 16, 8, 128, linear=state), Mlp(4096)),
        LayerKind("full", 1, Attention("full", 8, 2, 256, output_gate=True), Mlp(4096)),
    )
    return Model("hybrid", 1024, 32000, kinds, "bf16", "bf16", tied_head=False)


@dataclass(frozen=True, slots=True)
class Deployed:
    """A model on a chip in a pool."""

    model: Model
    chip: Chip
    pool: Pool

    def kernel(self, given: Fitted) -> FittedKernel:
        """Its kernel with given coefficients."""
        return FittedKernel.of(self.model, self.chip, self.pool, "0.32.0", given)


CPU = replace(CHIP, name="round-cpu", kind="cpu", pcie_bytes_per_s=0.0)
SIZES = (1, 2, 4, 8, 16, 24, 32, 64)
GRAPHS = replace(
    EAGER,
    enforce_eager=False,
    cudagraph_mode="FULL_AND_PIECEWISE",
    cudagraph_capture_sizes=SIZES,
)
SPREAD = replace(EAGER, tp=2, dp=2, enable_expert_parallel=True)
QUANTISED = replace(dense("quantised"), weight_dtype="fp8", scale_bytes=0.25)

DEPLOYED: Mapping[str, Deployed] = {
    "dense": Deployed(dense(), CHIP, EAGER),
    "graphs": Deployed(dense(), CHIP, replace(GRAPHS, tp=2)),
    "async": Deployed(dense(), CHIP, replace(GRAPHS, async_scheduling=True)),
    "speculating": Deployed(
        dense(),
        CHIP,
        replace(
            GRAPHS,
            cudagraph_capture_sizes=(4, 8, 16, 32, 64),
            speculative_method="ngram",
            num_speculative_tokens=3,
        ),
    ),
    "quantised": Deployed(QUANTISED, CHIP, EAGER),
    "moe": Deployed(mixture(), CHIP, replace(GRAPHS, tp=2)),
    "moe-spread": Deployed(mixture(), CHIP, SPREAD),
    "moe-alltoall": Deployed(
        mixture(), CHIP, replace(SPREAD, all2all_backend="deepep_low_latency")
    ),
    "moe-replicas": Deployed(mixture(), CHIP, replace(EAGER, dp=2)),
    "mla": Deployed(latent(), CHIP, replace(GRAPHS, tp=2)),
    "mla-packed": Deployed(latent(), CHIP, replace(EAGER, cache_dtype="fp8_ds_mla")),
    "alternating": Deployed(alternating(), CHIP, replace(EAGER, tp=2)),
    "hybrid": Deployed(linear_hybrid(), CHIP, replace(GRAPHS, tp=2)),
    "two-nodes": Deployed(dense(heads=16, kv_heads=8), CHIP, replace(EAGER, tp=16, nodes=2)),
    "cpu": Deployed(dense(), CPU, replace(EAGER, tp=2)),
}
"""One deployment per law and way of running; every one of them accepted."""


def kernels(given: Fitted | None = None) -> dict[str, FittedKernel]:
    """The kernel of every deployment, at the priors unless told otherwise."""
    return {name: d.kernel(given or fitted(share=0.3)) for name, d in DEPLOYED.items()}


def coefficients(
    dtypes: tuple[str, ...] = ("bf16", "fp8"), **changes: float
) -> tuple[Coefficient, ...]:
    """Every coefficient at its prior, or at what ``changes`` says."""
    out = []
    for entry in DEFINITIONS:
        typed = entry.name in TYPED
        for name in [f"{entry.name}_{d}" for d in dtypes] if typed else [entry.name]:
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
    "CPU",
    "DEPLOYED",
    "EAGER",
    "GRAPHS",
    "SIZES",
    "Deployed",
    "alternating",
    "batches",
    "coefficients",
    "definition",
    "dense",
    "fitted",
    "kernels",
    "latent",
    "linear_hybrid",
    "mixture",
    "shapes",
]
