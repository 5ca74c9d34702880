"""The joint solve: NNLS start, then bounded robust least squares in log space.

Unknowns are logarithms of unit costs, so that nothing is negative and the relative
error of the step time is what is minimised. Each observation's residual is
``ln(predicted / measured) / scale`` under a soft-L1 loss, and each unknown is held by
its prior ``(ln cost - centre) / spread``: where data speak they outweigh it by orders of
magnitude, where they do not it keeps the solve well posed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import least_squares, nnls
from threadpoolctl import threadpool_limits

from kernelfit.fit.design import Choice, Design
from kernelfit.fit.priors import Priors
from kernelfit.fit.steps import Floats

RULES: tuple[str, ...] = ("sum", "max", "share")
"""How resources combine in a layer: added, the largest, or a fitted share between."""

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


def predict(design: Design, log_cost: Floats, share: float) -> tuple[Floats, Floats, Floats]:
    """Price every row, with its derivatives.

    Parameters
    ----------
    design : Design
        The design.
    log_cost : ndarray, shape (n_coefficients,)
        ln of the unit costs [ln s].
    share : float
        Share of the possible overlap that happens [1].

    Returns
    -------
    ndarray, shape (n_rows,)
        Predicted durations [s].
    ndarray, shape (n_rows, n_coefficients)
        Derivatives of the prediction by ln cost [s].
    ndarray, shape (n_rows,)
        Derivative of the prediction by the share [s]; never positive.
    """
    cost = np.exp(log_cost)
    steps = design.steps
    launch_slope, host_slope = design.launch * cost, design.host * cost
    device_slope = design.device_sum * cost
    exchanged = [_longer(choice, cost) for choice in design.choices]
    for slope in exchanged:
        device_slope += slope
    device = device_slope.sum(axis=1)
    by_share = np.zeros(design.measured_s.size)
    if share > 0.0:
        overlapped = _overlapped(design, cost, exchanged)
        by_share[:steps] = overlapped.sum(axis=1) - device
        device_slope = (1.0 - share) * device_slope + share * overlapped
        device = device + share * by_share[:steps]
    launch = launch_slope.sum(axis=1)
    predicted = host_slope.sum(axis=1)
    ahead = launch[:steps] > device
    by_share[:steps][ahead] = 0.0
    predicted[:steps] += np.where(ahead, launch[:steps], device)
    host_slope[:steps] += np.where(ahead[:, None], launch_slope[:steps], device_slope)
    return predicted, host_slope, by_share


def _longer(choice: Choice, cost: Floats) -> Floats:
    """Time by coefficient of the longer form; shape (n_steps, n_coefficients)."""
    longer = (choice.one @ cost) >= (choice.other @ cost)
    return np.where(longer[:, None], choice.one, choice.other) * cost


def _overlapped(design: Design, cost: Floats, exchanged: list[Floats]) -> Floats:
    """Time by coefficient of the largest resource of every stage, stages added up."""
    cells = design.device @ cost
    for choice, slope in zip(design.choices, exchanged, strict=True):
        cells[choice.stage, choice.resource] += slope.sum(axis=1)
    widest = cells.argmax(axis=1)
    chosen = np.take_along_axis(design.device, widest[:, None, :, None], axis=1)
    overlapped = chosen[:, 0].sum(axis=0) * cost
    for choice, slope in zip(design.choices, exchanged, strict=True):
        overlapped += slope * (widest[choice.stage] == choice.resource)[:, None]
    return np.asarray(overlapped)


def _soft(residual: Floats) -> tuple[Floats, Floats]:
    """Residuals whose squares are twice the soft-L1 loss, and their derivative."""
    root = np.sqrt(1.0 + residual * residual)
    size = np.sqrt(2.0 * (root - 1.0))
    small = np.abs(residual) < 1e-6
    safe = np.where(small, 1.0, size)
    slope = np.where(small, 1.0, np.abs(residual) / (safe * root))
    return np.sign(residual) * np.where(small, np.abs(residual), size), slope


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
        One of ``RULES``.
    weights : ndarray, shape (n_rows,), optional
        Weight of each row; 1 where not given.
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

    Raises
    ------
    ValueError
        When the rule is unknown or there are no rows.
    """
    if rule not in RULES:
        raise ValueError(f"rule: got {rule!r}; allowed {', '.join(RULES)}")
    if design.measured_s.size == 0:
        raise ValueError("no rows to fit")
    held = np.zeros(len(design.names), dtype=bool)
    held[list(fixed)] = True
    free = np.flatnonzero(~held)
    log_cost = np.array(start.log_cost if start else nnls_start(design, priors))
    log_cost[held] = np.clip(priors.centre, priors.low, priors.high)[held]
    share = start.overlap_share if start else {"sum": 0.0, "max": 1.0, "share": 0.5}[rule]
    log_measured = np.log(design.measured_s)
    root_weight = np.sqrt(weights) if weights is not None else np.ones(log_measured.size)
    fit_share = rule == "share"

    # The solver's variables are costs relative to the start, not their logarithms:
    # times are linear in them, so the valley of an alias is straight and is walked.
    reference = log_cost[free].copy()

    def unpack(x: Floats) -> tuple[Floats, float]:
        full = log_cost.copy()
        full[free] = reference + np.log(x[: free.size])
        return full, float(x[free.size]) if fit_share else share

    def residuals(x: Floats, noise: float) -> Floats:
        full, part = unpack(x)
        predicted, _, _ = predict(design, full, part)
        data, _ = _soft((np.log(predicted) - log_measured) / noise)
        prior = (full[free] - priors.centre[free]) / priors.spread[free]
        return np.concatenate([root_weight * data, prior])

    def jacobian(x: Floats, noise: float) -> Floats:
        full, part = unpack(x)
        predicted, slope, by_share = predict(design, full, part)
        _, outer = _soft((np.log(predicted) - log_measured) / noise)
        factor = root_weight * outer / (noise * predicted)
        relative = x[: free.size]
        data = slope[:, free] / relative * factor[:, None]
        prior = np.diag(1.0 / (priors.spread[free] * relative))
        if fit_share:
            data = np.column_stack([data, by_share * factor])
            prior = np.column_stack([prior, np.zeros(free.size)])
        return np.vstack([data, prior])

    lower, upper = np.exp(priors.low[free] - reference), np.exp(priors.high[free] - reference)
    x = np.clip(np.ones(free.size), lower * (1.0 + 1e-9), upper * (1.0 - 1e-9))
    if fit_share:
        x = np.append(x, np.clip(share, 1e-6, 1.0 - 1e-6))
        lower, upper = np.append(lower, 0.0), np.append(upper, 1.0)
    noise = scale if scale is not None else start.scale if start is not None else START_SCALE
    evaluations = 0
    user_weight = root_weight
    if start is not None:
        root_weight = user_weight * _trust(start_ratio(design, start), noise)
    # The scale is re-estimated between rounds; with a given scale one round is enough.
    rounds = 1 if scale is not None else ROUNDS if start is None else ROUNDS_FROM_START
    for turn in range(rounds):
        with threadpool_limits(limits=1, user_api="blas"):
            result = least_squares(
                residuals,
                x,
                jac=jacobian,
                bounds=(lower, upper),
                method="trf",
                x_scale="jac",
                # The cost is of the order of the rows' weight: a thousandth of one row is enough.
                ftol=1e-3 / float(np.sum(root_weight**2) + 1.0),
                xtol=1e-6,
                gtol=1e-8,
                max_nfev=max_evaluations,
                args=(noise,),
            )
        x = result.x
        evaluations += int(result.nfev)
        full, part = unpack(x)
        predicted, _, _ = predict(design, full, part)
        if scale is None:
            ratio = np.log(predicted) - log_measured
            noise = robust_scale(ratio)
            if turn >= 1 or start is not None:
                root_weight = user_weight * _trust(ratio, noise)
    full, part = unpack(x)
    return Solution(full, part, noise, bool(result.status > 0), evaluations)


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
