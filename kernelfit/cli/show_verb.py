"""``show``: what a calibration, a kernel or a result file holds, as tables."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kernelfit.cli.screen import Screen
from kernelfit.cli.verb import OK, verb

if TYPE_CHECKING:
    from kernelfit.kernel.fitted import FittedKernel

SCHEMA = "kernelfit.show/1"


def register(app: typer.Typer) -> None:
    """Add the verb.

    Parameters
    ----------
    app : typer.Typer
        The command line.
    """
    verb(
        app,
        "show",
        summary="Show what a calibration, a kernel or a report's numbers hold.",
        example="kernelfit show calib/calibrations/GPU.json",
        details="--coefficient shows one number with its prior, its evidence and what it means. "
        "--schema prints the JSON Schema of a verb's --json instead.",
    )(show)


def show(
    screen: Screen,
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE", help="A calibration, a frozen kernel, or reports/GPU/report.json."
        ),
    ] = None,
    coefficient: Annotated[
        str | None, typer.Option("--coefficient", metavar="NAME", help="Only this one, in full.")
    ] = None,
    schema: Annotated[
        str | None,
        typer.Option("--schema", metavar="VERB", help="Print the schema of a verb's --json."),
    ] = None,
) -> int:
    """Show a file.

    Parameters
    ----------
    screen : Screen
        Where the words go.
    file : pathlib.Path, optional
        The file.
    coefficient : str, optional
        Only this coefficient.
    schema : str, optional
        A verb, whose schema is printed instead.

    Returns
    -------
    int
        Exit status.
    """
    if (file is None) == (schema is None):
        raise typer.BadParameter("give either FILE or --schema VERB")
    if schema is not None:
        from kernelfit.cli.schemas import schema_of

        screen.document(schema_of(schema))
        return OK
    assert file is not None
    document = _document(file)
    if coefficient is not None:
        document["coefficients"] = [_one(file, document["coefficients"], coefficient)]
    if screen.json:
        screen.document(document)
    elif coefficient is not None:
        _show_one(screen, document["coefficients"][0])
    else:
        _show(screen, document)
    return OK


def _document(file: Path) -> dict[str, Any]:
    """Read a file of any kind that holds coefficients."""
    from kernelfit.cli.files import read_calibration, read_kernel, read_object, refuse
    from kernelfit.documents.problems import shown

    data = read_object(file)
    kind = data.get("kind") or data.get("schema")
    body: dict[str, Any]
    if kind == "Calibration":
        body = read_calibration(file).summary()
    elif kind == "FittedKernel":
        body = _kernel(read_kernel(file))
    elif kind == "kernelfit.report/1":
        body = {**data["calibration"], "verdict": data["verdict"]["sentence"]}
    else:
        raise refuse(
            file,
            "holds nothing that can be shown",
            got=shown(kind),
            allowed="a calibration, a frozen kernel, a report's report.json",
        )
    return {"schema": SCHEMA, "file": str(file), "kind": str(kind), **body}


def _kernel(kernel: FittedKernel) -> dict[str, Any]:
    from kernelfit.kernel.catalog import definition
    from kernelfit.kernel.costs import peak_of, resource_of
    from kernelfit.kernel.frozen import to_data

    plan = kernel.plan
    rows = []
    for c in kernel.fitted.coefficients:
        if c.name not in plan.coefficients:
            continue
        entry = definition(c.name)
        peak = None
        if entry.kind == "efficiency":
            peak = peak_of(c.name, resource_of(c.name), plan.chip)
        rows.append(
            {
                **to_data(c),
                "peak": peak,
                "peak_unit": "flop/s" if resource_of(c.name).value == "sm" else "byte/s",
                "share_of_peak": None if peak is None else c.value,
                "meaning": entry.meaning,
            }
        )
    resolution = kernel.resolved()
    return {
        "gpu": plan.chip.name,
        "digest": kernel.digest,
        "model": plan.model.name,
        "engine_version": plan.engine_version,
        "calibration": kernel.fitted.calibration,
        "widths": {
            "tp": resolution.tensor_parallel_width,
            "dp": resolution.data_parallel_width,
            "ep": resolution.expert_parallel_width,
        },
        "overlap_share": kernel.fitted.overlap_share,
        "overrides": [to_data(item) for item in resolution.overrides],
        "coefficients": rows,
        "domain": [
            {
                "quantity": r.quantity,
                "low": r.low,
                "high": r.high,
                "unit": "tokens" if r.quantity.endswith("tokens") else "count",
            }
            for r in kernel.fitted.domain
        ],
    }


def _one(file: Path, rows: list[dict[str, Any]], name: str) -> dict[str, Any]:
    from kernelfit.cli.files import refuse
    from kernelfit.documents.problems import did_you_mean

    for row in rows:
        if row["name"] == name:
            return row
    names = [str(row["name"]) for row in rows]
    raise refuse(
        file,
        "holds no such coefficient",
        got=name,
        allowed=", ".join(names),
        hint=did_you_mean(name, names),
    )


def _show(screen: Screen, document: Mapping[str, Any]) -> None:
    from kernelfit.report.tables_fit import coefficients, domain

    heads = ("gpu", "model", "engine_version", "digest", "calibration", "verdict")
    for key in heads:
        if document.get(key) is not None:
            screen.line(f"{key.replace('_', ' '):<16}{document[key]}")
    if document.get("runs") is not None:
        steps = sum(run["kept"] for run in document["runs"])
        screen.line(f"{'rests on':<16}{len(document['runs'])} runs, {steps:,} steps")
    rule = (document.get("composition") or {}).get("rule")
    if rule is not None:
        screen.line(f"{'composition':<16}{rule}")
    screen.line()
    view = {"gpu": document["gpu"], "calibration": document}
    screen.show(coefficients(view))
    screen.line()
    screen.show(domain(view))
    for item in document.get("overrides") or ():
        screen.line(
            f"{item['field']}: asked {item['requested']}, runs {item['resolved']}; {item['reason']}"
        )
    for text in document.get("warnings") or ():
        screen.line(f"warning: {text}")


def _show_one(screen: Screen, row: Mapping[str, Any]) -> None:
    from kernelfit.report.units import MISSING, number, percent, show

    shown = show(row)
    lines = [
        ("coefficient", str(row["name"])),
        ("meaning", str(row.get("meaning") or MISSING)),
        ("value", f"{shown.value} {shown.unit}, 95 % interval [{shown.low}, {shown.high}]"),
        ("of peak", f"{percent(row.get('share_of_peak'))} %"),
        ("verdict", str(row["verdict"])),
        ("method", str(row["method"])),
        ("scope", str(row.get("scope") or MISSING)),
        ("alias of", ", ".join(row.get("alias") or ()) or MISSING),
    ]
    prior = row.get("prior") or {}
    if prior.get("value") is not None:
        words = f"{number(prior['value'])} {row['unit']} ({prior['method']}): {prior['source']}"
        lines.append(("prior", words))
    for name, value in (row.get("evidence") or {}).items():
        lines.append((name.replace("_", " "), number(value)))
    for name, text in lines:
        if not (name == "of peak" and row.get("share_of_peak") is None):
            screen.line(f"{name:<18}{text}")
