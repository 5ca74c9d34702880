"""One GPU type's runs in, one calibration out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kernelfit.fit.calibration import Calibration, Evidence, RunUsed
from kernelfit.fit.choose import Choice, choose_rule, held_out
from kernelfit.fit.design import build_design, coefficient_names
from kernelfit.fit.given import GivenPrior, by_name
from kernelfit.fit.identify import BLURRED, FEWEST_ROWS, LOST, PINNED, at_bound
from kernelfit.fit.noise import noise_floor
from kernelfit.fit.point import PointFit, fit_runs
from kernelfit.fit.priors import to_values
from kernelfit.fit.rivals import allow_for, find_rivals
from kernelfit.fit.solve import host_rule_of
from kernelfit.fit.steps import Floats, RunSteps, phase_mask
from kernelfit.fit.two_forms import tell_forms_apart
from kernelfit.fit.uncertainty import block_length, bootstrap
from kernelfit.kernel.catalog import Coefficient, definition
from kernelfit.kernel.chip import Chip
from kernelfit.kernel.definitions import MOST
from kernelfit.kernel.handover import Range, Residuals
from kernelfit.kernel.phase import PHASES
from kernelfit.kernel.totals import TOTAL_FIELDS

RESIDUAL_QUANTILES = 41
NEGLIGIBLE_SHARE = 1e-3
"""Share of the measured time below which a coefficient does not show [1]."""

SAMPLED_RATIO = 1.5
"""Stored over fitted steps above which it is told that not all were read [1]; gates drop
fewer, and say so themselves."""

WIDTHS: tuple[str, ...] = (
    "tensor_parallel_width",
    "data_parallel_width",
    "expert_parallel_width",
    "nodes_spanned",
)
"""Widths of a resolution whose range a calibration has seen."""

STILL_PRIOR = 0.5
"""Distance from a prior's centre, in its spreads, up to which it is what gave the value [1]."""

NORMAL_95 = 1.96
"""Standard deviations of a normal variable that hold 95 % of it on both sides [1]."""

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
    priors : tuple of GivenPrior
        Priors in place of the catalogue's; where two are about one coefficient of a GPU
        type, the later one counts.
    """

    seed: int = 0
    draws: int = 100
    rule: str | None = None
    priors: tuple[GivenPrior, ...] = ()


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
        When there are no runs, or a prior is about another GPU type.
    """
    if not runs:
        raise ValueError("no runs to fit")
    chip = runs[0].plan.chip
    names = coefficient_names(runs)
    # The free fits' held-out errors set the noise of the intervals.
    if options.rule is None:
        choice = choose_rule(runs, options.priors)
    else:
        predicted = held_out(runs, "time_block", options.rule, given=options.priors)
        choice = Choice(options.rule, (), predicted, ())
    rule = choice.rule
    first = fit_runs(runs, names, rule, given=options.priors)
    block_steps = block_length(first.correlation)
    design = build_design(runs, names, block_steps, host_rule_of(rule))
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
    told = by_name(options.priors)
    alone, evidence = _judge(first, log_draws, chip, told)
    about_evidence = _warnings(first, alone, evidence, shares)
    judged, evidence, about_forms = tell_forms_apart(alone, evidence, NEGLIGIBLE_SHARE)
    coefficients, unsettled = allow_for(judged, find_rivals(choice, names, chip))
    draws = tuple(
        tuple(to_values(names, np.exp(row), chip)[name] for name in names) for row in log_draws
    )
    return Calibration(
        chip=chip,
        coefficients=coefficients,
        evidence=evidence,
        rule=rule,
        overlap_share=first.solution.overlap_share,
        scores=choice.scores,
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
        draw_shares=tuple(float(share) for share in shares),
        residuals=_residuals(runs, choice.predicted),
        seed=options.seed,
        converged=first.solution.converged,
        warnings=(
            *about_evidence,
            *about_forms,
            *unsettled,
            *_about_windows(runs),
            *_about_samples(runs, stored_steps),
        ),
        priors=tuple(told[name] for name in names if name in told),
    )


def _judge(
    fit: PointFit, log_draws: Floats, chip: Chip, told: Mapping[str, GivenPrior]
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
        # Blocks tell how far rows go together; the curvature, what draws that start from the
        # fit and keep its outliers miss.
        bare_spread = data_spread / float(np.sqrt(fit.inflation))
        # Left free, but where its prior put it: the data neither hold nor reject it.
        moved = abs(fit.solution.log_cost[k] - fit.priors.centre[k])
        held = data_spread > LOST and moved < STILL_PRIOR * fit.priors.spread[k]
        if k in fit.kept_prior or held:
            verdict = "prior"
        elif bound_now[k] or bound_share > 0.5 or (data_spread > LOST and negligible[k]):
            verdict = "at_bound"
        elif (
            data_spread > BLURRED
            or max(bare_spread, log_spread) > PINNED
            or fit.evidence.aliases[k]
            or fit.evidence.rows[k] < FEWEST_ROWS
            # The least error of any law would drown it.
            or negligible[k]
        ):
            verdict = "weak"
        else:
            verdict = "identified"
        low, high = (float(q) for q in np.quantile(samples, [0.025, 0.975]))
        entry = definition(name)
        if verdict in ("identified", "weak") and data_spread < LOST:
            reach = float(np.exp(NORMAL_95 * bare_spread))
            most = MOST.get(name, 1.0) if entry.kind == "efficiency" else float("inf")
            low, high = min(low, value / reach), max(high, min(value * reach, most))
        given = told.get(name)
        # A share of a sum that only the prior divides is not measured, nor is a value that
        # was given more sharply than the data could tell.
        kept = verdict == "prior" or bool(fit.evidence.aliases[k])
        kept = kept or (given is not None and data_spread > fit.priors.spread[k])
        believed = entry.method if given is None else given.method
        coefficients.append(
            Coefficient(
                name=name,
                value=value,
                unit=entry.unit,
                scope=chip.name,
                method=believed if kept else "measured",
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
    for name in WIDTHS:
        seen = [float(getattr(run.plan.resolution, name)) for run in runs]
        ranges.append(Range(name, min(seen), max(seen)))
    return tuple(ranges)


def _residuals(runs: Sequence[RunSteps], predicted: Sequence[Floats]) -> tuple[Residuals, ...]:
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


def _about_windows(runs: Sequence[RunSteps]) -> tuple[str, ...]:
    """Say where a sliding window's context is known from sums alone."""
    models = dict.fromkeys(run.plan.model.name for run in runs if run.windows_alike)
    if not models:
        return ()
    return (
        f"{', '.join(models)}: the logs hold sums over requests, so those of a step were "
        "taken as alike; where some fit in a sliding window and others do not, what is read "
        "there is overstated",
    )


def _about_samples(runs: Sequence[RunSteps], stored_steps: Sequence[int]) -> tuple[str, ...]:
    """Say of which runs only stretches were fitted."""
    return tuple(
        f"{run.run}: of its {stored:,} steps, evenly spaced stretches were fitted ({run.size:,})"
        for run, stored in zip(runs, stored_steps, strict=True)
        if run.recorded_steps > SAMPLED_RATIO * run.size
    )


def _warnings(
    fit: PointFit,
    coefficients: Sequence[Coefficient],
    evidence: Sequence[Evidence],
    shares: Floats,
) -> tuple[str, ...]:
    notes = []
    told: set[tuple[str, ...]] = set()
    if not fit.solution.converged:
        notes.append("the solver did not converge; the coefficients are not to be trusted")
    for c, e in zip(coefficients, evidence, strict=True):
        if c.verdict == "at_bound":
            notes.append(
                f"{c.name} sits at the end of its allowed range: read its interval one-sided"
            )
        group = tuple(sorted((c.name, *e.alias)))
        if e.alias and group not in told:
            told.add(group)
            notes.append(
                f"{', '.join(group)} cannot be told from each other in these runs; "
                "only their sum is known"
            )
    if shares.size and 0.0 < fit.solution.overlap_share < 1.0 and float(np.std(shares)) > 0.25:
        notes.append("the share of overlap is hardly known: its draws scatter over most of 0 to 1")
    return tuple(notes)
