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
from threadpoolctl import threadpool_limits

from kernelfit.fit.descent import COARSE, FINE, Found, Point, Problem, descend
from kernelfit.fit.design import Design, predict
from kernelfit.fit.priors import Priors
from kernelfit.fit.starts import START_SHARES, bases, both_forms, launch_bound
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
    wide: bool = False,
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
    wide : bool
        Whether to start from elsewhere too where a start is given: with other weights,
        a valley that the priors find likelier may be as deep.

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
            design,
            priors,
            device_rule_of(rule),
            weights,
            start,
            fixed,
            scale,
            max_evaluations,
            wide,
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
    wide: bool,
) -> Solution:
    held = np.zeros(len(design.names), dtype=bool)
    held[list(fixed)] = True
    weight = design.weight * weights if weights is not None else design.weight
    noise = scale if scale is not None else start.scale if start is not None else START_SCALE
    problem = Problem(design, priors, weight, np.flatnonzero(~held), rule == "share")
    fixed_cost = np.clip(priors.centre, priors.low, priors.high)
    trust = np.ones(weight.size)
    starts: list[Point] = []
    if start is not None:
        starts = [Point(np.where(held, fixed_cost, start.log_cost), start.overlap_share)]
        ratio = np.log(predict(design, start.log_cost, start.overlap_share)[0] / design.measured_s)
        trust = _trust(ratio, noise) ** 2
    if start is None or wide:
        starts += [
            Point(np.where(held, fixed_cost, base), share)
            for base in bases(design, priors)
            for share in START_SHARES[rule]
        ]
    # One of several is followed further; where no round follows, each goes to its end.
    several = start is None and scale is None and len(starts) > 1
    first = TRIAL_EVALUATIONS if several else max_evaluations
    rough = COARSE if scale is None else FINE
    tries = [descend(problem, point, noise, trust, first, rough) for point in starts]
    usual = len(START_SHARES[rule]) if start is None else 1
    best = min(tries[:usual], key=lambda found: found.objective)
    for found in tries[usual:]:
        if found.objective < best.objective - WORTH:
            best = found
    evaluations = sum(found.evaluations for found in tries)
    # The scale is re-estimated between rounds, and which rows are trusted always: trust that
    # stays with the start holds a resample back, so that draws would scatter too little.
    rounds = ROUNDS if start is None and scale is None else ROUNDS_FROM_START
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


def _look_again(problem: Problem, best: Found, noise: float, trust: Floats) -> tuple[Found, int]:
    """Try what has no slope where the descent ended, now that the noise is known.

    Only then do a few rows in a hundred weigh enough to tell one valley from another.
    """
    at = best.point
    found = descend(problem, at, noise, trust, TRIAL_EVALUATIONS, COARSE)
    evaluations = found.evaluations
    for kick in (both_forms, launch_bound):
        moved = kick(problem, found.point)
        if moved is not None:
            trial = descend(problem, moved, noise, trust, TRIAL_EVALUATIONS, COARSE)
            evaluations += trial.evaluations
            if trial.objective < found.objective - WORTH:
                found = trial
    return found, evaluations


WORTH = 10.0
"""Fall of the objective for which something comes out of hiding [1]: as much as ten rows
off by one deviation; less is what the noise of the quickest rows gives by chance."""


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
