"""Which coefficients the data pin, which only their prior does, and which go together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kernelfit.fit.design import Design, predict
from kernelfit.fit.priors import Priors
from kernelfit.fit.solve import Solution
from kernelfit.fit.steps import Floats

PINNED = 0.05
"""Relative standard deviation up to which a coefficient counts as identified [1]: known to
a tenth either way, by resampled blocks and by the curvature at independent rows."""

BLURRED = 0.15
"""The same, if every coefficient suffered from autocorrelation as the mean does [1]."""

FEWEST_ROWS = 30.0
"""Rows that must carry a coefficient, however many there are, for it to be identified."""

LOST = 0.5
"""Relative standard deviation above which the prior is all there is [1]."""

ALIAS_CORRELATION = 0.95

UNSEEN = 1e-5
"""Singular value, relative to the largest, of a direction that no row shows [1]."""

LEAST_PART = 0.1
LINKED = 0.05
"""Length of a column's part in such directions, and cosine between two columns' parts, from
which they count as trading against each other [1]."""


@dataclass(frozen=True, slots=True, eq=False)
class Identifiability:
    """What the data alone say about each coefficient, at the solution.

    Attributes
    ----------
    data_spread : ndarray, shape (n_coefficients,)
        Standard deviation of ln cost from the data without priors [1]; infinite where
        the data say nothing.
    vif : ndarray, shape (n_coefficients,)
        Variance inflation factor: how much the others blur this one; infinite for an
        exact alias [1].
    share : ndarray, shape (n_coefficients,)
        Share of the measured time that the coefficient's terms make up [1].
    aliases : tuple of tuple of int
        Per coefficient, the others that it cannot be told from.
    condition : float
        Condition number of the scaled columns [1].
    rows : ndarray, shape (n_coefficients,)
        Effective number of rows that carry the coefficient, ``(sum j^2)^2 / sum j^4``:
        all of them where each says as much, one where a single one decides.
    """

    data_spread: Floats
    vif: Floats
    share: Floats
    aliases: tuple[tuple[int, ...], ...]
    condition: float
    rows: Floats


def identify(
    design: Design, solution: Solution, inflation: float, without: tuple[int, ...] = ()
) -> Identifiability:
    """Judge every coefficient from the Jacobian of ln(prediction).

    Parameters
    ----------
    design : Design
        The design.
    solution : Solution
        The fit.
    inflation : float
        Factor by which autocorrelation inflates variances [1].
    without : tuple of int
        Columns taken as known.

    Returns
    -------
    Identifiability
        The evidence.

    Notes
    -----
    With J the derivatives of ln(prediction) by ln cost, the data's information is
    ``J'J / scale^2``; its inverse diagonal gives variances and, times the squared column
    norms, variance inflation factors. Directions of the scaled columns with singular
    values below 1e-5 of the largest are unseen: columns that trade against each other along
    them are aliases, and so are two badly seen ones whose estimates correlate.
    """
    predicted, slope, _ = predict(design, solution.log_cost, solution.overlap_share)
    jacobian = slope / predicted[:, None]
    norm = np.linalg.norm(jacobian, axis=0)
    count = len(design.names)
    seen = norm > 1e-9 * np.sqrt(design.measured_s.size)
    data_spread = np.full(count, np.inf)
    vif = np.full(count, np.inf)
    aliases: list[set[int]] = [set() for _ in range(count)]
    seen[list(without)] = False
    columns = np.flatnonzero(seen)
    condition = np.inf
    if columns.size:
        scaled = jacobian[:, columns] / norm[columns]
        _, singular, rows = np.linalg.svd(scaled, full_matrices=False)
        condition = float(singular[0] / singular[-1]) if singular[-1] > 0 else np.inf
        # An exact alias shows as rounding noise; it must count as unseen.
        kept = np.maximum(singular, 1e-6 * singular[0])
        variance = ((rows / kept[:, None]) ** 2).sum(axis=0)
        vif[columns] = variance
        noise = solution.scale * np.sqrt(inflation)
        data_spread[columns] = noise * np.sqrt(variance) / norm[columns]
        covariance = (rows.T / kept**2) @ rows
        spread = np.sqrt(np.diag(covariance))
        correlation = covariance / np.outer(spread, spread)
        together = _together(rows[singular < UNSEEN * singular[0]])
        for i in range(columns.size):
            for j in range(i):
                both_blurred = variance[i] > 10.0 and variance[j] > 10.0
                alike = abs(correlation[i, j]) > ALIAS_CORRELATION or together[i, j]
                if both_blurred and alike:
                    aliases[columns[i]].add(int(columns[j]))
                    aliases[columns[j]].add(int(columns[i]))
    share = slope.sum(axis=0) / predicted.sum()
    fourth = np.sum(jacobian**4, axis=0)
    carried = np.divide(norm**4, fourth, out=np.zeros(count), where=fourth > 0.0)
    return Identifiability(
        data_spread=data_spread,
        vif=vif,
        share=np.asarray(share),
        aliases=tuple(tuple(sorted(a)) for a in aliases),
        condition=condition,
        rows=carried,
    )


def _together(unseen: Floats) -> npt.NDArray[np.bool_]:
    """Return which columns trade against each other along directions that no row shows.

    Of three columns or more that are multiples of each other, no pair need correlate: the
    directions are spread over all of them. Their projection links them nonetheless.
    """
    projection = np.asarray(unseen.T @ unseen)
    size = np.sqrt(np.diag(projection))
    held = size > LEAST_PART
    linked = np.abs(projection) > LINKED * np.outer(size, size)
    linked &= np.outer(held, held)
    while True:
        wider = (linked.astype(np.float64) @ linked) > 0.0
        if np.array_equal(wider, linked):
            return np.asarray(linked)
        linked = wider


def at_bound(log_cost: Floats, priors: Priors) -> npt.NDArray[np.bool_]:
    """Return which coefficients sit at an end of what is allowed.

    Parameters
    ----------
    log_cost : ndarray, shape (..., n_coefficients)
        ln of unit costs, of a solution or of draws [ln s].
    priors : Priors
        Bounds of the unit costs.

    Returns
    -------
    ndarray of bool, shape (..., n_coefficients)
        True at a bound.
    """
    near = 1e-3
    return np.asarray((log_cost - priors.low < near) | (priors.high - log_cost < near))
