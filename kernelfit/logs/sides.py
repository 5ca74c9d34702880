"""One pass over each of a recording's files, for what a check needs and a fit does not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from kernelfit.logs.feed import recorder_files
from kernelfit.logs.lines import TruncatedFile, read_lines

Counter = tuple[int, int]
"""Wave, and step within it, as data-parallel engines count them."""


class _Row(msgspec.Struct, gc=False):
    """Any row; fields of other kinds are absent."""

    t: str = ""
    i: int = -1
    n: int = -1
    pid: int | None = None
    ppid: int | None = None
    boot: str | None = None
    rank: int | None = None
    dp: int | None = None
    wave: int | None = None
    counter: int | None = None
    mono_ns: int | None = None
    writer_ns: int | None = None


_DECODER = msgspec.json.Decoder(_Row)


@dataclass(slots=True)
class Side:
    """What one process recorded.

    Attributes
    ----------
    name : str
        Its file.
    rows : list of (int, int)
        Ordinal and tokens of every step or span, in the file's order.
    counters : set of (int, int)
        Wave and counter of every step and dummy step.
    dummies : int
        Dummy steps.
    pid, ppid : int or None
        The process and its parent, as the file's header states them.
    boot : str or None
        Hash of the machine's boot.
    rank, dp : int or None
        Rank within the engine, and data-parallel rank.
    writer_share : float or None
        Time of the writer's thread by the time recorded [1].
    """

    name: str
    rows: list[tuple[int, int]] = field(default_factory=list)
    counters: set[Counter] = field(default_factory=set)
    dummies: int = 0
    pid: int | None = None
    ppid: int | None = None
    boot: str | None = None
    rank: int | None = None
    dp: int | None = None
    writer_share: float | None = None

    def owns(self, worker: Side, *, alone: bool) -> bool:
        """Return whether a worker belongs to this engine.

        Parameters
        ----------
        worker : Side
            The worker.
        alone : bool
            Whether this is the only engine.

        Returns
        -------
        bool
            By the process that started it; by rank where no process is stated.
        """
        if alone:
            return True
        if self.pid is not None and worker.pid is not None and self.boot == worker.boot:
            return self.pid in (worker.pid, worker.ppid)
        return self.dp == worker.dp


def engine_sides(folder: Path) -> tuple[Side, ...]:
    """Read the engines' files of a recording.

    Parameters
    ----------
    folder : pathlib.Path
        The recording.

    Returns
    -------
    tuple of Side
        In the order of their names.
    """
    return tuple(_side(path, "step") for path in recorder_files(folder, "engine"))


def worker_sides(folder: Path) -> tuple[Side, ...]:
    """Read the workers' files of a recording.

    Parameters
    ----------
    folder : pathlib.Path
        The recording.

    Returns
    -------
    tuple of Side
        In the order of their names.
    """
    return tuple(_side(path, "worker") for path in recorder_files(folder, "worker"))


def _rows(path: Path) -> Iterator[_Row]:
    try:
        for _, line in read_lines(path):
            try:
                yield _DECODER.decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError):
                continue  # the reader rejects it, with its reason
    except TruncatedFile:
        return


def _side(path: Path, kind: str) -> Side:
    side = Side(path.name)
    clocks: list[int] = []
    busy_ns = None
    for row in _rows(path):
        if row.t == kind:
            side.rows.append((row.i, row.n))
            if side.rank is None:
                side.rank = row.rank
        elif row.t == "dummy":
            side.dummies += 1
        elif row.t == "header":
            side.pid, side.ppid, side.boot = row.pid, row.ppid, row.boot
            side.rank, side.dp = row.rank, row.dp
        elif row.t == "clock" and row.mono_ns is not None:
            clocks.append(row.mono_ns)
            busy_ns = row.writer_ns if row.writer_ns is not None else busy_ns
        if row.counter is not None and row.t in (kind, "dummy"):
            side.counters.add((row.wave or 0, row.counter))
    if busy_ns is not None and clocks[-1] > clocks[0]:
        side.writer_share = busy_ns / (clocks[-1] - clocks[0])
    return side
