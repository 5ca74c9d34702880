"""Tables of the fit itself: coefficients, runs, gates, domain, composition, files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernelfit.report import units
from kernelfit.report.tables import Cell, Column, Table

View = Mapping[str, Any]

# Beyond this a variance inflation says no more than that two columns are one.
_HUGE = 10_000


def coefficients(view: View) -> Table:
    """Return the coefficient table.

    Parameters
    ----------
    view : mapping
        What the report knows of one GPU type.

    Returns
    -------
    Table
        One row a coefficient, in display units.
    """
    columns = (
        Column("Coefficient", short="coefficient"),
        Column("Value", numeric=True, short="value"),
        Column("Unit", short="unit"),
        Column("95 % interval", short="95 % interval"),
        Column("Of datasheet peak [%]", numeric=True, short="of peak"),
        Column("Verdict", short="verdict"),
        Column("Evidence", short="method"),
        Column("Not separable from", short="alias of"),
        Column("Prior", terminal=False),
    )
    rows = tuple(_coefficient(entry) for entry in view["calibration"]["coefficients"])
    return Table(
        "coefficients",
        f"Coefficients of {view['gpu']} with 95 % intervals from block resampling",
        columns,
        rows,
        "The calibration holds no coefficients.",
    )


def _coefficient(entry: Mapping[str, Any]) -> tuple[Cell, ...]:
    shown = units.show(entry)
    interval = entry.get("ci95")
    share = entry.get("share_of_peak")
    peak = units.peak_text(entry)
    alias = ", ".join(str(name) for name in entry.get("alias") or ())
    evidence = entry.get("evidence") or {}
    notes = []
    if evidence.get("time_share") is not None:
        notes.append(f"{units.percent(evidence['time_share'])} % of the measured time")
    if evidence.get("vif") is not None:
        vif = float(evidence["vif"])
        text = f"above {units.count(_HUGE)}" if vif > _HUGE else units.number(vif)
        notes.append(f"variance inflation {text}")
    if evidence.get("bound_share"):
        notes.append(f"at a bound in {units.percent(evidence['bound_share'])} % of resamples")
    return (
        Cell(str(entry["name"]), str(entry["name"]), str(entry.get("meaning") or ""), "code"),
        Cell(shown.value, float(entry["value"])),
        Cell(shown.unit, str(entry["unit"])),
        Cell(
            f"[{shown.low}, {shown.high}]" if interval else units.MISSING,
            float(interval[0]) if interval else None,
            kind="nowrap",
        ),
        Cell(
            units.percent(share),
            share,
            "" if peak == units.MISSING else f"of {peak}",
        ),
        Cell(str(entry["verdict"]), str(entry["verdict"]), kind=f"verdict-{entry['verdict']}"),
        Cell(str(entry["method"]), str(entry["method"]), "; ".join(notes)),
        Cell(alias or units.MISSING, alias),
        _prior(entry, shown),
    )


def _prior(entry: Mapping[str, Any], shown: units.Shown) -> Cell:
    """Show the prior: a rate in the unit of the value, a time in its own."""
    prior = entry.get("prior") or {}
    if prior.get("value") is None:
        return Cell(units.MISSING)
    value = float(prior["value"])
    scale = units.Scale(shown.factor, shown.unit)
    if str(entry["unit"]) != "1":
        # A time may be far from its prior and then has a display unit of its own.
        scale = units.scale_for(str(entry["unit"]), value)
    text = f"{units.number(value * scale.factor)} {scale.unit}"
    return Cell(text, value, str(prior.get("source") or ""))


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
    columns = (Column("File"), *(Column(head, numeric=True) for head in heads))
    rows = tuple(
        (
            Cell(str(entry["file"]), str(entry["file"]), kind="code"),
            *(
                Cell(units.count(entry.get(head.lower())), entry.get(head.lower()))
                for head in heads
            ),
        )
        for entry in view["ingest"]
    )
    return Table("ingest", "Files read, by line", columns, rows, "No file was read for this fit.")


def domain(view: View) -> Table:
    """Return the table of the calibrated range.

    Parameters
    ----------
    view : mapping
        What the report knows of one GPU type.

    Returns
    -------
    Table
        One row a quantity.
    """
    columns = (
        Column("Quantity"),
        Column("From", numeric=True),
        Column("To", numeric=True),
        Column("Unit"),
    )
    rows = tuple(
        (
            Cell(str(entry["quantity"]).replace("_", " "), str(entry["quantity"])),
            Cell(units.number(entry["low"], 4), entry["low"]),
            Cell(units.number(entry["high"], 4), entry["high"]),
            Cell(str(entry["unit"]), str(entry["unit"])),
        )
        for entry in view["calibration"].get("domain") or ()
    )
    return Table(
        "domain",
        "Range of the batches that the fit has seen",
        columns,
        rows,
        "The calibration states no domain, so no prediction can be called inside it.",
    )


def composition(view: View) -> Table:
    """Return the scores of the composition rules.

    Parameters
    ----------
    view : mapping
        What the report knows of one GPU type.

    Returns
    -------
    Table
        One row a rule.
    """
    chosen = view["calibration"].get("composition") or {}
    columns = (
        Column("Rule"),
        Column("Median error [%]", numeric=True),
        Column("Mean error [%]", numeric=True),
        Column("Chosen"),
    )
    rows = tuple(
        (
            Cell(str(score["rule"]), str(score["rule"])),
            Cell(units.percent(score.get("median_ape")), score.get("median_ape")),
            Cell(units.percent(score.get("mape")), score.get("mape")),
            Cell("chosen" if score["rule"] == chosen.get("rule") else units.MISSING),
        )
        for score in chosen.get("scores") or ()
    )
    return Table(
        "composition",
        "How the resources combine: held-out error of each rule",
        columns,
        rows,
        "No other rule of composition was scored.",
    )


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
