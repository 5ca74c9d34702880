"""Verbs that ask a frozen kernel: ``explain`` and ``predict``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kernelfit.cli.screen import Screen
from kernelfit.cli.verb import OK, verb

if TYPE_CHECKING:
    from kernelfit.kernel.batch import Batch
    from kernelfit.kernel.fitted import FittedKernel

KernelFile = Annotated[
    Path, typer.Argument(metavar="KERNEL", help="A frozen kernel, calib/kernels/NAME.json.")
]
Decode = Annotated[
    list[str] | None,
    typer.Option("--decode", metavar="RxC", help="R requests with C tokens in their KV each."),
]
Prefill = Annotated[
    list[str] | None,
    typer.Option(
        "--prefill", metavar="RxT[+C]", help="R requests with T prompt tokens each, C before."
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
        "explain",
        summary="Show one batch's step time by resource, with bounds and interval.",
        example="kernelfit explain calib/kernels/NAME.json --decode 8x1024 --prefill 1x512",
        details="--decode and --prefill may be repeated; together they are one batch. --batch "
        "reads it from a JSON file in the form that predict takes.",
    )(explain)
    verb(
        app,
        "predict",
        summary="Price batches: one JSON object a line in, one a line out.",
        example="kernelfit predict calib/kernels/NAME.json batches.jsonl",
        details='A line is {"requests": [[scheduled, computed, prompt_len, cached_tokens], ...]}; '
        "cached_tokens may be left out. Without a file, or with -, lines come from standard input.",
    )(predict)


def explain(
    screen: Screen,
    kernel: KernelFile,
    decode: Decode = None,
    prefill: Prefill = None,
    batch: Annotated[
        Path | None, typer.Option("--batch", metavar="FILE", help="A batch as JSON, or -.")
    ] = None,
    level: Annotated[
        float,
        typer.Option(
            "--level", metavar="SHARE", min=0.01, max=0.99, help="Coverage of the interval."
        ),
    ] = 0.9,
) -> int:
    """Explain one batch.

    Parameters
    ----------
    screen : Screen
        Where the words go.
    kernel : pathlib.Path
        The frozen kernel.
    decode, prefill : list of str, optional
        The batch in short form.
    batch : pathlib.Path, optional
        The batch as JSON instead.
    level : float
        Coverage of the interval [1].

    Returns
    -------
    int
        Exit status.
    """
    from kernelfit.cli import batches
    from kernelfit.cli.files import read_kernel, read_object

    if (batch is None) == (not decode and not prefill):
        raise typer.BadParameter("give either --decode and --prefill, or --batch")
    asked = (
        batches.from_flags(decode or (), prefill or ())
        if batch is None
        else batches.from_data(read_object(batch), str(batch), None)
    )
    document = explanation(read_kernel(kernel), asked, level)
    if screen.json:
        screen.document(document)
    else:
        _show(screen, document)
    return OK


def explanation(kernel: FittedKernel, batch: Batch, level: float) -> dict[str, Any]:
    """Return what ``explain`` shows.

    Parameters
    ----------
    kernel : FittedKernel
        The kernel.
    batch : Batch
        The batch.
    level : float
        Coverage of the interval [1].

    Returns
    -------
    dict
        JSON-shaped data, SI units.
    """
    step = kernel.step_time(batch)
    fitted = kernel.calibrated_step_time(batch, level)
    resolution = kernel.resolved()
    methods = {origin.name: origin.method for origin in kernel.provenance()}
    return {
        "schema": "kernelfit.explain/1",
        "kernel": kernel.digest,
        "model": kernel.plan.model.name,
        "gpu": kernel.plan.chip.name,
        "batch": {"requests": len(batch.requests), "tokens": batch.tokens()},
        "overlap_s": step.overlap_s,
        "no_overlap_s": step.no_overlap_s,
        "bottleneck": step.bottleneck.value,
        "per_resource_s": {resource.value: time for resource, time in step.per_resource_s},
        "mean_s": fitted.mean_s,
        "low_s": fitted.low_s,
        "high_s": fitted.high_s,
        "level": fitted.level,
        "in_domain": fitted.in_domain,
        "overrides": [
            {"field": o.field, "requested": o.requested, "resolved": o.resolved, "reason": o.reason}
            for o in resolution.overrides
        ],
        "coefficients": [
            {"name": c.name, "value": c.value, "unit": c.unit, "method": methods[c.name]}
            for c in kernel.fitted.coefficients
            if c.name in methods
        ],
    }


def _show(screen: Screen, document: dict[str, Any]) -> None:
    batch = document["batch"]
    screen.line(
        f"{document['model']} on {document['gpu']}: {batch['requests']} requests, "
        f"{batch['tokens']} tokens in this step"
    )
    screen.line()
    total = sum(document["per_resource_s"].values())
    screen.table(
        ("resource", "time [ms]", "share"),
        [
            (name, f"{1e3 * time:.4f}", f"{time / total:.1%}" if total else "-")
            for name, time in document["per_resource_s"].items()
            if time > 0
        ],
    )
    screen.line(f"bottleneck   {document['bottleneck']}")
    screen.line(f"overlap      {1e3 * document['overlap_s']:.4f} ms")
    screen.line(f"no overlap   {1e3 * document['no_overlap_s']:.4f} ms")
    screen.line(
        f"fitted       {1e3 * document['mean_s']:.4f} ms, {document['level']:.0%} of steps within "
        f"{1e3 * document['low_s']:.4f} to {1e3 * document['high_s']:.4f} ms"
    )
    if not document["in_domain"]:
        screen.line("outside what the calibration has seen: extrapolated")
    for item in document["overrides"]:
        screen.line(
            f"{item['field']}: asked {item['requested']}, runs {item['resolved']}; {item['reason']}"
        )


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
    from kernelfit.cli.files import read_kernel, read_lines

    frozen = read_kernel(kernel)
    asked = [(number, value) for number, value in read_lines(batches)]
    rows = prices(frozen, asked, str(batches), level)
    if screen.json:
        screen.document(
            {"schema": "kernelfit.predict/1", "kernel": frozen.digest, "steps": list(rows)}
        )
        return OK
    for row in rows:
        screen.line(json.dumps(row, sort_keys=True, allow_nan=False))
    return OK


def prices(
    kernel: FittedKernel, asked: Sequence[tuple[int, Any]], file: str, level: float | None
) -> tuple[dict[str, Any], ...]:
    """Price batches in their JSON form.

    Parameters
    ----------
    kernel : FittedKernel
        The kernel.
    asked : sequence of (int, object)
        Line number and JSON form of each batch.
    file : str
        Where they come from.
    level : float or None
        Coverage of the interval [1], where one is wanted.

    Returns
    -------
    tuple of dict
        One per batch, in their order, SI units.

    Raises
    ------
    InputError
        With every line that is no batch or exceeds the pool's limits.
    """
    from kernelfit.cli.batches import from_data
    from kernelfit.documents.problems import InputError, Problem
    from kernelfit.kernel.errors import InvalidArgument
    from kernelfit.kernel.tables import table_of
    from kernelfit.kernel.totals import BatchTotals

    problems: list[Problem] = []
    rows: list[dict[str, Any]] = []
    reduced: list[BatchTotals] = []
    for number, value in asked:
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
            }
            if level is not None or batch.sm_budget:
                fitted = kernel.calibrated_step_time(batch, level or 0.9)
                row["mean_s"] = fitted.mean_s
                if level is not None:
                    row |= {"low_s": fitted.low_s, "high_s": fitted.high_s, "level": level}
            rows.append(row)
            reduced.append(totals)
        except InputError as error:
            problems += error.problems
        except InvalidArgument as error:
            problems.append(Problem(file, number, None, str(error)))
    if problems:
        raise InputError(problems)
    if reduced:
        # The mean of all of them at once is far cheaper than one interval each.
        columns = table_of(reduced)
        for row, mean in zip(rows, kernel.mean_step_times(columns), strict=True):
            row.setdefault("mean_s", float(mean))
    return tuple(rows)
