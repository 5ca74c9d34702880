"""``predict``: batches in, prices out, line by line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kernelfit.cli import explain_verb
from kernelfit.cli.explain_verb import KernelFile
from kernelfit.cli.files import STANDARD_INPUT
from kernelfit.cli.screen import Screen
from kernelfit.cli.verb import FAILED, OK, verb

if TYPE_CHECKING:
    from kernelfit.kernel.fitted import FittedKernel


def register(app: typer.Typer) -> None:
    """Add the verbs of this module.

    Parameters
    ----------
    app : typer.Typer
        The command line.
    """
    explain_verb.register(app)
    verb(
        app,
        "predict",
        summary="Price batches: one JSON object a line in, one a line out.",
        example="kernelfit predict calib/kernels/NAME.json batches.jsonl",
        details='A line is {"requests": [[scheduled, computed, prompt_len, cached_tokens], ...]}; '
        "cached_tokens may be left out. Without a file, or with -, lines come from standard input; "
        "each is answered before the next is read. A bad line is named on standard error and "
        "passed over; the exit status is then 2. With --json all of them are one document.",
    )(predict)


def predict(
    screen: Screen,
    kernel: KernelFile,
    batches: Annotated[
        Path, typer.Argument(metavar="BATCHES", help="Batches, one JSON object a line, or -.")
    ] = Path("-"),
    level: Annotated[
        float | None,
        typer.Option(
            "--level", metavar="SHARE", min=0.01, max=0.99, help="Add an interval of this coverage."
        ),
    ] = None,
) -> int:
    """Price the batches of a file.

    Parameters
    ----------
    screen : Screen
        Where the words go.
    kernel : pathlib.Path
        The frozen kernel.
    batches : pathlib.Path
        The batches, or ``-`` for standard input.
    level : float, optional
        Coverage of the interval [1]; None leaves the interval out, which is quicker.

    Returns
    -------
    int
        Exit status.
    """
    from kernelfit.cli.files import read_kernel, stream_lines
    from kernelfit.documents.problems import InputError, Problem

    frozen = read_kernel(kernel)
    problems: list[Problem] = []
    rows: list[dict[str, Any]] = []
    for number, value in stream_lines(batches):
        try:
            if isinstance(value, InputError):
                raise value
            row = price(frozen, number, value, str(batches), level)
        except InputError as error:
            problems += error.problems
            if not screen.json:
                for problem in error.problems:
                    screen.error(problem.render())
            continue
        if screen.json:
            rows.append(row)
        else:
            screen.line(json.dumps(row, sort_keys=True, allow_nan=False))
            if str(batches) == STANDARD_INPUT:
                # Whoever writes a line may wait for its answer before the next one.
                screen.flush()
    if problems and screen.json:
        raise InputError(problems)
    if screen.json:
        screen.document({"schema": "kernelfit.predict/1", "kernel": frozen.digest, "steps": rows})
    return FAILED if problems else OK


def price(
    kernel: FittedKernel, number: int, value: Any, file: str, level: float | None
) -> dict[str, Any]:
    """Price one batch in its JSON form.

    Parameters
    ----------
    kernel : FittedKernel
        The kernel.
    number : int
        Line of the file.
    value : object
        The batch.
    file : str
        Where it comes from.
    level : float or None
        Coverage of the interval [1], where one is wanted.

    Returns
    -------
    dict
        JSON-shaped, SI units.

    Raises
    ------
    InputError
        When it is no batch or exceeds the pool's limits.
    """
    from kernelfit.cli.batches import from_data
    from kernelfit.documents.problems import InputError, Problem
    from kernelfit.kernel.errors import InvalidArgument

    try:
        batch = from_data(value, file, number)
        step = kernel.step_time(batch)
        totals = kernel.totals(batch)
        row: dict[str, Any] = {
            "line": number,
            "overlap_s": step.overlap_s,
            "no_overlap_s": step.no_overlap_s,
            "bottleneck": step.bottleneck.value,
            "per_resource_s": {r.value: time for r, time in step.per_resource_s if time > 0},
            "in_domain": kernel.in_domain(totals),
            "mean_s": kernel.mean_step_time(totals, batch.sm_budget),
        }
        if level is not None:
            fitted = kernel.calibrated_step_time(batch, level)
            row |= {"low_s": fitted.low_s, "high_s": fitted.high_s, "level": level}
    except InvalidArgument as error:
        raise InputError([Problem(file, number, None, str(error))]) from None
    return row
