"""A plan, and what came of one, as plain text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kernelfit.report import units
from kernelfit.report.tables import Cell, Column, Table, plain


def plan_text(document: Mapping[str, Any]) -> str:
    """Draw a plan.

    Parameters
    ----------
    document : mapping
        A plan, schema ``kernelfit.plan/1``.

    Returns
    -------
    str
        What it costs, its runs, its coefficients and flags, and commands.
    """
    gpu, runs = document["gpu"], document["runs"]
    if not runs:
        return f"{gpu}: no run would settle anything that is open.\n"
    steps = sum(run["steps"] for run in runs)
    lines = [
        f"{gpu}: {len(runs)} {'run' if len(runs) == 1 else 'runs'}, {steps:,} steps, "
        f"{document['gpu_minutes']:.3g} GPU-minutes with the engines' start"
    ]
    if document["met"]:
        lines.append("after it nothing that steps can settle is expected to be open")
    parts = ["\n".join(lines) + "\n\n", plain(_runs(runs)), "\n"]
    wanted = [row for row in document["coefficients"] if row["wanted"]]
    if wanted:
        parts += [plain(_coefficients(wanted)), "\n"]
    if document["flags"]:
        parts += [plain(_flags(document["flags"])), "\n"]
    for run in runs:
        parts += [f"{command}\n" for command in run["commands"]]
    return "".join(parts)


def _runs(runs: Sequence[Mapping[str, Any]]) -> Table:
    columns = (
        Column("run"),
        Column("batch shape"),
        Column("times", numeric=True),
        Column("GPU-minutes", numeric=True),
    )
    rows = tuple(
        (
            Cell(f"{run['model']} {run['pool']}"),
            Cell(str(episode["shape"])),
            Cell(units.count(episode["repeat"])),
            Cell(f"{episode['gpu_minutes']:.3g}"),
        )
        for run in runs
        for episode in run["episodes"]
    )
    return Table("runs", "", columns, rows, "")


def _share(value: float | None) -> str:
    return units.MISSING if value is None else f"{100.0 * value:.2g} %"


def _interval(ends: Sequence[float]) -> str:
    return f"{units.number(ends[0])} to {units.number(ends[1])}"


def _coefficients(rows: Sequence[Mapping[str, Any]]) -> Table:
    columns = (
        Column("coefficient"),
        Column("verdict"),
        Column("95 % now"),
        Column("95 % expected"),
        Column("width left", numeric=True),
    )
    cells = tuple(
        (
            Cell(str(row["name"])),
            Cell(str(row["verdict"])),
            Cell(_interval(row["ci95"])),
            Cell(_interval(row["expected_ci95"])),
            Cell(_share(row["shrinkage"])),
        )
        for row in rows
    )
    return Table("coefficients", "", columns, cells, "")


def _flags(rows: Sequence[Mapping[str, Any]]) -> Table:
    columns = (
        Column("pool"),
        Column("load"),
        Column("conclusion"),
        Column("flag"),
        Column("margin", numeric=True),
        Column("+- now", numeric=True),
        Column("+- expected", numeric=True),
        Column("settled"),
    )
    cells = tuple(
        (
            Cell(f"{row['model']} {row['pool']}"),
            Cell(str(row["load"])),
            Cell(str(row["conclusion"]).replace("_", " ")),
            Cell(str(row["flag"])),
            Cell(_share(row["margin"])),
            Cell(_share(row["before"])),
            Cell(_share(row["expected"])),
            Cell("yes" if row["settled"] else "no" if row["before"] else "by hand or a new fit"),
        )
        for row in rows
    )
    return Table("flags", "", columns, cells, "")


def compare_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Draw the shrinkage that was expected beside the one that came.

    Parameters
    ----------
    rows : sequence of mapping
        One per coefficient.

    Returns
    -------
    str
        The table, those first that the plan was for.
    """
    columns = (
        Column("coefficient"),
        Column("verdict"),
        Column("verdict after"),
        Column("95 % before"),
        Column("95 % expected"),
        Column("95 % after"),
        Column("width left, expected", numeric=True),
        Column("width left, real", numeric=True),
    )
    cells = tuple(
        (
            Cell(str(row["name"])),
            Cell(str(row["verdict"])),
            Cell(str(row["verdict_after"])),
            Cell(_interval(row["ci95"])),
            Cell(_interval(row["expected_ci95"])),
            Cell(_interval(row["ci95_after"])),
            Cell(_share(row["expected"])),
            Cell(_share(row["real"])),
        )
        for row in sorted(rows, key=lambda row: not row["wanted"])
    )
    return plain(Table("compare", "", columns, cells, "The two share no coefficient."))
