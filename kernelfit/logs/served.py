"""What readers of request-level sources share: rows of requests, rejects, and their traps.

Such sources hold what a client or the engine saw of whole requests. They hold no step, so no
step model is fitted from them; what they say of the host is for ``kernelfit.fit.coarse``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

from kernelfit.documents.problems import InputError, Problem
from kernelfit.logs.columns import MAX_TOKENS, Counts, ParsedRun, Reject, Requests, make_steps
from kernelfit.logs.hostwork import OBSERVERS, SERVED_TIMING, Observed, make_served

NO_STEPS = "it holds requests, not steps; what they say of the host is fitted apart"

FAILED = "failed"
SCHEDULED = "first_token_from_scheduling"
ORDER = "times_out_of_order"
COUNTS = "counts_missing"
RESET = "counter_reset"
"""Ids of what makes a row useless; each stands at the beginning of its reason."""

SLACK_S = 1e-3
"""Error allowed between times of two clocks, or of rounded ones [s]."""


@dataclass(frozen=True, slots=True)
class Row:
    """One request as a source states it; NaN and None where it does not.

    Attributes
    ----------
    place : int
        Line or entry number, from 1.
    arrival_s, first_token_s, finish_s : float
        Arrival, first token and end [s].
    prompt_tokens, output_tokens, cached_tokens, chunks : int or None
        Counts [tokens] and pieces of the output.
    queue_s, prefill_s, decode_s : float
        The engine's own times [s].
    """

    place: int
    arrival_s: float = math.nan
    first_token_s: float = math.nan
    finish_s: float = math.nan
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    chunks: int | None = None
    queue_s: float = math.nan
    prefill_s: float = math.nan
    decode_s: float = math.nan

    def trouble(self) -> str | None:
        """Return why the row cannot be used.

        Returns
        -------
        str or None
            An id and its reason; None for a row that can be used.
        """
        if self.prompt_tokens is None:
            return f"{COUNTS}: the tokens of the prompt are not stated"
        first, end = self.first_token_s - self.arrival_s, self.finish_s - self.arrival_s
        if any(math.isinf(time) for time in (self.arrival_s, self.first_token_s, self.finish_s)):
            return f"{ORDER}: a time is beyond all measure"
        if first < 0 or end < 0 or end < first - SLACK_S:
            return f"{ORDER}: the first token or the end comes before what precedes it"
        if any(value < 0 for value in (self.queue_s, self.prefill_s, self.decode_s)):
            return f"{ORDER}: a time inside the engine is negative"
        inside = self.queue_s + self.prefill_s
        if self.queue_s > SLACK_S and first < inside - SLACK_S:
            # Time in the queue is part of what a user waits.
            return (
                f"{SCHEDULED}: the time to the first token is less than queue and prefill "
                "together, so it was not counted from the arrival"
            )
        return None


@dataclass(slots=True)
class Sheet:
    """Rows, rejects and statistics of one source on their way into a run.

    Attributes
    ----------
    file : str
        The source's name.
    rows : list of Row
        Requests that can be used.
    rejects : list of Reject
        The others.
    observed : list of (str, str, float, int, int)
        Statistics: quantity, statistic, value, count, window.
    lines : int
        Entries read.
    """

    file: str
    rows: list[Row] = field(default_factory=list)
    rejects: list[Reject] = field(default_factory=list)
    observed: list[tuple[str, str, float, int, int]] = field(default_factory=list)
    lines: int = 0

    def add(self, row: Row) -> None:
        """Take a request, or say why not.

        Parameters
        ----------
        row : Row
            The request.
        """
        self.lines += 1
        trouble = row.trouble()
        if trouble is None:
            self.rows.append(row)
        else:
            self.rejects.append(Reject(self.file, row.place, trouble, ""))

    def refuse(self, place: int, reason: str) -> None:
        """Note an entry that cannot be used; its text is left out, it may hold a prompt.

        Parameters
        ----------
        place : int
            Line or entry number, from 1.
        reason : str
            What is wrong.
        """
        self.lines += 1
        self.rejects.append(Reject(self.file, place, reason, ""))

    def observe(
        self, quantity: str, statistic: str, value: float, count: int, window: int = 0
    ) -> None:
        """Take a statistic.

        Parameters
        ----------
        quantity, statistic : str
            What, and which statistic of it.
        value : float
            In SI units; one that is not finite is left out.
        count : int
            Observations behind it.
        window : int
            Which part of the source.
        """
        if math.isfinite(value):
            self.observed.append((quantity, statistic, value, count, window))

    def run(
        self, observer: str, clock: str, stated: Mapping[str, object], recognised: int | None = None
    ) -> ParsedRun:
        """Return the run.

        Parameters
        ----------
        observer : str
            ``client`` or ``engine``.
        clock : str
            What the times are measured on.
        stated : mapping of str to object
            Facts that the source states.
        recognised : int, optional
            Entries that are known; those that were not rejected where not given.

        Returns
        -------
        ParsedRun
            Without steps, and refused as a source of step times.
        """
        count = len(self.rows)
        names = [spec.name for spec in fields(Row) if spec.name != "place"]
        columns: dict[str, Any] = {}
        for name in names:
            values = [getattr(row, name) for row in self.rows]
            if name.endswith("_s"):
                columns[name] = np.asarray(values, dtype=np.float64)
            else:
                known = [-1 if value is None else value for value in values]
                columns[name] = np.asarray(known, dtype=np.int64)
        columns["observer"] = np.full(count, OBSERVERS.index(observer), dtype=np.int64)
        kept = self.lines - len(self.rejects) if recognised is None else recognised
        return ParsedRun(
            steps=make_steps(0, {}),
            requests=Requests.none(),
            rejects=tuple(self.rejects),
            counts=Counts(kept + len(self.rejects), 0, kept, len(self.rejects)),
            timing=SERVED_TIMING,
            clock=clock,
            composition="per_request" if count else "aggregated",
            stated=stated,
            fit_refused_reason=NO_STEPS,
            served=make_served(count, columns),
            observed=Observed(
                tuple(each[0] for each in self.observed),
                tuple(each[1] for each in self.observed),
                np.asarray([each[2] for each in self.observed], dtype=np.float64),
                np.asarray([each[3] for each in self.observed], dtype=np.int64),
                np.asarray([each[4] for each in self.observed], dtype=np.int64),
            ),
        )


def read_json_values(path: Path) -> Iterator[tuple[int, Any]]:
    """Yield the JSON values of a file, which may be appended to each other.

    Parameters
    ----------
    path : pathlib.Path
        The file.

    Yields
    ------
    tuple of (int, object)
        Line on which the value begins, from 1, and the value.

    Raises
    ------
    InputError
        When the file is empty or no JSON, with the line where it breaks off.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (UnicodeDecodeError, OSError) as error:
        raise InputError([Problem(str(path), None, None, f"cannot be read: {error}")]) from error
    decoder = json.JSONDecoder()
    place, line = 0, 1
    found = False
    while True:
        start = place
        while place < len(text) and text[place] in " \t\r\n":
            place += 1
        line += text.count("\n", start, place)
        if place == len(text):
            break
        try:
            value, end = decoder.raw_decode(text, place)
        except (ValueError, RecursionError) as error:
            bad = line + (text.count("\n", place, error.pos) if hasattr(error, "pos") else 0)
            message = "is no JSON from here on"
            raise InputError([Problem(str(path), bad, None, message)]) from error
        yield line, value
        found = True
        line += text.count("\n", place, end)
        place = end
    if not found:
        raise InputError([Problem(str(path), None, None, "the file is empty")])


def real(value: Any) -> float:
    """Return a finite number, or NaN for anything else.

    Parameters
    ----------
    value : object
        What the source holds; a truth value is no number.

    Returns
    -------
    float
        The number [its own unit].
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return math.nan
    try:
        number = float(value)
    except OverflowError:  # JSON bounds no integer
        return math.nan
    return number if math.isfinite(number) else math.nan


def count_of(value: Any, least: int = 0) -> int | None:
    """Return a believable count of tokens, or None for anything else.

    Parameters
    ----------
    value : object
        What the source holds.
    least : int
        Smallest count that is believed.

    Returns
    -------
    int or None
        The count.
    """
    number = real(value)
    if not least <= number <= MAX_TOKENS or number != math.floor(number):
        return None
    return int(number)


def inside(value: Any, *path: str) -> Any:
    """Return what stands at a path of keys, or None.

    Parameters
    ----------
    value : object
        Nested mappings.
    *path : str
        Keys.

    Returns
    -------
    object
        What is there.
    """
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def numbers(values: Any) -> Sequence[float] | None:
    """Return a list of numbers, or None when it is none or holds anything else.

    Parameters
    ----------
    values : object
        What the source holds.

    Returns
    -------
    sequence of float or None
        The numbers [their own unit].
    """
    if not isinstance(values, list):
        return None
    found = [real(value) for value in values]
    return None if any(math.isnan(value) for value in found) else found


def refuse_format(path: Path, what: str, hint: str) -> InputError:
    """Return the complaint about a file of another format.

    Parameters
    ----------
    path : pathlib.Path
        The file.
    what : str
        What it is not.
    hint : str
        What such a file holds.

    Returns
    -------
    InputError
        To be raised.
    """
    return InputError([Problem(str(path), None, None, f"is not {what}", hint=hint)])


def all_nan(values: Iterable[float]) -> bool:
    """Return whether no number is known.

    Parameters
    ----------
    values : iterable of float
        Numbers.

    Returns
    -------
    bool
        True when all are NaN.
    """
    return all(math.isnan(value) for value in values)
