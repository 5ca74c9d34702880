"""Columns of host work around steps, of requests as served, and of published statistics.

As in ``kernelfit.logs.columns``: numpy arrays, ``UNKNOWN`` for a count and NaN for a time
that the log does not state; the store writes both as null.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelfit.logs.arrays import UNKNOWN, Floats, Ints

EVENT_KINDS: tuple[str, ...] = ("admission", "output", "completion")
"""Kinds of host work, in the order of the codes in ``Events.kind``."""

OBSERVERS: tuple[str, ...] = ("client", "engine")
"""Who saw a request's times, in the order of the codes in ``Served.observer``."""

SERVED_TIMING = "request"
"""Timing of a run without steps: its times are those of whole requests."""


@dataclass(frozen=True, slots=True)
class Events:
    """Host work of requests outside steps, one entry per piece of work.

    Attributes
    ----------
    kind : ndarray of int64
        Place in ``EVENT_KINDS``.
    start_s : ndarray of float64
        Start on the run's own clock [s]; NaN where unknown.
    duration_s : ndarray of float64
        Duration of the work itself, without queueing [s].
    tokens : ndarray of int64
        Admission: tokens of the prompt; output: new tokens in the call; completion: output
        tokens of the request [tokens].
    requests : ndarray of int64
        Output: request outputs in the call; otherwise 1.
    process : ndarray of int64
        Which API server did the work.
    request : ndarray of int64
        Index of the request within the run, as in ``Served.request``; ``UNKNOWN`` for a
        call that serves several, or where the log does not say.
    """

    kind: Ints
    start_s: Floats
    duration_s: Floats
    tokens: Ints
    requests: Ints
    process: Ints
    request: Ints

    @staticmethod
    def none() -> Events:
        """Return no events, for logs that hold only steps.

        Returns
        -------
        Events
            Empty columns.
        """
        return make_events(0, {})


@dataclass(frozen=True, slots=True)
class Served:
    """Requests as served, one entry per request that finished.

    Attributes
    ----------
    request : ndarray of int64
        Index of the request within the run, from 0.
    arrival_s, first_token_s, finish_s : ndarray of float64
        When the request arrived, and when its first token and its last were out, on the
        observer's clock [s]; NaN where unknown.
    prompt_tokens, output_tokens, cached_tokens : ndarray of int64
        Tokens of the prompt, of the output, and of the prompt that came from the prefix
        cache [tokens].
    chunks : ndarray of int64
        Pieces in which the output arrived; equal to ``output_tokens`` where each token came
        alone.
    queue_s, prefill_s, decode_s : ndarray of float64
        Times inside the engine as it states them itself: waiting to be scheduled, from
        there to the first token, from there to the last [s]; NaN where unknown.
    observer : ndarray of int64
        Place in ``OBSERVERS``.
    """

    request: Ints
    arrival_s: Floats
    first_token_s: Floats
    finish_s: Floats
    prompt_tokens: Ints
    output_tokens: Ints
    cached_tokens: Ints
    chunks: Ints
    queue_s: Floats
    prefill_s: Floats
    decode_s: Floats
    observer: Ints

    @staticmethod
    def none() -> Served:
        """Return no requests, for logs that hold only steps.

        Returns
        -------
        Served
            Empty columns.
        """
        return make_served(0, {})


@dataclass(frozen=True, slots=True)
class Observed:
    """Statistics that a source publishes in place of single requests.

    Attributes
    ----------
    quantity : tuple of str
        What was observed, for example ``time_to_first_token``.
    statistic : tuple of str
        ``sum``, ``mean``, ``median``, ``p99`` and so on, or ``each`` for one observation.
    value : ndarray of float64
        The statistic in SI units: seconds, tokens, or a count.
    count : ndarray of int64
        Observations behind it.
    window : ndarray of int64
        Which part of the source: an appended result, an interval between two scrapes.
    """

    quantity: tuple[str, ...]
    statistic: tuple[str, ...]
    value: Floats
    count: Ints
    window: Ints

    @staticmethod
    def none() -> Observed:
        """Return no statistics.

        Returns
        -------
        Observed
            Empty columns.
        """
        empty = np.empty(0, dtype=np.int64)
        return Observed((), (), np.empty(0), empty, empty)


_EVENT_TIMES = frozenset(("start_s", "duration_s"))
_SERVED_TIMES = frozenset(
    ("arrival_s", "first_token_s", "finish_s", "queue_s", "prefill_s", "decode_s")
)


def make_events(count: int, columns: Mapping[str, NDArray[np.generic]]) -> Events:
    """Return events from the columns that a reader knows.

    Parameters
    ----------
    count : int
        Number of events.
    columns : mapping of str to ndarray
        Known columns by name; what is missing becomes unknown (requests: 1, process: 0).

    Returns
    -------
    Events
        Every column, of length ``count``.
    """
    rest = {"requests": 1, "process": 0}
    return Events(**_filled(Events, count, columns, _EVENT_TIMES, rest))


def make_served(count: int, columns: Mapping[str, NDArray[np.generic]]) -> Served:
    """Return requests as served from the columns that a reader knows.

    Parameters
    ----------
    count : int
        Number of requests.
    columns : mapping of str to ndarray
        Known columns by name; what is missing becomes unknown (observer: the client).

    Returns
    -------
    Served
        Every column, of length ``count``; requests are numbered where the reader does not.
    """
    given = {"request": np.arange(count), **columns}
    return Served(**_filled(Served, count, given, _SERVED_TIMES, {"observer": 0}))


def _filled(
    kind: type[Events | Served],
    count: int,
    columns: Mapping[str, NDArray[np.generic]],
    times: frozenset[str],
    rest: Mapping[str, int],
) -> dict[str, Any]:
    filled: dict[str, Any] = {}
    for spec in fields(kind):
        given = columns.get(spec.name)
        if spec.name in times:
            empty = np.full(count, np.nan) if given is None else given
            filled[spec.name] = np.asarray(empty, dtype=np.float64)
        else:
            missing = rest.get(spec.name, UNKNOWN)
            ints = np.full(count, missing, dtype=np.int64) if given is None else given
            filled[spec.name] = np.asarray(ints, dtype=np.int64)
    return filled
