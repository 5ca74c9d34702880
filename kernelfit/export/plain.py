"""Plain JSON of a frozen kernel: every cost evaluated, so that a reader only multiplies.

The document stands alone. A batch becomes the values of a few named functions, each cost is
seconds per unit of one of them, and the composition says how the sums join.
``examples/read_plain.py`` is a whole reader.
"""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

from kernelfit.documents.canonical import digest, dumps
from kernelfit.export.base import (
    ExportedFile,
    ExportOptions,
    Files,
    NotExpressed,
    Target,
    provenance,
)
from kernelfit.kernel.basis import Basis
from kernelfit.kernel.fitted import FittedKernel
from kernelfit.kernel.front_end_definitions import FRONT_END_NAMES
from kernelfit.kernel.frozen import to_data
from kernelfit.kernel.pricing import Cell, Costs
from kernelfit.kernel.routing import Routing, rates_of
from kernelfit.kernel.stage import HOST_STAGE, LAUNCH_STAGE
from kernelfit.kernel.totals import window_column

SCHEMA = "kernelfit.plain/2"

FORMULAS: tuple[tuple[str, str], ...] = (
    ("one", "1"),
    ("tokens", "sum of scheduled tokens s"),
    ("padded_tokens", "smallest captured size >= tokens where a graph is launched, else tokens"),
    ("requests", "number of requests"),
    ("decode_context_tokens", "sum over decode requests of c + s, c tokens computed before"),
    ("prefill_context_tokens", "sum over the other requests of c + s"),
    ("decode_pairs", "sum over decode requests of s*c + s*(s + 1)/2"),
    ("prefill_pairs", "sum over the other requests of s*c + s*(s + 1)/2"),
    (
        "padded_requests",
        "ceil(padded_tokens / decode_query_tokens) where the graph is full and tokens = requests "
        "* decode_query_tokens, else requests",
    ),
    ("decode_requests", "number of decode requests, those with s <= decode_threshold"),
    ("full_graphs", "1 where the graph is full, else 0"),
    ("piecewise_graphs", "1 where the graph is piecewise, else 0"),
    ("eager", "1 where no graph is launched, else 0"),
)
"""What each function of a batch that every model has is, in words."""

_TOUCHED = "held * (1 - exp(n * miss_log)), n the function that the routing is of"
_ROWS = "min(mean * n + sqrt(variance * n), most * n), n the function that the routing is of"
_LAUNCHED = {"full": "full_graphs", "piecewise": "piecewise_graphs", "none": "eager"}
_WINDOW = {
    "context_tokens": "sum over the path's requests of min(c + s, s + window - 1)",
    "pairs": "sum over the path's new tokens of min(position, window), positions from c + 1",
}


def plain_schema() -> dict[str, Any]:
    """Return the JSON Schema of the plain export.

    Returns
    -------
    dict
        A JSON Schema, draft 2020-12.
    """
    text = resources.files("kernelfit.export").joinpath("schemas", "plain-2.json").read_text("utf8")
    schema: dict[str, Any] = json.loads(text)
    return schema


def plain_document(kernel: FittedKernel, options: ExportOptions) -> dict[str, Any]:
    """Return the plain form of a kernel.

    Parameters
    ----------
    kernel : FittedKernel
        The kernel.
    options : ExportOptions
        The options.

    Returns
    -------
    dict
        JSON-shaped data in SI units, with the digest of its own contents.
    """
    plan, given = kernel.plan, kernel.fitted
    used = {*plan.coefficients, *FRONT_END_NAMES}
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "provenance": provenance("plain", kernel, options),
        "deployment": {
            "pool": to_data(plan.pool),
            "resolution": to_data(plan.resolution),
            "sm_count": plan.chip.sm_count,
        },
        "basis": _basis(plan.basis),
        "stages": [
            _stage(name, [cell for cell in kernel.cells if cell.stage == index], plan.basis.names)
            for index, name in enumerate(plan.stages)
        ],
        "composition": {
            "overlap_share": given.overlap_share,
            "host_rule": given.host_rule,
        },
        "coefficients": [to_data(c) for c in given.coefficients if c.name in used],
        "noise": [to_data(entry) for entry in given.residuals],
        "domain": [to_data(entry) for entry in given.domain],
        "memory": _memory(kernel),
    }
    document["digest"] = digest(document)
    return document


def _basis(basis: Basis) -> dict[str, Any]:
    names = iter(basis.names[len(FORMULAS) :])
    functions = [{"name": name, "formula": formula} for name, formula in FORMULAS]
    routings = [_routing(routing, next(names), next(names)) for routing in basis.routings]
    functions += [
        {"name": routing[key], "formula": formula}
        for routing in routings
        for key, formula in (("touched", _TOUCHED), ("rows", _ROWS))
    ]
    functions += [
        {
            "name": window_column(window, f"{path}_{field}"),
            "formula": f"{_WINDOW[field]}; {path} requests, window {window}",
        }
        for window in basis.windows
        for path in ("decode", "prefill")
        for field in ("context_tokens", "pairs")
    ]
    return {
        "functions": functions,
        "capture_sizes": list(basis.capture_sizes),
        "decode_batch": _LAUNCHED[basis.decode_graph],
        "mixed_batch": _LAUNCHED[basis.mixed_graph],
        "decode_query_tokens": basis.decode_query_tokens,
        "routings": routings,
        "windows": list(basis.windows),
    }


def _routing(routing: Routing, touched: str, rows: str) -> dict[str, Any]:
    rates = rates_of(routing)
    return {
        "touched": touched,
        "rows": rows,
        "of": "padded_tokens" if routing.padding else "tokens",
        "experts": routing.experts,
        "per_token": routing.per_token,
        "ranks": routing.ranks,
        "copies": routing.copies,
        "imbalance": routing.imbalance,
        "held": rates.held,
        "miss_log": rates.miss_log,
        "mean": rates.mean,
        "variance": rates.variance,
        # A stated imbalance has no spread and no limit.
        "most": rates.most if rates.variance else max(rates.most, rates.mean),
    }


def _stage(stage: str, cells: list[Cell], names: tuple[str, ...]) -> dict[str, Any]:
    def costs(form: Costs) -> dict[str, float]:
        return {names[function]: cost for function, cost in form}

    return {
        "name": stage,
        "joins": {LAUNCH_STAGE: "launch", HOST_STAGE: "host"}.get(stage, "device"),
        "cells": [
            {
                "resource": cell.resource.value,
                "costs": costs(cell.costs),
                "choices": [[costs(one), costs(other)] for one, other in cell.choices],
            }
            for cell in cells
        ],
    }


def _memory(kernel: FittedKernel) -> dict[str, Any]:
    fixed = kernel.fixed_bytes()
    resolution = kernel.plan.resolution
    longest = max(kernel.plan.pool.max_model_len or 0, 32 * 1024)
    lengths = [resolution.block_size]
    while lengths[-1] < longest:
        lengths.append(min(2 * lengths[-1], longest))
    return {
        "fixed": to_data(fixed) | {"total": fixed.total()},
        "sequence_fixed": kernel.sequence_fixed_bytes(),
        "sequence_variable": [
            {"tokens": n, "bytes": kernel.sequence_variable_bytes(n)} for n in lengths
        ],
    }


def _export(kernel: FittedKernel, options: ExportOptions) -> Files:
    text = dumps(plain_document(kernel, options))
    return (
        ExportedFile(f"{options.stem}.plain.json", text),
        ExportedFile("plain-2.schema.json", dumps(plain_schema())),
    )


def check_plain(text: str) -> tuple[str, ...]:
    """Check the text of a plain export as a careful reader would.

    Parameters
    ----------
    text : str
        The file's text.

    Returns
    -------
    tuple of str
        What is wrong; empty for a file that can be used. Whether the shape is right is the
        published schema's to say.
    """
    try:
        document = json.loads(text)
    except ValueError as error:
        return (f"is no JSON: {error}",)
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        return (f"states no schema {SCHEMA}",)
    problems = []
    if document.get("digest") != digest(document):
        problems.append("was changed after it was written: its digest does not hold")
    known = {entry["name"] for entry in document["basis"]["functions"]}
    for stage in document["stages"]:
        for cell in stage["cells"]:
            forms = [cell["costs"], *(form for pair in cell["choices"] for form in pair)]
            unknown = sorted({name for form in forms for name in form} - known)
            if unknown:
                problems.append(f"{stage['name']} prices {', '.join(unknown)}, not a function")
    return tuple(problems)


def _check(files: Files) -> tuple[str, ...]:
    return tuple(
        f"{file.path}: {problem}"
        for file in files
        if file.path.endswith(".plain.json")
        for problem in check_plain(file.content.decode("utf-8"))
    )


def _missing(kernel: FittedKernel, _options: ExportOptions) -> tuple[NotExpressed, ...]:
    if not kernel.fitted.draws:
        return ()
    reason = "costs are evaluated at the fitted values; the grid target carries intervals"
    return (NotExpressed("draws", reason),)


TARGET = Target(
    name="plain",
    title="plain JSON with every cost evaluated, and its JSON Schema",
    holds=(
        "both bounds, the mean and the time by resource, exactly",
        "coefficients with verdict and interval",
        "host work around the step, where the front end was recorded",
        "held-out errors by phase",
        "domain",
        "memory figures",
    ),
    lacks=("joint draws of the coefficients", "transfers between tiers and pools"),
    source="this project: kernelfit/export/schemas/plain-2.json",
    export=_export,
    check=_check,
    missing=_missing,
)
"""The plain target."""
