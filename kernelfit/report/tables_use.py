"""Tables of what follows from the fit: conclusions under both bounds, parts of the step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kernelfit.report import units
from kernelfit.report.tables import Cell, Column, Table
from kernelfit.report.tables_checks import rank
from kernelfit.report.words import RESOURCES

View = Mapping[str, Any]

_OPEN = ("measure", "uncertain")
_FLAG_ORDER = ("measure", "uncertain", "extrapolated", "agree")


def open_flips(view: View) -> Table:
    """Return the conclusions that something has to be done about.

    Parameters
    ----------
    view : mapping
        What the report knows of one GPU type.

    Returns
    -------
    Table
        Those that differ between the bounds or within the calibration's spread.
    """
    flags = [flag for flag in view["flips"] if flag["flag"] in _OPEN]
    empty = "No conclusion differs between the bounds or within the calibration's spread."
    if not view["flips"]:
        return flips(view)
    caption = "Conclusions that differ, and what settles them"
    return replace(flips({"flips": flags}), caption=caption, empty=empty)


def settled_flips(view: View) -> Table:
    """Return the other conclusions.

    Parameters
    ----------
    view : mapping
        What the report knows of one GPU type.

    Returns
    -------
    Table
        Those that hold under both bounds, or lie beyond what the logs hold.
    """
    flags = [flag for flag in view["flips"] if flag["flag"] not in _OPEN]
    caption = f"Conclusions that hold, or lie beyond what the logs hold: {len(flags)}"
    return replace(flips({"flips": flags}), id="flips-rest", caption=caption, empty="")


def flips(view: View) -> Table:
    """Return the conclusions under both bounds, those to measure first.

    Parameters
    ----------
    view : mapping
        What the report knows of one GPU type.

    Returns
    -------
    Table
        One row a pool, load and conclusion.
    """
    columns = (
        Column("Pool", short="pool"),
        Column("Load", short="load"),
        Column("Conclusion", short="conclusion"),
        Column("Flag", short="flag"),
        Column("Under Overlap", short="overlap"),
        Column("Under NoOverlap", short="no overlap"),
        Column("Fitted", short="fitted"),
        Column("Measurement that settles it", terminal=False),
    )
    flags = sorted(
        view["flips"],
        key=lambda flag: (
            rank(str(flag["flag"]), _FLAG_ORDER),
            str(flag.get("model") or ""),
            str(flag["pool"]),
            str(flag["load"]),
            str(flag["conclusion"]),
        ),
    )
    rows = tuple(
        (
            _pool(flag),
            Cell(str(flag["load"]), str(flag["load"])),
            Cell(str(flag["conclusion"]).replace("_", " "), str(flag["conclusion"])),
            Cell(
                str(flag["flag"]),
                str(flag["flag"]),
                kind=f"flag-{flag['flag']}",
            ),
            *(_outcome(flag.get(key)) for key in ("overlap", "no_overlap", "fitted")),
            Cell(str(flag.get("measurement") or units.MISSING)),
        )
        for flag in flags
    )
    return Table(
        "flips",
        "Conclusions under both bounds",
        columns,
        rows,
        "No conclusion was asked for, so none can flip.",
    )


def _pool(flag: Mapping[str, Any]) -> Cell:
    """Name the pool, with the model it serves where the flag states it."""
    text = " ".join(str(flag[key]) for key in ("model", "pool") if flag.get(key))
    return Cell(text, text, kind="code")


def _outcome(value: Any) -> Cell:
    """Show what a conclusion came out as."""
    if value is None:
        return Cell(units.MISSING)
    if isinstance(value, bool):
        return Cell("yes" if value else "no", "yes" if value else "no")
    if isinstance(value, (int, float)):
        return Cell(units.number(float(value)), value)
    return Cell(str(value), str(value))


def bottlenecks(entry: Mapping[str, Any]) -> tuple[tuple[str, int], ...]:
    """Return the resource with the most time, and the batch from which it is so.

    Parameters
    ----------
    entry : mapping
        One breakdown: ``requests`` and ``per_resource_s``.

    Returns
    -------
    tuple of (str, int)
        Resource and the smallest number of requests, each time that it changes.
    """
    changes: list[tuple[str, int]] = []
    per_resource = entry["per_resource_s"]
    names = sorted(per_resource, key=lambda name: rank(str(name), RESOURCES))
    for place, requests in enumerate(entry["requests"]):
        top = max(names, key=lambda name: float(per_resource[name][place]), default=None)
        if top is not None and (not changes or changes[-1][0] != top):
            changes.append((str(top), int(requests)))
    return tuple(changes)


def breakdown(view: View) -> Table:
    """Return the step time and its largest part over batch size.

    Parameters
    ----------
    view : mapping
        What the report knows of one GPU type.

    Returns
    -------
    Table
        One row a model, pool and context.
    """
    columns = (
        Column("Model"),
        Column("Pool"),
        Column("Context [tokens]", numeric=True),
        Column("Smallest batch: its time"),
        Column("Largest batch: its time"),
        Column("Largest part of the step"),
    )
    rows = []
    for entry in view["breakdown"]:
        if not entry["requests"]:
            continue
        ends = (
            Cell(
                f"{units.count(entry['requests'][place])}: "
                f"{units.seconds(entry['fitted_s'][place])}",
                entry["fitted_s"][place],
            )
            for place in (0, -1)
        )
        changes = bottlenecks(entry)
        words = ", ".join(f"{name} from {units.count(start)}" for name, start in changes)
        rows.append(
            (
                Cell(str(entry["model"]), str(entry["model"])),
                Cell(str(entry["pool"]), str(entry["pool"])),
                Cell(units.count(entry["context_tokens"]), entry["context_tokens"]),
                *ends,
                Cell(words or units.MISSING),
            )
        )
    return Table(
        "breakdown",
        "Fitted decode step at the smallest and largest batch, and what takes the most time",
        columns,
        tuple(rows),
        "No breakdown over batch size was computed.",
    )
