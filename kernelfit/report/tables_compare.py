"""Tables of a comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kernelfit.report import units
from kernelfit.report.sides import Side
from kernelfit.report.tables import Cell, Column, Table
from kernelfit.report.tables_checks import rank
from kernelfit.report.words import SPLITS, split_words


def sides_table(document: Mapping[str, Any]) -> Table:
    """Return the table of the sides.

    Parameters
    ----------
    document : mapping
        From :func:`kernelfit.report.compare.compare`.


    Returns
    -------
    Table
        As the page sets it.
    """
    columns = (
        Column("Side"),
        Column("GPU type"),
        Column("Runs", numeric=True),
        Column("Steps", numeric=True),
        Column("Noise floor [%]", numeric=True),
        Column("Composition"),
        Column("Verdict"),
        Column("Digest"),
    )
    rows = tuple(
        (
            Cell(side["name"], side["name"]),
            Cell(side["gpu"], side["gpu"]),
            Cell(units.count(side["runs"]), side["runs"]),
            Cell(units.count(side["steps"]), side["steps"]),
            Cell(units.percent(side["noise"]), side["noise"]),
            Cell(str(side["rule"] or units.MISSING)),
            Cell(str(side["verdict"] or "not judged: no held-out steps beside it")),
            Cell(side["digest"], side["digest"], kind="code"),
        )
        for side in document["sides"]
    )
    return Table("sides-table", "The calibrations", columns, rows, "")


def coefficient_table(sides: Sequence[Side], document: Mapping[str, Any]) -> Table:
    """Return the coefficients beside each other.

    Parameters
    ----------
    sides : sequence of Side
        The sides, the first one first.
    document : mapping
        From :func:`kernelfit.report.compare.compare`.


    Returns
    -------
    Table
        As the page sets it.
    """
    found = {(row["name"], row["side"]): row for row in document["coefficients"]}
    columns = [Column("Coefficient")]
    for number, side in enumerate(sides):
        columns += [Column(f"{side.name}"), Column("verdict")]
        if number:
            columns += [Column("ratio", numeric=True), Column("difference")]
    rows = []
    for name in dict.fromkeys(row["name"] for row in document["coefficients"]):
        cells = [Cell(name, name, kind="code")]
        for number, side in enumerate(sides):
            row, entry = found.get((name, side.name)), side.coefficient(name)
            if row is None or entry is None:
                cells += [Cell(units.MISSING)] * (4 if number else 2)
                continue
            shown = units.show(entry)
            cells += [
                Cell(f"{shown.value} {shown.unit}", row["value"], f"[{shown.low}, {shown.high}]"),
                Cell(row["verdict"], row["verdict"], kind=f"verdict-{row['verdict']}"),
            ]
            if number:
                cells += [_ratio_cell(row["ratio"]), Cell(row["difference"], row["difference"])]
        rows.append(tuple(cells))
    caption = f"Coefficients with 95 % intervals, held against {sides[0].name}"
    return Table("coefficient-table", caption, tuple(columns), tuple(rows), "No coefficients.")


def _ratio_cell(ratio: Mapping[str, Any] | None) -> Cell:
    if ratio is None:
        return Cell(units.MISSING)
    if ratio["low"] is None or ratio["high"] is None:
        return Cell(units.number(ratio["value"], 2), ratio["value"])
    value, low, high = units.interval_texts(ratio["value"], ratio["low"], ratio["high"])
    return Cell(value, ratio["value"], f"[{low}, {high}]")


def error_table(sides: Sequence[Side], document: Mapping[str, Any]) -> Table:
    """Return the held-out errors beside each other.

    Parameters
    ----------
    sides : sequence of Side
        The sides, the first one first.
    document : mapping
        From :func:`kernelfit.report.compare.compare`.


    Returns
    -------
    Table
        As the page sets it.
    """
    found = {(row["split"], row["phase"], row["side"]): row for row in document["errors"]}
    keys = sorted(
        {(row["split"], row["phase"]) for row in document["errors"]},
        key=lambda key: (rank(key[0], tuple(SPLITS)), rank(key[1], ("all", "decode", "mixed"))),
    )
    columns = [Column("Split"), Column("Phase")]
    for side in sides:
        columns += [Column(f"{side.name}, median [%]", numeric=True), Column("steps", numeric=True)]
    rows = []
    for split, phase in keys:
        cells = [Cell(split_words(split), split), Cell(phase, phase)]
        for side in sides:
            row = found.get((split, phase, side.name))
            median, n = (None, None) if row is None else (row["median_ape"], row["n"])
            cells += [Cell(units.percent(median), median), Cell(units.count(n), n)]
        rows.append(tuple(cells))
    empty = "No side has held-out errors beside it; give report folders instead of calibrations."
    return Table("error-table", "Held-out errors", tuple(columns), tuple(rows), empty)


def deployment_table(document: Mapping[str, Any]) -> Table:
    """Return the smallest and largest decode steps.

    Parameters
    ----------
    document : mapping
        From :func:`kernelfit.report.compare.compare`.


    Returns
    -------
    Table
        As the page sets it.
    """
    columns = (
        Column("Model"),
        Column("Pool"),
        Column("Side"),
        Column("Context [tokens]", numeric=True),
        Column("Smallest batch"),
        Column("Largest batch"),
        Column("Largest part of the step"),
    )
    order = sorted(document["deployments"], key=lambda row: (row["model"], row["pool"]))
    rows = tuple(
        (
            Cell(row["model"], row["model"]),
            Cell(row["pool"], row["pool"]),
            Cell(row["side"], row["side"]),
            Cell(units.count(row["context_tokens"]), row["context_tokens"]),
            *(
                Cell(f"{units.count(n)}: {units.seconds(time)}", time)
                for n, time in zip(row["requests"], row["fitted_s"], strict=True)
            ),
            Cell(", ".join(f"{name} from {start}" for name, start in row["bottlenecks"])),
        )
        for row in order
    )
    empty = "No side has priced deployments beside it."
    return Table("deployment-table", "Fitted decode steps", columns, rows, empty)
