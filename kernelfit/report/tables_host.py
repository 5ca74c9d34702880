"""Host work: what is known inside the step, and what the front end's coefficients rest on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernelfit.report import units
from kernelfit.report.tables import Cell, Column, Table

View = Mapping[str, Any]

_COUNTED = {
    "prompt_tokens": "tokens of the prompt",
    "outputs": "request outputs in a call",
    "output_tokens": "tokens of the output",
}


def front_end(view: View) -> Table:
    """Return the table of the host work around the step.

    Parameters
    ----------
    view : mapping
        What the report knows of one GPU type.

    Returns
    -------
    Table
        One row a kind of work.
    """
    columns = (
        Column("Work", short="host work"),
        Column("Events", numeric=True, short="events"),
        Column("Scatter [%]", numeric=True, short="scatter %"),
        Column("Mean over usual", numeric=True, short="mean/usual"),
        Column("Counted", short="counted"),
        Column("Seen", short="seen"),
        Column("Linear", short="linear"),
    )
    known = view["calibration"].get("front_end") or {}
    rows = tuple(_part(part) for part in known.get("parts") or ())
    scope = str(known.get("scope") or "")
    title = "Host work around the step" + (f": {scope}" if scope else "")
    return Table("front-end", title, columns, rows, "No host work around the step was recorded.")


def _part(part: Mapping[str, Any]) -> tuple[Cell, ...]:
    shape = part["linearity"]
    worst = units.percent(shape["worst_gap"])
    word = "yes" if shape["linear"] else f"no, off by up to {worst} %"
    if not shape["bins"]:
        word = "not asked: one count seen"
    note = f"largest gap {worst} %, p {units.number(shape['p_value'], 2)}"
    return (
        Cell(str(part["kind"]), str(part["kind"]), kind="code"),
        Cell(units.count(part["events"]), part["events"]),
        Cell(units.percent(part["scale"]), part["scale"]),
        Cell(units.number(part["mean_ratio"], 3), part["mean_ratio"]),
        Cell(_COUNTED.get(str(shape["counted"]), str(shape["counted"]))),
        Cell(f"{units.number(part['low'], 5)} to {units.number(part['high'], 5)}"),
        Cell(word, note=note),
    )


def event_gates(view: View) -> Table:
    """Return the table of the events that gates dropped.

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
        Column("Gate"),
        Column("Run"),
        Column("Events", numeric=True),
        Column("Rule"),
    )
    known = view["calibration"].get("front_end") or {}
    rows = tuple(
        (
            Cell(str(gate["id"]), str(gate["id"]), kind="code"),
            Cell(str(gate["run"]), str(gate["run"]), kind="code"),
            Cell(units.count(gate["events"]), gate["events"]),
            Cell(str(gate["rule"])),
        )
        for gate in known.get("gates") or ()
    )
    return Table(
        "event-gates", "Events dropped before fitting", columns, rows, "No gate dropped an event."
    )


def host_words(view: View) -> tuple[str, ...]:
    """Return what is said about host work.

    Parameters
    ----------
    view : mapping
        What the report knows of one GPU type.

    Returns
    -------
    tuple of str
        One sentence each, first those on the work inside the step.
    """
    calibration = view["calibration"]
    words = [str(text) for text in calibration.get("inside_step") or ()]
    known = calibration.get("front_end")
    if known:
        words.append(f"Around the step: {known['scope']}.")
        words += [f"Compared with, and not fitted from: {other}." for other in known["others"]]
    elif words:
        words.append(
            "Around the step (admission, outputs, completion): no front end was recorded, so it is "
            "not charged."
        )
    return tuple(words)


def coarse(view: View) -> Table:
    """Return the table of what request-level sources say of the host.

    Parameters
    ----------
    view : mapping
        What the report knows of one GPU type.

    Returns
    -------
    Table
        One row a sum of costs.
    """
    columns = (
        Column("Run", short="run"),
        Column("Seen by", short="seen by"),
        Column("Sum of", short="sum of"),
        Column("Value", numeric=True, short="value"),
        Column("Unit", short="unit"),
        Column("95 % interval", short="95 % interval"),
        Column("Verdict", short="verdict"),
        Column("Requests", numeric=True, short="requests"),
        Column("Read off", terminal=False),
    )
    rows = tuple(
        _term(source, term)
        for source in view.get("coarse") or ()
        for term in source.get("terms") or ()
    )
    return Table(
        "coarse",
        "What requests alone say of the host",
        columns,
        rows,
        "No request-level source says anything of the host.",
    )


def _term(source: Mapping[str, Any], term: Mapping[str, Any]) -> tuple[Cell, ...]:
    low, high = term["ci95"]
    largest = max(abs(term["value"]), abs(low), abs(high))
    scale = units.scale_for("s", largest)
    edges = [units.number(edge * scale.factor) for edge in (low, high)]
    return (
        Cell(str(source["run"]), str(source["run"]), kind="code"),
        Cell(str(source["observer"]), str(source["observer"])),
        Cell(" + ".join(term["parts"])),
        Cell(units.number(term["value"] * scale.factor), term["value"]),
        Cell(scale.unit, "s"),
        Cell(f"[{edges[0]}, {edges[1]}]", low, kind="nowrap"),
        Cell(str(term["verdict"]), str(term["verdict"]), kind=f"verdict-{term['verdict']}"),
        Cell(units.count(term["requests"]), term["requests"]),
        Cell(str(term["basis"])),
    )
