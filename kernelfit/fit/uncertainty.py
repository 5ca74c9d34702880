"""Draws of the coefficients: whole time blocks are resampled, never rows.

Residuals of neighbouring steps are correlated, so rows are no independent evidence.
Each draw also moves the centre of every prior by its own spread (randomise, then
optimise): a coefficient that the data do not pin then scatters as widely as its prior.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from kernelfit.fit.design import Design
from kernelfit.fit.priors import Priors
from kernelfit.fit.solve import Solution, solve
from kernelfit.fit.steps import Floats

LONGEST_LAG_STEPS = 200
MAX_EVALUATIONS = 12


def autocorrelation(log_ratio: Floats, run: npt.NDArray[np.int64], lags: int) -> Floats:
    """Return the autocorrelation of residuals within runs.

    Parameters
    ----------
    log_ratio : ndarray, shape (n_steps,)
        ln(predicted / measured) in the engine's order, run after run [1].
    run : ndarray of int, shape (n_steps,)
        Number of each step's run.
    lags : int
        Largest lag [steps].

    Returns
    -------
    ndarray, shape (lags + 1,)
        Correlation at lags 0 to ``lags`` [1].

    Notes
    -----
    Every run is centred on its own median: a law's bias on one model is not noise. It is
    clipped to two robust deviations, so that a few outliers do not hide the correlation,
    and no pair reaches across two runs.
    """
    product = np.zeros(lags + 1)
    for number in np.unique(run):
        values = log_ratio[run == number]
        centred = values - np.median(values)
        scale = 1.4826 * float(np.median(np.abs(centred))) or 1.0
        centred = np.clip(centred / scale, -2.0, 2.0)
        centred = centred - centred.mean()
        for lag in range(min(lags, values.size - 1) + 1):
            product[lag] += float(centred[lag:] @ centred[: values.size - lag])
    if product[0] <= 0.0:
        product[0] = 1.0
    return np.asarray(product / product[0])


def block_length(correlation: Floats) -> int:
    """Return a block length that outlasts the correlation.

    Parameters
    ----------
    correlation : ndarray, shape (n_lags + 1,)
        From ``autocorrelation`` [1].

    Returns
    -------
    int
        Twice the first lag at which the correlation falls below 0.1, between 10 and
        200 steps.
    """
    below = np.flatnonzero(correlation < 0.1)
    first = int(below[0]) if below.size else correlation.size
    return int(np.clip(2 * first, 10, LONGEST_LAG_STEPS))


def variance_inflation(correlation: Floats) -> float:
    """Return how much autocorrelation inflates the variance of a mean.

    Parameters
    ----------
    correlation : ndarray, shape (n_lags + 1,)
        From ``autocorrelation`` [1].

    Returns
    -------
    float
        ``1 + 2 sum(correlation)`` up to the first lag below 0.05, at least 1 [1].
    """
    below = np.flatnonzero(correlation < 0.05)
    last = int(below[0]) if below.size else correlation.size
    return max(1.0, 1.0 + 2.0 * float(correlation[1:last].sum()))


def block_weights(block: npt.NDArray[np.int64], generator: np.random.Generator) -> Floats:
    """Return row weights of one resample of blocks.

    Parameters
    ----------
    block : ndarray of int, shape (n_rows,)
        Block of each row.
    generator : numpy.random.Generator
        Source of randomness.

    Returns
    -------
    ndarray, shape (n_rows,)
        How often the row's block was drawn.
    """
    names, inverse = np.unique(block, return_inverse=True)
    drawn = generator.integers(0, names.size, names.size)
    counts = np.bincount(drawn, minlength=names.size).astype(np.float64)
    return np.asarray(counts[inverse])


def bootstrap(
    design: Design,
    priors: Priors,
    rule: str,
    solution: Solution,
    *,
    draws: int,
    seed: int,
    inflation: float,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[Floats, Floats]:
    """Refit on resampled blocks.

    Parameters
    ----------
    design : Design
        The design.
    priors : Priors
        Priors and bounds of the unit costs.
    rule : str
        One of ``kernelfit.fit.solve.RULES``.
    solution : Solution
        The fit to start from.
    draws : int
        Number of draws.
    seed : int
        Seed; the same seed gives the same draws.
    inflation : float
        Factor by which autocorrelation inflates variances [1]; rows weigh its inverse,
        so that the prior counts for what the rows are really worth.
    progress : callable, optional
        Called with the number of draws done and wanted.

    Returns
    -------
    ndarray, shape (n_draws, n_coefficients)
        ln of the unit costs [ln s].
    ndarray, shape (n_draws,)
        Share of the overlap that happens [1].
    """
    costs = np.empty((draws, len(design.names)))
    shares = np.empty(draws)
    for index, child in enumerate(np.random.SeedSequence(seed).spawn(draws)):
        generator = np.random.default_rng(child)
        weights = block_weights(design.block, generator) / inflation
        centre = priors.centre + priors.spread * generator.standard_normal(priors.centre.size)
        moved = Priors(
            np.clip(centre, priors.low, priors.high), priors.spread, priors.low, priors.high
        )
        kept = weights > 0.0
        drawn = solve(
            design.take(kept),
            moved,
            rule,
            weights=weights[kept],
            start=solution,
            scale=solution.scale,
            max_evaluations=MAX_EVALUATIONS,
        )
        costs[index] = drawn.log_cost
        shares[index] = drawn.overlap_share
        if progress is not None:
            progress(index + 1, draws)
    return costs, shares
