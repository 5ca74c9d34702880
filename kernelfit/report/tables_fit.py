"""Tables of the fit itself: coefficients, domain, composition."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernelfit.report import units
from kernelfit.report.select import step_share
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
    rows = tuple(_coefficient(view, entry) for entry in view["calibration"]["coefficients"])
    return Table(
        "coefficients",
        f"Coefficients of {view['gpu']} with 95 % intervals from block resampling",
        columns,
        rows,
        "The calibration holds no coefficients.",
    )


def _coefficient(view: View, entry: Mapping[str, Any]) -> tuple[Cell, ...]:
    shown = units.show(entry)
    interval = entry.get("ci95")
    share = entry.get("share_of_peak")
    peak = units.peak_text(entry)
    alias = ", ".join(str(name) for name in entry.get("alias") or ())
    evidence = entry.get("evidence") or {}
    notes = []
    if evidence.get("time_share") is not None:
        whole = "its events'" if step_share(view, entry) is None else "the step"
        notes.append(f"{units.percent(evidence['time_share'])} % of {whole} time")
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
        Cell(alias or units.MISSING, alias, kind="code" if alias else ""),
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
