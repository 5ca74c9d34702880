"""Where the solver starts, and where it looks again: what hides has no slope to follow."""

from __future__ import annotations

import numpy as np
from scipy.optimize import nnls

from kernelfit.fit.descent import Point, Problem
from kernelfit.fit.design import Design, predict
from kernelfit.fit.priors import Priors
from kernelfit.fit.steps import Floats

START_SHARES: dict[str, tuple[float, ...]] = {
    "sum": (0.0,),
    "max": (1.0,),
    # The objective has more than one valley along the share.
    "share": (0.2, 0.8),
}

LAYER_LAUNCHES: tuple[str, ...] = ("launch_layer", "launch_attention", "launch_linear")
"""Launches that grow with the layers. What a step costs the host whatever it holds is not
started dear: a floor under all steps could pose as a constant of the device, and would be
wrong at another width."""

LAUNCH_QUANTILE = 0.05
"""Share of the rows that launching may outlast where a start takes it to bind [1]."""

SLOWER_STREAM = 1.3
QUICKER_START = 0.5
"""Costs of a byte in a collective's stream and in its start against what one line through
both gave, in a start where both forms are met [1]."""


def nnls_start(design: Design, priors: Priors) -> Floats:
    """Return a start: relative non-negative least squares with everything added up.

    Parameters
    ----------
    design : Design
        The design.
    priors : Priors
        Priors and bounds of the unit costs.

    Returns
    -------
    ndarray, shape (n_coefficients,)
        ln of the unit costs, inside the bounds [ln s].
    """
    relative = design.summed / design.measured_s[:, None]
    scale = np.linalg.norm(relative, axis=0)
    scale[scale == 0.0] = 1.0
    # A small pull to the prior keeps columns without support away from zero.
    pull = 1e-3 * np.sqrt(design.measured_s.size)
    left = np.vstack([relative / scale, pull * np.diag(1.0 / (np.exp(priors.centre) * scale))])
    right = np.concatenate([np.ones(relative.shape[0]), np.full(scale.size, pull)])
    cost = nnls(left, right)[0] / scale
    with np.errstate(divide="ignore"):
        log_cost = np.log(cost)
    floor = priors.centre - 3.0 * priors.spread
    return np.asarray(np.clip(np.maximum(log_cost, floor), priors.low + 1e-6, priors.high - 1e-6))


def bases(design: Design, priors: Priors) -> list[Floats]:
    """Return starts: one from NNLS, and one where launching outlasts the device.

    What hides behind the device has no slope: where launching is started too cheap, no
    step ever shows that some rows are bound by it. So it is also started as dear as the
    quickest rows that hold each kind of it allow.

    Parameters
    ----------
    design : Design
        The design.
    priors : Priors
        Priors and bounds of the unit costs.

    Returns
    -------
    list of ndarray, shape (n_coefficients,)
        ln of the unit costs, inside the bounds [ln s].
    """
    base = nnls_start(design, priors)
    prior = np.exp(priors.centre)
    parts = np.concatenate([block.rows @ (block.launch * prior) for block in design.blocks])
    whole = parts.sum(axis=1)
    if not whole.any():
        return [base]
    with np.errstate(divide="ignore"):
        ratio = design.measured_s / whole
    high = base.copy()
    for column in np.flatnonzero(parts.any(axis=0)):
        if not design.names[column].startswith(LAYER_LAUNCHES):
            continue
        held = ratio[parts[:, column] > 0.0]
        high[column] = priors.centre[column] + np.log(np.quantile(held, LAUNCH_QUANTILE))
    return [base, np.clip(high, priors.low + 1e-6, priors.high - 1e-6)]


def launch_bound(problem: Problem, at: Point) -> Point | None:
    """Return a start where launching outlasts the device in the quickest steps.

    Parameters
    ----------
    problem : Problem
        What is fitted.
    at : Point
        Where the descent is.

    Returns
    -------
    Point or None
        The start, costs in [ln s]; None where nothing is launched ahead per layer.
    """
    design = problem.design
    cost = np.exp(at.log_cost)
    launch = np.concatenate([block.rows @ (block.launch @ cost) for block in design.blocks])
    held = launch > 0.0
    if not held.any():
        return None
    columns = np.any([block.launch.any(axis=0) for block in design.blocks], axis=0)
    columns &= np.isin(np.arange(columns.size), problem.free)
    columns &= np.asarray([name.startswith(LAYER_LAUNCHES) for name in design.names])
    if not columns.any():
        return None
    ratio = np.quantile(design.measured_s[held] / launch[held], LAUNCH_QUANTILE)
    moved = at.log_cost + np.where(columns, np.log(ratio), 0.0)
    inside = np.clip(moved, problem.priors.low + 1e-6, problem.priors.high - 1e-6)
    return Point(np.where(columns, inside, at.log_cost), at.share)


def both_forms(problem: Problem, at: Point) -> Point | None:
    """Return a start where both forms of every collective are met.

    Of two forms the shorter has no slope: where all messages are fitted by one line, the
    other form is never heard of, whatever the data would say.

    Parameters
    ----------
    problem : Problem
        What is fitted.
    at : Point
        Where the descent is.

    Returns
    -------
    Point or None
        The start, costs in [ln s]; None where both forms are met already.
    """
    design, free = problem.design, set(problem.free.tolist())
    column = {name: k for k, name in enumerate(design.names)}
    _, slope, _ = predict(design, at.log_cost, at.share)
    seen = np.asarray(slope.any(axis=0))
    moved = at.log_cost.copy()
    for name, k in column.items():
        op = name.removesuffix("_transition_eff")
        stream = column.get(f"{op}_eff")
        if op == name or stream is None or seen[k] == seen[stream] or not {k, stream} <= free:
            continue
        line = at.log_cost[k] if seen[k] else at.log_cost[stream]
        moved[k], moved[stream] = line + np.log(QUICKER_START), line + np.log(SLOWER_STREAM)
    if np.array_equal(moved, at.log_cost):
        return None
    inside = np.clip(moved, problem.priors.low + 1e-6, problem.priors.high - 1e-6)
    return Point(np.asarray(inside), at.share)
