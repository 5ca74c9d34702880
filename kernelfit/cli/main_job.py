"""The main job: read, fit, freeze, validate, judge, and only then write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelfit.cli.coarse_rows import coarse_rows
from kernelfit.cli.files import write
from kernelfit.cli.ingesting import (
    Reading,
    counts_of,
    ingest_rows,
    read_logs,
    split_stores,
    stored_runs,
)
from kernelfit.cli.places import file_name
from kernelfit.cli.prior_files import check_chips, read_priors
from kernelfit.cli.result_text import show_result
from kernelfit.cli.screen import Screen
from kernelfit.cli.verb import OK

if TYPE_CHECKING:
    from kernelfit.fit.given import GivenPrior
    from kernelfit.fit.pipeline import GpuFit, Refused
    from kernelfit.kernel.chip import Chip
    from kernelfit.kernel.fitted import FittedKernel
    from kernelfit.store.ingest import IngestReport
    from kernelfit.store.scan import RunRecord

SCHEMA = "kernelfit.fit/1"


@dataclass(frozen=True, slots=True)
class Job:
    """What the user asked for.

    Attributes
    ----------
    sources : tuple of pathlib.Path
        The logs, and trace stores.
    out : pathlib.Path
        Receives ``calib/`` and the trace store.
    report : pathlib.Path
        Receives the pages.
    calib : pathlib.Path
        Holds the chip and model documents.
    seed : int
        Seed of every resampling.
    draws : int
        Bootstrap resamples.
    max_rejected : int
        Rejected lines that a log may have and be fitted.
    overrides : mapping of str to object
        Facts of the runs that the user gave.
    command : str
        The command as it was typed.
    priors : tuple of pathlib.Path
        Documents of priors and earlier calibrations.
    jobs : int or None
        Processes that read logs; None for as many as serve.
    """

    sources: tuple[Path, ...]
    out: Path
    report: Path
    calib: Path
    seed: int
    draws: int
    max_rejected: int
    overrides: Mapping[str, object]
    command: str
    priors: tuple[Path, ...] = ()
    jobs: int | None = None


def run_main_job(screen: Screen, job: Job, *, dry_run: bool) -> int:
    """Do the main job.

    Parameters
    ----------
    screen : Screen
        Where the words go.
    job : Job
        What is asked for.
    dry_run : bool
        Compute everything and write nothing; logs that the store does not hold yet cannot be
        fitted then.

    Returns
    -------
    int
        Exit status.

    Raises
    ------
    InputError
        When an input cannot be used, or nothing is left to fit; no calibration, kernel or
        report is then touched.
    """
    document, files = compute(screen, job, dry_run=dry_run)
    for path, text in files:
        write(screen, path, text, dry_run=dry_run)
    write_reports(screen, document, job.report, dry_run=dry_run)
    if screen.json:
        screen.document({key: value for key, value in document.items() if key != "points"})
    else:
        show_result(screen, document)
    return OK


def compute(
    screen: Screen, job: Job, *, dry_run: bool = False
) -> tuple[dict[str, Any], tuple[tuple[Path, str], ...]]:
    """Read, fit, validate and judge; nothing but the trace store is written.

    Parameters
    ----------
    screen : Screen
        Where notes and progress go.
    job : Job
        What is asked for.
    dry_run : bool
        Leave the store as it is, too.

    Returns
    -------
    dict
        The result document, schema ``kernelfit.fit/1``.
    tuple of (pathlib.Path, str)
        Calibrations and kernels to write.

    Raises
    ------
    InputError
        When an input cannot be used, or nothing is left to fit.
    """
    from kernelfit.store.ingest import IngestReport

    # Read first: a mistake in a small file shall not wait for the logs.
    given = read_priors(job.priors)
    stores, logs = split_stores(job.sources)
    ingested = IngestReport(())
    if logs:
        reading = Reading(job.overrides, job.calib, dry_run, job.max_rejected, job.jobs)
        ingested = read_logs(screen, logs, job.out, reading)
    records = stored_runs(job.out, ingested, stores)
    if stores:
        ingested = IngestReport(counts_of(records, job.max_rejected))
    chips = _chips(records, job.calib)
    check_chips(job.priors, given, [chip.name for chip in chips.values()])
    fits, refused = _fit(screen, job, records, chips, given)
    for item in refused:
        screen.note(f"not fitted: {item.run}: {item.reason}")
    document, files = result_document(screen, job, ingested, fits, refused, records)
    sources = {record.run_id: str(record.row["source_digest"]) for record in records}
    for row in document["ingest"]:
        # What the rows follow from, so that a reader can tell whether the logs are the same.
        row["digest"] = next((sources[run] for run in row["runs"] if run in sources), None)
    return document, files


def _chips(records: Sequence[RunRecord], calib: Path) -> dict[str, Chip]:
    from kernelfit.documents.chips import find_chip

    names = sorted({record.gpu for record in records if record.gpu is not None})
    return {name: find_chip(name, calib / "chips") for name in names}


def _fit(
    screen: Screen,
    job: Job,
    records: Sequence[RunRecord],
    chips: Mapping[str, Chip],
    given: Sequence[GivenPrior],
) -> tuple[tuple[GpuFit, ...], tuple[Refused, ...]]:
    from kernelfit.documents.problems import InputError, Problem
    from kernelfit.fit.calibrate import Options
    from kernelfit.fit.front_end_runs import collect_front_ends
    from kernelfit.fit.pipeline import collect_runs, fit_gpus

    runs, refused = collect_runs(records, chips)
    with screen.progress("fitting") as show:
        fits, left = fit_gpus(
            runs,
            Options(seed=job.seed, draws=job.draws, priors=tuple(given)),
            progress=lambda what, done, total: show(done, total, what),
            front_ends=collect_front_ends(records),
        )
    refused = (*refused, *left)
    if not fits:
        raise InputError(
            [Problem(item.run, None, None, f"cannot be fitted: {item.reason}") for item in refused]
        )
    return fits, refused


def result_document(
    screen: Screen,
    job: Job,
    ingested: IngestReport,
    fits: Sequence[GpuFit],
    refused: Sequence[Refused],
    records: Sequence[RunRecord] = (),
) -> tuple[dict[str, Any], tuple[tuple[Path, str], ...]]:
    """Validate, freeze and judge what was fitted.

    Parameters
    ----------
    screen : Screen
        Where progress is shown.
    job : Job
        What was asked for.
    ingested : IngestReport
        What became of the logs.
    fits : sequence of GpuFit
        The fits, at least one.
    refused : sequence of Refused
        What was not fitted.
    records : sequence of RunRecord
        Stored runs, for what their requests say of the host.

    Returns
    -------
    dict
        The result document, schema ``kernelfit.fit/1``.
    tuple of (pathlib.Path, str)
        Calibrations and kernels to write.
    """
    from kernelfit import __version__
    from kernelfit.cli.flips_verb import flags_of
    from kernelfit.documents.canonical import dumps
    from kernelfit.fit.pipeline import freeze
    from kernelfit.kernel.frozen import to_data
    from kernelfit.validate.validate import validate

    files: list[tuple[Path, str]] = []
    kernels: list[dict[str, Any]] = []
    pools: list[FittedKernel] = []
    judged: dict[str, list[dict[str, Any]]] = {
        name: []
        for name in ("validation", "coverage", "bounds", "points", "correlation", "breakdown")
    }
    for fit in fits:
        calibration = fit.calibration
        name = f"{file_name(calibration.chip.name)}.json"
        files.append((_calibrations(job.out) / name, dumps(calibration.to_document())))
        for stem, kernel in freeze(fit):
            path = Path("calib") / "kernels" / f"{file_name(stem)}.json"
            files.append((job.out / path, kernel.to_json()))
            pools.append(kernel)
            kernels.append(
                {
                    "file": path.as_posix(),
                    "pool": stem.rpartition("--")[2],
                    "model": kernel.plan.model.name,
                    "gpu": calibration.chip.name,
                    "digest": kernel.digest,
                }
            )
        with screen.progress("validating") as show:
            found = validate(
                fit.runs,
                calibration,
                lambda what, done, total: show(done, total, what),
                others=[(other.runs, other.calibration) for other in fits if other is not fit],
            )
        for key, rows in found.items():
            judged[key] += rows
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "version": __version__,
        "command": job.command,
        "seed": job.seed,
        # Whether the store held a log already says nothing of the result.
        "ingest": [
            {key: value for key, value in row.items() if key != "skipped"}
            for row in ingest_rows(ingested.files)
        ],
        "gates": [to_data(count) for fit in fits for count in fit.gates],
        "refused": [to_data(item) for item in refused],
        "calibrations": [fit.calibration.summary() for fit in fits],
        "kernels": kernels,
        **judged,
        "coarse": coarse_rows(records, pools, job.draws, job.seed),
        "flips": {"flags": flags_of(pools, None, [fit.calibration for fit in fits])},
    }
    return document, tuple(files)


def _calibrations(out: Path) -> Path:
    return out / "calib" / "calibrations"


def write_reports(
    screen: Screen, document: Mapping[str, Any], folder: Path, *, dry_run: bool
) -> tuple[Path, ...]:
    """Write one page per GPU type.

    Parameters
    ----------
    screen : Screen
        Where it is said.
    document : mapping
        The result document.
    folder : pathlib.Path
        Receives a folder per GPU type.
    dry_run : bool
        Only say what would be written.

    Returns
    -------
    tuple of pathlib.Path
        The pages.
    """
    from kernelfit.report.overview import write_overview
    from kernelfit.report.write import PAGE, write_report

    pages = []
    for calibration in document["calibrations"]:
        target = folder / file_name(calibration["gpu"])
        pages.append(target / PAGE)
        if not dry_run:
            write_report(document, calibration["gpu"], target)
            screen.wrote(target / PAGE)
        screen.note(f"{'would draw' if dry_run else 'drew'} {target / PAGE}")
    if not dry_run:
        write_overview(folder)
    return tuple(pages)
