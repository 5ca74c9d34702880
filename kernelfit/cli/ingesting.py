"""Reading logs into the store, and saying what became of every line."""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelfit.cli.files import STANDARD_INPUT, refuse
from kernelfit.cli.places import store_folder
from kernelfit.cli.screen import Screen

if TYPE_CHECKING:
    from kernelfit.store.ingest import FileCounts, IngestReport
    from kernelfit.store.scan import RunRecord


@dataclass(frozen=True, slots=True)
class Reading:
    """How logs are read.

    Attributes
    ----------
    overrides : mapping of str to object
        Facts that the user gave.
    calib : pathlib.Path
        Holds the chip and model documents.
    dry_run : bool
        Read and check, but leave the store as it is.
    max_rejected : int or None
        Most lines of a source that may be passed over; None for any number.
    jobs : int or None
        Processes that read; None for as many as serve.
    scheduler : str or None
        Address of a Dask scheduler whose workers read instead.
    """

    overrides: Mapping[str, object]
    calib: Path
    dry_run: bool = False
    max_rejected: int | None = None
    jobs: int | None = None
    scheduler: str | None = None


def read_logs(screen: Screen, sources: Sequence[Path], out: Path, reading: Reading) -> IngestReport:
    """Read logs into the store below a folder.

    Parameters
    ----------
    screen : Screen
        Where progress is shown.
    sources : sequence of pathlib.Path
        Files and folders; ``-`` is standard input.
    out : pathlib.Path
        The store stands below it.
    reading : Reading
        How.

    Returns
    -------
    IngestReport
        What became of every source.

    Raises
    ------
    InputError
        With the problems of all inputs; the store is then untouched.
    """
    from kernelfit.store.ingest import ingest_paths

    with contextlib.ExitStack() as stack:
        paths = [_spooled(stack, path, reading) for path in sources]
        with screen.progress("reading") as progress:
            report = ingest_paths(
                paths,
                store_folder(out),
                overrides=reading.overrides,
                calib=reading.calib,
                dry_run=reading.dry_run,
                max_rejected=reading.max_rejected,
                progress=progress,
                jobs=reading.jobs,
                scheduler=reading.scheduler,
            )
    for counts in report.files:
        if counts.replaced:
            screen.note(
                f"{counts.file}: the log changed since it was ingested; "
                f"{', '.join(counts.replaced)} was replaced"
            )
        if counts.rejected:
            screen.note(
                f"{counts.file}: {counts.rejected:,} of {counts.lines:,} lines rejected; "
                f"each is in {store_folder(out)}/<run>/<run>.rejects.jsonl with its reason"
            )
    return report


def _spooled(stack: contextlib.ExitStack, path: Path, reading: Reading) -> Path:
    """Return a path to read from, for standard input too."""
    if str(path) != STANDARD_INPUT:
        return path
    from kernelfit.store.spool import spool

    reader = reading.overrides.get("reader")
    if not isinstance(reader, str):
        raise refuse(
            "standard input",
            "does not say its format",
            hint="name it with --reader, for example --reader kernelfit",
        )
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kernelfit-stdin-")))
    return spool(sys.stdin.buffer, folder, reader)


def split_stores(sources: Sequence[Path]) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
    """Part what is named into trace stores and logs.

    Parameters
    ----------
    sources : sequence of pathlib.Path
        What the user named.

    Returns
    -------
    tuple of pathlib.Path
        Stores, single runs of them, and folders that were given as ``--out`` and hold no
        log of their own.
    tuple of pathlib.Path
        The rest.
    """
    from kernelfit.documents.problems import InputError
    from kernelfit.logs.discover import discover
    from kernelfit.store.several import is_store

    stores: list[Path] = []
    logs: list[Path] = []
    for path in sources:
        below = store_folder(path)
        if is_store(path):
            stores.append(path)
        elif not is_store(below):
            logs.append(path)
        else:
            try:
                discover(path)
            except InputError:
                stores.append(below)
            else:
                logs.append(path)
    return tuple(stores), tuple(logs)


def stored_runs(
    out: Path, ingested: IngestReport, stores: Sequence[Path] = ()
) -> tuple[RunRecord, ...]:
    """Return the stored runs of some logs and of whole stores.

    Parameters
    ----------
    out : pathlib.Path
        The logs' store stands below it; it may hold others, too.
    ingested : IngestReport
        What became of the logs.
    stores : sequence of pathlib.Path
        Stores of which every run is wanted.

    Returns
    -------
    tuple of RunRecord
        In the order of their names.

    Raises
    ------
    InputError
        When a run was not written, because it was a dry run, or a store is damaged.
    """
    from kernelfit.store.scan import load_store
    from kernelfit.store.several import merged, runs_of

    wanted = set(ingested.run_ids)
    folder = store_folder(out)
    records = tuple(record for record in load_store(folder).runs if record.run_id in wanted)
    if len(records) < len(wanted):
        raise refuse(
            folder,
            "does not hold the runs yet, and a dry run does not write them",
            hint="run kernelfit ingest first",
        )
    if not stores:
        return records
    return merged([records, *(runs_of(store) for store in stores)])


def counts_of(records: Iterable[RunRecord], max_rejected: int) -> tuple[FileCounts, ...]:
    """Return what became of the logs behind stored runs.

    Parameters
    ----------
    records : iterable of RunRecord
        Runs of any stores.
    max_rejected : int
        Most lines of a log that a fit may pass over.

    Returns
    -------
    tuple of FileCounts
        One per run.

    Raises
    ------
    InputError
        When more lines of a log that would be fitted were rejected.
    """
    from kernelfit.documents.problems import InputError, Problem
    from kernelfit.store.ingest import FileCounts

    counts: list[FileCounts] = []
    problems: list[Problem] = []
    for record in records:
        row = record.row
        rejected = int(row["rejected"])
        if record.fit_refused_reason is None and rejected > max_rejected:
            error = refuse(
                record.folder,
                "more lines of its log could not be used than a fit may pass over",
                got=str(rejected),
                allowed=str(max_rejected),
                hint=f"go on without them with --max-rejected {rejected}",
            )
            problems += error.problems
        counts.append(
            FileCounts(
                file=str(row["source"]),
                lines=int(row["lines_read"]),
                steps=int(row["steps_kept"]),
                recognised=int(row["lines_recognised"]),
                rejected=rejected,
                reader=str(row["reader"]),
                timing=record.timing,
                fit_refused_reason=record.fit_refused_reason,
                run_ids=(record.run_id,),
                skipped=True,
            )
        )
    if problems:
        raise InputError(problems)
    return tuple(counts)


def ingest_rows(files: Iterable[FileCounts]) -> list[dict[str, Any]]:
    """Return the ``ingest`` part of a result document.

    Parameters
    ----------
    files : iterable of FileCounts
        What became of each source.

    Returns
    -------
    list of dict
        JSON-shaped, one per source.
    """
    return [
        {
            "file": counts.file,
            "lines": counts.lines,
            "steps": counts.steps,
            "recognised": counts.recognised,
            "rejected": counts.rejected,
            "reader": counts.reader,
            "timing": counts.timing,
            "fit_refused_reason": counts.fit_refused_reason,
            "runs": list(counts.run_ids),
            "skipped": counts.skipped,
        }
        for counts in files
    ]


def show_ingest(screen: Screen, report: IngestReport) -> None:
    """Print what became of every source.

    Parameters
    ----------
    screen : Screen
        Where it is printed.
    report : IngestReport
        The counts.
    """
    screen.table(
        ("input", "reader", "timing", "lines", "steps", "recognised", "rejected"),
        [
            (
                counts.file,
                counts.reader,
                counts.timing,
                *(
                    f"{n:,}"
                    for n in (counts.lines, counts.steps, counts.recognised, counts.rejected)
                ),
            )
            for counts in report.files
        ],
        left=3,
    )
    held = [counts for counts in report.files if counts.skipped]
    if held:
        every = "every log" if len(held) == len(report.files) else f"{len(held)} of the logs"
        screen.line(f"the store held {every} already and they were not read again")
    for counts in report.files:
        if counts.fit_refused_reason is not None:
            screen.line(f"{counts.file} is not fitted: {counts.fit_refused_reason}")
