"""What a fit knows, and how much a further step would add: its information matrix.

With J the derivatives of ln(prediction) by ln(unit cost), w the weights of the fit, s its
scatter and f the factor by which neighbouring steps repeat each other, the steps say
``J' w J / (s^2 f)`` about the unit costs, and every prior adds one over its squared spread.
The inverse is the covariance that the calibration's draws scatter with, to first order. It
needs no measured times, so that it can be told for steps that nobody has run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kernelfit.fit.calibration import Calibration
from kernelfit.fit.design import build_design, predict
from kernelfit.fit.point import FIRST_BLOCK_STEPS
from kernelfit.fit.priors import build_priors
from kernelfit.fit.solve import TRUSTED, host_rule_of
from kernelfit.fit.steps import Floats, RunSteps
from kernelfit.kernel.catalog import definition
from kernelfit.kernel.costs import unit_cost_s
from kernelfit.kernel.errors import InvalidArgument


@dataclass(frozen=True, slots=True, eq=False)
class Knowledge:
    """What is known about the unit costs of a GPU type.

    Attributes
    ----------
    calibration : Calibration
        The fit.
    names : tuple of str
        Coefficients: the calibration's, then those that only candidate pools use.
    log_cost : ndarray, shape (n_coefficients,)
        ln of the unit costs [ln s].
    covariance : ndarray, shape (n_coefficients, n_coefficients)
        Of ln(unit cost) [1].
    timing : str
        What a recorded step's duration would cover, as most recorded ones do.
    host_apart : bool
        Whether host time outside the duration would be recorded beside it.
    """

    calibration: Calibration
    names: tuple[str, ...]
    log_cost: Floats
    covariance: Floats
    timing: str
    host_apart: bool

    @property
    def row_noise(self) -> float:
        """Standard deviation that one recorded step counts with in a fit [1]."""
        return float(self.calibration.scale * np.sqrt(self.calibration.inflation))

    @property
    def host_rule(self) -> str:
        """What becomes of host work that runs ahead."""
        return host_rule_of(self.calibration.rule)


def know(
    runs: Sequence[RunSteps], calibration: Calibration, further: Sequence[str] = ()
) -> Knowledge:
    """Return what a fit knows.

    Parameters
    ----------
    runs : sequence of RunSteps
        The gated runs behind it, or as good ones.
    calibration : Calibration
        The fit.
    further : sequence of str
        Coefficients of candidate pools; those that the fit has not seen are known by their
        prior alone.

    Returns
    -------
    Knowledge
        What the steps and the priors say.

    Raises
    ------
    InvalidArgument
        When there is no run of the calibration's GPU type.
    """
    chip = calibration.chip
    mine = [run for run in runs if run.plan.chip.name == chip.name]
    if not mine:
        raise InvalidArgument("runs", "no run", f"at least one on {chip.name}")
    values = {c.name: c.value for c in calibration.coefficients}
    names = tuple(dict.fromkeys([*values, *_with_rates(further)]))
    priors = build_priors(names, chip, calibration.priors)
    log_cost = np.clip(priors.centre, priors.low, priors.high)
    for place, name in enumerate(names):
        if name in values:
            log_cost[place] = np.log(unit_cost_s(name, values, chip))
    # The runs may use coefficients that the calibration lacks; they then say nothing of them.
    usable = [run for run in mine if set(run.plan.coefficients) <= set(names)]
    design = build_design(usable, names, FIRST_BLOCK_STEPS, host_rule_of(calibration.rule))
    predicted, slope, _ = predict(design, log_cost, calibration.overlap_share)
    jacobian = slope / predicted[:, None]
    ratio = np.log(predicted / design.measured_s)
    trust = np.clip(1.0 - (ratio / (TRUSTED * calibration.scale)) ** 2, 0.0, None) ** 2
    weight = design.weight * trust / (calibration.scale**2 * calibration.inflation)
    information = (jacobian * weight[:, None]).T @ jacobian + np.diag(priors.spread**-2.0)
    timings = [run.timing for run in usable]
    return Knowledge(
        calibration=calibration,
        names=names,
        log_cost=log_cost,
        covariance=np.asarray(np.linalg.inv(information), dtype=np.float64),
        timing=max(dict.fromkeys(timings), key=timings.count),
        host_apart=any(bool(np.isfinite(run.host_s).any()) for run in usable),
    )


def _with_rates(names: Sequence[str]) -> list[str]:
    """Add the rate behind each envelope, which is priced through it."""
    out = []
    for name in names:
        if definition(name).kind == "m_half":
            out.append(f"gemm_eff_{name.rpartition('_')[2]}")
        out.append(name)
    return out


def coefficient_rows(names: Sequence[str], wanted: Sequence[str]) -> Floats:
    """Return ln(coefficient) as a linear form of ln(unit cost).

    Parameters
    ----------
    names : sequence of str
        Unit costs, in column order.
    wanted : sequence of str
        Coefficients among them.

    Returns
    -------
    ndarray, shape (n_wanted, n_names)
        One row each, up to its sign [1]; an envelope of tokens is a cost over another.
    """
    out = np.zeros((len(wanted), len(names)))
    for row, name in zip(out, wanted, strict=True):
        row[list(names).index(name)] = 1.0
        if definition(name).kind == "m_half":
            row[list(names).index(f"gemm_eff_{name.rpartition('_')[2]}")] = -1.0
    return out


def spreads(rows: Floats, covariance: Floats) -> Floats:
    """Return the standard deviation of linear forms.

    Parameters
    ----------
    rows : ndarray, shape (n_forms, n_names)
        The forms.
    covariance : ndarray, shape (n_names, n_names)
        Covariance of ln(unit cost) [1].

    Returns
    -------
    ndarray, shape (n_forms,)
        Standard deviations [1].
    """
    return np.asarray(np.sqrt(np.maximum(np.einsum("ij,jk,ik->i", rows, covariance, rows), 0.0)))
