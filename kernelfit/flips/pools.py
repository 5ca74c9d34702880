"""Kernels for candidate pools that nobody has recorded, from a calibration of their GPU type."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from kernelfit.fit.calibration import Calibration
from kernelfit.fit.priors import build_priors, to_values
from kernelfit.kernel.catalog import Coefficient, definition
from kernelfit.kernel.chip import Chip
from kernelfit.kernel.errors import KernelError
from kernelfit.kernel.fitted import FittedKernel
from kernelfit.kernel.handover import Fitted
from kernelfit.kernel.model import Model
from kernelfit.kernel.plan import Plan
from kernelfit.kernel.pool import Pool

PRIOR_DRAWS = 100
"""Draws of a prior where the calibration has none of its own."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A pool that is to be priced.

    Attributes
    ----------
    name : str or None
        What to call it; None calls it by its widths.
    model : Model
        The model.
    pool : Pool
        Widths and settings.
    engine_version : str
        The engine's version; it decides defaults.
    """

    name: str | None
    model: Model
    pool: Pool
    engine_version: str


@dataclass(frozen=True, slots=True)
class NotPriced:
    """A pool that no kernel can be made for.

    Attributes
    ----------
    gpu, model, pool : str
        The pool.
    reason : str
        Why.
    """

    gpu: str
    model: str
    pool: str
    reason: str


def with_priors(fitted: Fitted, chip: Chip, names: Sequence[str]) -> Fitted:
    """Add the priors of coefficients that a calibration knows nothing of.

    Parameters
    ----------
    fitted : Fitted
        What the calibration hands over.
    chip : Chip
        Its GPU type.
    names : sequence of str
        Coefficients that a deployment uses.

    Returns
    -------
    Fitted
        With the catalogue's value of each missing one, verdict ``prior``, and draws that
        scatter as widely as the prior does, within the datasheet's peak.
    """
    known = fitted.values()
    missing = [name for name in names if name not in known]
    if not missing:
        return fitted
    # An envelope is priced through its rate, so both are drawn, and the rate thrown away
    # where the calibration has it.
    rates = [_rate_of(name) for name in missing]
    drawn = list(dict.fromkeys([*missing, *(rate for rate in rates if rate)]))
    priors = build_priors(drawn, chip)
    count = len(fitted.draws) or PRIOR_DRAWS
    generator = np.random.default_rng(0)
    logs = priors.centre + priors.spread * generator.standard_normal((count, len(drawn)))
    logs = np.clip(logs, priors.low, priors.high)
    values = to_values(drawn, np.exp(np.clip(priors.centre, priors.low, priors.high)), chip)
    samples = [to_values(drawn, np.exp(row), chip) for row in logs]
    added = []
    for name in missing:
        entry = definition(name)
        spread = np.quantile([sample[name] for sample in samples], [0.025, 0.975])
        low, high = float(spread[0]), float(spread[1])
        value = values[name]
        added.append(
            Coefficient(
                name=name,
                value=value,
                unit=entry.unit,
                scope=chip.name,
                method=entry.method,
                verdict="prior",
                ci95=(min(low, value), max(high, value)),
            )
        )
    own = fitted.draws or tuple(() for _ in range(count))
    return replace(
        fitted,
        coefficients=(*fitted.coefficients, *added),
        draw_names=(*fitted.draw_names, *missing),
        draws=tuple(
            (*draw, *(sample[name] for name in missing))
            for draw, sample in zip(own, samples, strict=True)
        ),
    )


def _rate_of(name: str) -> str | None:
    if definition(name).kind != "m_half":
        return None
    return f"gemm_eff_{name.rpartition('_')[2]}"


def kernels_for(
    calibration: Calibration, wanted: Iterable[Wanted]
) -> tuple[tuple[tuple[str | None, FittedKernel], ...], tuple[NotPriced, ...]]:
    """Make a kernel for every pool that can be priced.

    Parameters
    ----------
    calibration : Calibration
        The calibration of their GPU type.
    wanted : iterable of Wanted
        The pools.

    Returns
    -------
    tuple of (str or None, FittedKernel)
        Name and kernel; coefficients that the calibration has not seen sit at their prior.
    tuple of NotPriced
        Pools that cannot be priced truthfully, or that the model does not divide into.
    """
    handed = calibration.fitted()
    made: list[tuple[str | None, FittedKernel]] = []
    refused = []
    for item in wanted:
        try:
            plan = Plan.of(item.model, calibration.chip, item.pool, item.engine_version)
            fitted = with_priors(handed, calibration.chip, plan.coefficients)
            made.append((item.name, FittedKernel.from_plan(plan, fitted)))
        except KernelError as error:
            label = item.name or f"tp{item.pool.tp} dp{item.pool.dp}"
            refused.append(NotPriced(calibration.chip.name, item.model.name, label, str(error)))
    return tuple(made), tuple(refused)
