"""From logs to the store: all inputs are read and checked, then all are written."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernelfit.documents.canonical import compact
from kernelfit.documents.problems import InputError, Problem
from kernelfit.logs.columns import ParsedRun, Reject
from kernelfit.logs.discover import discover, safe_id
from kernelfit.logs.registry import readers
from kernelfit.logs.source import Reader, RunSource
from kernelfit.store.facts import Documents, describe, first_facts, source_digest
from kernelfit.store.scan import RunRecord, load_store
from kernelfit.store.write import REJECTS_SUFFIX, read_rejects, write_run

SHOWN_REJECTS = 10
"""Rejected lines that a complaint names; the others are counted."""

Progress = Callable[[int, int, str], None]
"""Called with runs done, runs in all, and the name of the next one."""


@dataclass(frozen=True, slots=True)
class FileCounts:
    """What became of one source.

    Attributes
    ----------
    file : str
        The source's short name.
    lines : int
        Lines read; the sum of the next three.
    steps : int
        Lines that became steps.
    recognised : int
        Lines that are known but are no step of their own.
    rejected : int
        Lines in the rejects file.
    reader : str
        The reader.
    timing : str
        What the durations mean.
    fit_refused_reason : str or None
        Why a fit must not use them; None when it may.
    run_ids : tuple of str
        The runs that it became.
    skipped : bool
        Whether the store held it already, so that nothing was written.
    """

    file: str
    lines: int
    steps: int
    recognised: int
    rejected: int
    reader: str
    timing: str
    fit_refused_reason: str | None
    run_ids: tuple[str, ...]
    skipped: bool = False


@dataclass(frozen=True, slots=True)
class IngestReport:
    """What an ingestion did.

    Attributes
    ----------
    files : tuple of FileCounts
        One per source, in the order given.
    """

    files: tuple[FileCounts, ...]

    @property
    def run_ids(self) -> tuple[str, ...]:
        """Names of the runs of every source, without repeats."""
        return tuple(dict.fromkeys(run for file in self.files for run in file.run_ids))


@dataclass(slots=True)
class _Work:
    """One source on its way into the store; its rows are named last."""

    source: RunSource
    digest: str
    runs: list[ParsedRun]
    rows: list[dict[str, object]]
    skipped: bool = False


def ingest_paths(
    sources: Sequence[Path],
    out: Path,
    *,
    overrides: Mapping[str, object] | None = None,
    calib: Path,
    dry_run: bool = False,
    max_rejected: int | None = None,
    progress: Progress | None = None,
) -> IngestReport:
    """Read logs into the store.

    A source whose digest the store knows is skipped, under whatever name. A changed
    source replaces its earlier runs. Nothing is written before every source was read.

    Parameters
    ----------
    sources : sequence of pathlib.Path
        Files and folders.
    out : pathlib.Path
        The store.
    overrides : mapping, optional
        Facts from flags, by the names of the run document; None means not given.
    calib : pathlib.Path
        Folder with ``chips`` and ``models``.
    dry_run : bool
        Whether to leave the store as it is.
    max_rejected : int, optional
        Most rejected lines that a source may have which a fit would use; without it any
        number is kept in the rejects file and passed over.
    progress : callable, optional
        Called before each run.

    Returns
    -------
    IngestReport
        Counts of every source.

    Raises
    ------
    InputError
        With the problems of all inputs; the store is then untouched.
    """
    flags = {key: value for key, value in (overrides or {}).items() if value is not None}
    known = readers()
    documents = Documents(calib)
    found, problems = _found(sources, flags)
    held: dict[str, list[RunRecord]] = {}
    for record in load_store(out).runs:
        held.setdefault(str(record.row["source_digest"]), []).append(record)
    work: list[_Work] = []
    new: dict[str, _Work] = {}
    for number, source in enumerate(found):
        if progress is not None:
            progress(number, len(found), source.name)
        reader = known[source.reader]
        digest = source_digest(source, reader, flags, documents)
        if digest in held:
            rows = [dict(record.row) for record in held[digest]]
            work.append(_Work(source, digest, [], rows, skipped=True))
            kept = [r for row in rows for r in read_rejects(out, str(row["run_id"]))]
            problems += _over_limit(work[-1], kept, max_rejected)
        elif digest in new:
            # The rows are shared, so that they carry the names given below.
            work.append(_Work(source, digest, [], new[digest].rows, skipped=True))
        else:
            try:
                item = _read(source, reader, digest, flags, documents)
            except InputError as error:
                problems += error.problems
                continue
            new[digest] = item
            work.append(item)
            fresh = [reject for run in item.runs for reject in run.rejects]
            problems += _over_limit(item, fresh, max_rejected)
    if problems:
        raise InputError(problems)
    records = [record for group in held.values() for record in group]
    stale = _name(list(new.values()), records)
    if not dry_run:
        _write(out, list(new.values()), stale)
    if progress is not None:
        progress(len(found), len(found), "")
    return IngestReport(tuple(_counts(item) for item in work))


def _found(
    paths: Sequence[Path], flags: Mapping[str, object]
) -> tuple[list[RunSource], list[Problem]]:
    """Return the runs of every path, each once, and the problems met."""
    found: dict[Path, RunSource] = {}
    problems: list[Problem] = []
    for path in paths:
        try:
            for source in discover(path, flags):
                found.setdefault(source.path.resolve(), source)
        except InputError as error:
            problems += error.problems
    if not paths:
        problems.append(Problem("command line", None, None, "no log is named"))
    return list(found.values()), problems


def _read(
    source: RunSource,
    reader: Reader,
    digest: str,
    flags: Mapping[str, object],
    documents: Documents,
) -> _Work:
    """Read and describe one source."""
    facts = first_facts(source, flags) if reader.needs_facts else None
    runs = list(reader.read(source, facts))
    _refuse_empty(source, runs)
    rows: list[dict[str, object]] = []
    for run in runs:
        said = describe(source, run, flags, documents)
        reason = run.fit_refused_reason
        if reason is None and said.facts.pool.pp > 1 and run.timing == "device":
            reason = (
                f"with pipeline parallelism (pp {said.facts.pool.pp}) the span of one stage "
                "is not the step"
            )
        rows.append(
            {
                "run_id": source.run_id,
                "engine": said.facts.engine,
                "engine_version": said.facts.engine_version,
                "gpu": said.gpu,
                "model_name": said.model_name,
                "model_json": said.model_json,
                "pool_json": said.pool_json,
                "dtype": said.facts.dtype,
                "source": source.name,
                "source_digest": digest,
                "reader": reader.name,
                "reader_version": reader.version,
                "timing": run.timing,
                "clock": run.clock,
                "lines_read": run.counts.lines,
                "steps_kept": run.steps.count,
                "lines_recognised": run.counts.recognised,
                "rejected": run.counts.rejected,
                "recorder_cost_share": run.recorder_cost_share,
                "fit_refused_reason": reason,
                "startup_json": compact(dict(run.startup)) if run.startup else None,
                "host_cpu": run.host_cpu,
                "tokenizer": run.tokenizer,
                "fit": said.facts.fit,
            }
        )
    return _Work(source, digest, runs, rows)


def _refuse_empty(source: RunSource, runs: Sequence[ParsedRun]) -> None:
    """Refuse a source that gives nothing at all, naming the first bad line."""
    if any(
        run.steps.count or run.served.request.size or run.observed.value.size or run.intervals
        for run in runs
    ):
        return
    rejects = [reject for run in runs for reject in run.rejects]
    if not rejects:
        raise InputError([Problem(str(source.path), None, None, "the log holds no step")])
    # A step row that cannot be used says more than the span that then has no step.
    first = min(rejects, key=lambda r: "not joined" in r.reason or "repeated" in r.reason)
    message = f"no usable step; the first of {len(rejects)} rejected lines: {first.reason}"
    raise InputError([Problem(_file_of(source, first), first.line, None, message)])


def _file_of(source: RunSource, reject: Reject) -> str:
    return str(source.path / reject.file if source.path.is_dir() else source.path)


def _over_limit(item: _Work, rejects: Sequence[Reject], max_rejected: int | None) -> list[Problem]:
    """Say which lines of a source a fit would have to do without, when they are too many."""
    usable = any(row["fit_refused_reason"] is None for row in item.rows)
    if max_rejected is None or not usable or len(rejects) <= max_rejected:
        return []
    source = item.source
    whole = Problem(
        str(source.path),
        None,
        None,
        "more lines cannot be used than a fit may pass over",
        got=str(len(rejects)),
        allowed=str(max_rejected),
        hint=f"correct them, or go on without them with --max-rejected {len(rejects)}",
    )
    named = rejects[:SHOWN_REJECTS]
    return [whole, *(Problem(_file_of(source, r), r.line, None, r.reason) for r in named)]


def _name(work: Sequence[_Work], records: Sequence[RunRecord]) -> list[RunRecord]:
    """Give every new run its name, and return the records that they replace."""
    wanted = [item.source.run_id for item in work]
    taken = {record.run_id: record for record in records}
    stale: dict[str, RunRecord] = {}
    used: set[str] = set()
    for item in work:
        base = item.source.run_id
        if wanted.count(base) > 1:
            base = safe_id(f"{item.source.path.resolve().parent.name}-{base}")
        earlier = [r for r in records if r.row["source"] == item.source.name]
        stale |= {record.run_id: record for record in earlier}
        names = _lives(base, len(item.rows))
        if any(name in used or (name in taken and name not in stale) for name in names):
            # Another log has the name: the digest tells them apart.
            names = _lives(f"{base}-{item.digest.removeprefix('sha256:')[:8]}", len(item.rows))
        used.update(names)
        for row, name in zip(item.rows, names, strict=True):
            row["run_id"] = name
    return list(stale.values())


def _lives(base: str, count: int) -> list[str]:
    return [base if number == 1 else f"{base}.{number}" for number in range(1, count + 1)]


def _write(out: Path, work: Sequence[_Work], stale: Sequence[RunRecord]) -> None:
    written: set[str] = set()
    for item in work:
        for run, row in zip(item.runs, item.rows, strict=True):
            write_run(out, row, run)
            written.add(str(row["run_id"]))
    for record in stale:
        if record.run_id not in written:
            shutil.rmtree(record.folder)
            (out / f"{record.run_id}{REJECTS_SUFFIX}").unlink(missing_ok=True)


def _counts(item: _Work) -> FileCounts:
    def total(column: str) -> int:
        return sum(int(str(row[column])) for row in item.rows)

    reasons = [row["fit_refused_reason"] for row in item.rows]
    refused = next((str(reason) for reason in reasons if reason is not None), None)
    return FileCounts(
        file=item.source.name,
        lines=total("lines_read"),
        steps=total("steps_kept"),
        recognised=total("lines_recognised"),
        rejected=total("rejected"),
        reader=item.source.reader,
        timing=str(item.rows[0]["timing"]),
        fit_refused_reason=refused,
        run_ids=tuple(str(row["run_id"]) for row in item.rows),
        skipped=item.skipped,
    )
