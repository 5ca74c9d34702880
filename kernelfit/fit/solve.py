"""The joint solve: NNLS start, then bounded robust least squares of relative errors.

Each observation's residual is ``ln(predicted / measured) / scale`` under a soft-L1 loss,
and each unknown is held by its prior ``(ln cost - centre) / spread``: where data speak
they outweigh it by orders of magnitude, where they do not it keeps the solve well posed.

The method is Levenberg-Marquardt on the normal equations with iteratively reweighted
rows, each step a small least-squares problem with bounds. A general solver works on all
rows at every step; here they are touched once per step, to price them, and twenty
unknowns are left.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls
from threadpoolctl import threadpool_limits

from kernelfit.fit.descent import COARSE, FINE, Found, Point, Problem, descend
from kernelfit.fit.design import Design, predict
from kernelfit.fit.priors import Priors
from kernelfit.fit.steps import Floats

RULES: tuple[str, ...] = ("sum", "max", "share")
"""How resources combine in a layer: added, the largest, or a fitted share between."""

HOST_ADDED = "+host"
COMPOSITIONS: tuple[str, ...] = RULES + tuple(rule + HOST_ADDED for rule in RULES)
"""Rules, and the same where host work that runs ahead is waited for all the same."""

START_SCALE = 0.1
SMALLEST_SCALE = 0.002
MAX_EVALUATIONS = 60
ROUNDS = 4
ROUNDS_FROM_START = 3
TRUSTED = 6.0
"""Deviations beyond which a row no longer pulls at all (Tukey's biweight) [1]."""


@dataclass(frozen=True, slots=True, eq=False)
class Solution:
    """A solved set of unit costs.

    Attributes
    ----------
    log_cost : ndarray, shape (n_coefficients,)
        ln of the unit costs [ln s].
    overlap_share : float
        Share of the possible overlap that happens [1].
    scale : float
        Robust standard deviation of ln(predicted / measured) [1].
    converged : bool
        Whether the solver met its tolerance.
    evaluations : int
        Evaluations of the residuals.
    """

    log_cost: Floats
    overlap_share: float
    scale: float
    converged: bool
    evaluations: int


def _trust(ratio: Floats, noise: float) -> Floats:
    """Square roots of Tukey's biweight of residuals.

    Soft-L1 bounds the pull of an outlier but keeps its sign; outliers of a shared host
    are all late, so their bounded pulls would add up to a bias.
    """
    inside = np.clip(1.0 - (ratio / (TRUSTED * noise)) ** 2, 0.0, None)
    return np.asarray(inside)


def start_ratio(design: Design, start: Solution) -> Floats:
    """Return the residuals of a start.

    Parameters
    ----------
    design : Design
        The design.
    start : Solution
        The start.

    Returns
    -------
    ndarray, shape (n_rows,)
        ln(predicted / measured) [1].
    """
    predicted, _, _ = predict(design, start.log_cost, start.overlap_share)
    return np.asarray(np.log(predicted / design.measured_s))


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


def solve(
    design: Design,
    priors: Priors,
    rule: str,
    *,
    weights: Floats | None = None,
    start: Solution | None = None,
    fixed: tuple[int, ...] = (),
    scale: float | None = None,
    max_evaluations: int = MAX_EVALUATIONS,
) -> Solution:
    """Fit the unit costs.

    Parameters
    ----------
    design : Design
        The design.
    priors : Priors
        Priors and bounds of the unit costs.
    rule : str
        One of ``COMPOSITIONS``; the design is built with its ``host_rule_of``.
    weights : ndarray, shape (n_rows,), optional
        Factor on the weight that the design gives each row; 1 where not given.
    start : Solution, optional
        Where to start; from NNLS where not given.
    fixed : tuple of int
        Columns held at their prior's centre.
    scale : float, optional
        Noise scale of ln(predicted / measured) [1]; estimated where not given.
    max_evaluations : int
        Most evaluations of the residuals in one round.

    Returns
    -------
    Solution
        The fit.

    Notes
    -----
    Between rounds the noise scale is estimated anew and rows far out lose their weight.

    Raises
    ------
    ValueError
        When the rule is unknown or there are no rows.
    """
    if rule not in COMPOSITIONS:
        raise ValueError(f"rule: got {rule!r}; allowed {', '.join(COMPOSITIONS)}")
    if design.measured_s.size == 0:
        raise ValueError("no rows to fit")
    with threadpool_limits(limits=1, user_api="blas"):
        return _solve(
            design, priors, device_rule_of(rule), weights, start, fixed, scale, max_evaluations
        )


def _solve(
    design: Design,
    priors: Priors,
    rule: str,
    weights: Floats | None,
    start: Solution | None,
    fixed: tuple[int, ...],
    scale: float | None,
    max_evaluations: int,
) -> Solution:
    held = np.zeros(len(design.names), dtype=bool)
    held[list(fixed)] = True
    weight = design.weight * weights if weights is not None else design.weight
    noise = scale if scale is not None else start.scale if start is not None else START_SCALE
    problem = Problem(design, priors, weight, np.flatnonzero(~held), rule == "share")
    fixed_cost = np.clip(priors.centre, priors.low, priors.high)
    trust = np.ones(weight.size)
    if start is not None:
        starts = [Point(np.where(held, fixed_cost, start.log_cost), start.overlap_share)]
        ratio = np.log(predict(design, start.log_cost, start.overlap_share)[0] / design.measured_s)
        trust = _trust(ratio, noise) ** 2
        first = max_evaluations
    else:
        bases = _bases(design, priors)
        starts = [
            Point(np.where(held, fixed_cost, base), share)
            for base in bases
            for share in START_SHARES[rule]
        ]
        first = max_evaluations if len(starts) == 1 else TRIAL_EVALUATIONS
    rough = COARSE if scale is None else FINE
    tries = [descend(problem, point, noise, trust, first, rough) for point in starts]
    best = min(tries, key=lambda found: found.objective)
    evaluations = sum(found.evaluations for found in tries)
    # The scale is re-estimated between rounds; with a given scale one round is enough.
    rounds = 1 if scale is not None else ROUNDS if start is None else ROUNDS_FROM_START
    for turn in range(1, rounds + 1):
        ratio = best.log_ratio
        if scale is None:
            noise = robust_scale(ratio)
        if turn == rounds:
            break
        if turn > 1 or start is not None:
            trust = _trust(ratio, noise) ** 2
        if start is None and scale is None and turn == rounds - 1:
            best, more = _look_again(problem, best, noise, trust)
            evaluations += more
        tolerance = FINE if turn == rounds - 1 else COARSE
        best = descend(problem, best.point, noise, trust, max_evaluations, tolerance)
        evaluations += best.evaluations
    return Solution(best.point.log_cost, best.point.share, noise, best.converged, evaluations)


TRIAL_EVALUATIONS = 15
"""Evaluations after which the most promising of several starts is followed alone."""

LAYER_LAUNCHES: tuple[str, ...] = ("launch_layer", "launch_attention", "launch_linear")
"""Launches that grow with the layers. What a step costs the host whatever it holds is not
started dear: a floor under all steps could pose as a constant of the device, and would be
wrong at another width."""

LAUNCH_QUANTILE = 0.05
"""Share of the rows that launching may outlast where a start takes it to bind [1]."""


def _bases(design: Design, priors: Priors) -> list[Floats]:
    """Return starts: one from NNLS, and one where launching outlasts the device.

    What hides behind the device has no slope: where launching is started too cheap, no
    step ever shows that some rows are bound by it. So it is also started as dear as the
    quickest rows that hold each kind of it allow.
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


def _look_again(problem: Problem, best: Found, noise: float, trust: Floats) -> tuple[Found, int]:
    """Try what has no slope where the descent ended, now that the noise is known.

    Only then do a few rows in a hundred weigh enough to tell one valley from another.
    """
    at = best.point
    found = descend(problem, at, noise, trust, TRIAL_EVALUATIONS, COARSE)
    evaluations = found.evaluations
    for kick in (_both_forms, _launch_bound):
        moved = kick(problem, found.point)
        if moved is not None:
            trial = descend(problem, moved, noise, trust, TRIAL_EVALUATIONS, COARSE)
            evaluations += trial.evaluations
            if trial.objective < found.objective - WORTH:
                found = trial
    return found, evaluations


def _launch_bound(problem: Problem, at: Point) -> Point | None:
    """Return a start where launching outlasts the device in the quickest steps."""
    design = problem.design
    cost = np.exp(at.log_cost)
    launch = np.concatenate([block.rows @ (block.launch @ cost) for block in design.blocks])
    held = launch > 0.0
    if not held.any():
        return None
    columns = np.any([block.launch.any(axis=0) for block in design.blocks], axis=0)
    columns &= np.isin(np.arange(columns.size), problem.free)
    ratio = np.quantile(design.measured_s[held] / launch[held], LAUNCH_QUANTILE)
    moved = at.log_cost + np.where(columns, np.log(ratio), 0.0)
    inside = np.clip(moved, problem.priors.low + 1e-6, problem.priors.high - 1e-6)
    return Point(np.where(columns, inside, at.log_cost), at.share)


WORTH = 10.0
"""Fall of the objective for which something comes out of hiding [1]: as much as ten rows
off by one deviation; less is what the noise of the quickest rows gives by chance."""

SLOWER_STREAM = 1.3
QUICKER_START = 0.5
"""Costs of a byte in a collective's stream and in its start against what one line through
both gave, in a start where both forms are met [1]."""


def _both_forms(problem: Problem, at: Point) -> Point | None:
    """Return a start where both forms of every collective are met.

    Of two forms the shorter has no slope: where all messages are fitted by one line, the
    other form is never heard of, whatever the data would say.
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


START_SHARES: dict[str, tuple[float, ...]] = {
    "sum": (0.0,),
    "max": (1.0,),
    # The objective has more than one valley along the share.
    "share": (0.2, 0.8),
}


def device_rule_of(composition: str) -> str:
    """Return how resources of the device combine.

    Parameters
    ----------
    composition : str
        One of ``COMPOSITIONS``.

    Returns
    -------
    str
        One of ``RULES``.
    """
    return composition.removesuffix(HOST_ADDED)


def host_rule_of(composition: str) -> str:
    """Return what becomes of host work that runs ahead.

    Parameters
    ----------
    composition : str
        One of ``COMPOSITIONS``.

    Returns
    -------
    str
        ``hidden`` or ``added``.
    """
    return "added" if composition.endswith(HOST_ADDED) else "hidden"


def robust_scale(log_ratio: Floats) -> float:
    """Return a robust standard deviation around zero.

    Parameters
    ----------
    log_ratio : ndarray, shape (n_rows,)
        ln(predicted / measured) [1].

    Returns
    -------
    float
        1.4826 times the median absolute value, at least 0.002 [1].
    """
    return max(SMALLEST_SCALE, 1.4826 * float(np.median(np.abs(log_ratio))))
