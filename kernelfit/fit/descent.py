"""Levenberg-Marquardt for robust relative residuals with priors and bounds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.linalg import cholesky, solve_triangular
from scipy.optimize import lsq_linear

from kernelfit.fit.design import Design, predict
from kernelfit.fit.priors import Priors
from kernelfit.fit.steps import Floats

FIRST_DAMPING = 1e-3
LARGEST_DAMPING = 1e8
ENOUGH = 0.02
"""Fall of the objective that is no longer worth a step: the weight of a fiftieth of a row."""

COARSE = 1e-3
FINE = 1e-6
"""Shares of the objective whose fall is no longer worth a step: while starts are compared
and the scale is not yet known, and in the end [1]."""

FURTHEST = 9.0
"""Furthest that a step goes at once, relative to where it starts [1]."""

HELD_BACK = 1e-3
"""Relative step below which what is hidden is not to blame for a step that fails [1]."""

INSIDE = 1e-9
"""Relative distance that iterates keep from their bounds [1]."""


@dataclass(frozen=True, slots=True, eq=False)
class Point:
    """A set of unknowns.

    Attributes
    ----------
    log_cost : ndarray, shape (n_coefficients,)
        ln of the unit costs [ln s].
    share : float
        Share of the possible overlap that happens [1].
    """

    log_cost: Floats
    share: float


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """What is fitted.

    Attributes
    ----------
    design : Design
        The design.
    priors : Priors
        Priors and bounds of the unit costs.
    weight : ndarray, shape (n_rows,)
        Weight of each row.
    free : ndarray of int
        Columns that are fitted; the others stay where they are.
    fit_share : bool
        Whether the share of overlap is fitted too.
    """

    design: Design
    priors: Priors
    weight: Floats
    free: npt.NDArray[np.int64]
    fit_share: bool


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """Where a descent ended.

    Attributes
    ----------
    point : Point
        The unknowns.
    objective : float
        Twice the soft-L1 loss of the rows, plus the priors' squares [1].
    log_ratio : ndarray, shape (n_rows,)
        ln(predicted / measured) [1].
    converged : bool
        Whether no step was worth taking any more.
    evaluations : int
        How often all rows were priced.
    """

    point: Point
    objective: float
    log_ratio: Floats
    converged: bool
    evaluations: int


@dataclass(frozen=True, slots=True, eq=False)
class _Look:
    """Objective, its gradient and curvature by the unknowns, relative to their own size.

    ``hidden`` says which unknowns no row shows where they are: only their prior pulls.
    """

    objective: float
    gradient: Floats
    curvature: Floats
    log_ratio: Floats
    hidden: npt.NDArray[np.bool_]


def _look(problem: Problem, at: Point, noise: float, weight: Floats) -> _Look:
    free = problem.free
    predicted, slope, by_share = predict(problem.design, at.log_cost, at.share)
    log_ratio = np.log(predicted / problem.design.measured_s)
    residual = log_ratio / noise
    root = np.sqrt(1.0 + residual * residual)
    # Rows of the Jacobian: d residual / d ln cost, and by the share as it is.
    jacobian = slope[:, free] if free.size < slope.shape[1] else slope
    if problem.fit_share:
        jacobian = np.column_stack([jacobian, by_share])
    pull = np.sqrt(weight / root)
    jacobian *= (pull / (noise * predicted))[:, None]
    gradient = jacobian.T @ (pull * residual)
    curvature = jacobian.T @ jacobian
    priors = problem.priors
    off = (at.log_cost[free] - priors.centre[free]) / priors.spread[free]
    n = free.size
    hidden = np.zeros(gradient.size, dtype=bool)
    hidden[:n] = np.diag(curvature)[:n] < 1.0 / priors.spread[free] ** 2
    gradient[:n] += off / priors.spread[free]
    curvature[np.arange(n), np.arange(n)] += 1.0 / priors.spread[free] ** 2
    objective = float(np.sum(weight * 2.0 * (root - 1.0)) + np.sum(off**2))
    return _Look(objective, gradient, curvature, log_ratio, hidden)


def descend(
    problem: Problem,
    start: Point,
    noise: float,
    trust: Floats,
    max_evaluations: int,
    tolerance: float = FINE,
) -> Found:
    """Walk down from a start.

    Parameters
    ----------
    problem : Problem
        What is fitted.
    start : Point
        Where to start; inside the bounds.
    noise : float
        Scale of ln(predicted / measured) [1].
    trust : ndarray, shape (n_rows,)
        Factor on each row's weight, from its distance in an earlier round [1].
    max_evaluations : int
        Most evaluations of all rows.
    tolerance : float
        Share of the objective whose fall is no longer worth a step [1].

    Returns
    -------
    Found
        The end.

    Notes
    -----
    A step is taken in the costs themselves, relative to where they are, and not in their
    logarithms: times are linear in them, so that the valley of an alias is straight.

    What is hidden behind something longer has no slope until it comes out, and then a
    steep one. Where a step fails, such unknowns are held back before all others are.
    """
    free, priors = problem.free, problem.priors
    weight = problem.weight * trust
    low, high = priors.low[free] + INSIDE, priors.high[free] - INSIDE
    log_cost = start.log_cost.copy()
    log_cost[free] = np.clip(log_cost[free], low, high)
    at = Point(log_cost, float(np.clip(start.share, 0.0, 1.0)))
    look = _look(problem, at, noise, weight)
    damping, evaluations, converged, reach = FIRST_DAMPING, 1, False, FURTHEST
    while evaluations < max_evaluations and damping < LARGEST_DAMPING:
        lower, upper = np.expm1(low - at.log_cost[free]), np.expm1(high - at.log_cost[free])
        if problem.fit_share:
            lower, upper = np.append(lower, -at.share), np.append(upper, 1.0 - at.share)
        lower = np.where(look.hidden, np.maximum(lower, -reach), lower)
        upper = np.where(look.hidden, np.minimum(upper, reach), upper)
        step, promised = _step(look, damping, lower, upper)
        enough = max(ENOUGH, tolerance * look.objective)
        if promised < enough:
            converged = True
            break
        moved = at.log_cost.copy()
        moved[free] = np.clip(moved[free] + np.log1p(step[: free.size]), low, high)
        share = float(np.clip(at.share + step[-1], 0.0, 1.0)) if problem.fit_share else at.share
        trial = Point(moved, share)
        seen = _look(problem, trial, noise, weight)
        evaluations += 1
        gained = look.objective - seen.objective
        if gained <= 0.0:
            hidden = float(np.max(np.abs(step[look.hidden]), initial=0.0))
            if hidden > HELD_BACK:
                reach = 0.1 * hidden
            else:
                damping *= 8.0
            continue
        reach = min(2.0 * reach, FURTHEST)
        damping = max(damping * (0.2 if gained > 0.5 * promised else 1.0), 1e-12)
        at, look = trial, seen
        if gained < enough and promised < 10.0 * enough:
            converged = True
            break
    converged = converged or damping >= LARGEST_DAMPING
    return Found(at, look.objective, look.log_ratio, converged, evaluations)


def _step(look: _Look, damping: float, lower: Floats, upper: Floats) -> tuple[Floats, float]:
    """Minimise the quadratic model within bounds; return the step and the promised fall."""
    curvature = look.curvature
    diagonal = np.diag(curvature) + 1e-300
    scale = 1.0 / np.sqrt(diagonal)
    scaled = curvature * np.outer(scale, scale)
    damped = scaled + damping * np.eye(scale.size)
    root = cholesky(damped + 1e-13 * np.eye(scale.size))
    target = -solve_triangular(root, look.gradient * scale, trans="T")
    # Not further than a factor of a few at once: the model is local.
    nearest = np.maximum(lower, -0.9) / scale
    furthest = np.minimum(upper, FURTHEST) / scale
    free_step = solve_triangular(root, target)
    if np.all((free_step > nearest) & (free_step < furthest)):
        step = free_step
    else:
        furthest = np.maximum(furthest, nearest + 1e-15)
        step = lsq_linear(root, target, bounds=(nearest, furthest), method="bvls").x
    promised = -(2.0 * (look.gradient * scale) @ step + step @ scaled @ step)
    return step * scale, float(promised)
