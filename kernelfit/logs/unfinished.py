"""The end of a recording whose engine was killed: steps of which one side is missing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from kernelfit.logs.arrays import Ints

MAX_LOST_S = 0.5
"""Time that the unfinished end may span [s]. Files are flushed every 0.1 s and a kill loses at
most 0.2 s of each; a slow disk gets some room. What spans more was not lost by a kill."""

MAX_LOST_STEPS = 4
"""Steps that may be unfinished whatever they span: those in flight, where each may take seconds,
and those whose GPU events nobody asked for any more."""

MOST_LOST_STEPS = 1 << 16
"""Steps that no engine takes in ``MAX_LOST_S``, whatever its clock says."""


def unfinished_after(seen: Sequence[int], late: Callable[[int], Iterable[Ints]]) -> int | None:
    """Return the step behind which the rows of an engine's files have no counterpart yet.

    Every process writes its own file, so a kill cuts each at another step. What lies behind the
    last step that every file knows is no fault of the recording, as long as it is no more than
    a kill explains.

    Files that are longer than was read so far can be left out: with each of them the step can
    only become an earlier one, and what is too much for a kill stays too much.

    Parameters
    ----------
    seen : sequence of int
        Largest ordinal of each file, the engine's and its workers'; -1 for one without rows.
    late : callable
        Returns, for an ordinal, the starts of the rows behind it, file by file [ns].

    Returns
    -------
    int or None
        The last ordinal that every file knows; None when one of the files ends too early for
        a kill.
    """
    last = min(seen)
    if last < 0 or any(_is_too_much(moments) for moments in late(last)):
        return None
    return last


def _is_too_much(moments: Ints) -> bool:
    if moments.size <= MAX_LOST_STEPS:
        return False
    return moments.size > MOST_LOST_STEPS or int(np.ptp(moments)) > MAX_LOST_S * 1e9
