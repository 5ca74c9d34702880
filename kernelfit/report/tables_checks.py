"""Tables of what was held against the fit: errors, bounds, coverage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kernelfit.report import units
from kernelfit.report.tables import Cell, Column, Table
from kernelfit.report.words import (
    PREDICTORS,
    SHORT_PREDICTORS,
    SPLITS,
    split_words,
)

View = Mapping[str, Any]
Key = tuple[str, str, str]

_PHASE_ORDER = ("all", "decode", "mixed", "prefill")


def rank(value: str, order: Sequence[str]) -> tuple[int, str]:
    """Return a key that sorts known words in their order and new ones after them.

    Parameters
    ----------
    value : str
        The word.
    order : sequence of str
        The known words.

    Returns
    -------
    tuple of (int, str)
        The key.
    """
    return (order.index(value) if value in order else len(order), value)


def splits(view: View) -> tuple[str, ...]:
    """Return the splits that were validated, in the order of the page.

    Parameters
    ----------
    view : mapping
        What the report knows of one GPU type.

    Returns
    -------
    tuple of str
        Identifiers.
    """
    found = {str(row["split"]) for row in view["validation"]}
    return tuple(sorted(found, key=lambda split: rank(split, tuple(SPLITS))))


def by_key(view: View, split: str) -> dict[Key, dict[str, Mapping[str, Any]]]:
    """Gather the validation rows of a split, every predictor on the same steps together.

    Parameters
    ----------
    view : mapping
        What the report knows of one GPU type.
    split : str
        The split.

    Returns
    -------
    dict
        From (split, group, phase) to the row of each predictor.
    """
    rows: dict[Key, dict[str, Mapping[str, Any]]] = {}
    for row in view["validation"]:
        if row["split"] == split:
            key = (split, str(row["group"]), str(row["phase"]))
            rows.setdefault(key, {})[str(row["predictor"])] = row
    return dict(sorted(rows.items(), key=lambda item: (item[0][1], rank(item[0][2], _PHASE_ORDER))))


def baselines(view: View) -> tuple[str, ...]:
    """Return the predictors that kernelfit was compared with.

    Parameters
    ----------
    view : mapping
        What the report knows of one GPU type.

    Returns
    -------
    tuple of str
        Identifiers, in the order of the page.
    """
    found = {str(row["predictor"]) for row in view["validation"]} - {"kernelfit"}
    return tuple(sorted(found, key=lambda name: rank(name, tuple(PREDICTORS))))


def errors(view: View, split: str | None = None) -> Table:
    """Return held-out errors beside the baselines.

    Parameters
    ----------
    view : mapping
        What the report knows of one GPU type.
    split : str, optional
        One split; every split, with a column that names it, when not given.

    Returns
    -------
    Table
        One row a group and phase.
    """
    others = baselines(view)
    lead = () if split else (Column("Split", short="split"),)
    columns = (
        *lead,
        Column("Group", short="group"),
        Column("Phase", short="phase"),
        Column("Steps", numeric=True, short="n"),
        Column("kernelfit median [%]", numeric=True, short="median %"),
        Column("mean [%]", numeric=True, terminal=False),
        Column("90th percentile [%]", numeric=True, short="p90 %"),
        Column("bias [%]", numeric=True, short="bias %"),
        *(
            Column(
                f"{PREDICTORS.get(name, name)}, median [%]",
                numeric=True,
                short=f"{SHORT_PREDICTORS.get(name, name)} %",
            )
            for name in others
        ),
    )
    rows = []
    for each in (split,) if split else splits(view):
        for (_, group, phase), found in by_key(view, each).items():
            first = () if split else (Cell(each, each),)
            rows.append((*first, *_error_cells(group, phase, found, others)))
    words = split_words(split) if split else "every split"
    return Table(
        f"errors-{split.replace('_', '-')}" if split else "errors",
        f"Absolute percentage error of the step time, {words}{_floor(view)}",
        columns,
        tuple(rows),
        "Nothing was validated: no steps were held out.",
    )


def _floor(view: View) -> str:
    noise = (view["calibration"].get("noise") or {}).get("median_spread")
    return "" if noise is None else f"; noise floor {units.percent(noise)} %"


def _error_cells(
    group: str, phase: str, found: Mapping[str, Mapping[str, Any]], others: tuple[str, ...]
) -> tuple[Cell, ...]:
    ours: Mapping[str, Any] = found.get("kernelfit", {})
    counts = [row.get("n") for row in (ours, *found.values()) if row.get("n") is not None]
    best = min(
        (float(row["median_ape"]) for row in found.values() if row.get("median_ape") is not None),
        default=None,
    )

    def median(row: Mapping[str, Any]) -> Cell:
        value = row.get("median_ape")
        kind = "best" if value is not None and value == best else ""
        return Cell(units.percent(value), value, kind=kind)

    return (
        Cell(group, group),
        Cell(phase, phase),
        Cell(units.count(counts[0] if counts else None), counts[0] if counts else None),
        median(ours),
        Cell(units.percent(ours.get("mape")), ours.get("mape")),
        Cell(units.percent(ours.get("p90_ape")), ours.get("p90_ape")),
        Cell(units.percent(ours.get("bias"), signed=True), ours.get("bias")),
        *(median(found.get(name, {})) for name in others),
    )


def bounds(view: View) -> Table:
    """Return where the measurements lie against the two bounds.

    Parameters
    ----------
    view : mapping
        What the report knows of one GPU type.

    Returns
    -------
    Table
        One row a group and phase.
    """
    columns = (
        Column("Group"),
        Column("Phase"),
        Column("Steps", numeric=True),
        Column("Below Overlap [%]", numeric=True),
        Column("Between [%]", numeric=True),
        Column("Above NoOverlap [%]", numeric=True),
        Column("Between, noise allowed [%]", numeric=True),
    )
    rows = []
    for entry in view["bounds"]:
        n = int(entry["n"])
        shares = (
            _share(entry.get(key), n) for key in ("below", "inside", "above", "inside_with_noise")
        )
        rows.append(
            (
                Cell(str(entry["group"]), str(entry["group"])),
                Cell(str(entry["phase"]), str(entry["phase"])),
                Cell(units.count(n), n),
                *shares,
            )
        )
    return Table(
        "bounds",
        "Measured steps against the bounds Overlap and NoOverlap",
        columns,
        tuple(rows),
        "No measured step was held against the bounds.",
    )


def _share(value: float | None, n: int) -> Cell:
    """Show a count of steps, or a fraction of them, as a share."""
    return Cell(units.percent(share_of(value, n)), value)


def share_of(value: float | None, n: int) -> float | None:
    """Return a share of some steps, given as a whole count or as a fraction.

    Parameters
    ----------
    value : float or None
        An integer is a count of steps; a fraction up to 1 is the share itself.
    n : int
        Steps in all.

    Returns
    -------
    float or None
        The share [1]; None where it is not known.
    """
    if value is None or n <= 0:
        return None
    return value / n if isinstance(value, int) or value > 1.0 else float(value)


def coverage(view: View) -> Table:
    """Return how often the prediction intervals held the measurement.

    Parameters
    ----------
    view : mapping
        What the report knows of one GPU type.

    Returns
    -------
    Table
        One row a group, phase and level; one column a split.
    """
    named = sorted(
        {str(entry["split"]) for entry in view["coverage"]},
        key=lambda split: rank(split, tuple(SPLITS)),
    )
    columns = (
        Column("Group"),
        Column("Phase"),
        Column("Steps", numeric=True),
        Column("Stated [%]", numeric=True),
        *(Column(f"Found, {split_words(split)} [%]", numeric=True) for split in named),
    )
    found: dict[tuple[str, str, float], dict[str, Mapping[str, Any]]] = {}
    for entry in view["coverage"]:
        key = (str(entry["group"]), str(entry["phase"]), float(entry["level"]))
        found.setdefault(key, {})[str(entry["split"])] = entry
    rows = []
    for key in sorted(found, key=lambda key: (key[0], rank(key[1], _PHASE_ORDER), key[2])):
        group, phase, level = key
        n = max(int(entry["n"]) for entry in found[key].values())
        shares = (
            _share(found[key][split]["covered"], int(found[key][split]["n"]))
            if split in found[key]
            else Cell(units.MISSING)
            for split in named
        )
        rows.append(
            (
                Cell(group, group),
                Cell(phase, phase),
                Cell(units.count(n), n),
                Cell(units.percent(level), level),
                *shares,
            )
        )
    return Table(
        "coverage",
        "Share of held-out steps inside the prediction interval",
        columns,
        tuple(rows),
        "No prediction interval was checked against held-out steps.",
    )
