"""One GPU type's runs in, one calibration out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from kernelfit.fit.calibration import Calibration, Evidence, RunUsed, Score
from kernelfit.fit.design import (
    Design,
    Priors,
    build_design,
    build_priors,
    coefficient_names,
    to_values,
)
from kernelfit.fit.identify import LOST, PINNED, Identifiability, at_bound, identify
from kernelfit.fit.noise import noise_floor
from kernelfit.fit.solve import RULES, Solution, predict, solve
from kernelfit.fit.splits import make_folds, train_and_test
from kernelfit.fit.steps import Floats, RunSteps, phase_mask
from kernelfit.fit.uncertainty import (
    autocorrelation,
    block_length,
    bootstrap,
    variance_inflation,
)
from kernelfit.kernel.batch import TOTAL_FIELDS
from kernelfit.kernel.catalog import Coefficient, definition
from kernelfit.kernel.chip import Chip
from kernelfit.kernel.fitted import PHASES, Range, Residuals

FIRST_BLOCK_STEPS = 50
LAGS = 200
REJECTS_PRIOR = 9.0
"""Rise of the misfit (three standard deviations squared) that rejects a prior's value."""

RESIDUAL_QUANTILES = 41
SMALLEST_GAIN = 0.01
"""Relative gain in held-out error below which the simpler composition is kept [1]."""

NEGLIGIBLE_SHARE = 1e-3
"""Share of the measured time below which a coefficient does not show [1]."""

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Options:
    """How to fit.

    Attributes
    ----------
    seed : int
        Seed of every random choice.
    draws : int
        Bootstrap draws.
    rule : str or None
        How resources combine; chosen by held-out score where None.
    """

    seed: int = 0
    draws: int = 100
    rule: str | None = None


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
    """

    names: tuple[str, ...]
    solution: Solution
    evidence: Identifiability
    priors: Priors
    kept_prior: tuple[int, ...]
    inflation: float
    correlation: Floats


def _misfit(design: Design, solution: Solution, scale: float, inflation: float) -> float:
    predicted, _, _ = predict(design, solution.log_cost, solution.overlap_share)
    residual = (np.log(predicted) - np.log(design.measured_s)) / scale
    return float(np.sum(2.0 * (np.sqrt(1.0 + residual**2) - 1.0))) / inflation


def point_fit(design: Design, chip: Chip, rule: str) -> PointFit:
    """Fit, and hold at its prior what the data do not pin.

    Parameters
    ----------
    design : Design
        The design.
    chip : Chip
        The GPU type.
    rule : str
        How resources combine.

    Returns
    -------
    PointFit
        The fit.

    Notes
    -----
    Starting from the coefficient that the data blur most relative to its prior, each one
    with a relative spread above 0.5 is held at its prior and the rest refitted, unless
    the data reject the prior's value (misfit up by more than 9): then they know that it
    is small, which is something, and it stays free.
    """
    priors = build_priors(design.names, chip)
    solution = solve(design, priors, rule)
    predicted, _, _ = predict(design, solution.log_cost, solution.overlap_share)
    ratio = np.log(predicted / design.measured_s)[: design.steps]
    correlation = autocorrelation(ratio, LAGS)
    inflation = variance_inflation(correlation)
    full = identify(design, solution, inflation)
    fixed: tuple[int, ...] = ()
    refused: set[int] = set()
    current, evidence = solution, full
    while True:
        blurred = evidence.data_spread / priors.spread
        blurred[list(fixed) + sorted(refused)] = -1.0
        blurred[evidence.data_spread <= LOST] = -1.0
        worst = int(np.argmax(blurred))
        if blurred[worst] <= 0.0:
            break
        attempt = solve(
            design, priors, rule, start=current, fixed=(*fixed, worst), scale=solution.scale
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
        design.names, current, full, priors, tuple(sorted(fixed)), inflation, correlation
    )


def fit_runs(runs: Sequence[RunSteps], names: Sequence[str], rule: str) -> PointFit:
    """Fit gated runs without uncertainty, as validation does on every fold.

    Parameters
    ----------
    runs : sequence of RunSteps
        Gated runs of one GPU type.
    names : sequence of str
        Coefficients to report, also those that these runs do not use.
    rule : str
        How resources combine.

    Returns
    -------
    PointFit
        The fit.
    """
    return point_fit(build_design(runs, names, FIRST_BLOCK_STEPS), runs[0].plan.chip, rule)


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
    design = build_design([run], fit.names, FIRST_BLOCK_STEPS)
    predicted, _, _ = predict(design, fit.solution.log_cost, fit.solution.overlap_share)
    whole = predicted[: design.steps].copy()
    whole[design.origin[design.steps :]] += predicted[design.steps :]
    return np.asarray(whole)


def held_out(runs: Sequence[RunSteps], split: str, rule: str) -> tuple[Floats, ...]:
    """Predict every step from a fit that did not see it.

    Parameters
    ----------
    runs : sequence of RunSteps
        Gated runs of one GPU type.
    split : str
        One of ``kernelfit.fit.splits.SPLITS``.
    rule : str
        How resources combine.

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
        fit = fit_runs(train, names, rule)
        for index, (run, test) in enumerate(zip(runs, fold.test, strict=True)):
            if test.any():
                out[index][test] = predict_run(run.take(test), fit)
    return tuple(out)


def choose_rule(runs: Sequence[RunSteps]) -> tuple[str, tuple[Score, ...]]:
    """Choose how resources combine by held-out time blocks.

    Parameters
    ----------
    runs : sequence of RunSteps
        Gated runs of one GPU type.

    Returns
    -------
    str
        The rule with the lowest median error; ``sum``, the simplest, unless another
        gains at least 1 % of it.
    tuple of Score
        Every rule's scores.
    """
    scores = []
    for rule in RULES:
        predicted = held_out(runs, "time_block", rule)
        errors = np.concatenate(
            [np.abs(p / run.measured_s - 1.0) for p, run in zip(predicted, runs, strict=True)]
        )
        errors = errors[np.isfinite(errors)]
        if errors.size == 0:
            return "sum", ()
        scores.append(Score(rule, float(np.median(errors)), float(np.mean(errors))))
    best = min(scores, key=lambda s: s.median_ape)
    simplest = next(s for s in scores if s.rule == "sum")
    if best.median_ape > (1.0 - SMALLEST_GAIN) * simplest.median_ape:
        best = simplest
    return best.rule, tuple(scores)


def calibrate(
    runs: Sequence[RunSteps],
    stored_steps: Sequence[int],
    options: Options,
    progress: Progress | None = None,
) -> Calibration:
    """Fit one GPU type from all of its runs.

    Parameters
    ----------
    runs : sequence of RunSteps
        Gated runs; each has at least one step.
    stored_steps : sequence of int
        Steps of each run before the gates.
    options : Options
        How to fit.
    progress : callable, optional
        Called with a label, the number done and the number wanted.

    Returns
    -------
    Calibration
        The calibration.

    Raises
    ------
    ValueError
        When there are no runs.
    """
    if not runs:
        raise ValueError("no runs to fit")
    chip = runs[0].plan.chip
    names = coefficient_names(runs)
    if options.rule is None:
        rule, scores = choose_rule(runs)
    else:
        rule, scores = options.rule, ()
    first = fit_runs(runs, names, rule)
    block_steps = block_length(first.correlation)
    design = build_design(runs, names, block_steps)
    log_draws, shares = bootstrap(
        design,
        first.priors,
        rule,
        first.solution,
        draws=options.draws,
        seed=options.seed,
        inflation=first.inflation,
        progress=None if progress is None else lambda d, n: progress("bootstrap", d, n),
    )
    coefficients, evidence = _judge(first, log_draws, chip)
    draws = tuple(
        tuple(to_values(names, np.exp(row), chip)[name] for name in names) for row in log_draws
    )
    predicted = held_out(runs, "time_block", rule)
    return Calibration(
        chip=chip,
        coefficients=coefficients,
        evidence=evidence,
        rule=rule,
        overlap_share=first.solution.overlap_share,
        scores=scores,
        scale=first.solution.scale,
        lag1=float(first.correlation[1]),
        inflation=first.inflation,
        block_steps=block_steps,
        condition=first.evidence.condition,
        runs=tuple(
            RunUsed(run.run, run.plan.model.name, run.pool_label, stored, run.size)
            for run, stored in zip(runs, stored_steps, strict=True)
        ),
        noise=noise_floor(runs),
        domain=_domain(runs),
        draw_names=tuple(names),
        draws=draws,
        residuals=_residuals(runs, predicted),
        seed=options.seed,
        converged=first.solution.converged,
        warnings=_warnings(first, coefficients, evidence, shares),
    )


def _judge(
    fit: PointFit, log_draws: Floats, chip: Chip
) -> tuple[tuple[Coefficient, ...], tuple[Evidence, ...]]:
    """Turn unit costs, evidence and draws into coefficients with verdicts."""
    names = fit.names
    values = to_values(names, np.exp(fit.solution.log_cost), chip)
    drawn = [to_values(names, np.exp(row), chip) for row in log_draws]
    bound_now = at_bound(fit.solution.log_cost, fit.priors)
    bound_drawn = at_bound(log_draws, fit.priors) if len(log_draws) else np.zeros((1, len(names)))
    # Known to be small, but not how small: its value is one end of what is allowed.
    negligible = fit.evidence.share < NEGLIGIBLE_SHARE
    coefficients, evidence = [], []
    for k, name in enumerate(names):
        value = values[name]
        samples = np.asarray([d[name] for d in drawn]) if drawn else np.asarray([value])
        log_spread = float(np.std(np.log(samples)))
        bound_share = float(np.mean(bound_drawn[:, k]))
        data_spread = float(fit.evidence.data_spread[k])
        if k in fit.kept_prior:
            verdict = "prior"
        elif bound_now[k] or bound_share > 0.5 or (data_spread > LOST and negligible[k]):
            verdict = "at_bound"
        elif data_spread > PINNED or log_spread > PINNED:
            verdict = "weak"
        else:
            verdict = "identified"
        low, high = (float(q) for q in np.quantile(samples, [0.025, 0.975]))
        entry = definition(name)
        coefficients.append(
            Coefficient(
                name=name,
                value=value,
                unit=entry.unit,
                scope=chip.name,
                method=entry.method if verdict == "prior" else "measured",
                verdict=verdict,
                ci95=(min(low, value), max(high, value)),
            )
        )
        evidence.append(
            Evidence(
                data_spread=data_spread if np.isfinite(data_spread) else None,
                vif=float(fit.evidence.vif[k]) if np.isfinite(fit.evidence.vif[k]) else None,
                bootstrap_cv=log_spread,
                bound_share=bound_share,
                prior_shrinkage=1.0 - log_spread / float(fit.priors.spread[k]),
                time_share=float(fit.evidence.share[k]),
                alias=tuple(names[a] for a in fit.evidence.aliases[k]),
            )
        )
    return tuple(coefficients), tuple(evidence)


def _domain(runs: Sequence[RunSteps]) -> tuple[Range, ...]:
    ranges = []
    for name in TOTAL_FIELDS:
        low = min(float(run.totals[name].min()) for run in runs)
        high = max(float(run.totals[name].max()) for run in runs)
        ranges.append(Range(name, low, high))
    return tuple(ranges)


def _residuals(
    runs: Sequence[RunSteps], predicted: Sequence[Floats]
) -> tuple[Residuals, ...]:
    out = []
    for phase in PHASES:
        ratios = np.concatenate(
            [
                np.log(run.measured_s / p)[phase_mask(run.phase, phase)]
                for run, p in zip(runs, predicted, strict=True)
            ]
        )
        ratios = ratios[np.isfinite(ratios)]
        if ratios.size:
            grid = np.quantile(ratios, np.linspace(0.0, 1.0, RESIDUAL_QUANTILES))
            out.append(Residuals(phase, int(ratios.size), tuple(float(q) for q in grid)))
    return tuple(out)


def _warnings(
    fit: PointFit,
    coefficients: Sequence[Coefficient],
    evidence: Sequence[Evidence],
    shares: Floats,
) -> tuple[str, ...]:
    notes = []
    if not fit.solution.converged:
        notes.append("the solver did not converge; the coefficients are not to be trusted")
    for c, e in zip(coefficients, evidence, strict=True):
        if c.verdict == "at_bound":
            notes.append(
                f"{c.name} sits at the end of its allowed range: read its interval one-sided"
            )
        if e.alias:
            notes.append(
                f"{c.name} cannot be told from {', '.join(e.alias)} in these runs; "
                "only their sum is known"
            )
    if shares.size and 0.0 < fit.solution.overlap_share < 1.0 and float(np.std(shares)) > 0.25:
        notes.append("the share of overlap is hardly known: its draws scatter over most of 0 to 1")
    return tuple(notes)
