"""The kernel's operator laws fitted to NVIDIA's operator tables.

    python -m benchmarks.crosscheck.operators TABLES [--priors FOLDER]

``TABLES`` holds ``h100_sxm``, ``a100_sxm`` and ``b300_sxm``. Prints, per GPU and
operator, how far law and table are apart and where; with ``--priors`` writes one document
of priors per GPU, the same bytes every time.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.crosscheck import tables
from benchmarks.crosscheck.fits import (
    Array,
    Columns,
    Errors,
    Law,
    OperatorFit,
    errors,
    fit,
    spreads,
    take,
)
from benchmarks.crosscheck.priors_document import write_priors
from kernelfit.kernel.chip import Chip

Values = Mapping[str, float]
Rows = npt.NDArray[np.bool_]

REGISTRY_GEMM = {"h100-sxm": (1.000, 170.0), "a100-sxm-80gb": (0.899, 89.0)}
"""BLIS registry: share of the peak and tokens at half of it, 16 bit."""
REGISTRY_DECODE = {
    "h100-sxm": (14.5e-6, 2.412e12),
    "a100-sxm-80gb": (18.5e-6, 1.713e12),
    "b300": (9.5e-6, 6.51e12),
}
"""BLIS registry: floor [s] and rate [byte/s] of decode attention."""
SMALLEST = 1024
"""Smallest n and k of the fitted matrices: narrower ones are no layer's weights."""


def _gemm_law(chip: Chip, dtype: str, element: float, how: str) -> Law:
    peak, bandwidth = chip.peak(dtype), chip.hbm_bytes_per_s

    def law(v: Values, c: Columns) -> Array:
        nk = c["n"] * c["k"]
        sm = 2.0 * nk * (c["m"] + v["gemm_m_half"]) / (peak * v["gemm_eff"])
        hbm = nk * element / (bandwidth * v["hbm_weight_eff"])
        return v["launch_s"] + (np.maximum(sm, hbm) if how == "max" else sm + hbm)

    return law


def _bands(law: Law, values: Values, c: Columns, bands: dict[str, Rows]) -> dict[str, Errors]:
    out = {}
    for label, rows in bands.items():
        if rows.sum() >= 5:
            part = take(c, rows)
            out[label] = errors(law(values, part), part["time_s"])
    return out


def _geometric(predicted: Array, c: Columns) -> float:
    return errors(predicted, c["time_s"]).geometric


def _two(law: Law, start: Values, c: Columns, held: Rows) -> tuple[dict[str, float], Errors]:
    """Fit on what is not held out, and score on what is; then fit on everything."""
    first = fit(law, start, take(c, ~held))
    rest = take(c, held)
    return fit(law, first, c), errors(law(first, rest), rest["time_s"])


def fit_gemm(chip: Chip, name: str, key: str, c: Columns) -> OperatorFit:
    """Fit the envelope and the weights' reading to one data type's multiplications."""
    dtype, element = tables.GEMM_TYPES[key]
    law = _gemm_law(chip, dtype, element, "max")
    start = {"gemm_eff": 0.8, "gemm_m_half": 20.0, "hbm_weight_eff": 0.8, "launch_s": 3e-6}
    whole = c
    wide = np.minimum(c["n"], c["k"]) >= SMALLEST
    c = take(c, wide)
    widths = np.unique(c["k"])
    held = np.isin(c["k"], widths[1::4])
    values, held_out = _two(law, start, c, held)
    groups = (c["n"] * 1e6 + c["k"]).astype(np.int64)
    m, weights = c["m"], c["n"] * c["k"] * element
    summed = _gemm_law(chip, dtype, element, "sum")

    # Added up, reading and filling are one constant per weight: one of them is held.
    def one(v: Values, columns: Columns) -> Array:
        return summed({**v, "gemm_m_half": 1e-9}, columns)

    rest = {k: v for k, v in start.items() if k != "gemm_m_half"}
    others = {"sum instead of max": _geometric(one(fit(one, rest, c), c), c)}
    if name in REGISTRY_GEMM and dtype == "bf16":
        eff, half = REGISTRY_GEMM[name]
        registry = {**values, "gemm_eff": eff, "gemm_m_half": half, "hbm_weight_eff": 0.8}
        others["BLIS registry envelope, max with 0.8 of HBM"] = _geometric(law(registry, c), c)
    narrow = take(whole, ~wide)
    bands = {
        f"m {lo}-{hi - 1}": (m >= lo) & (m < hi)
        for lo, hi in ((1, 17), (17, 129), (129, 513), (513, 4097), (4097, 40000))
    }
    bands |= {
        "weights < 8 MB": weights < 8e6,
        "weights 8-64 MB": (weights >= 8e6) & (weights < 64e6),
        "weights >= 64 MB": weights >= 64e6,
    }
    out = _bands(law, values, c, bands)
    out[f"n or k < {SMALLEST} (not fitted)"] = errors(law(values, narrow), narrow["time_s"])
    named = {
        k if k in ("launch_s", "hbm_weight_eff") else f"{k}_{dtype}": v for k, v in values.items()
    }
    spread = spreads(law, values, c, groups)
    named_spread = {
        k if k in ("launch_s", "hbm_weight_eff") else f"{k}_{dtype}": v for k, v in spread.items()
    }
    fitted = errors(law(values, c), c["time_s"])
    return OperatorFit(name, f"gemm {key}", named, named_spread, fitted, held_out, out, others)


def _attention_law(chip: Chip, how: str, io: bool = False) -> Law:
    peak, bandwidth = chip.peak("bf16"), chip.hbm_bytes_per_s

    def law(v: Values, c: Columns) -> Array:
        sm = c["pair_flop"] / (peak * v["attention_eff_bf16"])
        sm = sm + c["starts"] * v["attention_head_s"]
        hbm = c["kv_bytes"] / (bandwidth * v["hbm_kv_eff"])
        if io:
            hbm = hbm + c["io_bytes"] / (bandwidth * v["io_eff"])
        return v["floor_s"] + (np.maximum(sm, hbm) if how == "max" else sm + hbm)

    return law


def fit_attention(chip: Chip, name: str, phase: str, c: Columns, eff: float) -> OperatorFit:
    """Fit attention of one phase; decoding takes the prefill's share of the peak."""
    plain = (c["head_dim"] == 128) & (c["cache_bytes"] == 2) & (c["window"] == 0)
    whole = c
    c = take(c, plain)
    prompt = phase == "context"
    start = {"floor_s": 1e-5, "attention_head_s": 2e-8, "hbm_kv_eff": 0.8}
    if prompt:
        # What a prompt's attention reads and writes itself, which the kernel counts with
        # the elementwise passes.
        start = {"floor_s": 1e-5, "attention_head_s": 2e-8, "attention_eff_bf16": 0.5}
        start["io_eff"] = 0.8
    fixed = {"hbm_kv_eff": 0.8} if prompt else {"attention_eff_bf16": eff}

    def bound(how: str, io: bool = prompt) -> Law:
        inner = _attention_law(chip, how, io)
        return lambda v, columns: inner({**fixed, **v}, columns)

    shapes = c["heads"] * 1000 + c["kv_heads"]
    _, order = np.unique(shapes, return_inverse=True)
    held = order % 4 == 1
    how = "sum"
    law = bound(how)
    values, held_out = _two(law, start, c, held)
    others = {"max instead of sum": _geometric(bound("max")(fit(bound("max"), start, c), c), c)}
    if prompt:
        bare = bound("sum", io=False)
        found = fit(bare, {k: v for k, v in start.items() if k != "io_eff"}, c)
        label = f"without inputs and outputs, attention_eff {found['attention_eff_bf16']:.2f}"
        others[label] = _geometric(bare(found, c), c)
    elif name in REGISTRY_DECODE:
        floor, rate = REGISTRY_DECODE[name]
        others["BLIS registry floor and rate"] = _geometric(floor + c["kv_bytes"] / rate, c)
    length = c["context"]
    bands = {
        f"context {lo}-{hi}": (length >= lo) & (length <= hi)
        for lo, hi in ((1, 128), (129, 1024), (1025, 4096), (4097, 16384), (16385, 200000))
    }
    bands |= {
        f"batch {lo}-{hi}": (c["batch"] >= lo) & (c["batch"] <= hi)
        for lo, hi in ((1, 8), (16, 64), (128, 2048))
    }
    group = c["heads"] / c["kv_heads"]
    bands |= {"heads = kv heads": group == 1, "heads >= 16 kv heads": group >= 16}
    out = _bands(law, values, c, bands)
    w = whole
    same = w["head_dim"] == 128
    out |= _bands(
        law,
        values,
        w,
        {
            "fp8 cache (not fitted)": same & (w["cache_bytes"] == 1) & (w["window"] == 0),
            "window 128 (not fitted)": same & (w["cache_bytes"] == 2) & (w["window"] == 128),
            "head_dim 64 (not fitted)": (w["head_dim"] == 64)
            & (w["cache_bytes"] == 2)
            & (w["window"] == 0),
            "head_dim 256 (not fitted)": (w["head_dim"] == 256)
            & (w["cache_bytes"] == 2)
            & (w["window"] == 0),
        },
    )
    fitted = errors(law(values, c), c["time_s"])
    spread = spreads(law, values, c, shapes.astype(np.int64))
    return OperatorFit(name, f"attention {phase}", values, spread, fitted, held_out, out, others)


def _collective_law(chip: Chip) -> Law:
    link = chip.nvlink_bytes_per_s

    def law(v: Values, c: Columns) -> Array:
        first = v["floor_s"] + c["link_bytes"] / (link * v["transition_eff"])
        return np.maximum(first, c["link_bytes"] / (link * v["eff"]))

    return law


def _bent_law(chip: Chip) -> Law:
    """A floor that grows with the width, and a faster rate after the first bytes."""
    link = chip.nvlink_bytes_per_s

    def law(v: Values, c: Columns) -> Array:
        b = c["link_bytes"] / link
        slow = np.minimum(b, v["bend_bytes"] / link) * (1.0 / v["slow_eff"])
        fast = np.maximum(b - v["bend_bytes"] / link, 0.0) / v["fast_eff"]
        return v["floor_s"] + (c["ranks"] - 1.0) * v["rank_s"] + slow + fast

    return law


def fit_collective(chip: Chip, name: str, op: str, c: Columns, label: str = "") -> OperatorFit:
    """Fit floor, transition and rate, one for all widths as the kernel has them."""
    law = _collective_law(chip)
    start = {"floor_s": 8e-6, "transition_eff": 0.3, "eff": 0.6}
    widths = np.unique(c["ranks"])
    spread: dict[str, float] = {}
    held_out = None
    others: dict[str, float] = {}
    if widths.size > 1:
        values, held_out = _two(law, start, c, c["ranks"] == 4)
        own = [fit(law, values, take(c, c["ranks"] == w)) for w in widths]
        predicted = np.empty_like(c["time_s"])
        for width, found in zip(widths, own, strict=True):
            rows = c["ranks"] == width
            predicted[rows] = law(found, take(c, rows))
        others["own values per width"] = _geometric(predicted, c)
        bent = _bent_law(chip)
        first = {
            "floor_s": 5e-6,
            "rank_s": 1e-6,
            "slow_eff": 0.3,
            "fast_eff": 0.8,
            "bend_bytes": 1e6,
        }
        found = fit(bent, first, c)
        told = ", ".join(f"{k} {v:.3g}" for k, v in found.items())
        others[f"floor by width, two slopes ({told})"] = _geometric(bent(found, c), c)
        for key in values:
            logs = np.log([found[key] for found in own])
            spread[f"{op}_{key}"] = max(float(np.std(logs)), 0.05)
        for width, found in zip(widths, own, strict=True):
            others[f"floor at width {width:.0f} [us]"] = found["floor_s"] * 1e6
    else:
        values = fit(law, start, c)
        spread = {f"{op}_{k}": 0.3 for k in values}
    size = c["message"]
    share = c["link_bytes"] / (chip.nvlink_bytes_per_s * c["time_s"])
    reached = float(np.median(share[size >= 0.25 * size.max()]))
    if values["eff"] >= values["transition_eff"]:
        # The second form is never the longer one: the rate is what the largest messages reach.
        values["eff"] = min(1.0, max(reached, values["transition_eff"]))
    bands = {f"width {w:.0f}": c["ranks"] == w for w in widths} if widths.size > 1 else {}
    bands |= {
        "message < 64 kB": size < 65536,
        "message 64 kB-2 MB": (size >= 65536) & (size < 2**21),
        "message 2-64 MB": (size >= 2**21) & (size < 2**26),
        "message >= 64 MB": size >= 2**26,
    }
    out = _bands(law, values, c, bands)
    fitted = errors(law(values, c), c["time_s"])
    named = {f"{op}_{k}": v for k, v in values.items()}
    return OperatorFit(name, label or op, named, spread, fitted, held_out, out, others)


def fit_all(root: Path) -> tuple[OperatorFit, ...]:
    """Fit every operator of every GPU."""
    out: list[OperatorFit] = []
    for folder, name in tables.CHIPS.items():
        chip = tables.chip_of(folder)
        out += [fit_gemm(chip, name, k, c) for k, c in tables.gemms(root, folder).items()]
        context = fit_attention(chip, name, "context", tables.attention(root, folder, "context"), 0)
        eff = context.values["attention_eff_bf16"]
        decode = tables.attention(root, folder, "generation")
        out += [context, fit_attention(chip, name, "generation", decode, eff)]
        for op, c in tables.collectives(root, folder).items():
            out.append(fit_collective(chip, name, op, c))
        for label, c in tables.exchanges(root, folder).items():
            out.append(fit_collective(chip, name, "alltoall", c, label))
    return tuple(out)


def _line(label: str, e: Errors) -> str:
    return (
        f"{label:36s} rows {e.rows:6d}  ratio {e.median:5.2f} "
        f"({e.p10:5.2f} to {e.p90:5.2f})  geometric error {e.geometric:5.3f}"
    )


def report(fits: tuple[OperatorFit, ...]) -> str:
    """Return the fits as text."""
    lines = []
    for f in fits:
        lines.append(f"{f.chip}: {f.operator}")
        shown = (
            f"{k} {v:.4g} (spread {f.spreads.get(k, float('nan')):.2f})"
            for k, v in f.values.items()
        )
        lines.append("  " + ", ".join(shown))
        lines.append("  " + _line("fitted", f.fitted))
        if f.held_out is not None:
            lines.append("  " + _line("held-out shapes", f.held_out))
        lines += ["    " + _line(label, e) for label, e in f.bands.items()]
        lines += [f"    {label}: {value:.3f}" for label, value in f.others.items()]
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> None:
    """Print the fits, and write the priors where asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("tables", type=Path)
    parser.add_argument("--priors", type=Path, help="folder to write one document per GPU to")
    asked = parser.parse_args(arguments)
    fits = fit_all(asked.tables)
    print(report(fits))
    if asked.priors is not None:
        write_priors(asked.priors, asked.tables, fits)


if __name__ == "__main__":
    main()
