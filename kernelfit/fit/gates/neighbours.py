"""Gates that hold a step against its neighbours and against steps of like shape."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from kernelfit.fit.gates.evidence import FLOOR_SLACK, Evidence
from kernelfit.fit.steps import Bools, Floats

BURST_RATIO = 1.5
BURST_WINDOW_STEPS = 9
CONTENTION_RATIO = 1.25
MERGED_RATIO = 1.25
MERGED_ALONE_RATIO = 1.5
MERGED_SPREADS = 3.0
MERGED_SUM_TOLERANCE = 0.1
SPILL_RATIO = 1.1
FEWEST_SPILLED = 8
STRAY_RATIO = 1.5
STRAY_SPREADS = 8.0
_CHUNK_ROWS = 1 << 17


def merged(seen: Evidence) -> Bools:
    """Return pairs of neighbours of which one took the other's time.

    Parameters
    ----------
    seen : Evidence
        The run.

    Returns
    -------
    ndarray of bool, shape (n_steps,)
        Both steps of each pair: one at least 1.25 times too slow, the other too fast by
        as much, both by three spreads or one by those and 1.5 times, and their sum
        within 10 % of what it should be. Also a step below the datasheet's bound and the
        one before it, where together they reach the bound and the one before is not
        known to have taken its usual time.
    """
    run, excess = seen.run, seen.excess
    out = np.zeros(run.size, dtype=bool)
    if run.size < 2:
        return out
    least = np.log(MERGED_RATIO)
    with np.errstate(invalid="ignore", divide="ignore"):
        slow, fast = excess > least, excess < -least
        opposite = (slow[:-1] & fast[1:]) | (fast[:-1] & slow[1:])
        sure = np.abs(excess) > MERGED_SPREADS * seen.spread
        # One that is surely and grossly wrong is enough: the sum tells that both are.
        gross = sure & (np.abs(excess) > np.log(MERGED_ALONE_RATIO))
        opposite &= (sure[:-1] & sure[1:]) | gross[:-1] | gross[1:]
        total = run.duration_s[:-1] + run.duration_s[1:]
        wanted = seen.usual_s[:-1] + seen.usual_s[1:]
        right = np.abs(total / wanted - 1.0) < MERGED_SUM_TOLERANCE
        short = (run.duration_s > 0.0) & (run.duration_s < FLOOR_SLACK * seen.floor_s)
        enough = total >= seen.floor_s[:-1] + seen.floor_s[1:]
        usual = np.abs(excess) <= np.log(SPILL_RATIO)
    absorbed = ~short[:-1] & short[1:] & enough & ~usual[:-1]
    pair = ((opposite & right) | absorbed) & (np.diff(run.step) == 1)
    out[:-1] |= pair
    out[1:] |= pair
    return out


def spilled(seen: Evidence) -> Bools:
    """Return the decode steps beside a prompt where those are slow as a class.

    Parameters
    ----------
    seen : Evidence
        The run.

    Returns
    -------
    ndarray of bool, shape (n_steps,)
        All decode steps just before a step with a prompt, or all just after one, where
        at least eight are known, their median is 1.1 times the usual and three in four
        are above it.

    Notes
    -----
    With asynchronous scheduling the engine hands over the next step before it takes the
    result of this one; where handing over a prompt takes long (launched without a
    graph), its time is written to the decode step before it. Position alone decides, so
    that the quick steps of the class go too and what is left is not a selection.
    """
    run = seen.run
    decode = run.totals["decode_requests"] >= run.totals["requests"]
    beside = (np.diff(run.step) == 1) & (decode[:-1] != decode[1:])
    before, after = np.zeros(run.size, dtype=bool), np.zeros(run.size, dtype=bool)
    before[:-1] = beside & decode[:-1]
    after[1:] = beside & decode[1:]
    out = np.zeros(run.size, dtype=bool)
    for where in (before, after):
        excess = seen.excess[where]
        excess = excess[np.isfinite(excess)]
        if excess.size < FEWEST_SPILLED:
            continue
        if np.median(excess) > np.log(SPILL_RATIO) and np.quantile(excess, 0.25) > 0.0:
            out |= where
    return out


def returned(seen: Evidence, dropped: Bools) -> Floats:
    """Return the durations with the time that spilled given back.

    Parameters
    ----------
    seen : Evidence
        The run.
    dropped : ndarray of bool, shape (n_steps,)
        Decode steps that ``spilled`` drops.

    Returns
    -------
    ndarray, shape (n_steps,)
        Durations [s]: a step with a prompt gets what the dropped decode step beside it
        took beyond its usual time, so that the sum of the two stays what it was. Where
        that usual time is unknown nothing moves.
    """
    run = seen.run
    decode = run.totals["decode_requests"] >= run.totals["requests"]
    out = run.duration_s.copy()
    extra = run.duration_s - seen.usual_s
    for place in np.flatnonzero(dropped & np.isfinite(extra)):
        for other in (place + 1, place - 1):
            beside = 0 <= other < run.size and abs(run.step[other] - run.step[place]) == 1
            if beside and not decode[other]:
                out[other] += extra[place]
                break
    return out


def bursts(seen: Evidence) -> Bools:
    """Return the steps far slower than the median of neighbours of the same shape.

    Parameters
    ----------
    seen : Evidence
        The run.

    Returns
    -------
    ndarray of bool, shape (n_steps,)
        The mask; a step is judged by the four before and the four after it, where at
        least four of them have its tokens and requests.
    """
    run = seen.run
    half = BURST_WINDOW_STEPS // 2
    pad = np.full(half, np.nan)
    tokens, requests, took = (
        np.concatenate([pad, values, pad])
        for values in (run.totals["tokens"], run.totals["requests"], run.duration_s)
    )
    out = np.zeros(run.size, dtype=bool)
    for low in range(0, run.size, _CHUNK_ROWS):
        high = min(low + _CHUNK_ROWS, run.size)
        part = slice(low, high + 2 * half)
        usual = _same_shape_median(tokens[part], requests[part], took[part], half)
        with np.errstate(invalid="ignore"):
            out[low:high] = run.duration_s[low:high] > BURST_RATIO * usual
    return out


def _same_shape_median(tokens: Floats, requests: Floats, took: Floats, half: int) -> Floats:
    """Return the median time of each window's members of the middle's shape, without it."""
    width = 2 * half + 1
    views = [np.lib.stride_tricks.sliding_window_view(v, width) for v in (tokens, requests, took)]
    same = (views[0] == views[0][:, half : half + 1]) & (views[1] == views[1][:, half : half + 1])
    same[:, half] = False
    same &= np.isfinite(views[2])
    ordered = np.sort(np.where(same, views[2], np.inf), axis=1)
    count: npt.NDArray[np.int64] = np.count_nonzero(same, axis=1)
    place = np.maximum(count, 1)[:, None]
    low = np.take_along_axis(ordered, (place - 1) // 2, axis=1)[:, 0]
    high = np.take_along_axis(ordered, place // 2, axis=1)[:, 0]
    return np.where(count >= half, (low + high) / 2.0, np.nan)


def stray(seen: Evidence) -> Bools:
    """Return the steps far from every step of like shape in the run.

    Parameters
    ----------
    seen : Evidence
        The run.

    Returns
    -------
    ndarray of bool, shape (n_steps,)
        Steps at least 1.5 times (and eight spreads) slower or faster; none where fewer
        than eight steps are alike.
    """
    limit = np.maximum(np.log(STRAY_RATIO), STRAY_SPREADS * seen.spread)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.abs(seen.excess) > limit)


def contended(seen: Evidence) -> Bools:
    """Return the steps beside which fixed work took far longer than usual.

    Parameters
    ----------
    seen : Evidence
        The run.

    Returns
    -------
    ndarray of bool, shape (n_steps,)
        The mask; none where the recorder did not probe.
    """
    run = seen.run
    with np.errstate(invalid="ignore"):
        slow = run.probe_s > CONTENTION_RATIO * run.probe_reference_s
    # The probe follows its step; the one before it tells how the step began.
    return np.asarray(slow | np.concatenate([[False], slow[:-1]])[: run.size])
