"""``flips``: conclusions that hang on what nobody measured."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kernelfit.cli import options
from kernelfit.cli import question_flags as ask
from kernelfit.cli.screen import Screen
from kernelfit.cli.verb import CHECK_SAID_NO, OK, verb

if TYPE_CHECKING:
    from kernelfit.cli.flips_inputs import Asking
    from kernelfit.documents.questions import Question
    from kernelfit.fit.calibration import Calibration
    from kernelfit.flips.measured import MeasuredShape
    from kernelfit.kernel.fitted import FittedKernel

SCHEMA = "kernelfit.flips/1"


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
        details="Each conclusion (targets are met, the largest batch, the best pool, whether a "
        "wider one helps, what to relieve, ...) is drawn under both bounds, as fitted, and over "
        "the calibration's draws. What is not the same everywhere is flagged, with the "
        "measurement that settles it, and the exit status is then 1. Questions come from "
        "documents or flags; without any, round loads near what the kernels can do are asked "
        "about. Candidate pools (--gpu, --model, --tp, ...) need a calibration of their GPU "
        "type and need not have been recorded.",
    )(flips)


def flips(
    screen: Screen,
    kernels: Annotated[
        list[Path],
        typer.Argument(
            metavar="KERNEL", help="Frozen kernels and calibrations, or folders that hold them."
        ),
    ],
    questions: ask.Questions = None,
    gpu: ask.OnGpu = None,
    model: ask.OfModel = None,
    tp: ask.Tps = None,
    dp: ask.Dps = None,
    ep: ask.Eps = None,
    setting: ask.Set = None,
    engine_version: ask.Version = None,
    context_tokens: ask.Context = None,
    prompt: ask.Prompt = None,
    output: ask.Output = None,
    prefix_hit: ask.Hit = None,
    concurrency: ask.Concurrency = None,
    rate: ask.Rate = None,
    target: ask.TargetFlag = None,
    first_token_target: ask.FirstTarget = None,
    percentile: ask.Percentile = None,
    objective: ask.Objective = None,
    price: ask.Price = None,
    transfer: ask.Transfer = None,
    measured: Annotated[
        list[Path] | None,
        typer.Option(
            "--measured", metavar="TRACES", help="Runs that every view is made to pass through."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Draw the figures and keep the flags there."),
    ] = None,
    calib: options.Calib = None,
    exit_zero: Annotated[
        bool, typer.Option("--exit-zero", help="Exit status 0 even when something is flagged.")
    ] = False,
) -> int:
    """Find flips.

    Parameters
    ----------
    screen : Screen
        Where the words go.
    kernels : list of pathlib.Path
        Kernels and calibrations.
    questions : list of pathlib.Path, optional
        Question documents.
    gpu, model, tp, dp, ep, engine_version : str, optional
        Candidate pools.
    setting : list of str, optional
        Their engine settings.
    context_tokens, prompt, output, prefix_hit, concurrency, rate : str, optional
        The load [tokens], [1], [1/s].
    target, first_token_target : str, optional
        The targets.
    percentile : float, optional
        Share of tokens that must meet them.
    objective : str, optional
        What makes a pool the best.
    price : list of str, optional
        Prices of GPU-hours.
    transfer : str, optional
        Link between prefill and decode engines.
    measured : list of pathlib.Path, optional
        Measured runs.
    out : pathlib.Path, optional
        Receives figures and flags.
    calib : pathlib.Path, optional
        Holds the chip and model documents.
    exit_zero : bool
        Do not say in the exit status that something is flagged.

    Returns
    -------
    int
        Exit status.
    """
    from kernelfit.cli.flips_inputs import gather, measured_of, questions_of
    from kernelfit.flips import unanswered
    from kernelfit.kernel.frozen import to_data

    asked, rest = ask.asked_by_flags(
        gpu=gpu,
        model=model,
        tp=tp,
        dp=dp,
        ep=ep,
        set=setting,
        engine_version=engine_version,
        context=context_tokens,
        prompt=prompt,
        output=output,
        prefix_hit=prefix_hit,
        concurrency=concurrency,
        rate=rate,
        target=target,
        first_token_target=first_token_target,
        percentile=percentile,
        objective=objective,
        price=price,
        transfer=transfer,
    )
    wanted, candidates = questions_of(questions or (), asked, rest)
    asking = gather(screen, kernels, wanted, candidates, calib)
    left = unanswered(asking.kernels, wanted, asking.labels)
    for question in left:
        screen.note(f"no kernel answers the question about {question.model or 'every model'}")
    shapes = measured_of(screen, measured or (), asking, calib)
    rows = flags_of(
        asking.kernels, wanted or None, asking.calibrations, names=asking.labels, measured=shapes
    )
    document = {
        "schema": SCHEMA,
        "flags": rows,
        "refused": [to_data(item) for item in asking.refused],
        "unanswered": [to_data(question) for question in left],
    }
    if out is not None:
        draw(screen, asking, shapes, document, out)
    if screen.json:
        screen.document(document)
    else:
        show_flips(screen, rows, all_of_them=True)
    flagged = any(row["flag"] != "agree" for row in rows)
    return CHECK_SAID_NO if flagged and not exit_zero else OK


def flags_of(
    kernels: Sequence[FittedKernel],
    questions: Sequence[Question] | None,
    calibrations: Iterable[Calibration],
    *,
    names: Sequence[str] | None = None,
    measured: Sequence[MeasuredShape] = (),
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
    names : sequence of str, optional
        Names of the pools; without, their widths.
    measured : sequence of MeasuredShape
        Measured steps.

    Returns
    -------
    list of dict
        JSON-shaped, SI units.
    """
    from kernelfit.flips import default_questions, find_flips, flip_rows
    from kernelfit.flips.given import Recorded

    known = tuple(calibrations)
    flags = find_flips(
        kernels,
        default_questions(kernels) if questions is None else questions,
        noise_spread=max(c.noise.median_spread for c in known),
        inflation=max(c.inflation for c in known),
        names=names,
        measured=measured,
        recorded={c.digest: Recorded.of(c) for c in known},
    )
    return flip_rows(flags)


def draw(
    screen: Screen,
    asking: Asking,
    measured: Sequence[MeasuredShape],
    document: Mapping[str, Any],
    folder: Path,
) -> None:
    """Write the flags and their figures.

    Parameters
    ----------
    screen : Screen
        Where it is said.
    asking : Asking
        What was asked.
    measured : sequence of MeasuredShape
        Measured steps, which are drawn as points.
    document : mapping
        The result document.
    folder : pathlib.Path
        Receives ``flips.json``, and one SVG and PNG per figure.
    """
    from kernelfit.cli.files import write
    from kernelfit.documents.canonical import dumps, write_atomic
    from kernelfit.flips.curves import curve_rows
    from kernelfit.report.plots_flips import flip_figures

    curves = curve_rows(asking.kernels, asking.questions, asking.labels, measured)
    for drawing in flip_figures(document["flags"], curves):
        write(screen, folder / f"{drawing.id}.svg", drawing.svg)
        write_atomic(folder / f"{drawing.id}.png", drawing.png)
    write(screen, folder / "flips.json", dumps({**document, "curves": curves}))


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
    arrivals = sum(row["fitted"] == "needs arrivals" for row in rows)
    if arrivals:
        screen.line(f"{arrivals} of them need arrival times: a simulator must answer these")
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

_WEIGHT = {
    "best_pool": 0,
    "wider_pays": 1,
    "disaggregation_pays": 2,
    "bottleneck": 3,
    "meets_token_latency": 4,
    "meets_first_token": 5,
    "sustains_rate": 6,
    "largest_batch": 7,
}
_FLAG_WORDS = {
    "agree": "agree",
    "measure": "differ between overlap and no overlap",
    "uncertain": "differ between draws",
    "extrapolated": "are beyond what the logs hold",
}
