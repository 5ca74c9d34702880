"""Worked figures from outside, computed again by the kernel.

    python -m benchmarks.crosscheck.figures

The figures stand in the public notes and the registry of the BLIS project and in vLLM's
sources. Each is priced by a fitted kernel in which only the coefficients of that figure
charge anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kernelfit.documents.chips import find_chip
from kernelfit.documents.models import find_model
from kernelfit.kernel import (
    Attention,
    Batch,
    Fitted,
    FittedKernel,
    LayerKind,
    Mlp,
    Model,
    Pool,
    RequestShape,
)
from kernelfit.kernel.attention import latent_bytes
from kernelfit.kernel.catalog import Coefficient, definition
from kernelfit.kernel.plan import Plan

ROOT = Path(__file__).resolve().parents[2]
ENGINE = "0.32.0"
H100_READ = 0.8
"""The field's derate of 3.35 TB/s."""

QWEN3_14B = Model(
    "Qwen3-14B",
    5120,
    151936,
    (LayerKind("dense", 40, Attention("full", 40, 8, 128, qk_norm=True), Mlp(17408)),),
    "bf16",
    "bf16",
    tied_head=False,
)
"""From the model's public config; no deployment of the project uses it."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure, there and here."""

    what: str
    outside: float
    here: float
    unit: str
    why: str


def model_of(name: str) -> Model:
    """Return a model document, or Qwen3-14B."""
    return QWEN3_14B if name == "Qwen3-14B" else find_model(name, ROOT / "calib" / "models")


def kernel(name: str, tp: int, charged: Mapping[str, float], backend: str = "nccl") -> FittedKernel:
    """Return a kernel on H100 that charges nothing but ``charged``."""
    chip = find_chip("h100", ROOT / "calib" / "chips")
    pool = Pool(
        tp=tp,
        enforce_eager=True,
        async_scheduling=False,
        cache_dtype="auto",
        disable_custom_all_reduce=backend == "nccl",
    )
    plan = Plan.of(model_of(name), chip, pool, ENGINE)
    coefficients = []
    for coefficient in plan.coefficients:
        entry = definition(coefficient)
        free = 1e30 if entry.kind == "efficiency" else 1e-30
        value = charged.get(coefficient, free)
        unit, where = entry.unit, chip.name
        coefficients.append(
            Coefficient(coefficient, value, unit, where, "literature", "prior", (value, value))
        )
    unused = set(charged) - set(plan.coefficients)
    if unused:
        raise ValueError(f"{name} at tp {tp} has no {', '.join(sorted(unused))}")
    hand_over = Fitted("sha256:figures", tuple(coefficients), 0.0, (), (), (), ())
    return FittedKernel.from_plan(plan, hand_over)


def decode_s(on: FittedKernel, context: int, requests: int = 1) -> float:
    """Return the time of a decoding step [s]."""
    shape = RequestShape(1, context - 1, context - 1, 0)
    return on.step_time(Batch((shape,) * requests)).no_overlap_s


def _weights(name: str, tp: int) -> float:
    return decode_s(kernel(name, tp, {"hbm_weight_eff": H100_READ}), 1024) * 1e3


def _floors(name: str, tp: int, floor_s: float) -> float:
    return decode_s(kernel(name, tp, {"allreduce_nccl_floor_s": floor_s}), 1024) * 1e3


def _slope(name: str, tp: int) -> float:
    on = kernel(name, tp, {"hbm_kv_eff": 2.412 / 3.35})
    return (decode_s(on, 3000) - decode_s(on, 2000)) * 1e6


TABLE = "the input embedding is not read: one row per token"


def figures() -> tuple[Figure, ...]:
    """Return every figure."""
    deepseek = model_of("DeepSeek-V3").layers[0].attention.latent
    assert deepseek is not None
    pages = kernel("Llama-2-70B", 4, {})
    eight = kernel("Llama-2-70B", 8, {})
    return (
        Figure("weights, Llama-2-70B TP4", 12.87, _weights("Llama-2-70B", 4), "ms", TABLE),
        Figure("weights, CodeLlama-34B TP2", 12.59, _weights("CodeLlama-34B", 2), "ms", TABLE),
        Figure("weights, Qwen3-14B TP1", 11.02, _weights("Qwen3-14B", 1), "ms", TABLE),
        Figure(
            "160 all-reduces, Llama-2-70B TP4", 1.49, _floors("Llama-2-70B", 4, 9.31e-6), "ms", ""
        ),
        Figure(
            "96 all-reduces, CodeLlama-34B TP2",
            0.56,
            _floors("CodeLlama-34B", 2, 5.85e-6),
            "ms",
            "",
        ),
        Figure("KV per 1k tokens, Llama-2-70B TP4", 34, _slope("Llama-2-70B", 4), "us", ""),
        Figure("KV per 1k tokens, CodeLlama-34B TP2", 41, _slope("CodeLlama-34B", 2), "us", ""),
        Figure("packed latent of a layer", 656, latent_bytes(deepseek, "fp8_ds_mla"), "B", ""),
        Figure("latent, 576 elements in bf16", 1152, latent_bytes(deepseek, "bf16"), "B", ""),
        Figure(
            "KV of a token, Llama-2-70B TP4",
            80 * 2 * 2 * 128 * 2,
            pages.sequence_variable_bytes(1600) / 1600,
            "B",
            "",
        ),
        Figure(
            "KV of 17 tokens in pages of 16, TP8",
            2 * 16 * 80 * 2 * 1 * 128 * 2,
            eight.sequence_variable_bytes(17),
            "B",
            "",
        ),
    )


def table() -> str:
    """Return the figures as text."""
    return "\n".join(
        f"{f.what:38s} {f.outside:12.6g} {f.here:12.6g} {f.unit:3s} "
        f"{f.here / f.outside:7.4f}  {f.why}"
        for f in figures()
    )


if __name__ == "__main__":
    print(table())
