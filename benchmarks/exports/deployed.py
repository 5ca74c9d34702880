"""Kernels to export: deployments on chips of ``calib`` at the priors of their chips."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kernelfit.documents.chips import find_chip
from kernelfit.documents.models import find_model
from kernelfit.documents.priors import load_priors
from kernelfit.documents.problems import Place
from kernelfit.export.probes import Agreement, agreements, kernel_times
from kernelfit.kernel import Batch, FittedKernel, Pool
from kernelfit.kernel.basis import Array
from kernelfit.kernel.catalog import Coefficient, definition
from kernelfit.kernel.handover import Fitted, Range
from kernelfit.kernel.plan import Plan

CALIB = Path(__file__).resolve().parents[2] / "calib"
ENGINE_VERSION = "0.32.0"


def kernel_of(model: str, chip: str, pool: Pool, share: float = 0.0) -> FittedKernel:
    """Return a kernel at the chip's priors, and at the definitions' where it has none.

    Parameters
    ----------
    model, chip : str
        Names of documents in ``calib``.
    pool : Pool
        The pool.
    share : float
        Share of the possible overlap that happens [1].
    """
    place = Place("the benchmark")
    gpu = find_chip(chip, CALIB / "chips", place)
    plan = Plan.of(find_model(model, CALIB / "models", place), gpu, pool, ENGINE_VERSION)
    file = CALIB / "priors" / f"{chip}.yaml"
    known = {each.name: each for each in load_priors(file)} if file.exists() else {}
    coefficients = []
    for name in plan.coefficients:
        entry = definition(name)
        value = known[name].value if name in known else entry.prior
        coefficients.append(
            Coefficient(name, value, entry.unit, gpu.name, entry.method, "prior", (value, value))
        )
    fitted = Fitted(
        calibration=f"priors of {gpu.name}",
        coefficients=tuple(coefficients),
        overlap_share=share,
        draw_names=(),
        draws=(),
        residuals=(),
        domain=(Range("requests", 1.0, 256.0), Range("tokens", 1.0, 8192.0)),
    )
    return FittedKernel.from_plan(plan, fitted)


def report(
    title: str, kernel: FittedKernel, batches: Sequence[Batch], target_s: Array
) -> tuple[Agreement, ...]:
    """Print how far a target's step times are from a kernel's."""
    found = agreements(batches, kernel_times(kernel, batches), target_s)
    print(title)
    for each in found:
        print(f"  {each.line()}")
    return found
