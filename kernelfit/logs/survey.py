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
from kernelfit.logs.rows import Header

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
    header : Header or None
        The file's first header.
    replica : int
        The engine's data-parallel rank, as a header states it; 0 where none does.
    """

    window: tuple[int, int]
    ordinal: Ints
    tokens: Ints
    compared: tuple[int, int]
    header: Header | None = None
    replica: int = 0


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
    headers: list[Header] = []
    try:
        for number, data in read_blocks(path):
            block = decode_block(number, data)
            headers += [header for _, header in block.headers]
            steps = block.steps
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
    header = headers[0] if headers else None
    replica = next((said.dp for said in headers if said.dp is not None), 0)
    if not parts:
        empty = np.empty(0, dtype=np.int64)
        return Survey((0, 0), empty, empty, (0, 0), header, replica)
    head = concatenated(parts)
    order = np.argsort(head.ordinal, kind="stable")
    return Survey(
        (first or 0, last),
        head.ordinal[order],
        head.tokens[order],
        _window(head),
        header,
        replica,
    )


def _window(steps: StepColumns) -> tuple[int, int]:
    ends = max(int(steps.sched_ns.max()), int(steps.update_ns.max()))
    return int(steps.sched_ns.min()), ends


def survey_worker(path: Path) -> tuple[Header | None, Spans]:
    """Read the first rows of a worker's file.

    Parameters
    ----------
    path : pathlib.Path
        The file.

    Returns
    -------
    tuple of (Header or None, Spans)
        Its first header and its first rows.
    """
    parts: list[WorkerColumns] = []
    header: Header | None = None
    try:
        for number, data in read_blocks(path):
            block = decode_block(number, data)
            if header is None and block.headers:
                header = block.headers[0][1]
            if block.workers is not None:
                parts.append(block.workers)
            if sum(part.count for part in parts) >= COMPARED_ROWS:
                break
    except TruncatedFile:
        pass
    if not parts:
        empty, none = np.empty(0, dtype=np.int64), np.empty(0)
        return header, Spans(path.name, 0, empty, empty, empty, empty, none, none)
    return header, spans_of(path.name, concatenated(parts), on_gpu=False)


def owner(engines: Sequence[Survey], header: Header | None, spans: Spans) -> int | None:
    """Return the engine that a worker belongs to.

    What the files state of their processes decides; where they state nothing, the engine
    whose steps the worker's calls agree with.

    Parameters
    ----------
    engines : sequence of Survey
        At least one.
    header : Header or None
        The worker's header.
    spans : Spans
        The worker's first rows.

    Returns
    -------
    int or None
        Place of the engine; None when it cannot be told.
    """
    stated = _stated_owner(engines, header)
    if stated is not None:
        return stated
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


def _stated_owner(engines: Sequence[Survey], worker: Header | None) -> int | None:
    """Return the engine whose process is the worker's, or its parent; None if none says so."""
    if worker is None:
        return None
    found = [
        place
        for place, engine in enumerate(engines)
        if engine.header is not None and engine.header.pid is not None
        if engine.header.boot == worker.boot
        if engine.header.pid in (worker.pid, worker.ppid)
    ]
    return found[0] if len(found) == 1 else None


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
