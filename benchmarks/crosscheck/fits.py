"""Fitting one operator's law to a table of measured times, and saying where it fails."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import least_squares

Array = npt.NDArray[np.float64]
Columns = Mapping[str, Array]
Law = Callable[[Mapping[str, float], Columns], Array]
"""Seconds of each row, from the coefficients and the table's columns."""

LOSS_SCALE = 0.2
"""Log residual beyond which a row pulls less: kernels differ by more than that."""
STEPS = np.linspace(-2.0, 2.0, 81)
"""Logarithms of the multipliers that a group's own value is looked for among."""
MATTERS = 0.05
"""Change of a group's mean log error over a factor of 2 below which it tells nothing."""


@dataclass(frozen=True, slots=True)
class Errors:
    """Ratio of law to table over some rows."""

    rows: int
    median: float
    p10: float
    p90: float
    geometric: float
    """exp of the mean absolute log ratio."""


@dataclass(frozen=True, slots=True)
class OperatorFit:
    """One law fitted to one table.

    ``values`` and ``spreads`` are by coefficient; a spread is the robust standard
    deviation of the logarithm over groups of rows (shapes, widths).
    """

    chip: str
    operator: str
    values: dict[str, float]
    spreads: dict[str, float]
    fitted: Errors
    held_out: Errors | None
    bands: dict[str, Errors]
    others: dict[str, float]
    """Geometric error of other forms of the law, and of published values, on the same rows."""


def errors(predicted: Array, measured: Array) -> Errors:
    """Return how a prediction compares with a measurement."""
    ratio = predicted / measured
    low, middle, high = np.percentile(ratio, [10, 50, 90])
    off = float(np.exp(np.mean(np.abs(np.log(ratio)))))
    return Errors(ratio.size, float(middle), float(low), float(high), off)


def take(columns: Columns, rows: npt.NDArray[np.bool_]) -> dict[str, Array]:
    """Return some rows of a table."""
    return {name: values[rows] for name, values in columns.items()}


def fit(law: Law, start: Mapping[str, float], columns: Columns) -> dict[str, float]:
    """Fit a law's coefficients by robust least squares of log ratios; all stay positive.

    Shares of a peak (named ``*eff*``) stay at or below 1, ``gemm_m_half`` at or above one
    token.
    """
    names = tuple(start)
    measured = np.log(columns["time_s"])
    most = [0.0 if "eff" in name else np.inf for name in names]
    least = [0.0 if name == "gemm_m_half" else -np.inf for name in names]

    def residuals(point: Array) -> Array:
        values = dict(zip(names, np.exp(point), strict=True))
        return np.asarray(np.log(law(values, columns)) - measured)

    first = np.minimum(np.log([start[name] for name in names]), np.asarray(most) - 1e-3)
    found = least_squares(
        residuals, first, loss="soft_l1", f_scale=LOSS_SCALE, bounds=(least, most)
    )
    return dict(zip(names, np.exp(found.x).tolist(), strict=True))


def spreads(
    law: Law, values: Mapping[str, float], columns: Columns, groups: npt.NDArray[np.int64]
) -> dict[str, float]:
    """Return how much each coefficient differs between groups of rows.

    Each group looks for its own value of one coefficient with the others held; groups
    whose rows do not depend on it are left out.
    """
    _, index = np.unique(groups, return_inverse=True)
    counts = np.bincount(index).astype(np.float64)
    out = {}
    near = np.abs(STEPS) <= np.log(2.0)
    for name in values:
        cost = np.empty((STEPS.size, counts.size))
        for row, step in enumerate(STEPS):
            moved = {**values, name: values[name] * float(np.exp(step))}
            off = np.abs(np.log(law(moved, columns) / columns["time_s"]))
            cost[row] = np.bincount(index, weights=off) / counts
        matters = np.ptp(cost[near], axis=0) > MATTERS
        own = STEPS[np.argmin(cost[:, matters], axis=0)]
        if own.size >= 2:
            middle = np.median(own)
            robust = 1.4826 * float(np.median(np.abs(own - middle)))
            # With few groups, all may agree by chance.
            out[name] = max(robust, float(np.std(own)) if own.size < 10 else 0.0, 0.05)
    return out
