"""A chip and a model whose step times can be told in the head.

Two stages (one layer, the head) hold 32,768 weights each. The chip reads the two in 10 ms
together, whatever the batch, and multiplies them in 1 ms per request; everything else is
priced at next to nothing. With B requests on one GPU, in milliseconds:

    overlap = max(10, B)    no_overlap = 10 + B    fitted = the mix of the two by `share`

Attention at a context of 1,023 tokens (1,024 keys with the new one) adds `attention_s` per
request to the multiplications of the layer alone. Tensor parallelism halves both terms and
adds three collectives (two in the layer, one in the head) of `collective_s` each.
"""

from __future__ import annotations

from kernelfit.kernel.catalog import Coefficient, definition
from kernelfit.kernel.chip import Chip
from kernelfit.kernel.fitted import FittedKernel
from kernelfit.kernel.handover import Fitted, Range, Residuals
from kernelfit.kernel.model import Attention, LayerKind, Mlp, Model
from kernelfit.kernel.plan import Plan
from kernelfit.kernel.pool import Pool
from kernelfit.kernel.totals import TOTAL_FIELDS

WEIGHTS = 2 * 32_768
READ_S = 0.010
MULTIPLY_S = 0.001
NOTHING = 1e-15

MODEL = Model(
    name="planted",
    hidden=64,
    layers=(
        LayerKind(
            name="dense",
            count=1,
            attention=Attention(kind="full", heads=4, kv_heads=4, head_dim=16),
            mlp=Mlp(intermediate=128, gated=False),
            experts=None,
        ),
    ),
    vocab=512,
    dtype="bf16",
    weight_dtype="bf16",
    tied_head=False,
)
KV_BYTES_PER_TOKEN = 2 * 4 * 16 * 2
PAGE_TOKENS = 16


def chip(hbm_bytes: int = 1 << 34, name: str = "planted-gpu", kind: str = "gpu") -> Chip:
    """Return the chip."""
    return Chip(
        kind=kind,
        name=name,
        peak_flop_per_s=(("bf16", 2 * WEIGHTS / MULTIPLY_S),),
        hbm_bytes_per_s=2 * WEIGHTS / READ_S,
        hbm_bytes=hbm_bytes,
        nvlink_bytes_per_s=1e9,
        nic_bytes_per_s=0.0,
        pcie_bytes_per_s=0.0,
        sm_count=100,
        gpus_per_node=8,
    )


def kernel(
    *,
    tp: int = 1,
    share: float = 0.5,
    draws: tuple[tuple[float, float], ...] = (),
    domain: tuple[Range, ...] | None = None,
    max_num_seqs: int = 64,
    max_model_len: int | None = None,
    hbm_bytes: int = 1 << 34,
    collective_s: float = NOTHING,
    attention_s: float = NOTHING,
    host_s: float = NOTHING,
    async_scheduling: bool = False,
    gpu: str = "planted-gpu",
    kind: str = "gpu",
    utilization: float = 0.5,
) -> FittedKernel:
    """Return a kernel; ``draws`` are (memory, multiplication) speeds against the fitted ones."""
    pool = Pool(
        tp=tp,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=4096,
        max_model_len=max_model_len,
        block_size=PAGE_TOKENS,
        cache_dtype="auto",
        gpu_memory_utilization=utilization,
        async_scheduling=async_scheduling,
        enforce_eager=True,
    )
    part = chip(hbm_bytes, gpu, kind)
    # 4 FLOP per head, element and key: 4 heads of 16 elements, 1,024 keys.
    attention_eff = 4 * 4 * 16 * 1024 / (2 * WEIGHTS / MULTIPLY_S) / attention_s
    given = {
        "attention_eff_bf16": attention_eff,
        "gemm_eff_bf16": 1.0,
        "hbm_weight_eff": 1.0,
        "allreduce_custom_floor_s": collective_s,
        "allgather_floor_s": collective_s,
        "schedule_step_s": host_s,
    }
    coefficients = []
    for name in Plan.of(MODEL, part, pool, "0.32.0").coefficients:
        entry = definition(name)
        free = 1e15 if entry.kind == "efficiency" else NOTHING
        value = given.get(name, free)
        coefficients.append(
            Coefficient(name, value, entry.unit, gpu, "measured", "identified", (value, value))
        )
    if domain is None:
        domain = tuple(Range(name, 0.0, 1e9) for name in TOTAL_FIELDS)
    fitted = Fitted(
        calibration="sha256:" + "0" * 64,
        coefficients=tuple(coefficients),
        overlap_share=share,
        draw_names=("hbm_weight_eff", "gemm_eff_bf16"),
        draws=draws,
        residuals=(Residuals("decode", 100, (-0.05, 0.0, 0.05)),),
        domain=domain,
    )
    return FittedKernel.of(MODEL, part, pool, "0.32.0", fitted)
