"""Rows that are chosen by their cells, and rows that are batches of equal requests."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from kernelfit.documents.uniform import Cell, Term, Uniform
from kernelfit.logs.columns import MAX_TOKENS, UNKNOWN, Floats, Ints, Requests
from kernelfit.logs.table_rows import Bools, TableRows
from kernelfit.logs.totals import request_totals

MAX_REQUESTS = 2**16
"""Most requests that a row's batch may have."""


def columns_of(uniform: Uniform, where: Mapping[str, Cell]) -> tuple[str, ...]:
    """Return the table's columns that the amounts and the choice of rows need.

    Parameters
    ----------
    uniform : mapping
        The amounts.
    where : mapping
        The choice of rows.

    Returns
    -------
    tuple of str
        Each once.
    """
    terms = [term.column for amount in uniform.values() for term in amount]
    return tuple(dict.fromkeys([c for c in terms if c is not None] + list(where)))


def not_chosen(rows: TableRows, where: Mapping[str, Cell]) -> Bools:
    """Return the rows that the document does not ask for.

    A text is compared with the cell as it is written, a number with the cell's value; a
    cell that is empty or no number equals no number.

    Parameters
    ----------
    rows : TableRows
        The rows.
    where : mapping
        Value by column; a row is chosen when all of them agree.

    Returns
    -------
    ndarray of bool, shape (rows,)
        True for rows to leave out.
    """
    out = np.zeros(rows.count, dtype=bool)
    for column, value in where.items():
        cells = rows.raw.columns.column(column)
        if isinstance(value, str):
            same = pc.equal(pc.cast(cells, pa.string()), value)
            out |= ~same.fill_null(False).to_numpy().astype(bool)
        else:
            out |= rows.numbers(cells)[0] != float(value)
    return out


def _amount(rows: TableRows, name: str, terms: tuple[Term, ...]) -> Ints:
    """Return a count of every row; half a token is not computed, so it is rounded down."""
    total: Floats = np.zeros(rows.count)
    for term in terms:
        if term.column is None:
            total = total + term.times
            continue
        values, wrong = rows.numbers(rows.raw.columns.column(term.column))
        rows.blame(wrong | ~np.isfinite(values), f"{term.column} is no number, which {name} needs")
        total = total + values * term.times
    least = 1 if name in ("requests", "scheduled", "prompt_len") else 0
    most = MAX_REQUESTS if name == "requests" else MAX_TOKENS
    whole = np.floor(np.where(np.isfinite(total), total, 0.0))
    rows.blame((whole < least) | (whole > most), f"{name} is out of range")
    return np.clip(whole, least, most).astype(np.int64)


def uniform_columns(
    rows: TableRows, uniform: Uniform, left_out: Bools
) -> tuple[dict[str, NDArray[np.generic]], Requests]:
    """Return the step columns of rows that are batches of equal requests.

    Parameters
    ----------
    rows : TableRows
        The rows.
    uniform : mapping
        The amounts; at least requests and scheduled.
    left_out : ndarray of bool, shape (rows,)
        Rows that need no requests.

    Returns
    -------
    tuple of (dict, Requests)
        Columns of every row, and the requests with the row's position as step.
    """
    amounts = {name: _amount(rows, name, terms) for name, terms in uniform.items()}
    used = ~left_out
    used[list(rows.reasons)] = False
    number = np.where(used, amounts["requests"], 0)
    offsets = np.zeros(rows.count + 1, dtype=np.int64)
    np.cumsum(number, out=offsets[1:])

    def each(name: str) -> Ints:
        if name not in amounts:
            return np.full(int(offsets[-1]), UNKNOWN, dtype=np.int64)
        return np.repeat(amounts[name], number)

    requests = Requests(
        step=np.repeat(np.arange(rows.count), number),
        engine=np.zeros(int(offsets[-1]), dtype=np.int64),
        scheduled=each("scheduled"),
        computed=each("computed"),
        prompt_len=each("prompt_len"),
        cached=each("cached"),
    )
    if "cached" in amounts and "computed" in amounts:
        excess = used & (amounts["cached"] > amounts["computed"])
        rows.blame(excess, "a prefix-cache hit exceeds the computed tokens")
    columns: dict[str, NDArray[np.generic]] = dict(
        request_totals(offsets, requests.scheduled, requests.computed, requests.prompt_len)
    )
    return columns, requests
