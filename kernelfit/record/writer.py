"""A writer thread that flushes rows within 0.2 s.

The engine core is killed with SIGKILL at a normal shutdown, so nothing may
wait for an exit handler: rows reach the file from a thread of their own.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

FLUSH_INTERVAL_S = 0.1
"""Pause between flushes [s]. A row waits for one of them and for its own writing, which
together stay under the 0.2 s that a killed engine may lose."""

CLOCK_INTERVAL_S = 10.0
BUSY_CLOCK_INTERVAL_S = 1.0
"""Pause between clock rows while other rows are written [s]."""

_dumps = json.JSONEncoder(separators=(",", ":")).encode


def clock_row() -> dict[str, Any]:
    """Return one pairing of the wall clock and the monotonic clock.

    Returns
    -------
    dict
        ``{"t": "clock", "wall_ns": int, "mono_ns": int}``, both in nanoseconds.
    """
    return {"t": "clock", "wall_ns": time.time_ns(), "mono_ns": time.monotonic_ns()}


class RowEncoder:
    """Rows as JSON lines; a list that comes again is not encoded again.

    Most steps hold the requests of the step before, so that two of their four lists are the
    same objects. Encoding is what the writer's thread takes from the engine's.
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[list[Any], str]] = {}

    def encode(self, row: dict[str, Any]) -> str:
        """Return a row as one line of JSON, without its end.

        Parameters
        ----------
        row : dict
            A row of numbers, strings and lists.

        Returns
        -------
        str
            The line.
        """
        plain = {}
        lists = []
        for key, value in row.items():
            if type(value) is list and len(value) > 2:
                known = self._known.get(key)
                if known is None or known[0] is not value:
                    known = self._known[key] = (value, _dumps(value))
                lists.append(f'"{key}":{known[1]}')
            else:
                plain[key] = value
        if plain:
            lists.insert(0, _dumps(plain)[1:-1])
        return f"{{{','.join(lists)}}}"


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

    Attributes
    ----------
    path : pathlib.Path
        The file.
    busy_ns : int
        Processor time that the thread took so far [ns].
    """

    def __init__(
        self,
        path: Path,
        header: dict[str, Any],
        on_error: Callable[[Exception], None] | None = None,
    ) -> None:
        self.path = path
        self._on_error = on_error
        self._queue: deque[dict[str, Any]] = deque([header, clock_row()])
        self._encoder = RowEncoder()
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        self._lock = threading.Lock()
        self._last_clock_s = time.monotonic()
        self.busy_ns = 0
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
                lines.append(self._encoder.encode(self._queue.popleft()))
                # The engine's thread may wait for the interpreter: it gets it between rows.
                time.sleep(0)
            if lines:
                write_all(self._file, ("\n".join(lines) + "\n").encode("ascii"))

    def _run(self) -> None:
        while True:
            time.sleep(FLUSH_INTERVAL_S)
            try:
                self._tick()
            except Exception as error:
                if self._on_error is None:
                    raise
                self._on_error(error)
                return

    def _tick(self) -> None:
        begin_ns = time.thread_time_ns()
        pause_s = BUSY_CLOCK_INTERVAL_S if self._queue else CLOCK_INTERVAL_S
        now_s = time.monotonic()
        if now_s - self._last_clock_s >= pause_s:
            self._last_clock_s = now_s
            # What the thread took so far, since it shares the interpreter with the engine.
            self._queue.append({**clock_row(), "writer_ns": self.busy_ns})
        self.flush()
        self.busy_ns += time.thread_time_ns() - begin_ns


def write_all(file: int, data: bytes) -> None:
    """Write bytes to an open file, all of them.

    Parameters
    ----------
    file : int
        A file descriptor.
    data : bytes
        What to write.

    Raises
    ------
    OSError
        When the system refuses, on a full disk for example.
    """
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(file, rest) :]
