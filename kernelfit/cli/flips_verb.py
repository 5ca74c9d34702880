"""``flips``: conclusions that hang on what nobody measured."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kernelfit.cli.screen import Screen
from kernelfit.cli.verb import CHECK_SAID_NO, OK, verb

if TYPE_CHECKING:
    from kernelfit.documents.questions import Question
    from kernelfit.fit.calibration import Calibration
    from kernelfit.kernel.fitted import FittedKernel


def register(app: typer.Typer) -> None:
    """Add the verb.

    Parameters
    ----------
    app : typer.Typer
        The command line.
    """
    verb(
        app,
        "flips",
        summary="Find conclusions that differ between overlap and no overlap.",
        example="kernelfit flips calib/kernels/ --questions calib/questions/chat.yaml",
        details="Each conclusion (a pool meets its target, its largest batch, its bottleneck, the "
        "best pool of a model) is drawn under both bounds and over the calibration's draws. What "
        "is not the same everywhere is flagged, with the measurement that settles it. Without "
        "--questions, round loads near what the kernels can do are asked about.",
    )(flips)


def flips(
    screen: Screen,
    kernels: Annotated[
        list[Path],
        typer.Argument(metavar="KERNEL", help="Frozen kernels, or folders that hold them."),
    ],
    questions: Annotated[
        list[Path] | None,
        typer.Option("--questions", metavar="FILE", help="Loads and targets to ask about."),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Exit status 1 unless every conclusion agrees.")
    ] = False,
) -> int:
    """Find flips.

    Parameters
    ----------
    screen : Screen
        Where the words go.
    kernels : list of pathlib.Path
        The pools.
    questions : list of pathlib.Path, optional
        Question documents.
    check : bool
        Whether a flag other than ``agree`` changes the exit status.

    Returns
    -------
    int
        Exit status.
    """
    from kernelfit.cli.checking import documents_under
    from kernelfit.cli.files import read_kernel
    from kernelfit.documents.questions import load_questions
    from kernelfit.flips import unanswered

    paths = documents_under(kernels, suffixes=(".json",))
    pools = [read_kernel(path) for path in paths]
    asked = [question for path in questions or () for question in load_questions(path)]
    for question in unanswered(pools, asked):
        screen.note(f"no kernel answers the question about {question.model or 'every model'}")
    rows = flags_of(pools, asked or None, _calibrations(screen, paths, pools))
    if screen.json:
        screen.document({"schema": "kernelfit.flips/1", "flags": rows})
    else:
        show_flips(screen, rows, all_of_them=True)
    return CHECK_SAID_NO if check and any(row["flag"] != "agree" for row in rows) else OK


def flags_of(
    kernels: Sequence[FittedKernel],
    questions: Sequence[Question] | None,
    calibrations: Iterable[Calibration],
) -> list[dict[str, Any]]:
    """Return the flags of some pools as rows of a result document.

    Parameters
    ----------
    kernels : sequence of FittedKernel
        The pools.
    questions : sequence of Question or None
        What is asked; None asks what the kernels themselves suggest.
    calibrations : iterable of Calibration
        Those behind the kernels; their noise says how long a measurement must be.

    Returns
    -------
    list of dict
        JSON-shaped, SI units.
    """
    from kernelfit.flips import default_questions, find_flips, flip_rows

    known = tuple(calibrations)
    flags = find_flips(
        kernels,
        default_questions(kernels) if questions is None else questions,
        noise_spread=max(c.noise.median_spread for c in known),
        inflation=max(c.inflation for c in known),
    )
    return flip_rows(flags)


def show_flips(screen: Screen, rows: Sequence[Mapping[str, Any]], *, all_of_them: bool) -> None:
    """Print flags.

    Parameters
    ----------
    screen : Screen
        Where they are printed.
    rows : sequence of mapping
        Rows of a result document.
    all_of_them : bool
        Whether every conclusion that does not agree is listed with its measurement, or only
        those that the two bounds disagree about.
    """
    from kernelfit.report.tables_use import flips as flips_table
    from kernelfit.report.text import flip_table

    counts = {word: sum(row["flag"] == word for row in rows) for word in _FLAG_WORDS}
    said = ", ".join(f"{counts[word]} {words}" for word, words in _FLAG_WORDS.items())
    screen.line(f"{len(rows)} conclusions: {said}")
    wanted = [word for word in _FLAG_WORDS if word != "agree"] if all_of_them else ["measure"]
    listed = [row for row in rows if row["flag"] in wanted]
    if not listed:
        return
    screen.line()
    if all_of_them:
        screen.text(flip_table({"flips": {"flags": listed}}))
        return
    # A ranking decides more than one pool's batch size does.
    listed.sort(key=lambda row: _WEIGHT.get(row["conclusion"], len(_WEIGHT)))
    screen.show(flips_table({"flips": listed[:SHOWN]}))
    if len(listed) > SHOWN:
        screen.line(f"and {len(listed) - SHOWN} more in the report")


SHOWN = 10
"""Conclusions that differ between the bounds and are listed after a fit."""

_WEIGHT = {"best_pool": 0, "bottleneck": 1, "meets_token_latency": 2, "largest_batch": 3}
_FLAG_WORDS = {
    "agree": "agree",
    "measure": "differ between overlap and no overlap",
    "uncertain": "differ between draws",
    "extrapolated": "are beyond what the logs hold",
}


def _calibrations(
    screen: Screen, paths: Sequence[Path], kernels: Sequence[FittedKernel]
) -> tuple[Calibration, ...]:
    """Return the calibrations that the kernels were frozen from, beside their folder."""
    from kernelfit.cli.files import read_calibration, refuse

    wanted = {kernel.fitted.calibration for kernel in kernels}
    found: dict[str, Calibration] = {}
    folders = dict.fromkeys(path.resolve().parent.parent / "calibrations" for path in paths)
    for path in (p for folder in folders for p in sorted(folder.glob("*.json"))):
        calibration = read_calibration(path)
        if calibration.digest in wanted:
            found[calibration.digest] = calibration
    if not found:
        raise refuse(
            paths[0],
            "the calibration that the kernels were frozen from is not in ../calibrations",
            got=", ".join(sorted(wanted)),
            hint="it says how noisy a measurement is; fit again, or move the kernels back",
        )
    if len(found) < len(wanted):
        screen.note("some kernels are from a calibration that is not there any more")
    return tuple(found.values())
