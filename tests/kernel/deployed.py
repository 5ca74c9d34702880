"""Models of every kind, small enough to count by hand, and deployments without a kernel."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from kernelfit.kernel.chip import Chip
from kernelfit.kernel.model import (
    Attention,
    Experts,
    Latent,
    LayerKind,
    LinearState,
    Mlp,
    Model,
)
from kernelfit.kernel.pool import Pool
from kernelfit.kernel.resolved import Resolution
from tests.kernel.builders import CHIP

PLAIN = Resolution(
    tensor_parallel_width=1,
    data_parallel_width=1,
    expert_parallel_width=1,
    all_reduce_backend="none",
    async_scheduling=False,
    cascade_attention=False,
    sequence_parallel_moe=False,
    graph_mode="NONE",
    capture_sizes=(),
    block_size=16,
    cache_dtype="bf16",
    max_num_seqs=256,
    max_num_batched_tokens=8192,
    gpu_memory_utilization=0.9,
    overrides=(),
)


@dataclass(frozen=True, slots=True)
class Deployment:
    """A model on a chip, resolved by hand."""

    model: Model
    chip: Chip
    pool: Pool
    resolution: Resolution


def resolution(tp: int = 1, dp: int = 1, ep: int = 1, **changes: Any) -> Resolution:
    """A resolution with widths and changes."""
    return replace(
        PLAIN,
        tensor_parallel_width=tp,
        data_parallel_width=dp,
        expert_parallel_width=ep,
        **changes,
    )


def deployed(model: Model, chip: Chip = CHIP, **words: Any) -> Deployment:
    """A deployment with a resolution of these widths and changes."""
    return Deployment(model, chip, Pool(), resolution(**words))


def one_kind(
    attention: Attention, mlp: Mlp | None = None, experts: Experts | None = None, **words: Any
) -> Model:
    """A model of two equal layers, 256 wide."""
    if mlp is None and experts is None:
        mlp = Mlp(512)
    kind = LayerKind("only", 2, attention, mlp, experts)
    facts = {"hidden": 256, "vocab": 1280, "dtype": "bf16", "weight_dtype": "bf16"} | words
    tied = facts.pop("tied_head", False)
    return Model("only", layers=(kind,), tied_head=tied, **facts)


GQA = Attention("full", 8, 2, 32)
BIASED = replace(GQA, bias=True, output_bias=True, qk_norm=True, sinks=True)
WINDOW = Attention("sliding", 8, 2, 32, window_tokens=128)
LATENT = Attention("mla", 8, 8, 48, latent=Latent(96, 64, 32, 16, 24))
LINEAR = Attention("linear", 8, 4, 32, linear=LinearState(4, 8, 16, 32, 4, "fp32"))
EXPERTS = Experts(16, 4, 64, shared_intermediate=128)
HYBRID = Model(
    "hybrid",
    256,
    1280,
    (LayerKind("linear", 6, LINEAR, Mlp(512)), LayerKind("full", 2, GQA, Mlp(512))),
    "bf16",
    "bf16",
    tied_head=False,
)
MIXED = Model(
    "mixed",
    256,
    1280,
    (LayerKind("sliding", 3, WINDOW, Mlp(512)), LayerKind("full", 3, GQA, Mlp(512))),
    "bf16",
    "bf16",
    tied_head=False,
)
EVERY_KIND = (
    one_kind(GQA),
    one_kind(BIASED, Mlp(512, bias=True)),
    one_kind(replace(GQA, output_gate=True), tied_head=True),
    one_kind(WINDOW),
    one_kind(LATENT),
    one_kind(LINEAR),
    one_kind(GQA, experts=EXPERTS),
    one_kind(GQA, experts=replace(EXPERTS, bias=True, shared_gate=True, score_bias=True)),
    one_kind(LATENT, experts=EXPERTS, weight_dtype="fp8", scale_bytes=4 / 128**2),
    HYBRID,
    MIXED,
)
