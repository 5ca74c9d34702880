"""The ``kernelfit`` reader: folders written by ``kernelfit.record``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kernelfit.documents.problems import InputError, Problem
from kernelfit.documents.runs import RunFacts
from kernelfit.logs.columns import (
    Counts,
    Floats,
    Ints,
    ParsedRun,
    Reject,
    Requests,
    Steps,
    make_steps,
    mark_bit,
    warmup_bits,
)
from kernelfit.logs.engine_rows import EngineRows, ints, pairs_of
from kernelfit.logs.frontend import HostSide, front_end_files, read_host_side
from kernelfit.logs.join import Joined, Spans, agreement, join_spans
from kernelfit.logs.joined import joined_requests, joined_steps
from kernelfit.logs.lines import line_texts
from kernelfit.logs.rows import (
    FORMAT_NAME,
    FORMAT_VERSION,
    RecorderFile,
    read_recorder_file,
)
from kernelfit.logs.source import RunSource
from kernelfit.logs.tail import unfinished
from kernelfit.logs.totals import request_totals

MAX_COST_SHARE = 0.01
"""Recorder's own share of the time above which its durations are not fitted [1]."""


def recorder_files(folder: Path, role: str) -> tuple[Path, ...]:
    """Return the files of one role in a recording.

    Parameters
    ----------
    folder : pathlib.Path
        The recording.
    role : str
        ``engine`` or ``worker``.

    Returns
    -------
    tuple of pathlib.Path
        ``<role>-*.jsonl`` and ``<role>-*.jsonl.gz``, sorted by name.
    """
    found = [*folder.glob(f"{role}-*.jsonl"), *folder.glob(f"{role}-*.jsonl.gz")]
    return tuple(sorted(found))


def _spans(file: RecorderFile) -> Spans:
    span = pairs_of(r.span_ns for r in file.workers)
    gpu_ms = np.array([np.nan if r.gpu_ms is None else r.gpu_ms for r in file.workers], dtype=float)
    probe_ns = np.array(
        [np.nan if r.probe_ns is None else r.probe_ns for r in file.workers], dtype=float
    )
    return Spans(
        name=file.path.name,
        rank=file.workers[0].rank if file.workers else 0,
        ordinal=ints([r.i for r in file.workers]),
        tokens=ints([r.n for r in file.workers]),
        begin_ns=span[:, 0],
        # Between its two calls the worker waits for the engine: that is not the pass.
        end_ns=span[:, 1] - ints([r.gap_ns for r in file.workers]),
        gpu_s=gpu_ms * 1e-3,
        probe_s=probe_ns * 1e-9,
    )


def _stated_owner(engines: Sequence[EngineRows], worker: RecorderFile) -> int | None:
    """Return the engine whose process is the worker's, or its parent; None if none says so."""
    if not worker.headers:
        return None
    said = worker.headers[0][1]
    found = [
        place
        for place, engine in enumerate(engines)
        for _, header in engine.file.headers[:1]
        if header.pid is not None and header.boot == said.boot
        if header.pid in (said.pid, said.ppid)
    ]
    return found[0] if len(found) == 1 else None


def _owner(engines: Sequence[EngineRows], worker: RecorderFile) -> int | None:
    """Return the engine that a worker belongs to; None when it cannot be told."""
    if len(engines) == 1:
        return 0
    stated = _stated_owner(engines, worker)
    if stated is not None:
        return stated
    spans = _spans(worker)
    scores = []
    for engine in engines:
        order = np.argsort(engine.ordinal, kind="stable")
        agreed = agreement(engine.ordinal[order], engine.tokens[order], spans)
        first, last = engine.window()
        # Ranks of one machine share the monotonic clock, which tells engines with
        # equal batches apart.
        inside = np.count_nonzero((spans.begin_ns >= first) & (spans.end_ns <= last))
        scores.append((agreed, int(inside)) if agreed else (0, 0))
    best = max(scores)
    return scores.index(best) if best[0] and scores.count(best) == 1 else None


def _columns(engine: EngineRows, joined: Joined) -> Steps:
    """Return every step of one engine, usable or not, ordinals rising."""
    rows = engine.file.steps
    count = len(rows)
    columns: dict[str, NDArray[np.generic]] = dict(
        request_totals(engine.offsets, engine.scheduled, engine.computed, engine.prompt_len)
    )
    in_flight = ints([r.in_flight for r in rows])
    start, sched_end = engine.sched[:, 0], engine.sched[:, 1]
    gap_s = (engine.update[:, 0] - sched_end) * 1e-9 - joined.host_s
    overlaps = (in_flight > 1) | ~engine.has_update | (gap_s < 0)
    wait_s = (engine.update[:, 0] - engine.submit[:, 0]) * 1e-9
    update_s = (engine.update[:, 1] - engine.update[:, 0]) * 1e-9
    marks = np.zeros(count, dtype=np.int64)
    for name, values in (
        ("resumed", [r.resumed > 0 for r in rows]),
        ("preempted", [r.preempted > 0 for r in rows]),
        ("spec", [r.drafts > 0 for r in rows]),
        ("in_flight", [r.in_flight > 1 for r in rows]),
    ):
        marks += np.array(values, dtype=np.int64) * mark_bit(name)
    marks += (joined.duration_s == 0) * mark_bit("zero_duration")
    marks |= warmup_bits(engine.ordinal, np.nan_to_num(joined.duration_s))
    columns |= {
        "step": engine.ordinal,
        "start_s": start * 1e-9,
        "duration_s": joined.duration_s,
        "schedule_s": (sched_end - start) * 1e-9,
        "dispatch_s": np.where(overlaps, np.nan, gap_s),
        "wait_s": np.where(engine.has_submit & engine.has_update & (wait_s >= 0), wait_s, np.nan),
        "update_s": np.where(engine.has_update & (update_s >= 0), update_s, np.nan),
        "probe_s": joined.probe_s,
        "kv_usage": np.array(
            [np.nan if r.kv_usage is None else r.kv_usage for r in rows], dtype=np.float64
        ),
        "marks": marks,
    }
    return make_steps(count, columns)


class _Part:
    """Steps, requests and line accounts of one engine, ready to be put together."""

    def __init__(self, number: int, engine: EngineRows, workers: Sequence[RecorderFile]) -> None:
        spans = [_spans(file) for file in workers]
        order = np.argsort(engine.ordinal, kind="stable")
        # A row that contradicts itself must not be taken for a slip of the sequences.
        sound = order[~np.isin(order, list(engine.reasons))]
        joined = join_spans(engine.ordinal[sound], engine.tokens[sound], spans)
        joined = Joined(
            _spread(joined.duration_s, sound, order.size),
            _spread(joined.host_s, sound, order.size),
            _spread(joined.probe_s, sound, order.size),
            {int(sound[place]): reason for place, reason in joined.reasons.items()},
            joined.used,
            joined.unused,
        )
        reasons = dict(engine.reasons)
        for place, reason in joined.reasons.items():
            reasons.setdefault(place, reason)
        for place in np.flatnonzero(joined.duration_s < 0).tolist():
            reasons.setdefault(place, f"the span is negative (got {joined.duration_s[place]} s)")
        idle = engine.tokens == 0
        self.idle = int(np.count_nonzero(idle))
        for place in np.flatnonzero(idle).tolist():
            if place not in engine.reasons:
                reasons.pop(place, None)
            else:
                self.idle -= 1
        tail, worker_tails = unfinished(engine.ordinal, engine.sched[:, 0], spans)
        tail &= ~idle
        tail[list(engine.reasons)] = False
        for place in np.flatnonzero(tail).tolist():
            reasons.pop(place, None)
        self.unfinished = int(np.count_nonzero(tail))
        keep = ~idle & ~tail
        keep[list(reasons)] = False
        keep_order = order[keep[order]]
        steps = _columns(engine, joined)
        steps.engine[:] = number
        self.steps = steps.take(keep_order)
        self.requests = _requests(engine, keep_order, number)
        self.cost_s = sum(engine.file.steps[p].cost_ns for p in keep_order.tolist()) * 1e-9
        self.cost_s += max((_cost_s(file) for file in workers), default=0.0)
        self.rejects = _rejects(engine.file, engine.file.step_lines, reasons)
        self.joined = 0
        for file, used, unused, late in zip(
            workers, joined.used, joined.unused, worker_tails, strict=True
        ):
            self.joined += int(np.count_nonzero(used & ~late))
            self.unfinished += int(np.count_nonzero(late))
            left = np.flatnonzero(~used & ~late).tolist()
            self.rejects += _rejects(file, file.worker_lines, dict.fromkeys(left, unused))


def _cost_s(worker: RecorderFile) -> float:
    """Return the recorder's own time in a worker's process [s]."""
    return sum(row.cost_ns for row in worker.workers) * 1e-9


def _spread(values: Floats, places: Ints, count: int) -> Floats:
    """Return values at their places among all steps; NaN elsewhere."""
    spread = np.full(count, np.nan)
    spread[places] = values
    return spread


def _requests(engine: EngineRows, order: Ints, number: int) -> Requests:
    sizes = np.diff(engine.offsets)[order]
    starts = engine.offsets[:-1][order]
    ends = np.cumsum(sizes)
    place = np.repeat(starts - (ends - sizes), sizes) + np.arange(int(sizes.sum()))
    return Requests(
        step=np.repeat(engine.ordinal[order], sizes),
        engine=np.full(place.size, number, dtype=np.int64),
        scheduled=engine.scheduled[place],
        computed=engine.computed[place],
        prompt_len=engine.prompt_len[place],
        cached=engine.cached[place],
    )


def _rejects(file: RecorderFile, lines: Sequence[int], reasons: dict[int, str]) -> list[Reject]:
    texts = line_texts(file.path, [lines[place] for place in reasons])
    return [
        Reject(file.path.name, lines[place], reason, texts.get(lines[place], ""))
        for place, reason in sorted(reasons.items())
    ]


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
        folder = source.path
        names = [file.name for file in self.files(source)]
        twice = sorted(n for n in names if f"{n}.gz" in names)
        if twice:
            raise InputError(
                Problem(str(folder / n), None, None, "stands there plain and compressed")
                for n in twice
            )
        engine_files = [read_recorder_file(p) for p in recorder_files(folder, "engine")]
        worker_files = [read_recorder_file(p) for p in recorder_files(folder, "worker")]
        host = read_host_side(folder)
        problems = [p for f in (*engine_files, *worker_files) for p in _header_problems(f)]
        problems += host.problems
        if not engine_files:
            message = "the folder holds no engine-*.jsonl of the recorder"
            problems.append(Problem(str(folder), None, None, message))
        if problems:
            raise InputError(problems)
        engines = [EngineRows(file) for file in engine_files]
        owned: list[list[RecorderFile]] = [[] for _ in engines]
        orphans: list[RecorderFile] = []
        for file in worker_files:
            owner = _owner(engines, file)
            (orphans if owner is None else owned[owner]).append(file)
        lives = _lives(engines)
        return tuple(
            _run(
                [(engines[e], owned[e]) for e in life],
                orphans if life == lives[0] else [],
                part,
            )
            for life, part in zip(lives, _host_sides(host, engines, lives), strict=True)
        )


def _header_problems(file: RecorderFile) -> list[Problem]:
    place = str(file.path)
    if file.lines == 0:
        return [Problem(place, None, None, "the log is empty")]
    if not file.headers:
        message = "not a file of the kernelfit recorder: no header row"
        return [Problem(place, 1, None, message, hint="is the reader right?")]
    found = []
    role = "engine" if file.path.name.startswith("engine") else "worker"
    for line, header in file.headers:
        if header.format != FORMAT_NAME or not 1 <= header.version <= FORMAT_VERSION:
            got = f"{header.format} version {header.version}"
            allowed = f"{FORMAT_NAME} version 1 to {FORMAT_VERSION}"
            found.append(
                Problem(place, line, None, "unknown recorder format", got=got, allowed=allowed)
            )
        elif header.role != role:
            message = "the header's role does not fit the file's name"
            found.append(Problem(place, line, None, message, got=header.role, allowed=role))
    return found


def _lives(engines: Sequence[EngineRows]) -> list[list[int]]:
    """Group engines: those that overlap in time are ranks of one run."""
    order = sorted(range(len(engines)), key=lambda e: (engines[e].window(), e))
    lives: list[list[int]] = []
    end = -1
    for e in order:
        first, last = engines[e].window()
        if lives and first <= end:
            lives[-1].append(e)
        else:
            lives.append([e])
        end = max(end, last)
    return [sorted(life, key=lambda e: (engines[e].replica(), e)) for life in lives]


def _host_sides(
    host: HostSide, engines: Sequence[EngineRows], lives: Sequence[Sequence[int]]
) -> list[HostSide]:
    """Give each life what began nearer to its steps than to those of another."""
    if len(lives) == 1:
        return [host]
    spans = [[engines[e].window() for e in life] for life in lives]
    between = [
        (max(last for _, last in one) + min(first for first, _ in other)) // 2
        for one, other in pairwise(spans)
    ]
    begins, ends = [0, *between], [*between, 1 << 62]
    parts = [host.within(begin, end) for begin, end in zip(begins, ends, strict=True)]
    parts[0] = replace(parts[0], rejects=host.rejects, lines=host.lines, recognised=host.recognised)
    return parts


def _run(
    engines: Sequence[tuple[EngineRows, list[RecorderFile]]],
    orphans: Sequence[RecorderFile],
    host: HostSide,
) -> ParsedRun:
    """Put the engines of one run together."""
    parts = [_Part(number, rows, files) for number, (rows, files) in enumerate(engines)]
    rejects = [reject for part in parts for reject in part.rejects]
    files = [f for rows, workers in engines for f in (rows.file, *workers)] + list(orphans)
    for file in files:
        rejects += file.rejects
        if file.path.name.startswith("engine"):
            stray = dict.fromkeys(range(len(file.workers)), "a worker row in an engine file")
            rejects += _rejects(file, file.worker_lines, stray)
        else:
            stray = dict.fromkeys(range(len(file.steps)), "a step row in a worker file")
            rejects += _rejects(file, file.step_lines, stray)
    for file in orphans:
        reason = "not joined: it cannot be told which engine this worker belongs to"
        spans = dict.fromkeys(range(len(file.workers)), reason)
        rejects += _rejects(file, file.worker_lines, spans)
    rejects += host.rejects
    rejects.sort(key=lambda r: (r.file, r.line))
    steps = joined_steps([part.steps for part in parts])
    requests = joined_requests([part.requests for part in parts])
    busy_s = float(np.sum(steps.duration_s))
    share = sum(part.cost_s for part in parts) / busy_s if busy_s > 0 else None
    recognised = sum(f.recognised for f in files) + host.recognised
    recognised += sum(p.idle + p.joined + p.unfinished for p in parts)
    versions = {h.engine_version for f in files for _, h in f.headers if h.engine_version}
    stated: dict[str, object] = {"engine": "vllm", "reader": FORMAT_NAME}
    if len(versions) == 1:
        stated["engine_version"] = versions.pop()
    return ParsedRun(
        steps=steps,
        requests=requests,
        rejects=tuple(rejects),
        counts=Counts(
            lines=sum(f.lines for f in files) + host.lines,
            steps=steps.count,
            recognised=recognised,
            rejected=len(rejects),
        ),
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
        unfinished=sum(f.cut for f in files) + sum(p.unfinished for p in parts),
    )


def _refusal(share: float | None) -> str | None:
    if share is not None and share > MAX_COST_SHARE:
        return (
            f"the recorder took {share:.1%} of the time, more than {MAX_COST_SHARE:.0%}; "
            "record on a less loaded machine"
        )
    return None
