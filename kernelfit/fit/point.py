"""Fits without uncertainty: the joint fit, its held-out predictions, the composition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kernelfit.fit.calibration import Calibration
from kernelfit.fit.design import Design, build_design, predict
from kernelfit.fit.given import GivenPrior
from kernelfit.fit.identify import FEWEST_ROWS, LOST, Identifiability, identify
from kernelfit.fit.priors import Priors, build_priors, tied_priors
from kernelfit.fit.solve import Solution, host_rule_of, solve
from kernelfit.fit.steps import Floats, RunSteps
from kernelfit.fit.uncertainty import autocorrelation, variance_inflation
from kernelfit.kernel.chip import Chip
from kernelfit.kernel.costs import unit_cost_s
from kernelfit.kernel.front_end_definitions import FRONT_END_NAMES

FIRST_BLOCK_STEPS = 50
LAGS = 200
REJECTS_PRIOR = 1.0
"""Rise of the misfit (one standard deviation squared) that speaks against a prior's value."""


@dataclass(frozen=True, slots=True, eq=False)
class PointFit:
    """A fit without its uncertainty.

    Attributes
    ----------
    names : tuple of str
        Coefficients, in column order.
    solution : Solution
        The unit costs; coefficients that the data do not pin sit at their prior.
    evidence : Identifiability
        What the data say, judged with everything free.
    priors : Priors
        Priors and bounds.
    kept_prior : tuple of int
        Columns held at their prior.
    inflation : float
        Factor by which autocorrelation inflates variances [1].
    correlation : ndarray, shape (n_lags + 1,)
        Autocorrelation of the residuals [1].
    host_rule : str
        What becomes of host work that runs ahead: ``hidden`` or ``added``.
    """

    names: tuple[str, ...]
    solution: Solution
    evidence: Identifiability
    priors: Priors
    kept_prior: tuple[int, ...]
    inflation: float
    correlation: Floats
    host_rule: str = "hidden"


def _misfit(design: Design, solution: Solution, scale: float, inflation: float) -> float:
    predicted, _, _ = predict(design, solution.log_cost, solution.overlap_share)
    residual = (np.log(predicted) - np.log(design.measured_s)) / scale
    return float(np.sum(2.0 * (np.sqrt(1.0 + residual**2) - 1.0))) / inflation


def point_fit(
    design: Design,
    chip: Chip,
    rule: str,
    *,
    quick: bool = False,
    start: Solution | None = None,
    given: Sequence[GivenPrior] = (),
) -> PointFit:
    """Fit, and hold at its prior what the data do not pin.

    Parameters
    ----------
    design : Design
        The design.
    chip : Chip
        The GPU type.
    rule : str
        How resources combine.
    quick : bool
        Leave every coefficient free, its prior only pulling.
    start : Solution, optional
        Where the solver starts; it saves time and does not move the optimum.
    given : sequence of GivenPrior
        Priors in place of the catalogue's.

    Returns
    -------
    PointFit
        The fit.

    Notes
    -----
    Starting from the coefficient that the data blur most relative to its prior, each one
    with a relative spread above 0.5, or carried by a few rows alone, is held at its prior
    and the rest refitted, unless the data speak against the prior's value (misfit up by
    more than 1): then they know something about it, and it stays free.
    """
    priors = build_priors(design.names, chip, given)
    solution = solve(design, priors, rule, start=start)
    predicted, _, _ = predict(design, solution.log_cost, solution.overlap_share)
    ratio = np.log(predicted / design.measured_s)[: design.steps]
    correlation = autocorrelation(ratio, design.run[: design.steps], LAGS)
    inflation = variance_inflation(correlation)
    priors = tied_priors(priors, design.names, solution.log_cost, given)
    # Correlated rows are worth fewer independent ones; only now is it known how many, and
    # what a prior weighs against them.
    weights = np.full(design.measured_s.size, 1.0 / inflation)
    solution = solve(
        design,
        priors,
        rule,
        weights=weights,
        start=solution,
        scale=solution.scale,
        wide=start is None,
    )
    full = identify(design, solution, inflation)
    fixed: tuple[int, ...] = ()
    refused: set[int] = set()
    current, evidence = solution, full
    while not quick:
        blurred = evidence.data_spread / priors.spread
        blurred[list(fixed) + sorted(refused)] = -1.0
        known = (evidence.data_spread <= LOST) & (evidence.rows >= FEWEST_ROWS)
        blurred[known] = -1.0
        worst = int(np.argmax(blurred))
        if blurred[worst] <= 0.0:
            break
        attempt = solve(
            design,
            priors,
            rule,
            weights=weights,
            start=current,
            fixed=(*fixed, worst),
            scale=solution.scale,
        )
        before = _misfit(design, current, solution.scale, inflation)
        after = _misfit(design, attempt, solution.scale, inflation)
        if after - before > REJECTS_PRIOR:
            refused.add(worst)
            continue
        fixed = (*fixed, worst)
        current = attempt
        evidence = identify(design, current, inflation, without=fixed)
    if fixed:
        current = Solution(
            current.log_cost,
            current.overlap_share,
            solution.scale,
            solution.converged and current.converged,
            solution.evaluations + current.evaluations,
        )
    return PointFit(
        design.names,
        current,
        full,
        priors,
        tuple(sorted(fixed)),
        inflation,
        correlation,
        host_rule_of(rule),
    )


def fit_runs(
    runs: Sequence[RunSteps],
    names: Sequence[str],
    rule: str,
    *,
    quick: bool = False,
    start: Solution | None = None,
    given: Sequence[GivenPrior] = (),
) -> PointFit:
    """Fit gated runs without uncertainty, as validation does on every fold.

    Parameters
    ----------
    runs : sequence of RunSteps
        Gated runs of one GPU type.
    names : sequence of str
        Coefficients to report, also those that these runs do not use.
    rule : str
        How resources combine.
    quick : bool
        Leave every coefficient free, its prior only pulling.
    start : Solution, optional
        Where the solver starts; it saves time and does not move the optimum.
    given : sequence of GivenPrior
        Priors in place of the catalogue's.

    Returns
    -------
    PointFit
        The fit.
    """
    design = build_design(runs, names, FIRST_BLOCK_STEPS, host_rule_of(rule))
    return point_fit(design, runs[0].plan.chip, rule, quick=quick, start=start, given=given)


def predict_run(run: RunSteps, fit: PointFit) -> Floats:
    """Price a run's whole steps with a fit.

    Parameters
    ----------
    run : RunSteps
        The run.
    fit : PointFit
        The fit.

    Returns
    -------
    ndarray, shape (n_steps,)
        What ``RunSteps.measured_s`` measures [s]: the whole step, or the worker's span
        where the host time outside it was not measured.
    """
    return price_run(run, fit.names, fit.solution, fit.host_rule)


def price_run(
    run: RunSteps, names: Sequence[str], solution: Solution, host_rule: str = "hidden"
) -> Floats:
    """Price a run's whole steps with unit costs.

    Parameters
    ----------
    run : RunSteps
        The run.
    names : sequence of str
        Coefficients, in the order of the unit costs.
    solution : Solution
        The unit costs.
    host_rule : str
        What becomes of host work that runs ahead: ``hidden`` or ``added``.

    Returns
    -------
    ndarray, shape (n_steps,)
        As ``predict_run`` gives it [s].
    """
    design = build_design([run], names, FIRST_BLOCK_STEPS, host_rule)
    predicted, _, _ = predict(design, solution.log_cost, solution.overlap_share)
    whole = predicted[: design.steps].copy()
    whole[design.origin[design.steps :]] += predicted[design.steps :]
    return np.asarray(whole)


def start_at(calibration: Calibration) -> Solution:
    """Return a calibration's unit costs, to start other fits from.

    Parameters
    ----------
    calibration : Calibration
        The calibration.

    Returns
    -------
    Solution
        Its unit costs, in the order of its coefficients, without those of the front end.
    """
    values = {c.name: c.value for c in calibration.coefficients if c.name not in FRONT_END_NAMES}
    cost = [unit_cost_s(name, values, calibration.chip) for name in values]
    return Solution(np.log(np.asarray(cost)), calibration.overlap_share, calibration.scale, True, 0)
