"""The end of a recording whose engine was killed: steps of which one side is missing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from kernelfit.logs.columns import Ints

MAX_LOST_S = 0.5
"""Time that the unfinished end may span [s]. Files are flushed every 0.1 s and a kill loses at
most 0.2 s of each; a slow disk gets some room. What spans more was not lost by a kill."""

MAX_LOST_STEPS = 4
"""Steps that may be unfinished whatever they span: those in flight, where each may take seconds,
and those whose GPU events nobody asked for any more."""

Mask = NDArray[np.bool_]


def unfinished(last: int, sides: Sequence[tuple[Ints, Ints]]) -> tuple[Mask, ...]:
    """Return the rows at the end of an engine's files that have no counterpart there yet.

    Every process writes its own file, so a kill cuts each at another step. What lies behind the
    last step that every file knows is no fault of the recording, as long as it is no more than
    a kill explains.

    Parameters
    ----------
    last : int
        Smallest of the files' largest ordinals; negative where a file has no row, or ends for
        another reason.
    sides : sequence of (ndarray of int64, ndarray of int64)
        Ordinal and start [ns] of the rows of each file, those beyond ``last`` among them.

    Returns
    -------
    tuple of ndarray of bool
        For each file, which of its rows are unfinished; none anywhere when one of the files ends
        too early for a kill.
    """
    none = tuple(np.zeros(numbers.size, dtype=bool) for numbers, _ in sides)
    if last < 0:
        return none
    behind = tuple(numbers > last for numbers, _ in sides)
    for mask, (_, moments) in zip(behind, sides, strict=True):
        late = moments[mask]
        if late.size > MAX_LOST_STEPS and int(np.ptp(late)) > MAX_LOST_S * 1e9:
            return none
    return behind
