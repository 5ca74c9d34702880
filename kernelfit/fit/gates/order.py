"""Gates on the order of steps: starts, restarts, gaps in the ids, clocks."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from kernelfit.fit.gates.evidence import Evidence
from kernelfit.fit.gates.facts import marked
from kernelfit.fit.steps import Bools, RunSteps

WARM_UP_STEPS = 5
WARM_UP_RATIO = 1.25
WARM_UP_SPREADS = 4.0
LONGEST_WARM_UP_STEPS = 200
LONGEST_WARM_UP_SHARE = 0.1
SAME_SPAN = 0.01
"""Difference below which a duration is the time to the next start [1]."""

SPAN_SHARE = 0.75
"""Share of the time over a gap from which a duration is taken to span it [1]; one of
two or more cycles is about half of it or less."""

CLOCK_SLACK = 1.1


def since_start(run: RunSteps) -> npt.NDArray[np.int64]:
    """Return how many steps lie between each step and the last start of the engine.

    Parameters
    ----------
    run : RunSteps
        The run.

    Returns
    -------
    ndarray of int64, shape (n_steps,)
        0 for the first step and for each step whose id is below the one before it.
    """
    place = np.arange(run.size)
    first = np.concatenate([[True], np.diff(run.step) < 0])[: run.size]
    return np.asarray(place - np.maximum.accumulate(np.where(first, place, 0)))


def warm_up(seen: Evidence) -> Bools:
    """Return the steps after a start that are slow because it was one.

    Parameters
    ----------
    seen : Evidence
        The run.

    Returns
    -------
    ndarray of bool, shape (n_steps,)
        The first five steps, those that the reader marked, and the longest stretch of
        at most 200 steps (and a tenth of the run) from the start of which at least half
        are slower than steps of their shape later.
    """
    run = seen.run
    age = since_start(run)
    out = (age < WARM_UP_STEPS) | marked(run, frozenset({"warmup"}))
    excess = np.nan_to_num(seen.excess, nan=0.0)
    limit = np.maximum(np.log(WARM_UP_RATIO), WARM_UP_SPREADS * np.nan_to_num(seen.spread))
    slow = excess > limit
    longest = int(min(LONGEST_WARM_UP_STEPS, LONGEST_WARM_UP_SHARE * run.size))
    for start in np.flatnonzero(age == 0):
        here = slow[start : start + longest] & (age[start : start + longest] < longest)
        here &= age[start : start + longest] == np.arange(here.size)
        share = np.cumsum(here) / np.arange(1, here.size + 1)
        long = np.flatnonzero(here & (share >= 0.5))
        if long.size:
            out[start : start + long[-1] + 1] = True
    return np.asarray(out)


def gaps(seen: Evidence) -> Bools:
    """Return the steps before which ids are missing.

    Parameters
    ----------
    seen : Evidence
        The run.

    Returns
    -------
    ndarray of bool, shape (n_steps,)
        The mask.
    """
    return np.concatenate([[False], np.diff(seen.run.step) > 1])[: seen.run.size]


def gap(seen: Evidence) -> Bools:
    """Return the cycles that span steps which the record lacks.

    Parameters
    ----------
    seen : Evidence
        The run.

    Returns
    -------
    ndarray of bool, shape (n_steps,)
        The mask; none for a timing other than ``cycle``, whose durations do not depend
        on the step beside them.

    Notes
    -----
    A cycle runs from start to start or from end to end, so that the step before a gap or
    the one after it spans the gap. Where starts are known they settle it: if the
    durations of the run are the times between its starts, the step before a gap goes
    when its duration is that time too; if they are not, a step beside a gap goes when
    its duration fills three quarters of the time over it. A reader that has dropped
    such steps itself thus loses nothing more. Without starts both steps go.
    """
    run = seen.run
    out = np.zeros(run.size, dtype=bool)
    right = np.flatnonzero(gaps(seen))
    if run.timing != "cycle" or right.size == 0:
        return out
    with np.errstate(invalid="ignore"):
        span = np.diff(run.start_s)
        same = np.abs(run.duration_s[:-1] / np.where(span > 0.0, span, np.nan) - 1.0) < SAME_SPAN
        next_to = (np.diff(run.step) == 1) & np.isfinite(span)
        if next_to.any() and np.mean(same[next_to]) > 0.5:
            out[:-1] = same & (np.diff(run.step) > 1)
            return out
        for beside in (right - 1, right):
            out[beside] |= ~(run.duration_s[beside] < SPAN_SHARE * span[right - 1])
    return out


def clock(seen: Evidence) -> Bools:
    """Return the steps whose start or duration contradicts the clock.

    Parameters
    ----------
    seen : Evidence
        The run.

    Returns
    -------
    ndarray of bool, shape (n_steps,)
        Both steps beside a start that goes back, and each step that would end after
        the start of the second step following it; none where starts are unknown.

    Notes
    -----
    Two steps may be in flight, so that a step may end after the next has begun, but not
    after the one that waits for it. Only neighbours in the engine's order are compared.
    """
    run = seen.run
    out = np.zeros(run.size, dtype=bool)
    next_to = np.diff(run.step) == 1
    with np.errstate(invalid="ignore"):
        back = next_to & (np.diff(run.start_s) < 0.0)
        out[:-1] |= back
        out[1:] |= back
        if run.size > 2:
            two = run.start_s[2:] - run.start_s[:-2]
            out[:-2] |= next_to[:-1] & next_to[1:] & (run.duration_s[:-2] > CLOCK_SLACK * two)
    return out
