"""The ``kernelfit`` reader: folders written by ``kernelfit.record``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from kernelfit.documents.problems import InputError, Problem
from kernelfit.documents.runs import RunFacts
from kernelfit.logs.columns import Counts, ParsedRun, Requests, Steps, make_steps
from kernelfit.logs.engine_join import CHUNK_REQUESTS, CHUNK_STEPS, REORDER_STEPS, EngineJoin
from kernelfit.logs.feed import Feed, recorder_files
from kernelfit.logs.frontend import HostSide, front_end_files, read_host_side
from kernelfit.logs.joined import joined_steps
from kernelfit.logs.lines import CODECS
from kernelfit.logs.marks import warmup_bits
from kernelfit.logs.row_columns import StepColumns, WorkerColumns
from kernelfit.logs.rows import FORMAT_NAME
from kernelfit.logs.source import RunSource
from kernelfit.logs.stream import Piece, PiecewiseRun, collected
from kernelfit.logs.survey import Survey, owner, records_on_gpu, survey_engine, survey_worker

MAX_COST_SHARE = 0.01
"""Recorder's own share of the time above which its durations are not fitted [1]."""

WARM_UP_STEPS = CHUNK_STEPS
"""Steps of an engine against whose longest its first one is judged."""


class KernelfitReader:
    """Reader of the recorder's folders.

    Durations are the worker's own span (or the GPU's, where events were recorded), of
    the slowest rank; they are the step itself, so the timing is ``device``.
    """

    name = FORMAT_NAME
    version = 2
    needs_facts = False

    def files(self, source: RunSource) -> tuple[Path, ...]:
        """Return the recording's files; parameters as ``Reader.files``."""
        folder = source.path
        steps = (*recorder_files(folder, "engine"), *recorder_files(folder, "worker"))
        return (*steps, *front_end_files(folder))

    def read(self, source: RunSource, facts: RunFacts | None) -> tuple[ParsedRun, ...]:
        """Read a recording; parameters and errors as ``Reader.read``."""
        del facts  # the rows say all that the reader needs
        return collected(self, source)

    def open(
        self, source: RunSource, facts: RunFacts | None, *, whole: bool = False
    ) -> tuple[PiecewiseRun, ...]:
        """Open a recording; parameters and errors as ``StreamingReader.open``."""
        del facts
        folder = source.path
        engines = recorder_files(folder, "engine")
        workers = recorder_files(folder, "worker")
        _refuse_what_stands_there_twice(self.files(source))
        host = read_host_side(folder)
        _refuse_what_is_no_recording(folder, (*engines, *workers), host)
        lives, owned, orphans = _assigned(engines, workers)
        return tuple(
            RecordedRun(
                [(engines[e], [workers[w] for w in owned[e]]) for e in life.engines],
                [workers[w] for w in orphans] if life == lives[0] else [],
                side,
                whole=whole,
            )
            for life, side in zip(lives, _host_sides(host, lives), strict=True)
        )


def _refuse_what_stands_there_twice(files: Sequence[Path]) -> None:
    names = {file.name for file in files}
    twice = sorted(n for n in names if any(f"{n}{suffix}" in names for suffix in CODECS))
    if twice:
        raise InputError(
            Problem(str(file), None, None, "stands there plain and compressed")
            for file in files
            if file.name in twice
        )


def _refuse_what_is_no_recording(folder: Path, files: Sequence[Path], host: HostSide) -> None:
    problems: list[Problem] = []
    for file in files:
        feed: Feed[StepColumns] = Feed(file, file.name.partition("-")[0])
        place = str(file)
        try:
            feed.advance()
        except InputError as error:
            problems += error.problems
            continue
        if feed.lines == 0:
            problems.append(Problem(place, None, None, "the log is empty"))
        elif not feed.headers:
            message = "not a file of the kernelfit recorder: no header row"
            problems.append(Problem(place, 1, None, message, hint="is the reader right?"))
    problems += host.problems
    if not any(file.name.startswith("engine-") for file in files):
        message = "the folder holds no engine-*.jsonl of the recorder"
        problems.append(Problem(str(folder), None, None, message))
    if problems:
        raise InputError(problems)


@dataclass(frozen=True, slots=True)
class _Life:
    """Engines that ran side by side, and when [ns]."""

    engines: tuple[int, ...]
    first_ns: int
    last_ns: int


def _assigned(
    engines: Sequence[Path], workers: Sequence[Path]
) -> tuple[list[_Life], list[list[int]], list[int]]:
    """Return the lives, each engine's workers, and the workers of no known engine."""
    if len(engines) == 1:
        return [_Life((0,), 0, 0)], [list(range(len(workers)))], []
    seen = [survey_engine(path) for path in engines]
    owned: list[list[int]] = [[] for _ in engines]
    orphans: list[int] = []
    for number, path in enumerate(workers):
        found = owner(seen, *survey_worker(path))
        (orphans if found is None else owned[found]).append(number)
    return _lives(seen), owned, orphans


def _lives(engines: Sequence[Survey]) -> list[_Life]:
    """Group engines: those that overlap in time are ranks of one run."""
    order = sorted(range(len(engines)), key=lambda e: (engines[e].window, e))
    lives: list[list[int]] = []
    end = -1
    for e in order:
        first, last = engines[e].window
        if lives and first <= end:
            lives[-1].append(e)
        else:
            lives.append([e])
        end = max(end, last)
    windows = [[engines[e].window for e in life] for life in lives]
    return [
        _Life(
            tuple(sorted(life, key=lambda e: (engines[e].replica, e))),
            min(first for first, _ in window),
            max(last for _, last in window),
        )
        for life, window in zip(lives, windows, strict=True)
    ]


def _host_sides(host: HostSide, lives: Sequence[_Life]) -> list[HostSide]:
    """Give each life what began nearer to its steps than to those of another."""
    if len(lives) == 1:
        return [host]
    between = [(one.last_ns + other.first_ns) // 2 for one, other in pairwise(lives)]
    begins, ends = [0, *between], [*between, 1 << 62]
    parts = [host.within(begin, end) for begin, end in zip(begins, ends, strict=True)]
    parts[0] = replace(parts[0], rejects=host.rejects, lines=host.lines, recognised=host.recognised)
    return parts


class RecordedRun:
    """One life of an engine: its data-parallel ranks with their workers.

    Parameters
    ----------
    engines : sequence of (pathlib.Path, sequence of pathlib.Path)
        Each engine's file and its workers'.
    orphans : sequence of pathlib.Path
        Workers of which it cannot be told whose they are.
    host : HostSide
        What front ends and clients recorded.
    whole : bool
        Whether files are read whole before they are joined.
    """

    def __init__(
        self,
        engines: Sequence[tuple[Path, Sequence[Path]]],
        orphans: Sequence[Path],
        host: HostSide,
        *,
        whole: bool,
    ) -> None:
        self._joins = [
            EngineJoin(
                number,
                Feed(engine, "engine"),
                [Feed(worker, "worker") for worker in workers],
                [records_on_gpu(worker) for worker in workers],
            )
            for number, (engine, workers) in enumerate(engines)
        ]
        self._orphans: list[Feed[WorkerColumns]] = [Feed(path, "worker") for path in orphans]
        self._host = host
        self._whole = whole
        self._steps = 0
        self._rejected = 0

    @property
    def head(self) -> ParsedRun:
        """What is known before the first piece, as ``PiecewiseRun.head``."""
        return self.summary()

    def pieces(self) -> Iterator[Piece]:
        """Read the run; parameters and errors as ``PiecewiseRun.pieces``."""
        self._rejected += len(self._host.rejects)
        yield Piece(make_steps(0, {}), Requests.none(), self._host.rejects)
        for join in self._joins:
            for piece in _with_warm_up(_joined(join, self._whole)):
                self._steps += piece.steps.count
                self._rejected += len(piece.rejects)
                yield piece
        for feed in self._orphans:
            for piece in _unowned(feed):
                self._rejected += len(piece.rejects)
                yield piece

    def summary(self) -> ParsedRun:
        """Return everything else; parameters and returns as ``PiecewiseRun.summary``."""
        return recorded(self._joins, self._orphans, self._host, self._steps, self._rejected)


def recorded(
    joins: Sequence[EngineJoin],
    orphans: Sequence[Feed[WorkerColumns]],
    host: HostSide,
    steps: int,
    rejected: int,
    waiting: int = 0,
) -> ParsedRun:
    """Return what a recording is, beside its steps.

    Parameters
    ----------
    joins : sequence of EngineJoin
        The engines of one run.
    orphans : sequence of Feed
        Workers of no engine.
    host : HostSide
        What front ends and clients recorded.
    steps, rejected, waiting : int
        Steps and rejects so far, and rows that were read and are neither yet.

    Returns
    -------
    ParsedRun
        Without steps, requests and rejects.
    """
    busy_s = sum(join.busy_s for join in joins)
    cost_s = sum(join.cost_s for join in joins)
    share = cost_s / busy_s if busy_s > 0 else None
    feeds = [*(feed for join in joins for feed in join.feeds), *orphans]
    lines = sum(f.lines for f in feeds) + host.lines
    recognised = sum(f.recognised for f in feeds) + sum(j.recognised for j in joins)
    recognised += host.recognised
    versions = {h.engine_version for f in feeds for _, h in f.headers if h.engine_version}
    stated: dict[str, object] = {"engine": "vllm", "reader": FORMAT_NAME}
    if len(versions) == 1:
        stated["engine_version"] = versions.pop()
    return ParsedRun(
        steps=make_steps(0, {}),
        requests=Requests.none(),
        rejects=(),
        counts=Counts(lines - waiting, steps, recognised, rejected),
        timing="device",
        clock="monotonic clock of the engine's machine",
        composition="per_request",
        stated=stated,
        recorder_cost_share=share,
        fit_refused_reason=_refusal(share),
        events=host.events,
        served=host.served,
        host_cpu=host.cpu,
        tokenizer=host.tokenizer,
        unfinished=sum(f.cut for f in feeds) + sum(j.unfinished for j in joins),
    )


def _joined(join: EngineJoin, whole: bool) -> Iterator[Piece]:
    """Read the files of one engine beside each other."""
    engine = join.engine
    while engine.advance():
        full = engine.waiting >= CHUNK_STEPS or engine.waiting_requests >= CHUNK_REQUESTS
        if full and not whole:
            for worker in join.workers:
                while worker.seen < engine.seen and worker.advance():
                    pass
            yield join.join(engine.seen - REORDER_STEPS)
    # What lies beyond the engine's last step must not pile up.
    while rest := [worker for worker in join.workers if not worker.ended]:
        more = min(rest, key=lambda worker: worker.seen).advance()
        full = max(worker.waiting for worker in rest) >= 2 * CHUNK_STEPS
        if more and full and not whole:
            yield join.join(min(worker.seen for worker in rest) - REORDER_STEPS)
    yield join.join(None)
    yield join.damages()


def _with_warm_up(pieces: Iterator[Piece]) -> Iterator[Piece]:
    """Mark a first step that holds compilation; steps are held back until it is known."""
    held: list[Steps] | None = []
    for piece in pieces:
        if held is None:
            yield piece
            continue
        if piece.steps.count:
            held.append(piece.steps)
        count = sum(steps.count for steps in held)
        # Ordinals rise, so that step 0 is the first or is not there.
        if held and (count >= WARM_UP_STEPS or held[0].step[0] != 0):
            yield Piece(_marked(held), piece.requests, piece.rejects)
            held = None
        else:
            yield Piece(make_steps(0, {}), piece.requests, piece.rejects)
    if held:
        yield Piece(_marked(held), Requests.none())


def _marked(held: Sequence[Steps]) -> Steps:
    steps = joined_steps(held)
    steps.marks[:WARM_UP_STEPS] |= warmup_bits(
        steps.step[:WARM_UP_STEPS], steps.duration_s[:WARM_UP_STEPS]
    )
    return steps


def _unowned(feed: Feed[WorkerColumns]) -> Iterator[Piece]:
    reason = "not joined: it cannot be told which engine this worker belongs to"
    more = True
    while more:
        more = feed.advance()
        rows = feed.take(None) if feed.waiting else None
        for line in [] if rows is None else sorted(rows.line.tolist()):
            feed.reject(line, reason)
        if not more and feed.damage is not None:
            damaged = f"the compressed file ends early or is damaged: {feed.damage}"
            feed.reject(feed.lines, damaged)
        yield Piece(make_steps(0, {}), Requests.none(), tuple(feed.rejected()))
        feed.forget()


def _refusal(share: float | None) -> str | None:
    if share is not None and share > MAX_COST_SHARE:
        return (
            f"the recorder took {share:.1%} of the time, more than {MAX_COST_SHARE:.0%}; "
            "record on a less loaded machine"
        )
    return None
