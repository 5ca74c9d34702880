"""The GPU's own clock: events on the worker's stream, read later and never waited for."""

from __future__ import annotations

import sys
from collections import deque
from typing import Any

from kernelfit.record.facts import attribute

MAX_WAITING = 4096
"""Passes whose events may be open at once; more mean that the events never come."""

Stamp = Any
"""A ``torch.cuda.Event``."""


class GpuClock:
    """Pooled timing events on the current stream.

    An event is recorded by an asynchronous call and looked at on later steps
    (``query``), so the GPU is never made to wait and neither is the host. An event whose time
    was read goes back to the pool.

    Parameters
    ----------
    cuda : module
        ``torch.cuda``, or what stands in its place.
    """

    def __init__(self, cuda: Any) -> None:
        self._cuda = cuda
        self._free: list[Stamp] = []
        self._waiting: deque[tuple[dict[str, Any], list[Stamp]]] = deque()

    def stamp(self) -> Stamp:
        """Record an event on the current stream.

        Returns
        -------
        object
            The event.
        """
        event = self._free.pop() if self._free else self._cuda.Event(enable_timing=True)
        event.record()
        return event

    def wait_for(self, row: dict[str, Any], stamps: list[Stamp]) -> None:
        """Keep a row until its events are over.

        Parameters
        ----------
        row : dict
            The row of a pass.
        stamps : list
            Its events, in order: begin and end of ``execute_model``, and of ``sample_tokens``
            where there was a call of it.

        Raises
        ------
        RuntimeError
            When events of thousands of passes never came.
        """
        self._waiting.append((row, stamps))
        if len(self._waiting) > MAX_WAITING:
            raise RuntimeError(f"the events of {MAX_WAITING} passes are still open")

    def ready(self) -> list[dict[str, Any]]:
        """Return the rows whose events are over, oldest first, with their times.

        Returns
        -------
        list of dict
            Each with ``gpu_ms``, the time within the calls [ms], and ``gpu_gap_ms``, the
            GPU's time between them [ms].
        """
        done = []
        while self._waiting and self._waiting[0][1][-1].query():
            row, stamps = self._waiting.popleft()
            row["gpu_ms"] = stamps[0].elapsed_time(stamps[1])
            if len(stamps) == 4:
                row["gpu_gap_ms"] = stamps[1].elapsed_time(stamps[2])
                row["gpu_ms"] += stamps[2].elapsed_time(stamps[3])
            self._free += stamps
            done.append(row)
        return done


def gpu_clock(worker: Any) -> GpuClock | None:
    """Return a clock for a worker that computes on a GPU.

    Parameters
    ----------
    worker : object
        The worker; by its first pass it has set its device.

    Returns
    -------
    GpuClock or None
        None where the worker computes elsewhere or torch sees no GPU.
    """
    cuda = attribute(sys.modules.get("torch"), "cuda")
    kind = attribute(worker, "device", "type")
    if cuda is None or kind not in (None, "cuda") or not cuda.is_available():
        return None
    return GpuClock(cuda)
