"""One GPU type's runs in, one calibration out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from kernelfit.fit.calibration import Calibration, Evidence, RunUsed
from kernelfit.fit.choose import Choice, choose_rule, held_out
from kernelfit.fit.design import build_design, coefficient_names
from kernelfit.fit.front_end import fit_front_end
from kernelfit.fit.front_end_runs import FrontEndRun
from kernelfit.fit.given import GivenPrior, by_name
from kernelfit.fit.inside import inside_step
from kernelfit.fit.judge import NEGLIGIBLE_SHARE, judge
from kernelfit.fit.noise import noise_floor
from kernelfit.fit.point import PointFit, fit_runs
from kernelfit.fit.priors import to_values
from kernelfit.fit.rivals import allow_for, find_rivals
from kernelfit.fit.solve import host_rule_of
from kernelfit.fit.steps import Floats, RunSteps, phase_mask
from kernelfit.fit.two_forms import tell_forms_apart
from kernelfit.fit.uncertainty import block_length, bootstrap
from kernelfit.kernel.catalog import Coefficient
from kernelfit.kernel.handover import Range, Residuals
from kernelfit.kernel.phase import PHASES
from kernelfit.kernel.totals import TOTAL_FIELDS

RESIDUAL_QUANTILES = 41
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
    alone, evidence = judge(first, log_draws, chip, told)
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
        inside_step=inside_step(runs, coefficients, evidence),
    )


def with_front_end(
    calibration: Calibration, runs: Sequence[FrontEndRun], options: Options
) -> Calibration:
    """Add the front end's coefficients to a calibration.

    Parameters
    ----------
    calibration : Calibration
        The calibration of the steps.
    runs : sequence of FrontEndRun
        Recorded host work on the same GPU type.
    options : Options
        How to fit; as many draws are taken as the calibration holds.

    Returns
    -------
    Calibration
        With more coefficients, each with its evidence and draws; the same one where too
        little was recorded.
    """
    fit = fit_front_end(
        runs,
        calibration.chip,
        draws=len(calibration.draws),
        seed=options.seed,
        given=options.priors,
    )
    if fit is None:
        return calibration
    told = by_name(options.priors)
    return replace(
        calibration,
        coefficients=(*calibration.coefficients, *fit.coefficients),
        evidence=(*calibration.evidence, *fit.evidence),
        draw_names=(*calibration.draw_names, *fit.names),
        draws=tuple(
            (*step, *(float(value) for value in around))
            for step, around in zip(calibration.draws, fit.draws, strict=True)
        ),
        warnings=(*calibration.warnings, *fit.warnings),
        priors=(*calibration.priors, *(told[name] for name in fit.names if name in told)),
        front_end=fit.rests_on,
    )


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
