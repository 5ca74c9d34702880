"""Verbs of the main job: ``fit``, its first half ``ingest``, and ``freeze``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from kernelfit.cli import options
from kernelfit.cli.screen import Screen
from kernelfit.cli.verb import OK, verb

Traces = Annotated[
    list[Path],
    typer.Argument(
        metavar="TRACES",
        help="Run folders, logs, folders that hold them, or patterns; - is standard input.",
    ),
]
Fitted = Annotated[
    list[Path],
    typer.Argument(
        metavar="TRACES",
        help="Run folders, logs, folders that hold them, or trace stores of any machines.",
    ),
]


def register(app: typer.Typer) -> None:
    """Add the verbs of this module.

    Parameters
    ----------
    app : typer.Typer
        The command line.
    """
    verb(
        app,
        "fit",
        summary="Fit step logs: calibrate each GPU type, freeze, validate, report.",
        example="kernelfit fit traces/",
        details="Writes OUT/calib/calibrations, OUT/calib/kernels and one page per GPU type. "
        "Options such as --gpu and --tp say what a run does not, or overrule it. --prior says what "
        "is known beforehand about one of the GPU types. Nothing but the "
        "trace store is written before everything was computed; a dry run fits only logs that "
        "the store holds already.",
    )(fit)
    verb(
        app,
        "ingest",
        summary="Read step logs into the Parquet trace store.",
        example="kernelfit ingest traces/ --out work/",
        details="The store is OUT/.kernelfit/store. Each line becomes a step, is recognised as "
        "something else, or is kept in <run>.rejects.jsonl with the reason. A log that the store "
        "holds already is not read again.",
    )(ingest)


def fit(
    screen: Screen,
    traces: Fitted,
    out: options.Out = Path(),
    report: Annotated[
        Path | None,
        typer.Option("--report", metavar="DIR", help="Folder for the pages; OUT/reports without."),
    ] = None,
    calib: options.Calib = None,
    seed: options.Seed = 0,
    draws: Annotated[
        int,
        typer.Option(
            "--draws", metavar="N", min=20, help="Bootstrap resamples behind the intervals."
        ),
    ] = 100,
    max_rejected: Annotated[
        int,
        typer.Option(
            "--max-rejected", metavar="N", min=0, help="Bad lines a log may have and be fitted."
        ),
    ] = 0,
    prior: Annotated[
        list[Path] | None,
        typer.Option(
            "--prior",
            metavar="FILE",
            help="What is known beforehand: a document of priors or an earlier calibration; may be "
            "repeated, and the later file counts where two know one coefficient.",
        ),
    ] = None,
    gpu: options.Gpu = None,
    model: options.Model = None,
    dtype: options.Dtype = None,
    engine: options.Engine = None,
    engine_version: options.EngineVersion = None,
    reader: options.Reader = None,
    tp: options.Tp = None,
    pp: options.Pp = None,
    dp: options.Dp = None,
    jobs: options.Jobs = None,
    dry_run: options.DryRun = False,
) -> int:
    """Do the main job.

    Parameters
    ----------
    screen : Screen
        Where the words go.
    traces : list of pathlib.Path
        The logs.
    out : pathlib.Path
        Receives ``calib/`` and the trace store.
    report : pathlib.Path, optional
        Receives the pages.
    calib : pathlib.Path, optional
        Holds the chip and model documents.
    seed : int
        Seed of every resampling.
    draws : int
        Bootstrap resamples.
    max_rejected : int
        Rejected lines that a log may have.
    prior : list of pathlib.Path, optional
        Documents of priors and earlier calibrations.
    gpu, model, dtype, engine, engine_version, reader : str, optional
        Facts of the runs.
    tp, pp, dp : int, optional
        Widths of the runs.
    jobs : int, optional
        Processes that read logs.
    dry_run : bool
        Write nothing.

    Returns
    -------
    int
        Exit status.
    """
    from kernelfit.cli.main_job import Job, run_main_job
    from kernelfit.cli.places import calib_folder

    job = Job(
        sources=tuple(traces),
        out=out,
        report=out / "reports" if report is None else report,
        calib=calib_folder(calib),
        seed=seed,
        draws=draws,
        max_rejected=max_rejected,
        overrides=facts(
            gpu=gpu,
            model=model,
            dtype=dtype,
            engine=engine,
            engine_version=engine_version,
            reader=reader,
            tp=tp,
            pp=pp,
            dp=dp,
        ),
        command=screen.command,
        priors=tuple(prior or ()),
        jobs=jobs,
    )
    return run_main_job(screen, job, dry_run=dry_run)


def ingest(
    screen: Screen,
    traces: Traces,
    out: options.Out = Path(),
    calib: options.Calib = None,
    gpu: options.Gpu = None,
    model: options.Model = None,
    dtype: options.Dtype = None,
    engine: options.Engine = None,
    engine_version: options.EngineVersion = None,
    reader: options.Reader = None,
    tp: options.Tp = None,
    pp: options.Pp = None,
    dp: options.Dp = None,
    jobs: options.Jobs = None,
    scheduler: options.Scheduler = None,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow",
            help="Go on reading as the log grows, until interrupted; for one log or recording.",
        ),
    ] = False,
    dry_run: options.DryRun = False,
) -> int:
    """Read logs into the store.

    Parameters
    ----------
    screen : Screen
        Where the words go.
    traces : list of pathlib.Path
        The logs.
    out : pathlib.Path
        Receives the trace store.
    calib : pathlib.Path, optional
        Holds the chip and model documents.
    gpu, model, dtype, engine, engine_version, reader : str, optional
        Facts of the runs.
    tp, pp, dp : int, optional
        Widths of the runs.
    jobs : int, optional
        Processes that read.
    scheduler : str, optional
        Address of a Dask scheduler.
    follow : bool
        Go on reading as the log grows.
    dry_run : bool
        Write nothing.

    Returns
    -------
    int
        Exit status.
    """
    from kernelfit.cli.ingesting import Reading, ingest_rows, read_logs, show_ingest
    from kernelfit.cli.places import calib_folder

    given = facts(
        gpu=gpu,
        model=model,
        dtype=dtype,
        engine=engine,
        engine_version=engine_version,
        reader=reader,
        tp=tp,
        pp=pp,
        dp=dp,
    )
    reading = Reading(given, calib_folder(calib), dry_run, jobs=jobs, scheduler=scheduler)
    if follow:
        from kernelfit.cli.following import follow_log

        return follow_log(screen, traces, out, reading)
    counts = read_logs(screen, traces, out, reading)
    if screen.json:
        screen.document({"schema": "kernelfit.ingest/1", "ingest": ingest_rows(counts.files)})
    else:
        show_ingest(screen, counts)
    return OK


def facts(**given: Any) -> dict[str, Any]:
    """Return the facts that the user gave.

    Parameters
    ----------
    **given : object
        A value or None for each fact.

    Returns
    -------
    dict
        Without those that are None.
    """
    return {name: value for name, value in given.items() if value is not None}
