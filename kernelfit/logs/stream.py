"""Runs that are read piece by piece, so that a log of any length fits in memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

from kernelfit.documents.runs import RunFacts
from kernelfit.logs.columns import ParsedRun, Reject, Requests, Steps, make_steps
from kernelfit.logs.joined import joined_requests, joined_steps
from kernelfit.logs.source import Reader, RunSource


class Disordered(Exception):
    """Rows stand so far out of order that a piece cannot be put in order by itself."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of a run.

    Attributes
    ----------
    steps : Steps
        Steps that follow those of the piece before.
    requests : Requests
        Requests that follow those of the piece before; not always of the same steps.
    rejects : tuple of Reject
        Lines that could not be used, in no promised order.
    """

    steps: Steps
    requests: Requests
    rejects: tuple[Reject, ...] = ()


class PiecewiseRun(Protocol):
    """A run of which only a piece is in memory at a time."""

    @property
    def head(self) -> ParsedRun:
        """What is known before the first piece: timing, composition, segments, stated facts.

        Returns
        -------
        ParsedRun
            Without steps, requests and rejects.
        """
        ...

    def pieces(self) -> Iterator[Piece]:
        """Read the run; possible once.

        Yields
        ------
        Piece
            One after the other.

        Raises
        ------
        InputError
            When the source is no log of its format.
        Disordered
            When the run must be opened again with ``whole``.
        """
        ...

    def summary(self) -> ParsedRun:
        """Return everything else, after the last piece.

        Returns
        -------
        ParsedRun
            Without steps, requests and rejects, but with their counts.
        """
        ...


@runtime_checkable
class StreamingReader(Reader, Protocol):
    """A reader that need not hold a run in memory."""

    def open(
        self, source: RunSource, facts: RunFacts | None, *, whole: bool = False
    ) -> Iterable[PiecewiseRun]:
        """Open a source.

        Parameters
        ----------
        source : RunSource
            The run.
        facts : RunFacts or None
            The run document; always given when ``needs_facts``.
        whole : bool
            Whether to put rows in order over the whole file, in memory.

        Returns
        -------
        iterable of PiecewiseRun
            One per life of the engine, to be read in this order: the next is known only
            when the last piece of the one before was taken.

        Raises
        ------
        InputError
            When the source is no log of its format.
        """
        ...


class _Held:
    """A run that is in memory already."""

    def __init__(self, run: ParsedRun) -> None:
        self._run = run
        self.head = replace(run, steps=make_steps(0, {}), requests=Requests.none(), rejects=())

    def pieces(self) -> Iterator[Piece]:
        yield Piece(self._run.steps, self._run.requests, self._run.rejects)

    def summary(self) -> ParsedRun:
        return self.head


def open_runs(
    reader: Reader, source: RunSource, facts: RunFacts | None, *, whole: bool = False
) -> Iterable[PiecewiseRun]:
    """Open a source with any reader.

    Parameters
    ----------
    reader : Reader
        One that streams, or one that reads a whole run.
    source : RunSource
        The run.
    facts : RunFacts or None
        The run document.
    whole : bool
        Whether to put rows in order over the whole file, in memory.

    Returns
    -------
    tuple of PiecewiseRun
        One per life of the engine.

    Raises
    ------
    InputError
        When the source is no log of its format.
    """
    if isinstance(reader, StreamingReader):
        return reader.open(source, facts, whole=whole)
    return tuple(_Held(run) for run in reader.read(source, facts))


def collected(reader: StreamingReader, source: RunSource) -> tuple[ParsedRun, ...]:
    """Read a source whole with a reader that streams.

    Parameters
    ----------
    reader : StreamingReader
        The reader.
    source : RunSource
        The run.

    Returns
    -------
    tuple of ParsedRun
        One per life of the engine; rejects sorted by file and line.

    Raises
    ------
    InputError
        When the source is no log of its format.
    """
    for whole in (False, True):
        try:
            return tuple(_collect(run) for run in reader.open(source, None, whole=whole))
        except Disordered:
            continue
    raise AssertionError("a run that is read whole is always in order")


def _collect(run: PiecewiseRun) -> ParsedRun:
    pieces = list(run.pieces())
    none = Piece(make_steps(0, {}), Requests.none())
    rejects = [reject for piece in pieces for reject in piece.rejects]
    return replace(
        run.summary(),
        steps=joined_steps([p.steps for p in (none, *pieces)]),
        requests=joined_requests([p.requests for p in (none, *pieces)]),
        rejects=tuple(sorted(rejects, key=lambda r: (r.file, r.line))),
    )
