"""Documents of priors from fitted operator laws."""

from __future__ import annotations

import math
from pathlib import Path

from benchmarks.crosscheck import tables
from benchmarks.crosscheck.fits import OperatorFit

PACKAGE = "aiconfigurator-core 0.12.0 (Apache-2.0)"
UNTOLD = 1.5
"""Spread of a coefficient that no group of rows pins: a factor of 4.5 either way."""

Row = tuple[str, float, str, float, str, int, str]
"""Name, value, unit, spread, scope, rows, source."""


def _unit(name: str) -> str:
    if name.startswith("gemm_m_half"):
        return "tokens"
    return "s" if name.endswith("_s") else "1"


def _rows(fits: dict[str, OperatorFit], engine: str, comm: str) -> list[Row]:
    out: list[Row] = []

    def add(name: str, value: float, spread: float, scope: str, rows: int, source: str) -> None:
        out.append((name, value, _unit(name), spread, scope, rows, source))

    def take(fit: OperatorFit, name: str, scope: str, source: str) -> None:
        spread = fit.spreads.get(name, UNTOLD)
        add(name, fit.values[name], spread, scope, fit.fitted.rows, source)

    wide = "matrices with n and k of at least 1024; larger of multiplying and reading, plus a start"
    for key, dtype in (("bfloat16", "bf16"), ("fp8", "fp8"), ("nvfp4", "fp4")):
        fit = fits.get(f"gemm {key}")
        if fit is None:
            continue
        source = f"gemm_perf, {engine}, {key}"
        for name in (f"gemm_eff_{dtype}", f"gemm_m_half_{dtype}"):
            scope = wide if name in fit.spreads else f"{wide}; the table wants no smaller value"
            take(fit, name, scope, source)
        if key == "bfloat16":
            take(fit, "hbm_weight_eff", wide, source)
    context, decode = fits["attention context"], fits["attention generation"]
    plain = "head_dim 128, 16-bit cache, no window; times of an operator added up"
    take(context, "attention_eff_bf16", plain, f"context_attention_perf, {engine}")
    for name in ("hbm_kv_eff", "attention_head_s"):
        take(decode, name, plain, f"generation_attention_perf, {engine}")
    gemm = fits["gemm bfloat16"]
    floor = decode.values["floor_s"] + 4.0 * gemm.values["launch_s"]
    add(
        "layer_floor_s",
        floor,
        0.7,
        "start of one attention and of four multiplications; elementwise passes are in no table",
        decode.fitted.rows + gemm.fitted.rows,
        f"generation_attention_perf and gemm_perf, {engine}",
    )
    for op in ("allreduce_custom", "allreduce_nccl", "allgather", "reducescatter"):
        fit = fits[op]
        source = f"custom_allreduce_perf, {engine}, captured" if "custom" in op else comm
        for name in fit.values:
            take(fit, name, "2 to 8 ranks of one node, one value for all widths", source)
    out += _exchange(fits, engine, comm)
    return out


def _exchange(fits: dict[str, OperatorFit], engine: str, comm: str) -> list[Row]:
    """Exchanges of experts' rows: both back ends and phases pooled; NCCL's where none are."""
    used = [fits[k] for k in sorted(fits) if k.startswith(("deepep_ht", "deepep_ll"))]
    if not used:
        fit = fits["alltoall"]
        return [
            (k, v, _unit(k), fit.spreads[k], "2 to 8 ranks of one node", fit.fitted.rows, comm)
            for k, v in fit.values.items()
        ]
    rows = sum(fit.fitted.rows for fit in used)
    out: list[Row] = []
    for name in used[0].values:
        logs = [math.log(fit.values[name]) for fit in used]
        middle = sum(logs) / len(logs)
        spread = math.sqrt(sum((x - middle) ** 2 for x in logs) / (len(logs) - 1))
        scope = "DeepEP, 8 ranks of one node; dispatch and combine, both modes"
        source = f"moe_a2a_perf, {engine}, geometric mean of four fits"
        out.append((name, math.exp(middle), _unit(name), max(spread, 0.3), scope, rows, source))
    return out


def document(chip: str, rows: list[Row], folder: str) -> str:
    """Return one document's text."""
    lines = [
        "kind: Priors",
        "schema_version: 1",
        f"chip: {chip}",
        "description: >-",
        "  The kernel's operator laws fitted to NVIDIA's operator tables by",
        "  benchmarks/crosscheck/operators.py. A spread is the robust standard deviation of the",
        "  logarithm between shapes or widths of one machine; it knows nothing of other machines.",
        "priors:",
    ]
    for name, value, unit, spread, scope, count, source in rows:
        lines += [
            f"  - name: {name}",
            f"    value: {value:.3e}",
            f'    unit: "{unit}"',
            f"    spread: {spread:.2f}",
            "    method: measured",
            f'    scope: "{scope}"',
            f"    rows: {count}",
            f'    source: "{PACKAGE}, {folder}: {source}"',
        ]
    return "\n".join(lines) + "\n"


def write_priors(out: Path, root: Path, fits: tuple[OperatorFit, ...]) -> None:
    """Write one document per GPU."""
    out.mkdir(parents=True, exist_ok=True)
    for folder, name in tables.CHIPS.items():
        own = {fit.operator: fit for fit in fits if fit.chip == name}
        engine = tables.versions(root, folder, "gemm").replace("-", " ").replace("vllm", "vLLM")
        nccl = tables.versions(root, folder, "comm-nccl")
        rows = _rows(own, engine, f"nccl_perf, NCCL {nccl}")
        text = document(tables.chip_of(folder).name, rows, folder)
        (out / f"{name}.yaml").write_text(text, encoding="utf-8")
