"""The end of a recording whose engine was killed: steps of which one side is missing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from kernelfit.logs.columns import Ints
from kernelfit.logs.join import Spans

MAX_LOST_S = 0.5
"""Time that the unfinished end may span [s]. Files are flushed every 0.1 s and a kill loses at
most 0.2 s of each; a slow disk gets some room. What spans more was not lost by a kill."""

MAX_LOST_STEPS = 4
"""Steps that may be unfinished whatever they span: those in flight, where each may take seconds,
and those whose GPU events nobody asked for any more."""

Mask = NDArray[np.bool_]


def unfinished(
    ordinal: Ints, begin_ns: Ints, workers: Sequence[Spans]
) -> tuple[Mask, tuple[Mask, ...]]:
    """Return the rows at the end of an engine's files that have no counterpart there yet.

    Every process writes its own file, so a kill cuts each at another step. What lies behind the
    last step that every file knows is no fault of the recording, as long as it is no more than
    a kill explains.

    Parameters
    ----------
    ordinal, begin_ns : ndarray of int64, shape (steps,)
        Ordinal and start [ns] of the engine's steps, in any order.
    workers : sequence of Spans
        Its workers.

    Returns
    -------
    tuple of (ndarray of bool, tuple of ndarray of bool)
        Which steps of the engine, and which rows of every worker; none anywhere when one of
        the files ends too early for a kill.
    """
    sides = [(ordinal, begin_ns), *((w.ordinal, w.begin_ns) for w in workers)]
    none = (
        np.zeros(ordinal.size, dtype=bool),
        tuple(np.zeros(w.ordinal.size, dtype=bool) for w in workers),
    )
    if not workers or any(numbers.size == 0 for numbers, _ in sides):
        return none
    last = min(int(numbers.max()) for numbers, _ in sides)
    behind = [numbers > last for numbers, _ in sides]
    for mask, (_, moments) in zip(behind, sides, strict=True):
        late = moments[mask]
        if late.size > MAX_LOST_STEPS and int(np.ptp(late)) > MAX_LOST_S * 1e9:
            return none
    return behind[0], tuple(behind[1:])
