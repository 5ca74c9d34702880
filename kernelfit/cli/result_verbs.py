"""Verbs that turn results into other files: ``export`` and ``report``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

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
    verb(
        app,
        "export",
        summary="Write a calibration in the form that another program loads.",
        example="kernelfit export blis calib/calibrations/GPU.json --out coefficients.yaml",
        details="Targets: blis, plain. What the target cannot express is said on standard error. "
        "Without --out the text goes to standard output.",
    )(export)
    verb(
        app,
        "report",
        summary="Draw a report again from its own numbers.",
        example="kernelfit report reports/GPU",
        details="Takes the numbers that stand beside the page, so no trace is needed.",
    )(report)


def export(
    screen: Screen,
    target: Annotated[str, typer.Argument(metavar="TARGET", help="blis or plain.")],
    calibration: Annotated[
        Path, typer.Argument(metavar="CALIBRATION", help="calib/calibrations/GPU.json.")
    ],
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="The file to write.")
    ] = None,
    chip: Annotated[
        str | None,
        typer.Option(
            "--chip", metavar="NAME", help="The chip as the target's catalogue spells it."
        ),
    ] = None,
    only_identified: Annotated[
        bool, typer.Option("--only-identified", help="Leave out what the logs did not identify.")
    ] = False,
    dry_run: DryRun = False,
) -> int:
    """Export a calibration.

    Parameters
    ----------
    screen : Screen
        Where the words go.
    target : str
        The format.
    calibration : pathlib.Path
        The calibration.
    out : pathlib.Path, optional
        The file to write; None writes to standard output.
    chip : str, optional
        The chip's name in the target's catalogue.
    only_identified : bool
        Leave out what was not identified.
    dry_run : bool
        Write nothing.

    Returns
    -------
    int
        Exit status.
    """
    from kernelfit import __version__
    from kernelfit.cli.files import read_calibration, refuse, write
    from kernelfit.documents.problems import did_you_mean
    from kernelfit.export.base import ExportOptions
    from kernelfit.export.registry import find_target, targets

    names = [known.name for known in targets()]
    if target not in names:
        raise refuse(
            "TARGET",
            "no such export",
            got=target,
            allowed=", ".join(names),
            hint=did_you_mean(target, names),
        )
    options = ExportOptions(chip_name=chip, version=__version__, only_identified=only_identified)
    made = find_target(target).write(read_calibration(calibration).summary(), options)
    if out is not None:
        write(screen, out, made.text, dry_run=dry_run)
    if screen.json:
        screen.document(
            {
                "schema": "kernelfit.export/1",
                "target": target,
                "file": None if out is None else str(out),
                "text": made.text if out is None else None,
                "not_expressed": [{"name": n.name, "reason": n.reason} for n in made.not_expressed],
            }
        )
        return OK
    for item in made.not_expressed:
        screen.note(f"not expressed: {item.name}: {item.reason}")
    if out is None:
        screen.text(made.text)
    return OK


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
