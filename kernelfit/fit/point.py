"""Fits without uncertainty: the joint fit, its held-out predictions, the composition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kernelfit.fit.calibration import Calibration, Score
from kernelfit.fit.design import Design, build_design, coefficient_names, predict
from kernelfit.fit.given import GivenPrior
from kernelfit.fit.identify import LOST, Identifiability, identify
from kernelfit.fit.priors import Priors, build_priors, tied_priors
from kernelfit.fit.solve import HOST_ADDED, RULES, Solution, host_rule_of, solve
from kernelfit.fit.splits import make_folds, train_and_test
from kernelfit.fit.steps import Floats, RunSteps
from kernelfit.fit.uncertainty import autocorrelation, variance_inflation
from kernelfit.kernel.chip import Chip
from kernelfit.kernel.costs import unit_cost_s
from kernelfit.kernel.stage import LAUNCH_STAGE

FIRST_BLOCK_STEPS = 50
LAGS = 200
REJECTS_PRIOR = 1.0
"""Rise of the misfit (one standard deviation squared) that speaks against a prior's value."""

SMALLEST_GAIN = 0.05
SMALLEST_GAIN_IN_TIME = 1.0 / 3.0
"""Relative gains in held-out error below which the simpler composition is kept [1]: with a
model or a pool left out, and where only blocks of time could be held out.

Blocks that lie between those fitted say little about other widths and models. On public
B300 runs the maximum beat the sum between blocks by more than a tenth, and with a
tensor-parallel width left out it was three times worse."""


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
    with a relative spread above 0.5 is held at its prior and the rest refitted, unless
    the data speak against the prior's value (misfit up by more than 1): then they know
    something about it, and it stays free.
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
    solution = solve(design, priors, rule, weights=weights, start=solution, scale=solution.scale)
    full = identify(design, solution, inflation)
    fixed: tuple[int, ...] = ()
    refused: set[int] = set()
    current, evidence = solution, full
    while not quick:
        blurred = evidence.data_spread / priors.spread
        blurred[list(fixed) + sorted(refused)] = -1.0
        blurred[evidence.data_spread <= LOST] = -1.0
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


def held_out(
    runs: Sequence[RunSteps],
    split: str,
    rule: str,
    *,
    quick: bool = False,
    start: Solution | None = None,
    given: Sequence[GivenPrior] = (),
) -> tuple[Floats, ...]:
    """Predict every step from a fit that did not see it.

    Parameters
    ----------
    runs : sequence of RunSteps
        Gated runs of one GPU type.
    split : str
        One of ``kernelfit.fit.splits.SPLITS``.
    rule : str
        How resources combine.
    quick : bool
        Leave every coefficient free, its prior only pulling: enough to compare rules.
    start : Solution, optional
        Where the solver starts; it saves time and does not move the optimum.
    given : sequence of GivenPrior
        Priors in place of the catalogue's.

    Returns
    -------
    tuple of ndarray, shape (n_steps,)
        Predictions per run [s]; NaN where no fold holds a step out.
    """
    names = coefficient_names(runs)
    out = [np.full(run.size, np.nan) for run in runs]
    for fold in make_folds(runs, split):
        train, _ = train_and_test(runs, fold)
        if not train:
            continue
        fit = fit_runs(train, names, rule, quick=quick, start=start, given=given)
        for index, (run, test) in enumerate(zip(runs, fold.test, strict=True)):
            if test.any():
                out[index][test] = predict_run(run.take(test), fit)
    return tuple(out)


def hardest_split(runs: Sequence[RunSteps]) -> str:
    """Return the split that asks most of a law among those that the runs allow.

    Parameters
    ----------
    runs : sequence of RunSteps
        Gated runs of one GPU type.

    Returns
    -------
    str
        ``leave_one_model_out`` with two models, ``leave_one_pool_out`` with three pools,
        else ``time_block``.
    """
    for split in ("leave_one_model_out", "leave_one_pool_out"):
        if make_folds(runs, split):
            return split
    return "time_block"


def choose_rule(
    runs: Sequence[RunSteps], given: Sequence[GivenPrior] = ()
) -> tuple[str, tuple[Score, ...], tuple[Floats, ...]]:
    """Choose how resources combine by what was held out.

    Parameters
    ----------
    runs : sequence of RunSteps
        Gated runs of one GPU type.
    given : sequence of GivenPrior
        Priors in place of the catalogue's.

    Returns
    -------
    str
        The rule with the lowest error on the hardest split that the runs allow; ``sum``,
        the simplest, unless another gains enough on it. Whether host work that runs
        ahead hides is decided the same way.
    tuple of Score
        Every rule's scores; none where nothing could be held out.
    tuple of ndarray, shape (n_steps,)
        The chosen rule's held-out predictions of time blocks per run [s].
    """
    scores: dict[str, Score] = {}
    predicted: dict[str, tuple[Floats, ...]] = {}
    starts: dict[str, Solution] = {}
    names = coefficient_names(runs)
    split = hardest_split(runs)

    def score(rule: str) -> bool:
        starts[rule] = fit_runs(runs, names, rule, quick=True, given=given).solution
        predicted[rule] = held_out(runs, split, rule, quick=True, start=starts[rule], given=given)
        errors = [
            np.abs(p / run.measured_s - 1.0)[np.isfinite(p)]
            for p, run in zip(predicted[rule], runs, strict=True)
        ]
        errors = [values for values in errors if values.size]
        if errors:
            # Every run counts alike, however long it is.
            median = float(np.mean([np.median(values) for values in errors]))
            mean = float(np.mean([np.mean(values) for values in errors]))
            scores[rule] = Score(rule, median, mean, split)
        return bool(errors)

    if not all(score(rule) for rule in RULES):
        return "sum", (), predicted.popitem()[1]
    gain = SMALLEST_GAIN if split != "time_block" else SMALLEST_GAIN_IN_TIME
    best = _better(scores, RULES, gain)
    if any(term.stage == LAUNCH_STAGE for run in runs for term in run.plan.terms):
        # Whether launches hide is asked once the device's own rule is known.
        score(best + HOST_ADDED)
        best = _better(scores, (best, best + HOST_ADDED), gain)
    if split != "time_block":
        predicted[best] = held_out(
            runs, "time_block", best, quick=True, start=starts[best], given=given
        )
    return best, tuple(scores.values()), predicted[best]


def _better(scores: Mapping[str, Score], rules: Sequence[str], gain: float) -> str:
    """Return the first rule unless another gains enough on it."""
    best = min(rules, key=lambda rule: scores[rule].median_ape)
    if scores[best].median_ape > (1.0 - gain) * scores[rules[0]].median_ape:
        return rules[0]
    return best


def start_at(calibration: Calibration) -> Solution:
    """Return a calibration's unit costs, to start other fits from.

    Parameters
    ----------
    calibration : Calibration
        The calibration.

    Returns
    -------
    Solution
        Its unit costs, in the order of its coefficients.
    """
    values = {c.name: c.value for c in calibration.coefficients}
    cost = [unit_cost_s(name, values, calibration.chip) for name in values]
    return Solution(np.log(np.asarray(cost)), calibration.overlap_share, calibration.scale, True, 0)
