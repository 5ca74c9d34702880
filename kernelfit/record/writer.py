"""A writer thread that flushes rows within 0.2 s.

The engine core is killed with SIGKILL at a normal shutdown, so nothing may
wait for an exit handler: rows reach the file from a thread of their own.
"""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

FLUSH_INTERVAL_S = 0.2
CLOCK_INTERVAL_S = 10.0


def clock_row() -> dict[str, Any]:
    """Return one pairing of the wall clock and the monotonic clock.

    Returns
    -------
    dict
        ``{"t": "clock", "wall_ns": int, "mono_ns": int}``, both in nanoseconds.
    """
    return {"t": "clock", "wall_ns": time.time_ns(), "mono_ns": time.monotonic_ns()}


class RowWriter:
    """Append rows to one JSON-lines file from a thread of its own.

    Parameters
    ----------
    path : pathlib.Path
        The file to append to; its folder exists.
    header : dict
        The first row of the file.
    on_error : callable, optional
        Told of the first failure in the writer's thread (a full disk, for example), which
        then ends; without it the failure is raised there.
    """

    def __init__(
        self,
        path: Path,
        header: dict[str, Any],
        on_error: Callable[[Exception], None] | None = None,
    ) -> None:
        self._on_error = on_error
        self._queue: deque[dict[str, Any]] = deque([header, clock_row()])
        self._file = path.open("a", encoding="utf-8")
        self._lock = threading.Lock()
        self._next_clock_s = time.monotonic() + CLOCK_INTERVAL_S
        self._thread = threading.Thread(target=self._run, name="kernelfit-writer", daemon=True)
        self._thread.start()

    def put(self, row: dict[str, Any]) -> None:
        """Queue one row; encoding and writing happen in the writer thread.

        Parameters
        ----------
        row : dict
            A row of numbers, strings and lists; it must not be changed afterwards.
        """
        self._queue.append(row)

    def flush(self) -> None:
        """Write every queued row now."""
        with self._lock:
            lines = []
            while self._queue:
                lines.append(json.dumps(self._queue.popleft(), separators=(",", ":")))
            if lines:
                self._file.write("\n".join(lines) + "\n")
                self._file.flush()

    def _run(self) -> None:
        while True:
            time.sleep(FLUSH_INTERVAL_S)
            if time.monotonic() >= self._next_clock_s:
                self._queue.append(clock_row())
                self._next_clock_s += CLOCK_INTERVAL_S
            try:
                self.flush()
            except Exception as error:
                if self._on_error is None:
                    raise
                self._on_error(error)
                return
