"""Reading logs into the store, and saying what became of every line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelfit.cli.files import refuse
from kernelfit.cli.places import store_folder
from kernelfit.cli.screen import Screen

if TYPE_CHECKING:
    from kernelfit.store.ingest import FileCounts, IngestReport
    from kernelfit.store.scan import RunRecord


def read_logs(
    screen: Screen,
    sources: Sequence[Path],
    out: Path,
    *,
    overrides: Mapping[str, object],
    calib: Path,
    dry_run: bool,
    max_rejected: int | None = None,
) -> IngestReport:
    """Read logs into the store below a folder.

    Parameters
    ----------
    screen : Screen
        Where progress is shown.
    sources : sequence of pathlib.Path
        Files and folders.
    out : pathlib.Path
        The store stands below it.
    overrides : mapping
        Facts that the user gave.
    calib : pathlib.Path
        Holds the chip and model documents.
    dry_run : bool
        Read and check, but leave the store as it is.
    max_rejected : int, optional
        Most lines of a source that may be passed over.

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

    with screen.progress("reading") as progress:
        report = ingest_paths(
            sources,
            store_folder(out),
            overrides=overrides,
            calib=calib,
            dry_run=dry_run,
            max_rejected=max_rejected,
            progress=progress,
        )
    for counts in report.files:
        if counts.rejected:
            screen.note(
                f"{counts.file}: {counts.rejected:,} of {counts.lines:,} lines rejected; "
                f"each is in {store_folder(out)}/<run>.rejects.jsonl with its reason"
            )
    return report


def stored_runs(out: Path, ingested: IngestReport) -> tuple[RunRecord, ...]:
    """Return the stored runs of some logs; the store may hold others, too.

    Parameters
    ----------
    out : pathlib.Path
        The store stands below it.
    ingested : IngestReport
        What became of the logs.

    Returns
    -------
    tuple of RunRecord
        In the order of their names.

    Raises
    ------
    InputError
        When a run was not written, because it was a dry run.
    """
    from kernelfit.store.scan import load_store

    wanted = set(ingested.run_ids)
    folder = store_folder(out)
    records = tuple(record for record in load_store(folder).runs if record.run_id in wanted)
    if len(records) < len(wanted):
        raise refuse(
            folder,
            "does not hold the runs yet, and a dry run does not write them",
            hint="run kernelfit ingest first",
        )
    return records


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
    for counts in report.files:
        if counts.fit_refused_reason is not None:
            screen.line(f"{counts.file} is not fitted: {counts.fit_refused_reason}")
