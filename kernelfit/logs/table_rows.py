"""Values of a table's rows, checked, and the step columns that they give."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from kernelfit.documents.columns import ColumnSpec
from kernelfit.documents.problems import InputError, Problem
from kernelfit.logs.columns import MAX_TOKENS, UNKNOWN, Floats, Ints, Requests
from kernelfit.logs.marks import mark_bit
from kernelfit.logs.table_files import RawTable
from kernelfit.logs.totals import request_totals

_MAX_COUNT = 2**40
_LIST = re.compile(r"\s*[\[(]?\s*(-?\d+(?:[\s,;|]+-?\d+)*)?\s*[\])]?\s*")
_INTEGER = re.compile(r"-?\d{1,12}")
_MAX_SHOWN = 30

Bools = NDArray[np.bool_]


class TableRows:
    """The rows of a table, with what is wrong with each.

    Parameters
    ----------
    raw : RawTable
        The file's columns.
    mapping : mapping of str to ColumnSpec
        Our columns to the table's.
    """

    def __init__(self, raw: RawTable, mapping: Mapping[str, ColumnSpec]) -> None:
        self.mapping = mapping
        self.raw = raw
        self.reasons: dict[int, str] = {}
        self.count = raw.columns.num_rows

    def blame(self, bad: Bools, reason: str) -> None:
        """Note what is wrong with some rows; the first reason of a row stays.

        Parameters
        ----------
        bad : ndarray of bool, shape (rows,)
            The rows.
        reason : str
            What is wrong.
        """
        for place in np.flatnonzero(bad).tolist():
            self.reasons.setdefault(place, reason)

    def text(self, place: int) -> str:
        """Return the mapped values of a row, for the rejects file.

        Parameters
        ----------
        place : int
            The row, from 0.

        Returns
        -------
        str
            Our names with the table's values; columns that are not mapped stay out.
        """
        shown = []
        for name, spec in self.mapping.items():
            value = self.raw.columns.column(spec.column)[place].as_py()
            shown.append(f"{name}={str(value)[:_MAX_SHOWN]}")
        return ", ".join(shown)

    def floats(self, name: str, optional: bool = False) -> Floats:
        """Return a column in SI units.

        Parameters
        ----------
        name : str
            Our column's name.
        optional : bool
            Whether a row may leave it out.

        Returns
        -------
        ndarray of float64, shape (rows,)
            Values; NaN where missing or not usable, with the row blamed.
        """
        spec = self.mapping[name]
        column = self.raw.columns.column(spec.column)
        missing = column.is_null().to_numpy(zero_copy_only=False)
        values, wrong = self.numbers(column)
        if not optional:
            self.blame(missing, f"{name} is missing")
        self.blame(wrong, f"{name} is not a number")
        self.blame(~np.isfinite(values) & ~missing & ~wrong, f"{name} is not a finite number")
        return np.where(np.isfinite(values), values, np.nan) * spec.scale

    def numbers(self, column: pa.ChunkedArray) -> tuple[Floats, Bools]:
        """Return a column as it stands, without judging its rows.

        Parameters
        ----------
        column : pyarrow.ChunkedArray
            Text or numbers.

        Returns
        -------
        tuple of ndarray, shape (rows,)
            Values, NaN where missing; and where the cell is no number.
        """
        try:
            values = pc.cast(column, pa.float64()).to_numpy().astype(np.float64)
            return values, np.zeros(self.count, dtype=bool)
        except pa.ArrowException:
            pass
        values = np.full(self.count, np.nan)
        wrong = np.zeros(self.count, dtype=bool)
        for place, value in enumerate(column.to_pylist()):
            try:
                if value is not None:
                    values[place] = float(value)
            except (TypeError, ValueError, OverflowError):
                wrong[place] = True
        return values, wrong

    def counts(self, name: str) -> Ints:
        """Return a column of counts; rows with anything else are blamed.

        Parameters
        ----------
        name : str
            Our column's name.

        Returns
        -------
        ndarray of int64, shape (rows,)
            Counts; 0 in blamed rows.
        """
        values = self.floats(name)
        safe = np.where(np.isfinite(values), values, 0.0)
        self.blame(safe < 0, f"{name} is negative")
        self.blame(safe != np.floor(safe), f"{name} is not a whole number")
        self.blame(safe > _MAX_COUNT, f"{name} is out of range")
        good = (safe >= 0) & (safe <= _MAX_COUNT)
        return np.where(good, np.floor(safe), 0.0).astype(np.int64)

    def lists(self, name: str) -> list[list[int]]:
        """Return a list column; rows with anything else are blamed.

        Parameters
        ----------
        name : str
            Our column's name.

        Returns
        -------
        list of list of int
            One list per row; ``UNKNOWN`` for a null, empty in blamed rows.
        """
        found: list[list[int]] = []
        for place, value in enumerate(
            self.raw.columns.column(self.mapping[name].column).to_pylist()
        ):
            found.append(self._list(name, place, value))
        return found

    def _list(self, name: str, place: int, value: object) -> list[int]:
        if isinstance(value, str):
            if _LIST.fullmatch(value) is None:
                self.reasons.setdefault(place, f"{name} is not a list of counts")
                return []
            value = [int(word) for word in _INTEGER.findall(value)]
        if not isinstance(value, list):
            missing = "is missing" if value is None else "is not a list of counts"
            self.reasons.setdefault(place, f"{name} {missing}")
            return []
        least = 1 if name in ("scheduled", "prompt_len") else 0
        for item in value:
            if item is None and name != "scheduled":
                continue
            if not isinstance(item, int | float) or item != item or item != int(item):
                self.reasons.setdefault(place, f"{name} holds something that is no count")
                return []
            if not least <= item <= MAX_TOKENS:
                self.reasons.setdefault(place, f"{name} is out of range (got {item})")
                return []
        return [UNKNOWN if item is None else int(item) for item in value]


def per_request_columns(rows: TableRows) -> tuple[dict[str, NDArray[np.generic]], Requests]:
    """Return the step columns of a table whose rows list their requests.

    Parameters
    ----------
    rows : TableRows
        The rows.

    Returns
    -------
    tuple of (dict, Requests)
        Columns of every row, and the requests with the row's position as step.
    """
    scheduled = rows.lists("scheduled")
    others = {
        name: rows.lists(name) if name in rows.mapping else [[UNKNOWN] * len(s) for s in scheduled]
        for name in ("computed", "prompt_len", "cached")
    }
    for place, one in enumerate(scheduled):
        if any(len(lists[place]) != len(one) for lists in others.values()):
            rows.reasons.setdefault(place, "the lists of counts differ in length")
    for place in rows.reasons:
        scheduled[place] = []
        for lists in others.values():
            lists[place] = []
    offsets = np.zeros(rows.count + 1, dtype=np.int64)
    np.cumsum([len(one) for one in scheduled], out=offsets[1:])

    def flat(lists: list[list[int]]) -> Ints:
        return np.array([item for one in lists for item in one], dtype=np.int64)

    requests = Requests(
        step=np.repeat(np.arange(rows.count), np.diff(offsets)),
        engine=np.zeros(int(offsets[-1]), dtype=np.int64),
        scheduled=flat(scheduled),
        computed=flat(others["computed"]),
        prompt_len=flat(others["prompt_len"]),
        cached=flat(others["cached"]),
    )
    excess = (requests.cached > requests.computed) & (requests.computed != UNKNOWN)
    for place in requests.step[excess].tolist():
        rows.reasons.setdefault(place, "a prefix-cache hit exceeds the computed tokens")
    columns: dict[str, NDArray[np.generic]] = dict(
        request_totals(offsets, requests.scheduled, requests.computed, requests.prompt_len)
    )
    for name in ("requests", "scheduled_tokens"):
        if name in rows.mapping:
            stated = rows.counts(name)
            rows.blame(stated != columns[name], f"{name} is not the sum over the requests")
    columns["marks"] = np.zeros(rows.count, dtype=np.int64)
    return columns, requests


def _third(rows: TableRows, place: str, whole: str, part: str, rest: str) -> tuple[Ints, Ints]:
    """Return the two parts of a sum of which some members are mapped."""
    given = {name: rows.counts(name) for name in (whole, part, rest) if name in rows.mapping}
    if len(given) == 3:
        rows.blame(given[whole] != given[part] + given[rest], f"{whole} is not {part} + {rest}")
    elif whole in given and len(given) == 2:
        known = part if part in given else rest
        other = given[whole] - given[known]
        rows.blame(other < 0, f"{known} exceeds {whole}")
        given[rest if known == part else part] = np.maximum(other, 0)
    elif whole in given:
        message = f"{whole} alone does not say what the step was"
        hint = f"map {part} or {rest} too"
        raise InputError([Problem(place, None, None, message, hint=hint)])
    zero = np.zeros(rows.count, dtype=np.int64)
    return given.get(part, zero), given.get(rest, zero)


def aggregated_columns(rows: TableRows, place: str) -> dict[str, NDArray[np.generic]]:
    """Return the step columns of a table of aggregates.

    Parameters
    ----------
    rows : TableRows
        The rows.
    place : str
        The file, for complaints about the mapping.

    Returns
    -------
    dict of str to ndarray, shape (rows,)
        Columns of every row; context and pairs are unknown where the mapping leaves
        out the tokens in the KV.

    Raises
    ------
    InputError
        When the mapping does not tell decode from prefill.
    """
    decode, prefill = _third(rows, place, "requests", "decode_requests", "prefill_requests")
    mapping = rows.mapping
    if "scheduled_tokens" in mapping and "prefill_tokens" not in mapping:
        tokens = rows.counts("scheduled_tokens") - decode
        rows.blame(tokens < 0, "decode_requests exceed scheduled_tokens")
        tokens = np.maximum(tokens, 0)
    else:
        zero = np.zeros(rows.count, dtype=np.int64)
        tokens = rows.counts("prefill_tokens") if "prefill_tokens" in mapping else zero
        if "scheduled_tokens" in mapping:
            whole = rows.counts("scheduled_tokens")
            rows.blame(whole != decode + tokens, "scheduled_tokens is not decode + prefill tokens")
    if "requests" not in mapping and "prefill_requests" not in mapping and tokens.any():
        message = "prefill tokens without a column that counts the prefill requests"
        hint = "map requests or prefill_requests"
        raise InputError([Problem(place, None, None, message, hint=hint)])
    rows.blame(prefill > tokens, "each prefill request schedules at least one token")
    rows.blame((prefill == 0) & (tokens > 0), "prefill tokens without a prefill request")
    rows.blame(tokens > MAX_TOKENS, "prefill_tokens is out of range")

    def before(name: str, count: Ints) -> tuple[Ints, Bools]:
        if name not in mapping:
            return np.zeros(rows.count, dtype=np.int64), count > 0
        return rows.counts(name), np.zeros(rows.count, dtype=bool)

    decode_before, no_decode = before("decode_context_tokens", decode)
    prefill_before, no_prefill = before("prefill_computed_tokens", prefill)
    rows.blame(prefill_before > MAX_TOKENS * 16, "prefill_computed_tokens is out of range")
    # Requests of one token are on the decode path, whatever the table calls them.
    single = (prefill > 0) & (tokens == prefill)
    n = np.maximum(prefill, 1).astype(np.float64)
    pairs = np.minimum(tokens * (prefill_before / n) + tokens * (tokens / n + 1) / 2, 2.0**62)
    exact = tokens * prefill_before + tokens * (tokens + 1) // 2
    pairs_int = np.where(prefill <= 1, exact, np.rint(pairs).astype(np.int64))
    context = np.where(single, 0, prefill_before + tokens)
    decode_context = decode_before + decode + np.where(single, prefill_before + tokens, 0)
    pairs_int = np.where(single, 0, pairs_int)
    decode_unknown = no_decode | (single & no_prefill)
    prefill_unknown = no_prefill & ~single
    unknown = decode_unknown | prefill_unknown
    several = (prefill > 1) & ~single
    return {
        "requests": decode + prefill,
        "scheduled_tokens": decode + tokens,
        "context_tokens": np.where(unknown, UNKNOWN, decode_context + context),
        "decode_requests": decode + single * prefill,
        "decode_context_tokens": np.where(decode_unknown, UNKNOWN, decode_context),
        "decode_pairs": np.where(decode_unknown, UNKNOWN, decode_context),
        "prefill_context_tokens": np.where(prefill_unknown, UNKNOWN, context),
        "prefill_pairs": np.where(prefill_unknown, UNKNOWN, pairs_int),
        "past_prompt_requests": decode,
        "past_prompt_tokens": decode,
        "in_prompt_requests": prefill,
        "in_prompt_tokens": tokens,
        "marks": several * mark_bit("pairs_approximated"),
    }
