"""Recorded host work of runs as arrays, and the rules that drop some of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kernelfit.fit.front_end_evidence import EventGate
from kernelfit.fit.steps import Bools, Floats
from kernelfit.store.scan import RunRecord

MOST_EVENTS = 400_000
"""Events of one run above which stretches of them are read."""

KINDS: tuple[str, ...] = ("admission", "output", "completion")

WARM_UP_EVENTS = 1
"""First events of each kind and process, which load what the others find loaded."""


FEWEST_APART = 30
"""Events that must be left for those that met others to be dropped."""


@dataclass(frozen=True, slots=True, eq=False)
class FrontEndRun:
    """The host work of one run.

    Attributes
    ----------
    run : str
        The run.
    gpu : str
        Its GPU type.
    scope : str
        CPU, engine version and tokeniser.
    kind : ndarray of int, shape (n_events,)
        Place in ``KINDS``.
    start_s, duration_s : ndarray, shape (n_events,)
        Start and duration [s].
    tokens, requests : ndarray, shape (n_events,)
        Counts as the store's ``events`` say; NaN where unknown.
    process : ndarray of int, shape (n_events,)
        Which API server.
    """

    run: str
    gpu: str
    scope: str
    kind: npt.NDArray[np.int64]
    start_s: Floats
    duration_s: Floats
    tokens: Floats
    requests: Floats
    process: npt.NDArray[np.int64]

    def take(self, keep: Bools | npt.NDArray[np.int64]) -> FrontEndRun:
        """Return some of the events.

        Parameters
        ----------
        keep : ndarray
            A mask, or positions.

        Returns
        -------
        FrontEndRun
            The same run, fewer events.
        """
        return FrontEndRun(
            self.run,
            self.gpu,
            self.scope,
            self.kind[keep],
            self.start_s[keep],
            self.duration_s[keep],
            self.tokens[keep],
            self.requests[keep],
            self.process[keep],
        )


def scope_of(record: RunRecord) -> str:
    """Return what a run's host work holds for.

    Parameters
    ----------
    record : RunRecord
        The run.

    Returns
    -------
    str
        CPU, engine with its version, and tokeniser, with a word for what is not stated.
    """
    row = record.row
    engine = " ".join(str(row[key]) for key in ("engine", "engine_version") if row[key])
    cpu = row.get("host_cpu") or f"host of {record.gpu}, CPU not stated"
    return f"{cpu}; {engine}; {row.get('tokenizer') or 'tokeniser not stated'}"


def collect_front_ends(records: Sequence[RunRecord]) -> tuple[FrontEndRun, ...]:
    """Return the recorded host work of runs.

    Parameters
    ----------
    records : sequence of RunRecord
        Stored runs.

    Returns
    -------
    tuple of FrontEndRun
        Those with events whose durations a fit may use.
    """
    found = []
    for record in records:
        if record.gpu is None or record.fit_refused_reason is not None:
            continue
        if not record.rows("events"):
            continue
        table = record.sample("events", MOST_EVENTS)
        names = table.column("kind").to_pylist()
        found.append(
            FrontEndRun(
                record.run_id,
                record.gpu,
                scope_of(record),
                np.asarray([KINDS.index(name) for name in names], dtype=np.int64),
                _floats(table, "start_s"),
                _floats(table, "duration_s"),
                _floats(table, "tokens"),
                _floats(table, "requests"),
                np.nan_to_num(_floats(table, "process")).astype(np.int64),
            )
        )
    return tuple(found)


def _floats(table: pa.Table, name: str) -> Floats:
    column = table.column(name).cast(pa.float64())
    return np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.float64)


def gate_front_end(run: FrontEndRun) -> tuple[FrontEndRun, tuple[EventGate, ...]]:
    """Drop events that measure nothing a law could say.

    Parameters
    ----------
    run : FrontEndRun
        The run.

    Returns
    -------
    FrontEndRun
        What is left, in the order of time within each kind and process.
    tuple of EventGate
        What was dropped, by rule.
    """
    order = np.lexsort((run.start_s, run.process, run.kind))
    run = run.take(order)
    admission, output = run.kind == 0, run.kind == 1
    counted = np.where(admission, run.tokens >= 1, True)
    counted &= np.where(output, (run.requests >= 1) & (run.tokens >= 0), True)
    usable = np.isfinite(run.duration_s) & (run.duration_s > 0.0) & counted
    idle = output & (run.tokens == 0) & usable
    group = run.process * len(KINDS) + run.kind
    place = np.zeros(group.size, dtype=np.int64)
    for name in np.unique(group):
        held = np.flatnonzero((group == name) & usable & ~idle)
        place[held] = np.arange(held.size)
    warm = usable & ~idle & (place < WARM_UP_EVENTS)
    met = _together(run, group) & usable & ~warm & ~output
    for kind in (0, 2):
        # Where work never came alone, together is all that there is.
        if np.count_nonzero((run.kind == kind) & usable & ~warm & ~met) < FEWEST_APART:
            met &= run.kind != kind
    dropped = (
        ("events_unusable", ~usable, "no duration above zero, or its counts are missing"),
        ("events_idle", idle, "a call that handled outputs without a new token"),
        ("events_together", met, "it overlapped another of its kind, and waited for it in part"),
        ("events_warm_up", warm, "the first of its kind in its process"),
    )
    counts = tuple(
        EventGate(name, run.run, int(np.count_nonzero(mask)), rule)
        for name, mask, rule in dropped
        if mask.any()
    )
    return run.take(usable & ~idle & ~warm & ~met), counts


def _together(run: FrontEndRun, group: npt.NDArray[np.int64]) -> Bools:
    """Return which events overlap another of their kind and process.

    One process handles one request at a time: what takes long because others are handled in
    between is queueing, which is not the event's own work.
    """
    out = np.zeros(group.size, dtype=bool)
    for name in np.unique(group):
        held = np.flatnonzero((group == name) & np.isfinite(run.start_s + run.duration_s))
        begin, end = run.start_s[held], run.start_s[held] + run.duration_s[held]
        if held.size < 2:
            continue
        before = np.maximum.accumulate(end)[:-1]
        out[held[1:]] |= begin[1:] < before
        out[held[:-1]] |= begin[1:] < end[:-1]
    return out
