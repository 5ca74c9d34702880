"""Rows of the recorder's files as columns: what the stages after the decoder work on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import chain
from operator import attrgetter
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from kernelfit.logs.columns import UNKNOWN, Floats, Ints
from kernelfit.logs.rows import PackedStepRow, StepRow, StepScalars, WorkerRow

Bools = NDArray[np.bool_]

PAIRS = ("sched_ns", "submit_ns", "update_ns")
"""Begin and end of three parts of a step."""

LISTS = ("scheduled", "computed", "prompt_len", "cached")
"""The four counts of every request of a step."""

SCALARS = {
    "ordinal": "i",
    "tokens": "n",
    "resumed": "resumed",
    "preempted": "preempted",
    "drafts": "drafts",
    "in_flight": "in_flight",
    "cost_ns": "cost_ns",
}
"""Columns of single counts, and their names in a row."""


@dataclass(frozen=True, slots=True, eq=False)
class StepColumns:
    """Step rows of one engine process.

    Attributes
    ----------
    line : ndarray of int64, shape (steps,)
        Line of the file, from 1.
    ordinal, tokens, resumed, preempted, drafts, in_flight, cost_ns : ndarray of int64
        As the rows state them.
    kv_usage : ndarray of float64, shape (steps,)
        Share of the KV cache in use [1]; NaN where not recorded.
    sched_ns, submit_ns, update_ns : ndarray of int64, shape (steps, 2)
        Moments on the monotonic clock [ns]; zeros where not recorded.
    has_submit, has_update : ndarray of bool, shape (steps,)
        Whether those moments were recorded.
    sizes : ndarray of int64, shape (steps,)
        Requests of each step.
    scheduled, computed, prompt_len, cached : ndarray of int64, shape (requests,)
        The four counts [tokens]; ``UNKNOWN`` where not recorded.
    """

    line: Ints
    ordinal: Ints
    tokens: Ints
    resumed: Ints
    preempted: Ints
    drafts: Ints
    in_flight: Ints
    cost_ns: Ints
    kv_usage: Floats
    sched_ns: Ints
    submit_ns: Ints
    update_ns: Ints
    has_submit: Bools
    has_update: Bools
    sizes: Ints
    scheduled: Ints
    computed: Ints
    prompt_len: Ints
    cached: Ints

    @property
    def count(self) -> int:
        """Number of steps."""
        return int(self.line.size)

    @property
    def begin_ns(self) -> Ints:
        """When each step began on the monotonic clock [ns]."""
        return self.sched_ns[:, 0]

    @property
    def offsets(self) -> Ints:
        """Where each step's requests begin, and at last their number."""
        return np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(self.sizes)))

    def take(self, order: Ints) -> StepColumns:
        """Return the chosen steps with their requests.

        Parameters
        ----------
        order : ndarray of int64
            Positions.

        Returns
        -------
        StepColumns
            In that order.
        """
        sizes = self.sizes[order]
        starts = self.offsets[:-1][order]
        ends = np.cumsum(sizes)
        place = np.repeat(starts - (ends - sizes), sizes) + np.arange(int(sizes.sum()))
        return StepColumns(
            *(
                getattr(self, f.name)[place if f.name in LISTS else order]
                for f in fields(StepColumns)
            )
        )

    def part(self, first: int, end: int) -> StepColumns:
        """Return consecutive steps without copying them.

        Parameters
        ----------
        first, end : int
            Positions of the first step, and of the one after the last.

        Returns
        -------
        StepColumns
            Views.
        """
        requests = slice(int(self.sizes[:first].sum()), int(self.sizes[:end].sum()))
        return StepColumns(
            *(
                getattr(self, f.name)[requests if f.name in LISTS else slice(first, end)]
                for f in fields(StepColumns)
            )
        )


@dataclass(frozen=True, slots=True, eq=False)
class WorkerColumns:
    """Rows of one worker process.

    Attributes
    ----------
    line, ordinal, tokens, rank : ndarray of int64, shape (rows,)
        Line of the file, ordinal of the call, tokens it was given, and the rank.
    begin_ns, end_ns : ndarray of int64, shape (rows,)
        Start and end of the call on the monotonic clock, less what the worker waited for
        the engine between its two calls [ns].
    cost_ns : ndarray of int64, shape (rows,)
        The recorder's own time in the worker's process [ns].
    gpu_s, probe_s : ndarray of float64, shape (rows,)
        Time between the events on the GPU, and of the speed probe [s]; NaN where not
        recorded.
    """

    line: Ints
    ordinal: Ints
    tokens: Ints
    rank: Ints
    begin_ns: Ints
    end_ns: Ints
    cost_ns: Ints
    gpu_s: Floats
    probe_s: Floats

    @property
    def count(self) -> int:
        """Number of rows."""
        return int(self.line.size)

    def take(self, order: Ints) -> WorkerColumns:
        """Return the chosen rows.

        Parameters
        ----------
        order : ndarray of int64
            Positions.

        Returns
        -------
        WorkerColumns
            In that order.
        """
        return WorkerColumns(*(getattr(self, f.name)[order] for f in fields(WorkerColumns)))

    def part(self, first: int, end: int) -> WorkerColumns:
        """Return consecutive rows without copying them.

        Parameters
        ----------
        first, end : int
            Positions of the first row, and of the one after the last.

        Returns
        -------
        WorkerColumns
            Views.
        """
        return WorkerColumns(*(getattr(self, f.name)[first:end] for f in fields(WorkerColumns)))


Columns = TypeVar("Columns", StepColumns, WorkerColumns)


def concatenated(parts: Sequence[Columns]) -> Columns:
    """Return rows one after the other.

    Parameters
    ----------
    parts : sequence of StepColumns or of WorkerColumns
        At least one.

    Returns
    -------
    StepColumns or WorkerColumns
        All of them.
    """
    if len(parts) == 1:
        return parts[0]
    kind = type(parts[0])
    return kind(*(np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(kind)))


def worker_columns(rows: Sequence[WorkerRow], line: Ints) -> WorkerColumns:
    """Return worker rows as columns.

    Parameters
    ----------
    rows : sequence of WorkerRow
        The rows.
    line : ndarray of int64
        Their lines.

    Returns
    -------
    WorkerColumns
        The columns.
    """
    span = _integers(chain.from_iterable(r.span_ns for r in rows), 2 * len(rows)).reshape(-1, 2)
    gpu_ms = [r.gpu_ms for r in rows]
    probe_ns = [r.probe_ns for r in rows]
    return WorkerColumns(
        line=line,
        ordinal=_scalar(rows, "i"),
        tokens=_scalar(rows, "n"),
        rank=_scalar(rows, "rank"),
        begin_ns=np.ascontiguousarray(span[:, 0]),
        # Between its two calls the worker waits for the engine: that is not the pass.
        end_ns=span[:, 1] - _scalar(rows, "gap_ns"),
        cost_ns=_scalar(rows, "cost_ns"),
        gpu_s=np.array(gpu_ms, dtype=np.float64) * 1e-3,
        probe_s=np.array(probe_ns, dtype=np.float64) * 1e-9,
    )


def step_columns(rows: Sequence[StepRow], line: Ints) -> StepColumns:
    """Return step rows as columns.

    Parameters
    ----------
    rows : sequence of StepRow
        Rows whose lists are of one length each.
    line : ndarray of int64
        Their lines.

    Returns
    -------
    StepColumns
        The columns.
    """
    sizes = np.array([len(r.scheduled) for r in rows], dtype=np.int64)
    total = int(sizes.sum())
    columns: dict[str, NDArray[np.generic]] = {}
    for name in LISTS:
        values = chain.from_iterable(map(attrgetter(name), rows))
        columns[name] = _integers((UNKNOWN if v is None else v for v in values), total)
    for name in PAIRS:
        pairs = [getattr(r, name) for r in rows]
        given = (pair or (0, 0) for pair in pairs)
        columns[name] = _integers(chain.from_iterable(given), 2 * len(rows)).reshape(-1, 2)
        if name != "sched_ns":
            known = np.array([pair is not None for pair in pairs], dtype=bool)
            columns[f"has_{name.removesuffix('_ns')}"] = known
    return assembled(rows, line, sizes, columns)


def assembled(
    rows: Sequence[StepRow] | Sequence[PackedStepRow],
    line: Ints,
    sizes: Ints,
    columns: dict[str, Any],
) -> StepColumns:
    """Put the columns of steps together with the single counts of their rows.

    Parameters
    ----------
    rows : sequence of StepRow or of PackedStepRow
        The rows.
    line, sizes : ndarray of int64
        Their lines, and the requests of each.
    columns : dict of str to ndarray
        Lists and pairs.

    Returns
    -------
    StepColumns
        The columns.
    """
    single: dict[str, Any] = {name: _scalar(rows, field) for name, field in SCALARS.items()}
    kv_usage = np.array([r.kv_usage for r in rows], dtype=np.float64)
    return StepColumns(
        line=line,
        sizes=sizes,
        kv_usage=kv_usage,
        **single,
        **columns,
    )


def _scalar(rows: Sequence[StepScalars] | Sequence[WorkerRow], name: str) -> Ints:
    return _integers(map(attrgetter(name), rows), len(rows))


def _integers(values: object, count: int) -> Ints:
    return np.fromiter(values, dtype=np.int64, count=count)  # type: ignore[call-overload,no-any-return]
