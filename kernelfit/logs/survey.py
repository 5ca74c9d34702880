"""What must be known of a recording's files before they are joined."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from kernelfit.logs.columns import Ints
from kernelfit.logs.decode import decode_block
from kernelfit.logs.engine_join import spans_of
from kernelfit.logs.join import Spans, agreement
from kernelfit.logs.lines import TruncatedFile, read_blocks
from kernelfit.logs.row_columns import StepColumns, WorkerColumns, concatenated

COMPARED_ROWS = 1 << 16
"""Rows by which it is told which engine a worker belongs to."""


@dataclass(frozen=True, slots=True, eq=False)
class Survey:
    """An engine's file at a glance.

    Attributes
    ----------
    window : tuple of (int, int)
        First and last moment of the whole file on the monotonic clock [ns]; zeros for an
        engine without steps.
    ordinal, tokens : ndarray of int64
        The first steps, ordinals rising.
    compared : tuple of (int, int)
        First and last moment of those steps [ns].
    """

    window: tuple[int, int]
    ordinal: Ints
    tokens: Ints
    compared: tuple[int, int]


def survey_engine(path: Path) -> Survey:
    """Read through an engine's file.

    Parameters
    ----------
    path : pathlib.Path
        The file.

    Returns
    -------
    Survey
        What it shows.
    """
    parts: list[StepColumns] = []
    rows = 0
    first, last = None, 0
    try:
        for number, data in read_blocks(path):
            steps = decode_block(number, data).steps
            if steps is None:
                continue
            begin, end = _window(steps)
            first = begin if first is None else min(first, begin)
            last = max(last, end)
            if rows < COMPARED_ROWS:
                parts.append(steps)
                rows += steps.count
    except TruncatedFile:
        pass
    if not parts:
        empty = np.empty(0, dtype=np.int64)
        return Survey((0, 0), empty, empty, (0, 0))
    head = concatenated(parts)
    order = np.argsort(head.ordinal, kind="stable")
    return Survey((first or 0, last), head.ordinal[order], head.tokens[order], _window(head))


def _window(steps: StepColumns) -> tuple[int, int]:
    ends = max(int(steps.sched_ns.max()), int(steps.update_ns.max()))
    return int(steps.sched_ns.min()), ends


def survey_worker(path: Path) -> Spans:
    """Read the first rows of a worker's file.

    Parameters
    ----------
    path : pathlib.Path
        The file.

    Returns
    -------
    Spans
        Its first rows.
    """
    parts: list[WorkerColumns] = []
    try:
        for number, data in read_blocks(path):
            rows = decode_block(number, data).workers
            if rows is not None:
                parts.append(rows)
            if sum(part.count for part in parts) >= COMPARED_ROWS:
                break
    except TruncatedFile:
        pass
    if not parts:
        empty, none = np.empty(0, dtype=np.int64), np.empty(0)
        return Spans(path.name, 0, empty, empty, empty, empty, none, none)
    return spans_of(path.name, concatenated(parts), on_gpu=False)


def owner(engines: Sequence[Survey], spans: Spans) -> int | None:
    """Return the engine that a worker belongs to.

    Parameters
    ----------
    engines : sequence of Survey
        At least one.
    spans : Spans
        The worker's first rows.

    Returns
    -------
    int or None
        Place of the engine; None when it cannot be told.
    """
    scores = []
    for engine in engines:
        agreed = agreement(engine.ordinal, engine.tokens, spans)
        first, last = engine.compared
        # Ranks of one machine share the monotonic clock, which tells engines with
        # equal batches apart.
        inside = np.count_nonzero((spans.begin_ns >= first) & (spans.end_ns <= last))
        scores.append((agreed, int(inside)) if agreed else (0, 0))
    best = max(scores)
    return scores.index(best) if best[0] and scores.count(best) == 1 else None


def records_on_gpu(path: Path) -> bool:
    """Tell whether a worker recorded times on the GPU, anywhere in its file.

    Parameters
    ----------
    path : pathlib.Path
        The worker's file.

    Returns
    -------
    bool
        True when at least one row has such a time.
    """
    try:
        for number, data in read_blocks(path):
            if b'"gpu_ms"' not in data:
                continue
            rows = decode_block(number, data).workers
            if rows is not None and bool(np.isfinite(rows.gpu_s).any()):
                return True
    except TruncatedFile:
        pass
    return False
