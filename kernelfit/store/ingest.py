"""From logs to the store: all inputs are read and checked, then all are put in place."""

from __future__ import annotations

import glob
import hashlib
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from kernelfit.documents.problems import InputError, Problem
from kernelfit.logs.columns import Reject
from kernelfit.logs.discover import discover, safe_id
from kernelfit.logs.registry import readers
from kernelfit.logs.source import RunSource
from kernelfit.store.commit import committing, put_in_place, staging, sweep
from kernelfit.store.parallel import spread, usual_jobs
from kernelfit.store.scan import RunRecord, load_store
from kernelfit.store.stage import Staged, Task, digest_of, reject_place, stage
from kernelfit.store.write import read_rejects

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
    replaced : tuple of str
        Runs of an earlier state of the same source that made way.
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
    replaced: tuple[str, ...] = ()


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
    """One source on its way into the store."""

    task: Task
    held: tuple[RunRecord, ...] = ()
    same_as: _Work | None = None
    stale: tuple[RunRecord, ...] = ()
    staged: Staged = Staged()  # noqa: RUF009 - a frozen, empty value

    @property
    def is_new(self) -> bool:
        """Whether it must be read."""
        return not self.held and self.same_as is None

    @property
    def rows(self) -> list[Mapping[str, object]]:
        """Rows of the runs that it became."""
        if self.held:
            return [record.row for record in self.held]
        return list((self.same_as or self).staged.rows)


def ingest_paths(
    sources: Sequence[Path],
    out: Path,
    *,
    overrides: Mapping[str, object] | None = None,
    calib: Path,
    dry_run: bool = False,
    max_rejected: int | None = None,
    progress: Progress | None = None,
    jobs: int | None = None,
    scheduler: str | None = None,
) -> IngestReport:
    """Read logs into the store.

    A source whose digest the store knows is skipped, under whatever name. A changed
    source replaces its earlier runs. Nothing is put in place before every source was read;
    what is put in place is the same whatever the number of processes.

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
    jobs : int, optional
        Processes that read; as many as there are cores where the logs are large.
    scheduler : str, optional
        Address of a Dask scheduler whose workers read instead.

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
    found, problems = _found(sources, flags)
    tasks = [Task(source, flags, calib.resolve(), key=source_key(source.path)) for source in found]
    if jobs is None:
        jobs = usual_jobs(len(tasks), sum(_size(task.source) for task in tasks))
    run = partial(spread, jobs=jobs, scheduler=scheduler)
    digests = list(run(digest_of, tasks))
    work = _planned(
        [replace(task, digest=digest) for task, digest in zip(tasks, digests, strict=True)],
        load_store(out).runs,
    )
    with ExitStack() as stack:
        new = [item for item in work if item.is_new]
        if not dry_run:
            sweep(out)
        if new and not dry_run:
            folder = stack.enter_context(staging(out)).resolve()
            for number, item in enumerate(new):
                item.task = replace(item.task, folder=folder / str(number))
        results = run(stage, [item.task for item in new])
        for number, item in enumerate(work):
            if progress is not None:
                progress(number, len(work), item.task.source.name)
            if item.is_new:
                item.staged = next(results)
                problems += item.staged.problems
            elif item.same_as is not None and item.same_as.staged.problems:
                # Its own place belongs into the complaint.
                problems += stage(item.task).problems
            problems += _over_limit(item, out, max_rejected)
        if problems:
            raise InputError(problems)
        if new and not dry_run:
            _put_in_place(out, new)
    if progress is not None:
        progress(len(work), len(work), "")
    return IngestReport(tuple(_counts(item) for item in work))


def source_key(path: Path) -> str:
    """Return what tells a source from others of the same name.

    Parameters
    ----------
    path : pathlib.Path
        Where it stands.

    Returns
    -------
    str
        A digest, from which the place cannot be read back.
    """
    return hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:16]


def _size(source: RunSource) -> int:
    return sum(p.stat().st_size for p in readers()[source.reader].files(source) if p.is_file())


def _found(
    paths: Sequence[Path], flags: Mapping[str, object]
) -> tuple[list[RunSource], list[Problem]]:
    """Return the runs of every path, each once, and the problems met."""
    found: dict[Path, RunSource] = {}
    problems: list[Problem] = []
    for path in _expanded(paths):
        try:
            for source in discover(path, flags):
                found.setdefault(source.path.resolve(), source)
        except InputError as error:
            problems += error.problems
    if not paths:
        problems.append(Problem("command line", None, None, "no log is named"))
    return list(found.values()), problems


def _expanded(paths: Sequence[Path]) -> list[Path]:
    """Replace patterns, which a shell that was told to leave them alone passes on."""
    found: list[Path] = []
    for path in paths:
        names = [] if path.exists() else sorted(glob.glob(str(path), recursive=True))  # noqa: PTH207
        found += [Path(name) for name in names] or [path]
    return found


def _planned(tasks: Sequence[Task], records: Sequence[RunRecord]) -> list[_Work]:
    """Tell which sources must be read, name their runs, and say what they replace."""
    held: dict[str, list[RunRecord]] = {}
    for record in records:
        held.setdefault(str(record.row["source_digest"]), []).append(record)
    work: list[_Work] = []
    first: dict[str, _Work] = {}
    for task in tasks:
        item = _Work(task)
        known = tuple(held.get(task.digest, ()))
        # A kill between two lives leaves a part of them: then all are read again.
        if known and len(known) >= int(known[0].row.get("lives") or 1):
            item.held = known
        elif task.digest in first:
            item.same_as = first[task.digest]
        else:
            first[task.digest] = item
            item.stale = tuple(r for r in records if _is_earlier(r, task))
        work.append(item)
    _name([item for item in work if item.is_new], records)
    return work


def _is_earlier(record: RunRecord, task: Task) -> bool:
    """Tell whether a stored run is an earlier state of a source, or a part of this one."""
    if record.row["source_digest"] == task.digest:
        return True
    key = record.row.get("source_key")
    if key is None:  # written before sources had keys
        return bool(record.row["source"] == task.source.name)
    return bool(key == task.key)


def _name(work: Sequence[_Work], records: Sequence[RunRecord]) -> None:
    """Give every new source the name of its first run; it does not depend on its rows."""
    wanted = [item.task.source.run_id for item in work]
    stale = {record.run_id for item in work for record in item.stale}
    taken = {record.run_id for record in records} - stale
    for item in work:
        source = item.task.source
        base = source.run_id
        earlier = [r.run_id for r in item.stale if int(r.row.get("life") or 1) == 1]
        if earlier:
            # A log that changed keeps its name.
            base = min(earlier)
        elif wanted.count(base) > 1:
            base = safe_id(f"{source.path.resolve().parent.name}-{base}")
        if _is_taken(base, taken):
            # Another log has the name: the digest tells them apart.
            base = f"{base}-{item.task.digest.removeprefix('sha256:')[:8]}"
        taken.add(base)
        item.task = replace(item.task, name=base)


def _is_taken(base: str, names: set[str]) -> bool:
    """Tell whether a name, or that of a later life of it, is in use."""
    life = re.compile(re.escape(base) + r"(\.\d+)?")
    return any(life.fullmatch(name) for name in names)


def _over_limit(item: _Work, out: Path, max_rejected: int | None) -> list[Problem]:
    """Say which lines of a source a fit would have to do without, when they are too many."""
    usable = any(row["fit_refused_reason"] is None for row in item.rows)
    count = _total(item, "rejected")
    if max_rejected is None or not usable or count <= max_rejected or item.same_as is not None:
        return []
    source = item.task.source
    whole = Problem(
        str(source.path),
        None,
        None,
        "more lines cannot be used than a fit may pass over",
        got=str(count),
        allowed=str(max_rejected),
        hint=f"correct them, or go on without them with --max-rejected {count}",
    )
    named: Sequence[Reject] = item.staged.first_rejects
    if item.held:
        names = [record.run_id for record in item.held]
        named = [r for name in names for r in read_rejects(out, name, SHOWN_REJECTS)]
    named = sorted(named[:SHOWN_REJECTS], key=lambda r: (r.file, r.line))
    return [whole, *(Problem(reject_place(source, r), r.line, None, r.reason) for r in named)]


def _put_in_place(out: Path, work: Sequence[_Work]) -> None:
    with committing(out):
        written: set[str] = set()
        for item in work:
            for folder, row in zip(item.staged.folders, item.staged.rows, strict=True):
                name = str(row["run_id"])
                put_in_place(folder, out / name)
                written.add(name)
        for item in work:
            for record in item.stale:
                if record.run_id not in written:
                    shutil.rmtree(record.folder, ignore_errors=True)


def _total(item: _Work, column: str) -> int:
    return sum(int(str(row[column])) for row in item.rows)


def _counts(item: _Work) -> FileCounts:
    reasons = [row["fit_refused_reason"] for row in item.rows]
    refused = next((str(reason) for reason in reasons if reason is not None), None)
    return FileCounts(
        file=item.task.source.name,
        lines=_total(item, "lines_read"),
        steps=_total(item, "steps_kept"),
        recognised=_total(item, "lines_recognised"),
        rejected=_total(item, "rejected"),
        reader=item.task.source.reader,
        timing=str(item.rows[0]["timing"]),
        fit_refused_reason=refused,
        run_ids=tuple(str(row["run_id"]) for row in item.rows),
        skipped=not item.is_new,
        replaced=tuple(record.run_id for record in item.stale),
    )
