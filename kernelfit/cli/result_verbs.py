"""Verbs that turn results into other files: ``export`` and ``report``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kernelfit.cli import export_verb
from kernelfit.cli.options import DryRun
from kernelfit.cli.screen import Screen
from kernelfit.cli.verb import OK, verb

if TYPE_CHECKING:
    from kernelfit.report.sides import Side


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
        summary="Draw a report again, compare calibrations, or list a folder's reports.",
        example="kernelfit report reports/GPU",
        details="Without an option the page is drawn again from the numbers beside it, so no "
        "trace is needed. --compare A B writes one page on two or more report folders or "
        "calibrations, GPU types or engine versions say, held against the first. --index "
        "writes one page over a folder of reports.",
    )(report)


def report(
    screen: Screen,
    places: Annotated[
        list[Path],
        typer.Argument(
            metavar="PLACE",
            help="A report's folder, reports/GPU; with --compare also calibrations.",
        ),
    ],
    comparing: Annotated[
        bool, typer.Option("--compare", help="Hold the places against the first of them.")
    ] = False,
    listing: Annotated[
        bool, typer.Option("--index", help="Write the page over a folder of reports.")
    ] = False,
    out: Annotated[
        Path,
        typer.Option("--out", metavar="DIR", help="Folder for the comparison."),
    ] = Path("reports/compare"),
    dry_run: DryRun = False,
) -> int:
    """Draw reports.

    Parameters
    ----------
    screen : Screen
        Where the words go.
    places : list of pathlib.Path
        Report folders, or calibrations to compare.
    comparing : bool
        Compare them instead of drawing them again.
    listing : bool
        Write the page over a folder of reports instead.
    out : pathlib.Path
        Receives a comparison.
    dry_run : bool
        Write nothing.

    Returns
    -------
    int
        Exit status.
    """
    from kernelfit.report.compare import write_comparison
    from kernelfit.report.overview import found, write_overview
    from kernelfit.report.write import PAGE, redraw

    if comparing and listing:
        raise typer.BadParameter("give either --compare or --index")
    if comparing:
        sides = _sides(places)
        pages = [out / PAGE]
        if not dry_run:
            pages = list(write_comparison(sides, out))
    elif listing:
        from kernelfit.cli.files import refuse

        for place in places:
            if not found(place)[0]:
                raise refuse(place, "holds no report", allowed="a folder with reports in folders")
        pages = [place / PAGE for place in places]
        if not dry_run:
            for place in places:
                write_overview(place)
    else:
        for place in places:
            _view(place)
        pages = [
            path for place in places for path in ([place / PAGE] if dry_run else redraw(place))
        ]
    if screen.json:
        screen.document({"schema": "kernelfit.redraw/1", "files": [str(path) for path in pages]})
        return OK
    for path in pages:
        if path.name == PAGE:
            if dry_run:
                screen.note(f"would draw {path} and its figures")
            else:
                screen.line(str(path))
    return OK


def _view(folder: Path) -> dict[str, Any]:
    """Return the numbers of a report's folder."""
    from kernelfit.cli.files import read_object, refuse
    from kernelfit.report.write import NUMBERS, POINTS

    view = read_object(folder / NUMBERS)
    if view.get("schema") != "kernelfit.report/1":
        raise refuse(
            folder / NUMBERS,
            "states another schema",
            got=repr(view.get("schema")),
            allowed="kernelfit.report/1",
        )
    read_object(folder / POINTS)
    return view


def _sides(places: Sequence[Path]) -> list[Side]:
    """Return the sides of a comparison: report folders, and calibrations on their own."""
    from kernelfit.cli.files import read_calibration
    from kernelfit.report.sides import Side

    if len(places) < 2:
        raise typer.BadParameter("a comparison needs two places or more")
    views = []
    for place in places:
        if place.is_dir():
            views.append(_view(place))
        else:
            summary = read_calibration(place).summary()
            views.append({"gpu": summary["gpu"], "calibration": summary})
    gpus = [str(view["gpu"]) for view in views]
    # One GPU type on two days or engines is told apart by where the sides stand.
    names = gpus if len(set(gpus)) == len(gpus) else [str(place) for place in places]
    if len(set(names)) < len(names):
        names = [f"{name} ({number})" for number, name in enumerate(names, 1)]
    return [Side(name, view) for name, view in zip(names, views, strict=True)]
