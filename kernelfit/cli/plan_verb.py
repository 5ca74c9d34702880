"""``plan``: the shortest list of runs that settles most."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from kernelfit.cli import options
from kernelfit.cli import question_flags as ask
from kernelfit.cli.screen import Screen
from kernelfit.cli.verb import OK, verb

PLAN, WORKLOAD = "plan.json", "workload.json"


def register(app: typer.Typer) -> None:
    """Add the verb.

    Parameters
    ----------
    app : typer.Typer
        The command line.
    """
    verb(
        app,
        "plan",
        summary="Plan the runs that settle most: open flags, weak coefficients.",
        example="kernelfit plan traces/ calib/ --gpu-minutes 30 --out plan/",
        details="From what the fit's own rows and noise say, the runs (pool, batch shape, "
        "steps) that gain most per GPU-minute, with the interval of every coefficient and flag "
        "before and as expected after them. --out keeps plan.json, a workload that the recorder "
        "executes, and a figure. --compare PLAN AFTER shows, once the runs were added and "
        "fitted, how far the intervals really shrank.",
    )(plan)


def plan(
    screen: Screen,
    inputs: Annotated[
        list[Path],
        typer.Argument(
            metavar="TRACES CALIB",
            help="The logs behind a calibration, then calibrations and kernels; with --compare "
            "a plan.json and the later calibration.",
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
    concurrency: ask.Concurrency = None,
    rate: ask.Rate = None,
    target: ask.TargetFlag = None,
    first_token_target: ask.FirstTarget = None,
    gpu_minutes: Annotated[
        float | None,
        typer.Option(
            "--gpu-minutes", metavar="N", min=0.0, help="The best plan for so many GPU-minutes."
        ),
    ] = None,
    criterion: Annotated[
        str,
        typer.Option(
            "--criterion", metavar="NAME", help="d: volume of what is open; i: mean interval."
        ),
    ] = "d",
    startup_minutes: Annotated[
        float,
        typer.Option(
            "--startup-minutes", metavar="N", min=0.0, help="Minutes until an engine serves."
        ),
    ] = 2.0,
    compare: Annotated[
        bool, typer.Option("--compare", help="Show expected beside real shrinkage.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Folder that receives the plan.")
    ] = None,
    calib: options.Calib = None,
) -> int:
    """Plan runs, or compare a plan with what came of it.

    Parameters
    ----------
    screen : Screen
        Where the words go.
    inputs : list of pathlib.Path
        Logs, calibrations and kernels; or a plan and a calibration.
    questions : list of pathlib.Path, optional
        Question documents.
    gpu, model, tp, dp, ep, engine_version : str, optional
        Candidate pools.
    setting : list of str, optional
        Their engine settings.
    context_tokens, prompt, output, concurrency, rate : str, optional
        The load [tokens], [1], [1/s].
    target, first_token_target : str, optional
        The targets.
    gpu_minutes : float, optional
        What may be spent [min].
    criterion : str
        ``d`` or ``i``.
    startup_minutes : float
        Time of an engine's start [min].
    compare : bool
        Compare instead of plan.
    out : pathlib.Path, optional
        Receives the plan.
    calib : pathlib.Path, optional
        Holds the chip and model documents.

    Returns
    -------
    int
        Exit status.
    """
    if compare:
        return _compare(screen, inputs)
    from kernelfit.cli.files import refuse
    from kernelfit.cli.flips_inputs import gated_runs, gather, questions_of
    from kernelfit.flips import default_questions, find_flips
    from kernelfit.plan.choose import CRITERIA
    from kernelfit.plan.plan import make_plan, plan_document

    if criterion not in CRITERIA:
        raise refuse(
            Path("--criterion"), "unknown criterion", got=criterion, allowed=", ".join(CRITERIA)
        )
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
        prefix_hit=None,
        concurrency=concurrency,
        rate=rate,
        target=target,
        first_token_target=first_token_target,
        percentile=None,
        objective=None,
        price=None,
        transfer=None,
    )
    wanted, candidates = questions_of(questions or (), asked, rest)
    documents, traces = _told_apart(inputs)
    if not documents or not traces:
        raise refuse(
            inputs[0],
            "logs and a calibration of them are both needed",
            hint="for example: kernelfit plan traces/ calib/",
        )
    asking = gather(screen, documents, wanted, candidates, calib)
    runs = gated_runs(screen, traces, calib)
    known = asking.calibrations
    flags = find_flips(
        asking.kernels,
        wanted or default_questions(asking.kernels),
        noise_spread=max(c.noise.median_spread for c in known),
        inflation=max(c.inflation for c in known),
        names=asking.labels,
        recorded=asking.recorded,
    )
    plans = []
    for calibration in known:
        if any(run.plan.chip.name == calibration.chip.name for run in runs):
            made = make_plan(
                runs,
                calibration,
                asking.kernels,
                asking.labels,
                flags,
                criterion=criterion,
                gpu_minutes=gpu_minutes,
                startup_minutes=startup_minutes,
            )
            plans.append(plan_document(made))
        else:
            screen.note(f"no log of {calibration.chip.name} was given, so nothing is planned")
    if out is not None:
        for document in plans:
            folder = out if len(plans) == 1 else out / _name(document["gpu"])
            keep(screen, document, folder)
    if screen.json:
        screen.document({"schema": "kernelfit.plans/1", "plans": plans})
    else:
        for document in plans:
            show_plan(screen, document)
    return OK


def _name(gpu: str) -> str:
    from kernelfit.cli.places import file_name

    return file_name(gpu)


def _told_apart(inputs: Sequence[Path]) -> tuple[list[Path], list[Path]]:
    """Tell calibrations and kernels from logs: by what the JSON documents say they are."""
    documents: list[Path] = []
    traces: list[Path] = []
    for path in inputs:
        found = []
        if path.is_dir():
            inside = (path / "calibrations", path / "kernels")
            found = [folder for folder in inside if any(folder.glob("*.json"))]
            if not found and path.name in ("calibrations", "kernels"):
                found = [path]
        elif path.suffix == ".json":
            found = [path]
        documents += found
        if not found:
            traces.append(path)
    return documents, traces


def keep(screen: Screen, document: Mapping[str, Any], folder: Path) -> None:
    """Write a plan with its workload and figure.

    Parameters
    ----------
    screen : Screen
        Where it is said.
    document : mapping
        The plan.
    folder : pathlib.Path
        Receives the files.
    """
    from kernelfit.cli.files import write
    from kernelfit.documents.canonical import dumps, write_atomic
    from kernelfit.report.plots_plan import plan_figures

    write(screen, folder / PLAN, dumps(document))
    if document["runs"]:
        write(screen, folder / WORKLOAD, dumps(document["workload"]))
    for drawing in plan_figures(document):
        write(screen, folder / f"{drawing.id}.svg", drawing.svg)
        write_atomic(folder / f"{drawing.id}.png", drawing.png)


def show_plan(screen: Screen, document: Mapping[str, Any]) -> None:
    """Print a plan.

    Parameters
    ----------
    screen : Screen
        Where it is printed.
    document : mapping
        The plan.
    """
    from kernelfit.report.text_plan import plan_text

    screen.text(plan_text(document))


def _compare(screen: Screen, inputs: Sequence[Path]) -> int:
    from kernelfit.cli.files import read_calibration, read_object, refuse
    from kernelfit.plan.plan import SCHEMA
    from kernelfit.plan.plan import compare as compared
    from kernelfit.report.text_plan import compare_text

    if len(inputs) != 2:
        raise refuse(
            inputs[0], "--compare takes a plan and a calibration", got=f"{len(inputs)} files"
        )
    document = read_object(inputs[0])
    if document.get("schema") != SCHEMA:
        raise refuse(
            inputs[0], "is no plan", got=str(document.get("schema")), allowed=f"schema {SCHEMA}"
        )
    after = read_calibration(inputs[1])
    if after.chip.name != document["gpu"]:
        raise refuse(
            inputs[1],
            "is of another GPU type than the plan",
            got=after.chip.name,
            allowed=str(document["gpu"]),
        )
    rows = compared(document, after)
    if screen.json:
        screen.document(
            {
                "schema": "kernelfit.plan-compare/1",
                "gpu": document["gpu"],
                "before": document["calibration"],
                "after": after.digest,
                "coefficients": rows,
            }
        )
    else:
        screen.text(compare_text(rows))
    return OK
