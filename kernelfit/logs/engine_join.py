"""The steps of one engine process with the spans of its workers, stretch by stretch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from kernelfit.logs.columns import UNKNOWN, Floats, Ints, Requests, Steps, make_steps
from kernelfit.logs.feed import Feed
from kernelfit.logs.join import Joined, Slip, Spans, join_spans
from kernelfit.logs.marks import mark_bit
from kernelfit.logs.row_columns import StepColumns, WorkerColumns
from kernelfit.logs.stream import Piece
from kernelfit.logs.totals import request_totals
from kernelfit.logs.unfinished import unfinished_after

CHUNK_STEPS = 1 << 16
CHUNK_REQUESTS = 1 << 19
"""Steps, or requests in them, that are joined at a time."""

REORDER_STEPS = 1 << 12
"""Ordinals by which a row may stand later in its file than it should: far more than steps
that are in flight at a time."""


class EngineJoin:
    """One engine process and its workers.

    Parameters
    ----------
    number : int
        The engine's place in its run.
    engine : Feed
        The engine's file.
    workers : sequence of Feed
        The files of its workers.
    on_gpu : sequence of bool
        Which workers recorded times on the GPU.

    Attributes
    ----------
    recognised : int
        Rows so far that were joined, or are known to be no step.
    unfinished : int
        Rows among them of steps that the end of the engine cut off.
    """

    def __init__(
        self,
        number: int,
        engine: Feed[StepColumns],
        workers: Sequence[Feed[WorkerColumns]],
        on_gpu: Sequence[bool],
    ) -> None:
        self.number = number
        self.engine = engine
        self.workers = tuple(workers)
        self.on_gpu = list(on_gpu)
        self.recognised = 0
        self.unfinished = 0
        self._engine_cost_ns = 0
        self._worker_cost_ns = [0] * len(self.workers)
        self._busy_ps = 0
        self._slip: Slip | None = None
        # Whether a kill may explain what the files lack at their ends.
        self._killed = bool(self.workers)
        self._lost: dict[str, int] = {}

    @property
    def feeds(self) -> tuple[Feed[StepColumns] | Feed[WorkerColumns], ...]:
        """The engine's file and its workers'."""
        return (self.engine, *self.workers)

    @property
    def cost_s(self) -> float:
        """The recorder's own time beside the kept steps and in the slowest worker [s]."""
        return (self._engine_cost_ns + max(self._worker_cost_ns, default=0)) * 1e-9

    @property
    def busy_s(self) -> float:
        """Sum of the durations of the steps that were kept [s]."""
        return self._busy_ps * 1e-12

    def _last_known(self, *, at_end: bool) -> int | None:
        """Return the step behind which nothing is final yet; None where there is no such."""
        ended = [f.seen for f in self.feeds if at_end or (f.ended and not f.grows)]
        # A compressed file that is damaged was not cut by a kill: the recorder writes plain ones.
        self._killed &= all(feed.damage is None for feed in self.feeds)
        if not ended or not self._killed:
            return None
        last = unfinished_after(ended, lambda at: [feed.moments_after(at) for feed in self.feeds])
        self._killed = last is not None
        return last

    def add_worker(self, worker: Feed[WorkerColumns]) -> None:
        """Take up a worker; possible until the first steps are joined.

        Parameters
        ----------
        worker : Feed
            The worker's file.
        """
        self.workers = (*self.workers, worker)
        self.on_gpu.append(False)

    def join(self, upto: int | None) -> Piece:
        """Join what has come in.

        Parameters
        ----------
        upto : int or None
            Largest ordinal that is joined; every file must have been read beyond it. None
            at the end of all files. Rows that may be the unfinished end of a killed engine
            are held back until that is known.

        Returns
        -------
        Piece
            The steps that are usable, their requests, and what is not usable.

        Raises
        ------
        Disordered
            When a row belongs before one that was joined already.
        """
        last = self._last_known(at_end=upto is None)
        if last is not None and upto is not None:
            upto, last = min(upto, last), None
        rows = self.engine.take(upto)
        calls = [worker.take(upto) for worker in self.workers]
        steps, requests = make_steps(0, {}), Requests.none()
        for place, call in enumerate(calls):
            if call is not None:
                self.on_gpu[place] |= bool(np.isfinite(call.gpu_s).any())
        spans = [
            _spans(feed, on_gpu, call)
            for feed, on_gpu, call in zip(self.workers, self.on_gpu, calls, strict=True)
        ]
        if rows is not None:
            joined, reasons, idle = self._join(rows, spans, last)
            keep = ~idle
            keep[list(reasons)] = False
            kept = np.flatnonzero(keep)
            self.recognised += int(np.count_nonzero(idle))
            steps = _columns(rows, joined, self.number).take(kept)
            requests = _requests(rows, keep, self.number)
            self._engine_cost_ns += int(rows.cost_ns[kept].sum())
            # Whole numbers, so that the sum does not depend on where the pieces end.
            self._busy_ps += int(np.rint(steps.duration_s * 1e12).astype(np.int64).sum())
            used = joined.used
            for place, reason in sorted(reasons.items()):
                self.engine.reject(int(rows.line[place]), reason)
        else:
            used = tuple(np.zeros(span.ordinal.size, dtype=bool) for span in spans)
        self._unused(calls, used, last)
        rejects = []
        for feed in self.feeds:
            rejects += feed.rejected()
            feed.forget()
        return Piece(steps, requests, tuple(rejects))

    def _join(
        self, rows: StepColumns, spans: Sequence[Spans], last: int | None
    ) -> tuple[Joined, dict[int, str], NDArray[np.bool_]]:
        """Join rows; return what it found, what is wrong with steps, and which are no steps."""
        own = _contradictions(rows)
        sound = np.ones(rows.count, dtype=bool)
        sound[list(own)] = False
        places = np.flatnonzero(sound)
        # A row that contradicts itself must not be taken for a slip of the sequences.
        found = join_spans(rows.ordinal[places], rows.tokens[places], spans, self._slip)
        self._slip = found.slip
        joined = Joined(
            _spread(found.duration_s, places, rows.count),
            _spread(found.host_s, places, rows.count),
            _spread(found.probe_s, places, rows.count),
            {int(places[place]): reason for place, reason in found.reasons.items()},
            found.used,
            found.slip,
        )
        reasons = dict(joined.reasons)
        for place in np.flatnonzero(joined.duration_s < 0).tolist():
            reasons.setdefault(place, f"the span is negative (got {joined.duration_s[place]} s)")
        idle = (rows.tokens == 0) & sound
        for place in np.flatnonzero(idle).tolist():
            reasons.pop(place, None)
        if last is not None:
            late = (rows.ordinal > last) & sound & ~idle
            self.unfinished += int(np.count_nonzero(late))
            for place in np.flatnonzero(late).tolist():
                reasons.pop(place, None)
            idle |= late
        for worker in self.workers:
            if worker.damage is not None:
                beyond = [p for p in reasons if rows.ordinal[p] > worker.seen]
                for place in beyond:
                    del reasons[place]
                    idle[place] = True
                self._lose(worker.name, len(beyond))
        return joined, own | reasons, idle

    def _unused(
        self,
        calls: Sequence[WorkerColumns | None],
        used: Sequence[NDArray[np.bool_]],
        last: int | None,
    ) -> None:
        """Account for the workers' rows, joined or not."""
        reason = "no usable step of the engine has its ordinal"
        if self._slip is not None:
            reason = self._slip.reason
        for place, (feed, call, mask) in enumerate(zip(self.workers, calls, used, strict=True)):
            if call is None:
                continue
            self._worker_cost_ns[place] += int(call.cost_ns.sum())
            left = ~mask
            if last is not None:
                late = call.ordinal > last
                self.unfinished += int(np.count_nonzero(late))
                left &= ~late
            self.recognised += int(np.count_nonzero(~left))
            if self.engine.damage is not None:
                beyond = left & (call.ordinal > self.engine.seen)
                count = int(np.count_nonzero(beyond))
                self.recognised += count
                self._lose(self.engine.name, count)
                left &= ~beyond
            for line in call.line[left].tolist():
                feed.reject(line, reason)

    def _lose(self, name: str, rows: int) -> None:
        self._lost[name] = self._lost.get(name, 0) + rows

    def damages(self) -> Piece:
        """Reject the ends of damaged files, each once, saying what was lost with them.

        Returns
        -------
        Piece
            Without steps.
        """
        rejects = []
        for feed in self.feeds:
            if feed.damage is not None:
                reason = f"the compressed file ends early or is damaged: {feed.damage}"
                if lost := self._lost.get(feed.name, 0):
                    reason += f"; {lost} later rows of the other files have no partner in it"
                feed.reject(feed.lines, reason)
            rejects += feed.rejected()
        return Piece(make_steps(0, {}), Requests.none(), tuple(rejects))


def _spans(feed: Feed[WorkerColumns], on_gpu: bool, rows: WorkerColumns | None) -> Spans:
    if rows is None:
        empty, none = np.empty(0, dtype=np.int64), np.empty(0)
        return Spans(feed.name, 0, empty, empty, empty, empty, none, none, on_gpu)
    return spans_of(feed.name, rows, on_gpu)


def spans_of(name: str, rows: WorkerColumns, on_gpu: bool) -> Spans:
    """Return worker rows as what the join takes.

    Parameters
    ----------
    name : str
        The worker's file.
    rows : WorkerColumns
        The rows.
    on_gpu : bool
        Whether the worker recorded times on the GPU.

    Returns
    -------
    Spans
        The same rows.
    """
    return Spans(
        name=name,
        rank=int(rows.rank[0]) if rows.count else 0,
        ordinal=rows.ordinal,
        tokens=rows.tokens,
        begin_ns=rows.begin_ns,
        end_ns=rows.end_ns,
        gpu_s=rows.gpu_s,
        probe_s=rows.probe_s,
        on_gpu=on_gpu,
    )


def _contradictions(rows: StepColumns) -> dict[int, str]:
    """Return what no single value of a step shows: sums, hits, repeats and order."""
    reasons: dict[int, str] = {}
    offsets = rows.offsets
    running = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(rows.scheduled)))
    sums = running[offsets[1:]] - running[offsets[:-1]]
    for step in np.flatnonzero(sums != rows.tokens).tolist():
        reasons[step] = (
            f"the requests schedule {sums[step]} tokens and the step {rows.tokens[step]}"
        )
    excess = (rows.cached > rows.computed) & (rows.computed != UNKNOWN)
    for place in np.flatnonzero(excess).tolist():
        step = int(np.searchsorted(offsets, place, side="right")) - 1
        reasons.setdefault(step, "a prefix-cache hit exceeds the computed tokens")
    again = np.flatnonzero(rows.ordinal[1:] == rows.ordinal[:-1]) + 1
    for step in again.tolist():
        reasons.setdefault(step, f"the ordinal {rows.ordinal[step]} is repeated")
    for name, pairs in (("sched", rows.sched_ns), ("submit", rows.submit_ns)):
        for step in np.flatnonzero(pairs[:, 1] < pairs[:, 0]).tolist():
            reasons.setdefault(step, f"{name}_ns runs backwards")
    return reasons


def _spread(values: Floats, places: Ints, count: int) -> Floats:
    """Return values at their places among all steps; NaN elsewhere."""
    if values.size == count:
        return values
    spread = np.full(count, np.nan)
    spread[places] = values
    return spread


def _columns(rows: StepColumns, joined: Joined, number: int) -> Steps:
    """Return every step, usable or not, ordinals rising."""
    columns: dict[str, NDArray[np.generic]] = dict(
        request_totals(rows.offsets, rows.scheduled, rows.computed, known_prompts(rows.prompt_len))
    )
    start, sched_end = rows.sched_ns[:, 0], rows.sched_ns[:, 1]
    gap_s = (rows.update_ns[:, 0] - sched_end) * 1e-9 - joined.host_s
    overlaps = (rows.in_flight > 1) | ~rows.has_update | (gap_s < 0)
    wait_s = (rows.update_ns[:, 0] - rows.submit_ns[:, 0]) * 1e-9
    update_s = (rows.update_ns[:, 1] - rows.update_ns[:, 0]) * 1e-9
    marks = (
        (rows.resumed > 0) * mark_bit("resumed")
        + (rows.preempted > 0) * mark_bit("preempted")
        + (rows.drafts > 0) * mark_bit("spec")
        + (rows.in_flight > 1) * mark_bit("in_flight")
        + (joined.duration_s == 0) * mark_bit("zero_duration")
    )
    waited = rows.has_submit & rows.has_update & (wait_s >= 0)
    columns |= {
        "step": rows.ordinal,
        "engine": np.full(rows.count, number, dtype=np.int64),
        "start_s": start * 1e-9,
        "duration_s": joined.duration_s,
        "schedule_s": (sched_end - start) * 1e-9,
        "dispatch_s": np.where(overlaps, np.nan, gap_s),
        "wait_s": np.where(waited, wait_s, np.nan),
        "update_s": np.where(rows.has_update & (update_s >= 0), update_s, np.nan),
        "probe_s": joined.probe_s,
        "kv_usage": rows.kv_usage,
        "marks": marks,
    }
    return make_steps(rows.count, columns)


def known_prompts(prompt_len: Ints) -> Ints:
    """Return prompt lengths; the recorder writes 0 where the engine does not state one.

    Parameters
    ----------
    prompt_len : ndarray of int64
        As recorded [tokens].

    Returns
    -------
    ndarray of int64
        ``UNKNOWN`` in place of 0 [tokens].
    """
    return np.where(prompt_len == 0, UNKNOWN, prompt_len)


def _requests(rows: StepColumns, keep: NDArray[np.bool_], number: int) -> Requests:
    everything = bool(keep.all())
    place = slice(None) if everything else np.repeat(keep, rows.sizes)
    step = np.repeat(rows.ordinal, rows.sizes)[place]
    return Requests(
        step=step,
        engine=np.full(step.size, number, dtype=np.int64),
        scheduled=rows.scheduled[place],
        computed=rows.computed[place],
        prompt_len=known_prompts(rows.prompt_len)[place],
        cached=rows.cached[place],
    )
