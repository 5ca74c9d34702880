"""Coverage of the prediction intervals, and where measurements lie between the bounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kernelfit.fit.calibration import Calibration
from kernelfit.fit.splits import TIME_BLOCK_STEPS, TIME_FOLDS
from kernelfit.fit.steps import Floats, RunSteps, phase_mask
from kernelfit.kernel.fitted import FittedKernel
from kernelfit.kernel.phase import PHASES as KERNEL_PHASES
from kernelfit.validate.metrics import PHASES
from kernelfit.validate.spans import span_bounds_s

QUANTILES = 41
DRAWS_USED = 40
CHUNK_STEPS = 512


@dataclass(frozen=True, slots=True)
class CoverageRow:
    """How often held-out steps fell into their interval.

    Attributes
    ----------
    gpu, split, group, phase : str
        Which steps.
    level : float
        Nominal coverage [1].
    n : int
        Steps.
    covered : float
        Share that fell inside [1].
    """

    gpu: str
    split: str
    group: str
    phase: str
    level: float
    n: int
    covered: float


@dataclass(frozen=True, slots=True)
class BoundsRow:
    """Where measured steps lie relative to the two bounds.

    Attributes
    ----------
    gpu, group, phase : str
        Which steps.
    n : int
        Steps.
    below, inside, above : float
        Shares below the overlap bound, between the bounds and above both [1].
    inside_with_noise : float
        Share between the bounds widened by the noise floor's 90th percentile [1].
    """

    gpu: str
    group: str
    phase: str
    n: int
    below: float
    inside: float
    above: float
    inside_with_noise: float


def kernel_of(run: RunSteps, calibration: Calibration) -> FittedKernel:
    """Return the kernel of a run's deployment.

    Parameters
    ----------
    run : RunSteps
        The run.
    calibration : Calibration
        The calibration of its GPU type.

    Returns
    -------
    FittedKernel
        The kernel.
    """
    plan = run.plan
    return FittedKernel.of(
        plan.model, plan.chip, plan.pool, plan.engine_version, calibration.fitted()
    )


def draw_ratios(run: RunSteps, kernel: FittedKernel) -> Floats:
    """Return how far each draw moves each step.

    Parameters
    ----------
    run : RunSteps
        The run.
    kernel : FittedKernel
        Its kernel.

    Returns
    -------
    ndarray, shape (n_draws, n_steps)
        ln(time under the draw / fitted time) [1]; at most 40 draws, evenly chosen.
    """
    count = len(kernel.fitted.draws)
    if count == 0:
        return np.zeros((1, run.size))
    mean = kernel.mean_step_times(run.totals)
    chosen = np.unique(np.linspace(0, count - 1, min(count, DRAWS_USED)).astype(int))
    return np.stack(
        [np.log(kernel.with_draw(int(i)).mean_step_times(run.totals) / mean) for i in chosen]
    )


def coverage_rows(
    runs: Sequence[RunSteps],
    predicted: Sequence[Floats],
    calibration: Calibration,
    split: str,
    level: float = 0.9,
) -> tuple[CoverageRow, ...]:
    """Measure the coverage of the intervals that a kernel gives.

    Parameters
    ----------
    runs : sequence of RunSteps
        Gated runs of one GPU type.
    predicted : sequence of ndarray, shape (n_steps,)
        Held-out predictions per run [s].
    calibration : Calibration
        Where the draws come from.
    split : str
        How the steps were held out.
    level : float
        Nominal coverage [1].

    Returns
    -------
    tuple of CoverageRow
        Per group and phase, and together.

    Notes
    -----
    A step's interval joins the draws with held-out errors of its phase *from other time
    folds*, so that its own error is not among those that set its width.
    """
    gpu = calibration.chip.name
    log_ratio = [np.log(run.measured_s / p) for run, p in zip(runs, predicted, strict=True)]
    folds = [np.arange(run.size) // TIME_BLOCK_STEPS % TIME_FOLDS for run in runs]
    noise: dict[tuple[str, int], Floats] = {}
    for phase in KERNEL_PHASES:
        for fold in range(TIME_FOLDS):
            values = np.concatenate(
                [
                    r[(f != fold) & phase_mask(run.phase, phase)]
                    for run, r, f in zip(runs, log_ratio, folds, strict=True)
                ]
            )
            values = values[np.isfinite(values)]
            if values.size:
                grid = np.quantile(values, np.linspace(0.0, 1.0, QUANTILES))
                noise[phase, fold] = grid
    inside = [
        _inside(run, ratio, fold, draw_ratios(run, kernel_of(run, calibration)), noise, level)
        for run, ratio, fold in zip(runs, log_ratio, folds, strict=True)
    ]
    rows = []
    for group in ("all", *dict.fromkeys(run.group for run in runs)):
        for phase in PHASES:
            hits = np.concatenate(
                [
                    hit[phase_mask(run.phase, phase)]
                    for run, hit in zip(runs, inside, strict=True)
                    if group in ("all", run.group)
                ]
            )
            hits = hits[np.isfinite(hits)]
            if hits.size:
                rows.append(
                    CoverageRow(
                        gpu, split, group, phase, level, int(hits.size), float(np.mean(hits))
                    )
                )
    return tuple(rows)


def _inside(
    run: RunSteps,
    log_ratio: Floats,
    fold: np.ndarray,
    draws: Floats,
    noise: dict[tuple[str, int], Floats],
    level: float,
) -> Floats:
    """1 where a step lies in its interval, 0 where not, NaN where it has none."""
    out = np.full(run.size, np.nan)
    ends = [(1.0 - level) / 2.0, (1.0 + level) / 2.0]
    for phase in KERNEL_PHASES:
        mask = phase_mask(run.phase, phase)
        for number in range(TIME_FOLDS):
            grid = noise.get((phase, number))
            chosen = np.flatnonzero(mask & (fold == number) & np.isfinite(log_ratio))
            if grid is None:
                continue
            for start in range(0, chosen.size, CHUNK_STEPS):
                part = chosen[start : start + CHUNK_STEPS]
                joined = (draws[:, None, part] + grid[None, :, None]).reshape(-1, part.size)
                low, high = np.quantile(joined, ends, axis=0)
                low, high = np.minimum(low, 0.0), np.maximum(high, 0.0)
                out[part] = (log_ratio[part] >= low) & (log_ratio[part] <= high)
    return out


def bounds_rows(runs: Sequence[RunSteps], calibration: Calibration) -> tuple[BoundsRow, ...]:
    """Count where measured steps lie relative to the kernels' bounds.

    Parameters
    ----------
    runs : sequence of RunSteps
        Gated runs of one GPU type.
    calibration : Calibration
        The calibration.

    Returns
    -------
    tuple of BoundsRow
        Per group and phase, and together.
    """
    slack = calibration.noise.p90_spread
    bounds = [measured_bounds(run, calibration) for run in runs]
    rows = []
    for group in ("all", *dict.fromkeys(run.group for run in runs)):
        for phase in PHASES:
            low, high, measured = [], [], []
            for run, (lower_s, upper_s) in zip(runs, bounds, strict=True):
                if group in ("all", run.group):
                    mask = phase_mask(run.phase, phase)
                    low.append(lower_s[mask])
                    high.append(upper_s[mask])
                    measured.append(run.measured_s[mask])
            lower, upper = np.concatenate(low), np.concatenate(high)
            value = np.concatenate(measured)
            if value.size == 0:
                continue
            wide = (value >= lower * (1.0 - slack)) & (value <= upper * (1.0 + slack))
            rows.append(
                BoundsRow(
                    gpu=calibration.chip.name,
                    group=group,
                    phase=phase,
                    n=int(value.size),
                    below=float(np.mean(value < lower)),
                    inside=float(np.mean((value >= lower) & (value <= upper))),
                    above=float(np.mean(value > upper)),
                    inside_with_noise=float(np.mean(wide)),
                )
            )
    return tuple(rows)


def measured_bounds(run: RunSteps, calibration: Calibration) -> tuple[Floats, Floats]:
    """Return both bounds of what a run's durations cover.

    Parameters
    ----------
    run : RunSteps
        The run.
    calibration : Calibration
        The calibration of its GPU type.

    Returns
    -------
    ndarray, shape (n_steps,)
        Overlap bound of ``RunSteps.measured_s`` [s].
    ndarray, shape (n_steps,)
        NoOverlap bound of the same [s].

    Notes
    -----
    A bare worker span holds the launches but not the scheduling; scheduling is added
    where it was measured, as it is to the measurement.
    """
    return span_bounds_s(run, kernel_of(run, calibration))
