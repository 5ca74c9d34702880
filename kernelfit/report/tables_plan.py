"""The plan of the next measurements, whatever its fields are called."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kernelfit.report import units
from kernelfit.report.tables import Cell, Column, Table

Plan = Mapping[str, Any]

_SKIPPED = ("schema", "gpu", "version", "command")
_SCALES = {"_s": "s", "_bytes": "byte"}


def words(plan: Plan | None) -> tuple[str, ...]:
    """Return the sentences of a plan.

    Parameters
    ----------
    plan : mapping or None
        The ``plan`` of a result.

    Returns
    -------
    tuple of str
        Its single values; where there is no plan, how to get one.
    """
    if not plan:
        return (
            "This result holds no plan. kernelfit plan turns the open conclusions and the "
            "coefficients that are weak or kept from a prior into the shortest list of runs.",
        )
    single = [
        f"{_title(key)}: {_text(key, value)}"
        for key, value in plan.items()
        if key not in _SKIPPED and _is_single(value)
    ]
    return (". ".join(single) + ".",) if single else ()


def tables(plan: Plan | None) -> tuple[Table, ...]:
    """Return the lists of a plan as tables.

    Parameters
    ----------
    plan : mapping or None
        The ``plan`` of a result.

    Returns
    -------
    tuple of Table
        One for each list of objects, and one for each list of plain values.
    """
    return tuple(_table(key, rows) for key, rows in _lists(plan or {}))


def _lists(plan: Plan) -> Iterator[tuple[str, list[Mapping[str, Any]]]]:
    for key, value in plan.items():
        if key in _SKIPPED:
            continue
        if isinstance(value, Mapping):
            yield key, [{"what": name, "value": each} for name, each in value.items()]
        elif isinstance(value, Sequence) and not isinstance(value, str) and value:
            yield (
                key,
                [each if isinstance(each, Mapping) else {"item": each} for each in value],
            )


def _table(key: str, rows: Sequence[Mapping[str, Any]]) -> Table:
    names = [
        name for name in dict.fromkeys(name for row in rows for name in row) if name not in _SKIPPED
    ]
    numeric = {
        name: all(
            isinstance(row.get(name), (int, float)) and not isinstance(row.get(name), bool)
            for row in rows
            if row.get(name) is not None
        )
        for name in names
    }
    columns = tuple(
        Column(_title(name), numeric=numeric[name] and n > 0) for n, name in enumerate(names)
    )
    cells = tuple(
        tuple(Cell(_text(name, row.get(name)), _value(row.get(name))) for name in names)
        for row in rows
    )
    return Table(
        f"plan-{key.replace('_', '-')}", f"Plan: {_title(key).lower()}", columns, cells, ""
    )


def _is_single(value: Any) -> bool:
    return value is None or isinstance(value, (str, int, float, bool))


def _title(name: str) -> str:
    """Return the words of a field; the unit at its end goes to the value."""
    for ending in _SCALES:
        name = name.removesuffix(ending)
    return name.replace("_", " ").capitalize()


def _value(value: Any) -> float | str | None:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value if isinstance(value, (int, float, str)) else None


def _text(name: str, value: Any) -> str:
    if value is None:
        return units.MISSING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (int, float)):
        if name.endswith("_s"):
            return units.seconds(float(value))
        return units.number(float(value))
    if isinstance(value, Mapping):
        return ", ".join(f"{_title(k).lower()} {_text(k, v)}" for k, v in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(_text(name, each) for each in value)
    return str(value)
