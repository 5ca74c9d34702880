"""``validate``: whether a calibration holds for logs that it has not seen."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kernelfit.cli import options
from kernelfit.cli.screen import Screen
from kernelfit.cli.verb import CHECK_SAID_NO, OK, verb

if TYPE_CHECKING:
    from kernelfit.fit.calibration import Calibration
    from kernelfit.fit.steps import RunSteps


def register(app: typer.Typer) -> None:
    """Add the verb.

    Parameters
    ----------
    app : typer.Typer
        The command line.
    """
    verb(
        app,
        "validate",
        summary="Measure a calibration's error on logs that it was not fitted on.",
        example="kernelfit validate calib/calibrations/GPU.json new-traces/ --max-error 0.1",
        details="Nothing is refitted. With --max-error the exit status is 1 when the median "
        "error of any model and pool is larger. The errors held out of a fit are in its report. "
        "With --closed-loop, requests as served are replayed through a scheduler with the "
        "engine's rules, and latencies are compared.",
    )(validate)


def validate(
    screen: Screen,
    calibration: Annotated[
        Path,
        typer.Argument(
            metavar="CALIBRATION",
            help="calib/calibrations/GPU.json; with --closed-loop a frozen kernel will do.",
        ),
    ],
    traces: Annotated[
        list[Path] | None,
        typer.Argument(metavar="TRACES", help="Run folders, logs, or folders of them."),
    ] = None,
    max_error: Annotated[
        float | None,
        typer.Option(
            "--max-error", metavar="SHARE", min=0.0, help="Largest median error, as a fraction."
        ),
    ] = None,
    closed_loop: Annotated[
        list[Path] | None,
        typer.Option(
            "--closed-loop",
            metavar="RUN",
            help="Replay what this run served and compare latencies; may be given again.",
        ),
    ] = None,
    kv_blocks: Annotated[
        int | None,
        typer.Option(
            "--kv-blocks", metavar="N", min=1, help="KV blocks in a replay; else it never fills."
        ),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option("--report", metavar="DIR", help="Receives the figures of closed loops."),
    ] = None,
    out: options.Out = Path(),
    calib: options.Calib = None,
) -> int:
    """Validate a calibration.

    Parameters
    ----------
    screen : Screen
        Where the words go.
    calibration : pathlib.Path
        The calibration.
    traces : list of pathlib.Path, optional
        The logs.
    max_error : float, optional
        Largest median absolute percentage error, as a fraction [1].
    closed_loop : list of pathlib.Path, optional
        Runs with requests as served; then nothing else is done.
    kv_blocks : int, optional
        Blocks of the KV cache in a replay.
    report : pathlib.Path, optional
        Receives the figures of closed loops.
    out : pathlib.Path
        The trace store stands below it.
    calib : pathlib.Path, optional
        Holds the chip and model documents.

    Returns
    -------
    int
        Exit status.
    """
    if bool(traces) == bool(closed_loop):
        raise typer.BadParameter("give either TRACES or --closed-loop RUN")
    if closed_loop:
        from kernelfit.cli.closing import close

        return close(
            screen,
            calibration,
            closed_loop,
            kv_blocks=kv_blocks,
            report=report,
            out=out,
            calib=calib,
        )
    from kernelfit.cli.files import read_calibration
    from kernelfit.validate.fresh import score_new_runs

    source = read_calibration(calibration)
    runs = _runs(screen, source, traces or [], out, calib)
    seen = sorted({run.run for run in runs} & {used.run for used in source.runs})
    if seen:
        screen.note(f"the calibration was fitted on {', '.join(seen)}: that is no test of it")
    document: dict[str, Any] = {
        "schema": "kernelfit.validate/1",
        "calibrations": [source.summary()],
        "max_error": max_error,
        **score_new_runs(runs, source),
    }
    over = _over(document["validation"], max_error)
    if screen.json:
        screen.document(document)
    else:
        from kernelfit.report.text import error_table

        screen.text(error_table(document))
        for row in over:
            screen.line(f"{row['group']}: median error {row['median_ape']:.1%} is too large")
    return CHECK_SAID_NO if over else OK


def _over(rows: list[dict[str, Any]], max_error: float | None) -> list[dict[str, Any]]:
    if max_error is None:
        return []
    return [
        row
        for row in rows
        if row["predictor"] == "kernelfit"
        and row["phase"] == "all"
        and not row["median_ape"] <= max_error
    ]


def _runs(
    screen: Screen, source: Calibration, traces: list[Path], out: Path, calib: Path | None
) -> tuple[RunSteps, ...]:
    """Return the gated runs of the calibration's GPU type."""
    from kernelfit.cli.ingesting import Reading, read_logs, split_stores, stored_runs
    from kernelfit.cli.places import calib_folder
    from kernelfit.documents.problems import InputError, Problem
    from kernelfit.fit.gates import apply_gates, with_copies, with_probe_reference
    from kernelfit.fit.pipeline import collect_runs
    from kernelfit.store.ingest import IngestReport

    stores, logs = split_stores(traces)
    ingested = IngestReport(())
    if logs:
        ingested = read_logs(screen, logs, out, Reading({}, calib_folder(calib)))
    records = stored_runs(out, ingested, stores)
    runs, refused = collect_runs(records, {source.chip.name: source.chip}, checking=True)
    judged = (apply_gates(run) for run in with_probe_reference(with_copies(runs)))
    kept = tuple(passed for passed, _ in judged if passed.size)
    if not kept:
        reasons = [(item.run, item.reason) for item in refused] or [
            (run.run, "no step is left after the gates") for run in runs
        ]
        raise InputError(
            [Problem(run, None, None, f"cannot be used: {reason}") for run, reason in reasons]
        )
    for item in refused:
        screen.note(f"not used: {item.run}: {item.reason}")
    return kept
