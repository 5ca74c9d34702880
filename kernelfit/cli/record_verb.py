"""The verb ``record``: an engine that records itself, and whether a recording is whole."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from kernelfit.cli.files import refuse
from kernelfit.cli.screen import Screen
from kernelfit.cli.verb import CHECK_SAID_NO, FAILED, OK, verb
from kernelfit.documents.problems import InputError, Problem

DRIVER = "kernelfit.record.workload_file"
"""The module that executes a workload in the engine's own Python."""


def register(app: typer.Typer) -> None:
    """Add the verb to the command line.

    Parameters
    ----------
    app : typer.Typer
        The command line.
    """

    @verb(
        app,
        "record",
        summary="Start an engine that records its steps, or check a recording.",
        example="kernelfit record --out traces/my-run -- vllm serve MODEL",
        details=(
            "The words after -- are the engine's own command; signals are passed on to it. When "
            "it ends, the recording is checked and what it holds is printed. The engine's Python "
            "needs this package beside it: pip install --no-deps kernelfit. Exit status: 1 when "
            "the recording is not whole, 2 when the engine failed. With --workload the words after "
            "-- are the engine's Python alone, python3 where there are none: it executes one run "
            "of a file that kernelfit plan wrote."
        ),
    )
    def record(
        screen: Screen,
        command: Annotated[
            list[str] | None,
            typer.Argument(metavar="COMMAND", help="The engine's command line."),
        ] = None,
        out: Annotated[
            Path | None,
            typer.Option(
                "--out",
                metavar="DIR",
                help="Folder of the recording; without it one below traces/, named by the time.",
            ),
        ] = None,
        check: Annotated[
            Path | None,
            typer.Option("--check", metavar="DIR", help="Only check this recording."),
        ] = None,
        gpu: Annotated[
            str | None,
            typer.Option("--gpu", metavar="NAME", help="The chip, if not the engine's name."),
        ] = None,
        speed_probe: Annotated[
            bool,
            typer.Option(
                "--speed-probe",
                help="Time a fixed piece of work beside every step: for shared machines.",
            ),
        ] = False,
        workload: Annotated[
            Path | None,
            typer.Option("--workload", metavar="FILE", help="Execute a planned workload."),
        ] = None,
        run: Annotated[
            str | None,
            typer.Option("--run", metavar="NAME", help="Which run of the workload."),
        ] = None,
        model: Annotated[
            str | None,
            typer.Option("--model", metavar="DIR", help="The workload's model: its config.json."),
        ] = None,
    ) -> int:
        words = tuple(command or ())
        if workload is not None or run is not None or model is not None:
            words = _planned(words or ("python3",), workload, run, model)
        return _record(screen, words, out, check, gpu, speed_probe=speed_probe)


def _planned(
    python: tuple[str, ...], workload: Path | None, run: str | None, model: str | None
) -> tuple[str, ...]:
    """Return the command that executes a planned workload."""
    if workload is None or model is None:
        lacking = "--workload" if workload is None else "--model"
        message = f"a planned workload needs {lacking}"
        hint = "kernelfit record --workload plan.json --run NAME --model DIR -- PYTHON"
        raise InputError([Problem("command line", None, None, message, hint=hint)])
    if not workload.is_file():
        raise refuse(workload, "no such file")
    words = (*python, "-m", DRIVER, str(workload), "--model", model)
    return words if run is None else (*words, "--run", run)


def _record(
    screen: Screen,
    command: tuple[str, ...],
    out: Path | None,
    check: Path | None,
    gpu: str | None,
    *,
    speed_probe: bool,
) -> int:
    from kernelfit.cli.recording import (
        check_engine,
        prepared_environment,
        recording_folder,
        run_engine,
    )

    if (check is None) == (not command):
        message = "name either the engine's command, after --, or a recording to --check"
        raise InputError([Problem("command line", None, None, message)])
    if check is not None:
        if not check.is_dir():
            raise refuse(check, "no such folder")
        return _checked(screen, check)
    folder = recording_folder(out)
    environment = prepared_environment(
        screen, folder, gpu=gpu, speed_probe=speed_probe, given=os.environ
    )
    check_engine(screen, command, environment)
    folder.mkdir(parents=True, exist_ok=True)
    screen.note(f"recording to {folder}")
    status, asked = run_engine(command, environment, aside=screen.json)
    code = _checked(screen, folder)
    if status and not asked:
        ended = f"by signal {-status}" if status < 0 else f"with status {status}"
        screen.error(f"kernelfit: the engine ended {ended}")
        return FAILED
    return code


def _checked(screen: Screen, folder: Path) -> int:
    from kernelfit.cli.recording import show_whole, whole_document
    from kernelfit.logs.whole import check_recording

    found = check_recording(folder)
    if screen.json:
        screen.document(whole_document(folder, found))
    else:
        show_whole(screen, folder, found)
    return OK if found.whole else CHECK_SAID_NO
