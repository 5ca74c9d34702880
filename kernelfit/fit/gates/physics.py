"""Gates that hold a step against the datasheet."""

from __future__ import annotations

import numpy as np

from kernelfit.fit.gates.evidence import FLOOR_SLACK, Evidence
from kernelfit.fit.gates.facts import unusable
from kernelfit.fit.steps import Bools

CEILING_RATIO = 500.0
MOST_SHARE = 0.5


def below_floor(seen: Evidence) -> Bools:
    """Return the steps shorter than the datasheet's bound.

    Parameters
    ----------
    seen : Evidence
        The run.

    Returns
    -------
    ndarray of bool, shape (n_steps,)
        The mask.
    """
    with np.errstate(invalid="ignore"):
        return np.asarray(seen.run.duration_s < FLOOR_SLACK * seen.floor_s)


def not_step_time(seen: Evidence) -> Bools:
    """Return every step of a run that lies below the datasheet's bound for the most part.

    Parameters
    ----------
    seen : Evidence
        The run.

    Returns
    -------
    ndarray of bool, shape (n_steps,)
        All or none: a column of dispatch times has slow rows too, and they would pass
        for steps.
    """
    return _for_the_most_part(seen, below_floor(seen), whole=True)


def above_ceiling(seen: Evidence) -> Bools:
    """Return the steps far above the datasheet's bound, where most of the run is.

    Parameters
    ----------
    seen : Evidence
        The run.

    Returns
    -------
    ndarray of bool, shape (n_steps,)
        The mask. A share of odd rows is noise; most of the rows is a duration of
        something else.
    """
    with np.errstate(invalid="ignore"):
        high = np.asarray(seen.run.duration_s > CEILING_RATIO * seen.floor_s)
    return _for_the_most_part(seen, high, whole=False)


def _for_the_most_part(seen: Evidence, odd: Bools, *, whole: bool) -> Bools:
    usable = ~unusable(seen.run)
    if not usable.any() or np.mean(odd[usable]) <= MOST_SHARE:
        return np.zeros(seen.run.size, dtype=bool)
    return np.ones(seen.run.size, dtype=bool) if whole else odd
