"""From checked rows to a run: what is kept, what is known and what is rejected."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from kernelfit.logs.columns import (
    FITTED_TIMINGS,
    Counts,
    Floats,
    ParsedRun,
    Reject,
    Requests,
    make_steps,
)
from kernelfit.logs.marks import mark_bit, warmup_bits
from kernelfit.logs.table_rows import Bools, TableRows

Columns = dict[str, NDArray[np.generic]]


def assembled(
    file: str,
    rows: TableRows,
    columns: Mapping[str, NDArray[np.generic]],
    duration_s: Floats,
    *,
    timing: str,
    clock: str,
    composition: str,
    stated: Mapping[str, object],
    requests: Requests | None = None,
    passed: Bools | None = None,
    chosen: Bools | None = None,
    others: Sequence[Reject] = (),
    headers: int = 0,
    segments: tuple[str, ...] = (),
    refused: str | None = None,
) -> ParsedRun:
    """Return the run that a table's rows give.

    Parameters
    ----------
    file : str
        Name of the file, for rejects.
    rows : TableRows
        The rows, with what is wrong with each.
    columns : mapping of str to ndarray, shape (rows,)
        Columns of ``Steps``; ``step`` and ``scheduled_tokens`` among them.
    duration_s : ndarray of float64, shape (rows,)
        Durations [s].
    timing, clock, composition : str
        As ``ParsedRun`` has them.
    stated : mapping of str to object
        Facts that the log states.
    requests : Requests or None
        Requests of every row, with the row's position as step; None for aggregates.
    passed : ndarray of bool, shape (rows,), optional
        Rows that are known and are no step of this run.
    chosen : ndarray of bool, shape (rows,), optional
        Rows of this run, where a file holds several.
    others : sequence of Reject
        Lines of this run that never became rows.
    headers : int
        Lines of this run that are known and never became rows.
    segments : tuple of str
        Names that the ``segment`` column points to.
    refused : str or None
        Why a fit must not use the durations; None leaves it to their timing.

    Returns
    -------
    ParsedRun
        Every row chosen is a step, recognised or rejected.
    """
    count = rows.count
    mine = np.ones(count, dtype=bool) if chosen is None else chosen
    left_out = np.zeros(count, dtype=bool) if passed is None else passed
    # A row that is left out on purpose is not judged.
    for place in np.flatnonzero(left_out & mine).tolist():
        rows.reasons.pop(place, None)
    bad = {place: why for place, why in rows.reasons.items() if mine[place]}
    good = mine & ~left_out
    good[list(bad)] = False
    # A row without work is known and is no step.
    good &= np.asarray(columns["scheduled_tokens"], dtype=np.int64) > 0
    marks = np.asarray(columns.get("marks", np.zeros(count)), dtype=np.int64)
    marks = marks | (duration_s == 0) * mark_bit("zero_duration")
    step = np.asarray(columns["step"], dtype=np.int64)
    marks[good] |= warmup_bits(step[good], duration_s[good])
    steps = make_steps(count, {**columns, "duration_s": duration_s, "marks": marks}).take(good)
    rejects = list(others) + [
        Reject(file, rows.raw.lines[place], why, rows.text(place)) for place, why in bad.items()
    ]
    kept = Requests.none()
    if requests is not None:
        inside = good[requests.step]
        kept = Requests(
            step=step[requests.step[inside]],
            engine=requests.engine[inside],
            scheduled=requests.scheduled[inside],
            computed=requests.computed[inside],
            prompt_len=requests.prompt_len[inside],
            cached=requests.cached[inside],
        )
    known = headers + int(np.count_nonzero(mine)) - steps.count - len(bad)
    if refused is None and timing not in FITTED_TIMINGS:
        refused = f"timing is {timing}: only a part of each step, which a fit must not take for it"
    return ParsedRun(
        steps=steps,
        requests=kept,
        rejects=tuple(sorted(rejects, key=lambda r: r.line)),
        counts=Counts(steps.count + known + len(rejects), steps.count, known, len(rejects)),
        timing=timing,
        clock=clock,
        composition=composition,
        stated=stated,
        fit_refused_reason=refused,
        segments=segments,
    )
