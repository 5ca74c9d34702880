"""A frozen kernel made of the priors, for tests that need a kernel and no fit."""

from __future__ import annotations

from pathlib import Path

from kernelfit.documents.chips import find_chip
from kernelfit.documents.models import find_model
from kernelfit.kernel.catalog import Coefficient, definition
from kernelfit.kernel.fitted import FittedKernel
from kernelfit.kernel.handover import Fitted, Range, Residuals
from kernelfit.kernel.plan import Plan
from kernelfit.kernel.pool import Pool
from tests.cli.runs import CALIB


def frozen_kernel(tp: int = 1) -> FittedKernel:
    """Return Llama 3.1 8B on H100 with every coefficient at its prior."""
    chip = find_chip("H100-SXM", CALIB / "chips")
    model = find_model("llama-3.1-8b", CALIB / "models")
    pool = Pool(tp=tp, max_num_seqs=256, max_num_batched_tokens=8192, block_size=16)
    names = Plan.of(model, chip, pool, "0.32.0").coefficients
    coefficients = tuple(
        Coefficient(
            name=name,
            value=definition(name).prior,
            unit=definition(name).unit,
            scope="H100-SXM",
            method=definition(name).method,
            verdict="prior",
            ci95=(0.5 * definition(name).prior, 2.0 * definition(name).prior),
        )
        for name in names
    )
    values = [coefficient.value for coefficient in coefficients]
    fitted = Fitted(
        calibration="sha256:" + "0" * 64,
        coefficients=coefficients,
        overlap_share=0.5,
        draw_names=names,
        draws=tuple(tuple(value * scale for value in values) for scale in (0.98, 1.0, 1.02)),
        residuals=(Residuals("decode", 100, (-0.05, 0.0, 0.05)),),
        domain=(Range("requests", 1.0, 64.0),),
    )
    return FittedKernel.of(model, chip, pool, "0.32.0", fitted)


def write_kernel(folder: Path) -> Path:
    """Write that kernel's file."""
    path = folder / "kernel.json"
    path.write_text(frozen_kernel().to_json(), encoding="utf-8")
    return path
