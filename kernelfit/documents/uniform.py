"""What a table's mapping may say beyond columns: which rows, and batches of equal requests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from kernelfit.documents.problems import Problem
from kernelfit.documents.strict import Strict
from kernelfit.documents.yamldoc import Document, problem_at

Cell = str | int | float
"""A value that a row's cell must have to be read."""

UNIFORM_FIELDS: tuple[str, ...] = ("requests", "scheduled", "computed", "prompt_len", "cached")
_TABLE_ONLY = ("columns", "where", "uniform")
_NOT_BESIDE = ("step", "duration_s", "start_s", "kv_usage")


class TermModel(Strict):
    """The strict form of a column that is multiplied before it is added."""

    column: Annotated[str, Field(min_length=1)]
    times: float


Sum = Annotated[list[str | int | TermModel], Field(min_length=1)]
Amount = str | int | Sum


class UniformModel(Strict):
    """The strict form of ``uniform``: a row is a batch of requests that are all alike."""

    requests: Amount
    scheduled: Amount
    computed: Amount | None = None
    prompt_len: Amount | None = None
    cached: Amount | None = None


@dataclass(frozen=True, slots=True)
class Term:
    """One summand of an amount.

    Attributes
    ----------
    column : str or None
        The table's column; None for a constant.
    times : float
        Factor of the column, or the constant itself [1].
    """

    column: str | None
    times: float


Uniform = Mapping[str, tuple[Term, ...]]
"""Names of ``UNIFORM_FIELDS`` that are stated, each with its summands."""


def _terms(amount: Amount) -> tuple[Term, ...]:
    if isinstance(amount, list):
        return tuple(term for item in amount for term in _one(item))
    return _one(amount)


def _one(item: str | int | TermModel) -> tuple[Term, ...]:
    if isinstance(item, TermModel):
        return (Term(item.column, item.times),)
    if isinstance(item, str):
        return (Term(item, 1.0),)
    return (Term(None, float(item)),)


def uniform_of(model: UniformModel | None) -> dict[str, tuple[Term, ...]]:
    """Return the amounts that a document states.

    Parameters
    ----------
    model : UniformModel or None
        The validated form.

    Returns
    -------
    dict of str to tuple of Term
        Empty when the document states none.
    """
    if model is None:
        return {}
    stated = {name: getattr(model, name) for name in UNIFORM_FIELDS}
    return {name: _terms(amount) for name, amount in stated.items() if amount is not None}


def as_written(uniform: Uniform) -> dict[str, object]:
    """Return amounts in the form of the document.

    Parameters
    ----------
    uniform : mapping
        The amounts.

    Returns
    -------
    dict
        Plain data that the strict form accepts.
    """
    return {
        name: [
            int(term.times)
            if term.column is None
            else {"column": term.column, "times": float(term.times)}
            for term in terms
        ]
        for name, terms in uniform.items()
    }


def misplaced(
    document: Document, stated: Mapping[str, object], reader: object, columns: Mapping[str, object]
) -> list[Problem]:
    """Return what is wrong with where the parts of a mapping stand.

    Parameters
    ----------
    document : Document
        The run document, for places.
    stated : mapping
        The document's ``columns``, ``where`` and ``uniform``; None where left out.
    reader : object
        The run's reader.
    columns : mapping
        The document's columns.

    Returns
    -------
    list of Problem
        One per part that has no meaning here.
    """
    if reader != "table":
        return [
            Problem.at(
                document.place((name,), key=True),
                f"{name} is only for the table reader",
                got=str(reader),
            )
            for name in _TABLE_ONLY
            if stated[name] is not None
        ]
    if stated["uniform"] is None:
        return []
    return [
        problem_at(
            document,
            ("columns", name),
            f"{name} stands beside uniform, which says how much work a step had",
            allowed=", ".join(_NOT_BESIDE),
        )
        for name in columns
        if name not in _NOT_BESIDE
    ]
