"""Tables of what a fit rests on: evidence, runs, gates, files read and written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernelfit.report import units
from kernelfit.report.select import step_share
from kernelfit.report.tables import Cell, Column, Table
from kernelfit.report.tables_checks import rank
from kernelfit.report.words import METHODS_MEAN, VERDICTS

View = Mapping[str, Any]

METHODS = tuple(METHODS_MEAN)


def evidence(view: View) -> Table:
    """Return how much of the model is measured and how much is assumed.

    Parameters
    ----------
    view : mapping
        What the report knows of one GPU type.

    Returns
    -------
    Table
        One row a method, with what the coefficients of that method price.
    """
    columns = (
        Column("Evidence"),
        Column("Coefficients", numeric=True),
        Column("Of the step time [%]", numeric=True),
        *(Column(name.replace("_", " "), numeric=True) for name in VERDICTS),
        Column("Which"),
    )
    found: dict[str, list[Mapping[str, Any]]] = {}
    for entry in view["calibration"]["coefficients"]:
        found.setdefault(str(entry["method"]), []).append(entry)
    rows = []
    for method in sorted(found, key=lambda name: rank(name, METHODS)):
        mine = found[method]
        shares = [step_share(view, entry) for entry in mine]
        known = [share for share in shares if share is not None]
        total = sum(known) if known else None
        counts = (sum(entry["verdict"] == name for entry in mine) for name in VERDICTS)
        rows.append(
            (
                Cell(method.replace("_", " "), method, METHODS_MEAN.get(method, "")),
                Cell(units.count(len(mine)), len(mine)),
                Cell(units.percent(total), total),
                *(Cell(units.count(n), n) for n in counts),
                Cell(", ".join(str(entry["name"]) for entry in mine)),
            )
        )
    return Table(
        "evidence",
        "What is measured and what is assumed, by the evidence of each coefficient",
        columns,
        tuple(rows),
        "The calibration holds no coefficients.",
    )


def runs(view: View) -> Table:
    """Return the table of the runs behind the fit.

    Parameters
    ----------
    view : mapping
        What the report knows of one GPU type.

    Returns
    -------
    Table
        One row a run.
    """
    columns = (
        Column("Run"),
        Column("Model"),
        Column("Pool"),
        Column("Steps", numeric=True),
        Column("Kept", numeric=True),
        Column("Dropped [%]", numeric=True),
    )
    rows = []
    for run in view["calibration"].get("runs") or ():
        steps, kept = int(run["steps"]), int(run["kept"])
        dropped = (steps - kept) / steps if steps else None
        rows.append(
            (
                Cell(str(run["run"]), str(run["run"]), kind="code"),
                Cell(str(run["model"]), str(run["model"])),
                Cell(_pool(run.get("pool")), _pool(run.get("pool"))),
                Cell(units.count(steps), steps),
                Cell(units.count(kept), kept),
                Cell(units.percent(dropped), dropped),
            )
        )
    return Table(
        "runs",
        "Runs behind the fit, steps read and steps kept",
        columns,
        tuple(rows),
        "The calibration names no runs.",
    )


def _pool(pool: Any) -> str:
    if isinstance(pool, Mapping):
        return ", ".join(f"{key} {pool[key]}" for key in sorted(pool))
    return units.MISSING if pool is None else str(pool)


def gates(view: View) -> Table:
    """Return the table of what the gates dropped.

    Parameters
    ----------
    view : mapping
        What the report knows of one GPU type.

    Returns
    -------
    Table
        One row a gate and run.
    """
    columns = (
        Column("Gate", short="gate"),
        Column("Run", short="run"),
        Column("Steps", numeric=True, short="steps"),
        Column("Rule", short="rule"),
    )
    rows = tuple(
        (
            Cell(str(gate["id"]), str(gate["id"]), kind="code"),
            Cell(str(gate["run"]), str(gate["run"]), kind="code"),
            Cell(units.count(gate["rows"]), gate["rows"]),
            Cell(str(gate.get("rule") or "")),
        )
        for gate in view["gates"]
    )
    return Table(
        "gates",
        "Steps dropped or repaired before fitting, by gate",
        columns,
        rows,
        "No gate dropped a step.",
    )


def gate_totals(view: View) -> Table:
    """Return what each gate dropped over all runs.

    Parameters
    ----------
    view : mapping
        What the report knows of one GPU type.

    Returns
    -------
    Table
        One row a gate, the runs it touched in a note.
    """
    columns = (
        Column("Gate"),
        Column("Steps", numeric=True),
        Column("Runs", numeric=True),
        Column("Rule"),
    )
    found: dict[str, list[Mapping[str, Any]]] = {}
    for gate in view["gates"]:
        found.setdefault(str(gate["id"]), []).append(gate)
    rows = []
    for name, gates_of in found.items():
        steps = sum(int(gate["rows"]) for gate in gates_of)
        touched = [gate for gate in gates_of if gate["rows"]]
        where = ", ".join(f"{gate['run']} {units.count(gate['rows'])}" for gate in touched)
        rows.append(
            (
                Cell(name, name, kind="code"),
                Cell(units.count(steps), steps),
                Cell(units.count(len(touched)), len(touched)),
                Cell(str(gates_of[0].get("rule") or ""), note=where),
            )
        )
    return Table(
        "gates",
        "Steps dropped or repaired before fitting, by gate",
        columns,
        tuple(rows),
        "No gate dropped a step.",
    )


def ingest(view: View) -> Table:
    """Return the table of what was read.

    Parameters
    ----------
    view : mapping
        What the report knows of one GPU type.

    Returns
    -------
    Table
        One row a file; the counts of a row add up to its lines.
    """
    heads = ("Lines", "Steps", "Recognised", "Rejected")
    columns = (
        Column("File"),
        *(Column(head, numeric=True) for head in heads),
        Column("Timing"),
        Column("Digest"),
    )
    rows = tuple(
        (
            Cell(str(entry["file"]), str(entry["file"]), kind="code"),
            *(
                Cell(units.count(entry.get(head.lower())), entry.get(head.lower()))
                for head in heads
            ),
            Cell(str(entry.get("timing") or units.MISSING), str(entry.get("reader") or "")),
            Cell(str(entry.get("digest") or units.MISSING), kind="code"),
        )
        for entry in view["ingest"]
    )
    return Table("ingest", "Files read, by line", columns, rows, "No file was read for this fit.")


def kernels(view: View) -> Table:
    """Return the table of the frozen kernels.

    Parameters
    ----------
    view : mapping
        What the report knows of one GPU type.

    Returns
    -------
    Table
        One row a file.
    """
    columns = (Column("File"), Column("Model"), Column("Pool"), Column("Digest"))
    rows = tuple(
        (
            Cell(str(entry["file"]), str(entry["file"]), kind="code"),
            Cell(str(entry["model"]), str(entry["model"])),
            Cell(_pool(entry["pool"]), _pool(entry["pool"])),
            Cell(str(entry["digest"]), str(entry["digest"]), kind="code"),
        )
        for entry in view["kernels"]
    )
    return Table("kernels", "Frozen kernels", columns, rows, "No kernel was frozen from this fit.")
