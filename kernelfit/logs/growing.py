"""Logs that grow while they are read."""

from __future__ import annotations

import contextlib
import copy
import os
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import numpy as np

from kernelfit.documents.problems import InputError, Problem
from kernelfit.logs.columns import Counts, ParsedRun, Reject, Requests, make_steps
from kernelfit.logs.engine_join import CHUNK_STEPS, EngineJoin
from kernelfit.logs.feed import Feed, recorder_files
from kernelfit.logs.frontend import HostSide
from kernelfit.logs.lines import BLOCK_BYTES, CODECS
from kernelfit.logs.marks import warmup_bits
from kernelfit.logs.recorder import recorded
from kernelfit.logs.row_columns import WorkerColumns
from kernelfit.logs.source import Reader, RunSource
from kernelfit.logs.stream import Piece

FOLLOWED = ("kernelfit", "vllm-log")
"""Readers whose logs can be followed: their rows say by themselves where a run begins."""

MARGIN_STEPS = 64
"""Ordinals that are waited for before a step is stored; a later row comes too late."""


class Rotated(Exception):
    """The file was cut or replaced: what follows belongs to another run."""


class Tail(Iterator[tuple[int, bytes]]):
    """The whole lines of a growing file.

    Iteration stops when there is nothing new and can be taken up again.

    Parameters
    ----------
    path : pathlib.Path
        The file.

    Raises
    ------
    InputError
        When it is compressed: such a file does not grow line by line.
    """

    def __init__(self, path: Path) -> None:
        if path.suffix in CODECS:
            message = "a compressed file cannot be followed"
            raise InputError([Problem(str(path), None, None, message, hint="ingest it")])
        self.path = path
        self._stream = path.open("rb", buffering=0)
        self._first = 1
        self._read = 0
        self._part = b""

    def __next__(self) -> tuple[int, bytes]:
        """Return the next stretch of lines, and the number of the first."""
        while data := self._stream.read(BLOCK_BYTES):
            self._read += len(data)
            data = self._part + data
            end = data.rfind(b"\n") + 1
            self._part = data[end:]
            if end:
                first = self._first
                self._first += data.count(b"\n", 0, end)
                return first, data[:end]
        self._check()
        raise StopIteration

    def _check(self) -> None:
        try:
            now = self.path.stat()
        except FileNotFoundError:
            return  # moved away; its successor may not be there yet
        own = os.fstat(self._stream.fileno())
        if now.st_ino != own.st_ino or now.st_size < self._read:
            raise Rotated

    def close(self) -> None:
        """Close the file."""
        self._stream.close()


class Followed(Protocol):
    """A run that grows."""

    def poll(self, *, final: bool = False) -> Iterator[Piece]:
        """Read what is new.

        Parameters
        ----------
        final : bool
            Whether nothing more is waited for.

        Yields
        ------
        Piece
            New steps and rejects.

        Raises
        ------
        Rotated
            When what follows belongs to another run; it is then in this one no more.
        InputError
            When the source is no log of its format.
        """
        ...

    def successor(self) -> Followed:
        """Return the run that follows where this one ended.

        Returns
        -------
        Followed
            The next run.
        """
        ...

    def summary(self) -> ParsedRun:
        """Return what is known so far.

        Returns
        -------
        ParsedRun
            Without steps, requests and rejects, but with their counts.
        """
        ...


class FollowedRecording:
    """A recording of one engine that is being written.

    Parameters
    ----------
    folder : pathlib.Path
        The recording.
    past : sequence of str
        Names of files that belong to earlier runs.
    """

    def __init__(self, folder: Path, past: frozenset[str] = frozenset()) -> None:
        self.folder = folder
        self.past = past
        self._join: EngineJoin | None = None
        self._joined = False
        self._steps = 0
        self._rejected = 0

    @property
    def names(self) -> frozenset[str]:
        """Files of this run and of earlier ones."""
        join = self._join
        return self.past | (set() if join is None else {feed.name for feed in join.feeds})

    def poll(self, *, final: bool = False) -> Iterator[Piece]:
        """Read what is new; parameters and yields as ``Followed.poll``."""
        if not final:
            self._look()
        join = self._join
        if join is None:
            return
        for feed in join.feeds:
            feed.ended = False
        if final:
            for feed in join.feeds:
                with contextlib.suppress(Rotated):
                    while feed.advance():
                        pass
            yield self._counted(join.join(None))
            return
        more = True
        while more:
            more = False
            for feed in join.feeds:
                # As far as the others are, and a stretch on: none runs far ahead.
                if feed.waiting < CHUNK_STEPS and feed.advance():
                    more = True
            upto = min((feed.seen for feed in join.feeds), default=-1) - MARGIN_STEPS
            if join.engine.waiting >= 2 * CHUNK_STEPS or any(
                worker.waiting >= CHUNK_STEPS for worker in join.workers
            ):
                # A file that stands still for so long will not go on.
                upto = max(upto, max(feed.seen for feed in join.feeds) - 2 * CHUNK_STEPS)
            if upto >= 0 and join.workers:
                self._joined = True
                yield self._counted(join.join(upto))

    def _look(self) -> None:
        """Take up files that have appeared."""
        engines = [p for p in recorder_files(self.folder, "engine") if p.name not in self.past]
        workers = [p for p in recorder_files(self.folder, "worker") if p.name not in self.past]
        if self._join is None:
            if len(engines) > 1:
                raise InputError(
                    [
                        Problem(
                            str(self.folder),
                            None,
                            None,
                            "holds several engines, which cannot be followed at a time",
                            got=str(len(engines)),
                            allowed="1",
                            hint="ingest the folder when the engines have ended",
                        )
                    ]
                )
            if not engines:
                return
            self._join = EngineJoin(
                0, Feed(engines[0], "engine", Tail(engines[0]), late=True), [], []
            )
        known = {feed.name for feed in self._join.feeds}
        if any(path.name not in known for path in engines):
            raise Rotated
        if self._joined:
            return  # a worker that appears later belongs to the next engine
        for path in workers:
            if path.name not in known:
                feed: Feed[WorkerColumns] = Feed(path, "worker", Tail(path), late=True)
                self._join.add_worker(feed)

    def _counted(self, piece: Piece) -> Piece:
        steps = piece.steps
        if steps.count and not self._steps:
            # Judged by what has come in so far; there is no waiting for a longer step.
            steps.marks[:] |= warmup_bits(steps.step, steps.duration_s)
        self._steps += piece.steps.count
        self._rejected += len(piece.rejects)
        return piece

    def successor(self) -> FollowedRecording:
        """Return the run that follows where this one ended.

        Returns
        -------
        FollowedRecording
            Of the files that are not this run's.
        """
        return FollowedRecording(self.folder, self.names)

    def summary(self) -> ParsedRun:
        """Return what is known so far; parameters and returns as ``Followed.summary``."""
        joins = [] if self._join is None else [self._join]
        waiting = sum(feed.waiting for join in joins for feed in join.feeds)
        return recorded(joins, [], HostSide.none(), self._steps, self._rejected, waiting)


class FollowedText:
    """A text log that is being written, read a stretch of lines at a time.

    Parameters
    ----------
    source : RunSource
        The log.
    reader : Reader
        Its reader.
    """

    def __init__(self, source: RunSource, reader: Reader) -> None:
        self._source = source
        self._reader = reader
        self._tail = Tail(source.path)
        self._held = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as this object
        self._first = 1
        self._lines = 0
        self._last: dict[int, int] = {}
        self._summary: ParsedRun | None = None
        self._next: list[ParsedRun] = []

    def poll(self, *, final: bool = False) -> Iterator[Piece]:
        """Read what is new; parameters and yields as ``Followed.poll``."""
        if final:
            return  # all whole lines were read, and a line without its end is none yet
        if self._next:
            yield self._take(self._next.pop(0))
            if self._next:
                raise Rotated
        for first, data in self._tail:
            if not self._lines:
                self._first = first
            self._held.write(data)
            self._lines += data.count(b"\n")
            yield from self._read()

    def _read(self) -> Iterator[Piece]:
        with tempfile.TemporaryDirectory(prefix="kernelfit-follow-") as folder:
            part = Path(folder) / self._source.path.name
            self._held.seek(0)
            with part.open("wb") as target:
                while data := self._held.read(BLOCK_BYTES):
                    target.write(data)
            try:
                runs = self._reader.read(replace(self._source, path=part), None)
            except InputError:
                return  # no step yet: these lines are read again with the next ones
        base = self._first - 1
        self._held.seek(0)
        self._held.truncate()
        self._lines = 0
        runs = tuple(replace(run, rejects=_moved(run.rejects, base)) for run in runs)
        if self._falls(runs[0]):
            self._next = list(runs)
            raise Rotated
        self._next = list(runs[1:])
        yield self._take(runs[0])
        if self._next:
            raise Rotated

    def _falls(self, run: ParsedRun) -> bool:
        """Tell whether the engine's count of steps began anew."""
        steps = run.steps
        for engine in np.unique(steps.engine).tolist():
            first = int(steps.step[steps.engine == engine][0])
            if first <= self._last.get(engine, -1):
                return True
        return False

    def _take(self, run: ParsedRun) -> Piece:
        for engine in np.unique(run.steps.engine).tolist():
            self._last[engine] = int(run.steps.step[run.steps.engine == engine][-1])
        bare = replace(run, steps=make_steps(0, {}), requests=Requests.none(), rejects=())
        before = self._summary
        if before is not None:
            counts = (before.counts, run.counts)
            bare = replace(
                bare,
                counts=Counts(
                    *(
                        sum(getattr(c, name) for c in counts)
                        for name in ("lines", "steps", "recognised", "rejected")
                    )
                ),
                stated={**run.stated, **before.stated},
                startup={**run.startup, **before.startup},
                intervals=(*before.intervals, *run.intervals),
                fit_refused_reason=before.fit_refused_reason,
            )
        self._summary = bare
        return Piece(run.steps, run.requests, run.rejects)

    def begin_anew(self) -> None:
        """Forget the run so far, but not the lines that were read beyond it."""
        self._last, self._summary = {}, None

    def successor(self) -> FollowedText:
        """Return the run that follows where this one ended.

        Returns
        -------
        FollowedText
            With the lines that are in this one no more.
        """
        if not self._next:
            self._tail.close()
            return FollowedText(self._source, self._reader)
        after = copy.copy(self)
        after.begin_anew()
        return after

    def summary(self) -> ParsedRun:
        """Return what is known so far; parameters and returns as ``Followed.summary``."""
        assert self._summary is not None
        return self._summary


def _moved(rejects: tuple[Reject, ...], lines: int) -> tuple[Reject, ...]:
    return tuple(replace(reject, line=reject.line + lines) for reject in rejects)
