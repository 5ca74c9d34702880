"""Verbs that turn results into other files: ``export`` and ``report``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kernelfit.cli import export_verb
from kernelfit.cli.options import DryRun
from kernelfit.cli.screen import Screen
from kernelfit.cli.verb import OK, verb


def register(app: typer.Typer) -> None:
    """Add the verbs of this module.

    Parameters
    ----------
    app : typer.Typer
        The command line.
    """
    export_verb.register(app)
    verb(
        app,
        "report",
        summary="Draw a report again from its own numbers.",
        example="kernelfit report reports/GPU",
        details="Takes the numbers that stand beside the page, so no trace is needed.",
    )(report)


def report(
    screen: Screen,
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="A report's folder, reports/GPU.")
    ],
    dry_run: DryRun = False,
) -> int:
    """Draw a report again.

    Parameters
    ----------
    screen : Screen
        Where the words go.
    folder : pathlib.Path
        The report's folder; its numbers are read and its pages written.
    dry_run : bool
        Write nothing.

    Returns
    -------
    int
        Exit status.
    """
    from kernelfit.cli.files import read_object, refuse
    from kernelfit.report.write import NUMBERS, PAGE, POINTS, redraw

    stated = read_object(folder / NUMBERS).get("schema")
    if stated != "kernelfit.report/1":
        raise refuse(
            folder / NUMBERS,
            "states another schema",
            got=repr(stated),
            allowed="kernelfit.report/1",
        )
    read_object(folder / POINTS)
    files = (folder / PAGE,) if dry_run else redraw(folder)
    if screen.json:
        screen.document({"schema": "kernelfit.redraw/1", "files": [str(path) for path in files]})
        return OK
    if dry_run:
        screen.note(f"would draw {folder / PAGE} and its figures")
    else:
        screen.line(str(files[0]))
    return OK
