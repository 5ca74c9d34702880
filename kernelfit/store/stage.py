"""Reading one source into a folder beside the store, where a whole ingestion is put together."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kernelfit.documents.canonical import compact
from kernelfit.documents.problems import InputError, Problem
from kernelfit.logs.columns import ParsedRun, Reject
from kernelfit.logs.registry import readers
from kernelfit.logs.source import Reader, RunSource
from kernelfit.logs.stream import Disordered, PiecewiseRun, open_runs
from kernelfit.store.facts import Documents, describe, first_facts, source_digest
from kernelfit.store.write import RunWriter, table_file, write_row


@dataclass(frozen=True, slots=True)
class Task:
    """One source to read; everything that another process or machine must know.

    Attributes
    ----------
    source : RunSource
        The source.
    flags : mapping of str to object
        Facts from flags.
    calib : pathlib.Path
        Folder with ``chips`` and ``models``.
    digest : str
        The source's digest; empty while it is not known.
    key : str or None
        What tells sources of one name apart.
    name : str
        Name of the first run.
    folder : pathlib.Path or None
        Where runs are written; None to write nothing.
    """

    source: RunSource
    flags: Mapping[str, object]
    calib: Path
    digest: str = ""
    key: str | None = None
    name: str = ""
    folder: Path | None = None


@dataclass(frozen=True, slots=True)
class Staged:
    """What became of a source.

    Attributes
    ----------
    rows : tuple of dict
        A row of the ``runs`` table for each life.
    folders : tuple of pathlib.Path
        Where each life's run stands; none where nothing was written.
    first_rejects : tuple of Reject
        Some of the rejects.
    problems : tuple of Problem
        Why the source cannot be used; empty when it can.
    """

    rows: tuple[dict[str, object], ...] = ()
    folders: tuple[Path, ...] = ()
    first_rejects: tuple[Reject, ...] = ()
    problems: tuple[Problem, ...] = field(default=())


def digest_of(task: Task) -> str:
    """Return the digest of everything that a source's rows follow from.

    Parameters
    ----------
    task : Task
        The source.

    Returns
    -------
    str
        As ``source_digest`` says.
    """
    reader = readers()[task.source.reader]
    return source_digest(task.source, reader, task.flags, Documents(task.calib))


def stage(task: Task) -> Staged:
    """Read one source.

    Parameters
    ----------
    task : Task
        The source and where its runs are written.

    Returns
    -------
    Staged
        Rows and folders, or the problems met; then nothing is left behind.

    Raises
    ------
    OSError
        When a file cannot be read or written.
    """
    folder = task.folder
    for whole in (False, True):
        try:
            return _stage(task, whole)
        except Disordered:
            _remove(folder)
        except InputError as error:
            _remove(folder)
            return Staged(problems=tuple(error.problems))
    raise AssertionError("a run that is read whole is always in order")


def _remove(folder: Path | None) -> None:
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)


def _stage(task: Task, whole: bool) -> Staged:
    source, documents = task.source, Documents(task.calib)
    reader = readers()[source.reader]
    check_documents(source, task.flags, documents)
    facts = first_facts(source, task.flags) if reader.needs_facts else None
    rows: list[dict[str, object]] = []
    folders: list[Path] = []
    rejects: list[Reject] = []
    empty = True
    for life, run in enumerate(open_runs(reader, source, facts, whole=whole), start=1):
        name = life_name(task.name, life)
        folder = None if task.folder is None else task.folder / name
        summary, first = _read_run(run, folder, name)
        rejects += first
        empty = empty and not _holds_something(summary)
        row = run_row(source, reader, summary, task.flags, documents)
        rows.append(row | {"run_id": name, "source_digest": task.digest, "life": life})
        if folder is not None:
            folders.append(folder)
    if empty:
        raise InputError([_nothing_in(source, rejects, sum(_int(r["rejected"]) for r in rows))])
    for row, folder in zip(rows, folders, strict=bool(folders)):
        row |= {"source_key": task.key, "lives": len(rows), "parts": 1}
        write_row(folder / table_file("runs"), row)
    return Staged(tuple(rows), tuple(folders), tuple(rejects))


def _read_run(
    run: PiecewiseRun, folder: Path | None, name: str
) -> tuple[ParsedRun, Sequence[Reject]]:
    """Read one life, into a folder or into nothing."""
    if folder is None:
        first: list[Reject] = []
        for piece in run.pieces():
            first += piece.rejects[: max(0, 100 - len(first))]
        return run.summary(), first
    with RunWriter(folder, name, run.head) as writer:
        for piece in run.pieces():
            writer.add(piece)
        summary = run.summary()
        writer.finish(summary)
    return summary, writer.first_rejects


def check_documents(source: RunSource, flags: Mapping[str, object], documents: Documents) -> None:
    """Look up the GPU and the model that are named, before a long log is read.

    Parameters
    ----------
    source : RunSource
        The run.
    flags : mapping of str to object
        Facts from flags.
    documents : Documents
        The chip and model documents.

    Raises
    ------
    InputError
        When there is no such document.
    """
    try:
        facts = first_facts(source, flags)
    except InputError:
        return  # the log may state what is missing; if not, it is said at the end
    problems: list[Problem] = []
    for look in (documents.chip_name, documents.model_json):
        try:
            look(facts)
        except InputError as error:
            problems += error.problems
    if problems:
        raise InputError(problems)


def run_row(
    source: RunSource,
    reader: Reader,
    run: ParsedRun,
    flags: Mapping[str, object],
    documents: Documents,
) -> dict[str, object]:
    """Return what a run's row says, but for its name and digest.

    Parameters
    ----------
    source : RunSource
        Where it comes from.
    reader : Reader
        What read it.
    run : ParsedRun
        What was found.
    flags : mapping of str to object
        Facts from flags.
    documents : Documents
        The chip and model documents.

    Returns
    -------
    dict of str to object
        Columns of ``RUNS``.

    Raises
    ------
    InputError
        When the facts are not valid.
    """
    said = describe(source, run, flags, documents)
    reason = run.fit_refused_reason
    if reason is None and said.facts.pool.pp > 1 and run.timing == "device":
        reason = (
            f"with pipeline parallelism (pp {said.facts.pool.pp}) the span of one stage "
            "is not the step"
        )
    return {
        "engine": said.facts.engine,
        "engine_version": said.facts.engine_version,
        "gpu": said.gpu,
        "model_name": said.model_name,
        "model_json": said.model_json,
        "pool_json": said.pool_json,
        "dtype": said.facts.dtype,
        "source": source.name,
        "reader": reader.name,
        "reader_version": reader.version,
        "timing": run.timing,
        "clock": run.clock,
        "lines_read": run.counts.lines,
        "steps_kept": run.counts.steps,
        "lines_recognised": run.counts.recognised,
        "rejected": run.counts.rejected,
        "recorder_cost_share": run.recorder_cost_share,
        "fit_refused_reason": reason,
        "startup_json": compact(dict(run.startup)) if run.startup else None,
        "host_cpu": run.host_cpu,
        "tokenizer": run.tokenizer,
        "fit": said.facts.fit,
    }


def life_name(base: str, life: int) -> str:
    """Return the name of one life of a log.

    Parameters
    ----------
    base : str
        Name of the first.
    life : int
        Which one, from 1.

    Returns
    -------
    str
        The base itself, then with ``.2`` and so on.
    """
    return base if life == 1 else f"{base}.{life}"


def _holds_something(run: ParsedRun) -> bool:
    whole = run.served.request.size or run.observed.value.size or len(run.intervals)
    return bool(run.counts.steps or whole)


def _nothing_in(source: RunSource, rejects: Sequence[Reject], count: int) -> Problem:
    """Say that a source gives nothing at all, naming the first bad line."""
    if not rejects:
        return Problem(str(source.path), None, None, "the log holds no step")
    # A step row that cannot be used says more than the span that then has no step.
    first = min(rejects, key=lambda r: "not joined" in r.reason or "repeated" in r.reason)
    message = f"no usable step; the first of {count} rejected lines: {first.reason}"
    return Problem(reject_place(source, first), first.line, None, message)


def reject_place(source: RunSource, reject: Reject) -> str:
    """Return the path of the file that a reject comes from.

    Parameters
    ----------
    source : RunSource
        The source.
    reject : Reject
        One of its rejects.

    Returns
    -------
    str
        For a complaint.
    """
    return str(source.path / reject.file if source.path.is_dir() else source.path)


def _int(value: object) -> int:
    return int(str(value))
