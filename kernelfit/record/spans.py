"""The worker's side: the span of every forward pass, and the GPU's own time for it."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kernelfit.record.facts import attribute
from kernelfit.record.gpu import GpuClock, Stamp, gpu_clock

if TYPE_CHECKING:
    from kernelfit.record.recorder import Recorder
    from kernelfit.record.writer import RowWriter

_now = time.monotonic_ns


@dataclass(slots=True)
class Span:
    """A forward pass that is not over.

    Attributes
    ----------
    tokens, requests : int
        What the pass computes [tokens] and for how many requests.
    begin_ns : int
        When ``execute_model`` was called [ns].
    executed_ns : int
        When it returned [ns]; 0 before.
    sampling_ns : int
        When ``sample_tokens`` was called [ns]; 0 where it was not.
    cost_ns : int
        The recorder's own time so far [ns].
    stamps : list
        GPU events so far, one at each of these moments; empty without a GPU.
    """

    tokens: int
    requests: int
    begin_ns: int
    executed_ns: int
    sampling_ns: int
    cost_ns: int
    stamps: list[Stamp]


class WorkerSpans:
    """Rows of a process that computes.

    A pass is two calls: ``execute_model``, and ``sample_tokens`` where the first returned
    nothing. Between them the worker waits for the engine, under structured output for the
    whole result of the step before; that time is kept apart (``gap_ns``).

    Parameters
    ----------
    recorder : Recorder
        Where rows go.

    Attributes
    ----------
    ordinal : int
        Calls of ``execute_model`` so far, those of the warm-up left out.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self.probing = os.environ.get("KERNELFIT_SPEED_PROBE") == "1"
        self.ordinal = 0
        self.dummies = 0
        self._warming = 0
        self._open: Span | None = None
        self._clock: GpuClock | None = None
        self._writer: RowWriter | None = None

    def forget(self) -> None:
        """Let go of everything that belongs to the engine."""
        self._open = None
        self._clock = None

    def warming(self, change: int) -> None:
        """Enter or leave a warm-up, whose passes the engine does not know of.

        Parameters
        ----------
        change : int
            1 on entering, -1 on leaving.
        """
        self._warming += change
        self._open = None

    def started(self, worker: Any, output: Any) -> None:
        """Open the span of one forward pass.

        Parameters
        ----------
        worker : object
            The worker.
        output : object
            The scheduler output that it received.
        """
        if self._warming:
            return
        writer = self._writer_for(worker)
        called_ns = _now()
        left = self._open
        if left is not None:
            if left.executed_ns and not left.sampling_ns:
                # Nobody asked for its sample.
                self._close(worker, left, left.executed_ns)
            else:
                # A call raised: there is no time to write, but its turn in the count stays.
                self.ordinal += 1
        clock = self._clock
        if clock is not None:
            _put_all(writer, clock.ready())
        span = Span(
            output.total_num_scheduled_tokens, len(output.num_scheduled_tokens), 0, 0, 0, 0, []
        )
        if clock is not None:
            span.stamps.append(clock.stamp())
        self._open = span
        span.begin_ns = _now()
        span.cost_ns = span.begin_ns - called_ns

    def executed(self, worker: Any, over: bool) -> None:
        """Note that ``execute_model`` returned.

        Parameters
        ----------
        worker : object
            The worker.
        over : bool
            Whether that was all: no sampling follows.
        """
        span = self._open
        if span is None:
            return
        span.executed_ns = _now()
        if self._clock is not None:
            span.stamps.append(self._clock.stamp())
        if over:
            self._close(worker, span, span.executed_ns)
        else:
            span.cost_ns += _now() - span.executed_ns

    def sampling(self) -> None:
        """Note that ``sample_tokens`` was called."""
        span = self._open
        if span is None:
            return
        called_ns = _now()
        if self._clock is not None:
            span.stamps.append(self._clock.stamp())
        span.sampling_ns = _now()
        span.cost_ns += span.sampling_ns - called_ns

    def sampled(self, worker: Any) -> None:
        """Close the span when ``sample_tokens`` returned.

        Parameters
        ----------
        worker : object
            The worker.
        """
        span = self._open
        if span is None:
            return
        end_ns = _now()
        if self._clock is not None:
            span.stamps.append(self._clock.stamp())
        self._close(worker, span, end_ns)

    def _close(self, worker: Any, span: Span, end_ns: int) -> None:
        """Write the span's row; with a GPU, once its events are over."""
        self._open = None
        row: dict[str, Any] = {
            "t": "worker",
            "i": self.ordinal,
            "rank": rank_of(worker),
            "n": span.tokens,
            "requests": span.requests,
            "span_ns": [span.begin_ns, end_ns],
        }
        if span.sampling_ns:
            row["gap_ns"] = max(0, span.sampling_ns - span.executed_ns)
        self.ordinal += 1
        if self.probing:
            row["probe_ns"] = speed_probe_ns()
        writer = self._writer_for(worker)
        if self._clock is None:
            row["cost_ns"] = span.cost_ns + _now() - end_ns
            writer.put(row)
        else:
            self._clock.wait_for(row, span.stamps)
            ready = self._clock.ready()
            row["cost_ns"] = span.cost_ns + _now() - end_ns
            _put_all(writer, ready)

    def _writer_for(self, worker: Any) -> RowWriter:
        """Return the file's writer; on the first call, look for a GPU as well."""
        if self._writer is None:
            self._clock = gpu_clock(worker)
            self._writer = self._recorder.writer("worker", **place_of(worker))
        return self._writer

    def dummy(self, worker: Any, start_ns: int, end_ns: int) -> None:
        """Note a pass over nothing, made so that data-parallel ranks keep step.

        Parameters
        ----------
        worker : object
            The worker.
        start_ns, end_ns : int
            Monotonic clock around the call [ns].
        """
        if self._warming:
            return
        row = {
            "t": "dummy",
            "i": self.dummies,
            "rank": rank_of(worker),
            "run_ns": [start_ns, end_ns],
        }
        self.dummies += 1
        self._writer_for(worker).put(row)


def _put_all(writer: RowWriter, rows: list[dict[str, Any]]) -> None:
    for row in rows:
        writer.put(row)


def rank_of(worker: Any) -> int:
    """Return a worker's rank within its engine.

    Parameters
    ----------
    worker : object
        The worker.

    Returns
    -------
    int
        The rank; 0 where the worker states none.
    """
    return int(getattr(worker, "rank", 0))


def place_of(worker: Any) -> dict[str, Any]:
    """Return where a worker stands among the ranks, for its file's header.

    Parameters
    ----------
    worker : object
        The worker.

    Returns
    -------
    dict
        ``rank``, ``tp``, ``pp`` and ``dp``; None for what is not stated.
    """
    parallel = getattr(worker, "parallel_config", None)
    if parallel is None:
        parallel = attribute(worker, "vllm_config", "parallel_config")
    rank = rank_of(worker)
    width = attribute(parallel, "tensor_parallel_size")
    replica = attribute(parallel, "data_parallel_index")
    if replica is None:
        replica = attribute(parallel, "data_parallel_rank")
    return {
        "rank": rank,
        # Within an engine ranks count the tensor-parallel ones first.
        "tp": rank % width if isinstance(width, int) and width > 0 else None,
        "pp": rank // width if isinstance(width, int) and width > 0 else None,
        "dp": replica if isinstance(replica, int) else None,
    }


def speed_probe_ns() -> int:
    """Time a fixed piece of integer work on the worker's own core.

    Returns
    -------
    int
        The fastest of three tries [ns]. On a shared host the clock and the neighbours
        change the speed of a core by tens of percent; a step recorded beside a slow
        probe was slowed by the machine, whatever the batch.
    """
    best = 1 << 62
    for _ in range(3):
        start_ns = _now()
        sum(range(1500))
        best = min(best, _now() - start_ns)
    return best
