"""The column mapping of the ``table`` reader, with its closed vocabulary of units."""

from __future__ import annotations

from dataclasses import dataclass

from kernelfit.documents.problems import Problem, did_you_mean, shown
from kernelfit.documents.strict import Strict
from kernelfit.documents.yamldoc import Document, problem_at

_SCALES: dict[str, float] = {
    "s": 1.0,
    "ms": 1e-3,
    "us": 1e-6,
    "ns": 1e-9,
    "tokens": 1.0,
    "count": 1.0,
    "fraction": 1.0,
    "percent": 1e-2,
}
_TIME = ("s", "ms", "us", "ns")
_UNITS: dict[str, tuple[str, ...]] = {
    "step": ("count",),
    "duration_s": _TIME,
    "start_s": _TIME,
    "requests": ("count",),
    "scheduled_tokens": ("tokens",),
    "decode_requests": ("count",),
    "decode_context_tokens": ("tokens",),
    "prefill_requests": ("count",),
    "prefill_tokens": ("tokens",),
    "prefill_computed_tokens": ("tokens",),
    "kv_usage": ("fraction", "percent"),
    "scheduled": ("tokens",),
    "computed": ("tokens",),
    "prompt_len": ("tokens",),
    "cached": ("tokens",),
}

COLUMNS: tuple[str, ...] = tuple(_UNITS)
LIST_COLUMNS: tuple[str, ...] = ("scheduled", "computed", "prompt_len", "cached")
_WORK = ("scheduled", "scheduled_tokens", "decode_requests", "prefill_tokens")


@dataclass(frozen=True, slots=True)
class ColumnSpec:
    """One column of a table and its unit.

    Attributes
    ----------
    column : str
        The column's name in the table.
    unit : str
        A word of the vocabulary: s, ms, us, ns, tokens, count, fraction, percent.
    """

    column: str
    unit: str

    @property
    def scale(self) -> float:
        """Factor from the table's unit to SI, tokens, counts or fractions [1]."""
        return _SCALES[self.unit]


class ColumnModel(Strict):
    """The strict form of one mapped column; the unit is checked against the target."""

    column: str
    unit: str


def mapped(
    document: Document, columns: dict[str, ColumnModel], uniform: bool = False
) -> tuple[dict[str, ColumnSpec], list[Problem]]:
    """Check the column mapping of a table.

    Parameters
    ----------
    document : Document
        The run document, for places.
    columns : dict
        Our column's name to the table's column and unit.
    uniform : bool
        Whether the document says elsewhere how much work a step had.

    Returns
    -------
    tuple
        The mapping in the order of ``COLUMNS``, and the problems found.
    """
    problems = []
    for name, spec in columns.items():
        path = ("columns", name)
        if name not in _UNITS:
            place = document.place(path, key=True)
            problems.append(
                Problem.at(
                    place,
                    f"unknown column {name}",
                    allowed=", ".join(COLUMNS),
                    hint=did_you_mean(name, COLUMNS),
                )
            )
        elif spec.unit not in _UNITS[name]:
            problems.append(
                problem_at(
                    document,
                    (*path, "unit"),
                    f"wrong unit for {name}",
                    got=shown(spec.unit),
                    allowed=", ".join(_UNITS[name]),
                )
            )
        if not spec.column:
            problems.append(problem_at(document, (*path, "column"), f"{name} names no column"))
    if "duration_s" not in columns:
        message = "a table needs a column mapped to duration_s"
        problems.append(problem_at(document, ("columns",), message))
    if not uniform and not any(name in columns for name in _WORK):
        message = "a table needs at least one column that says how much work a step had"
        problems.append(
            problem_at(
                document, ("columns",), message, allowed="uniform, or one of " + ", ".join(_WORK)
            )
        )
    if problems:
        return {}, problems
    return {n: ColumnSpec(columns[n].column, columns[n].unit) for n in COLUMNS if n in columns}, []
