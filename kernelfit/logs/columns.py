"""What a reader hands on: columns of steps and requests, rejects and counts.

Columns are numpy arrays, so that a log of millions of steps never becomes as many
Python objects. A count that the log does not state is ``UNKNOWN`` and a time that it
does not state is NaN; the store writes both as null.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields

import numpy as np
from numpy.typing import NDArray

from kernelfit.logs import arrays
from kernelfit.logs.hostwork import Events, Observed, Served
from kernelfit.logs.intervals import Interval
from kernelfit.logs.redact import form_of

Ints = arrays.Ints
Floats = arrays.Floats
UNKNOWN = arrays.UNKNOWN
"""A count that the log does not state."""

MAX_TOKENS = 2**24
"""Largest believable token count of one request [tokens]; query-key pairs of 10,000
such requests still fit 64 bits, so that no total can wrap around."""

MAX_REASON_CHARACTERS = 300

TIMINGS: tuple[str, ...] = ("device", "cycle", "step", "wait", "dispatch")
"""What a duration can mean."""

FITTED_TIMINGS: tuple[str, ...] = ("device", "cycle", "step")
"""Timings that a fit accepts; the others are only a part of a step."""

PHASES: tuple[str, ...] = ("decode", "mixed", "prefill")
"""Phases of a step: all requests are past their prompt, some are, none is."""


@dataclass(frozen=True, slots=True)
class Steps:
    """Columns of steps, one entry per step, all of one length.

    Attributes
    ----------
    step, engine : ndarray of int64
        Step index as the log states it, and the engine (data-parallel rank).
    start_s : ndarray of float64
        Start on the log's own clock [s]; NaN where unknown.
    duration_s : ndarray of float64
        Duration in the sense of the run's timing [s].
    schedule_s, dispatch_s, wait_s, update_s : ndarray of float64
        Host parts of the step [s]; NaN where unknown.
    probe_s : ndarray of float64
        Time of the recorder's speed probe beside the step [s]; NaN where unknown.
    requests, scheduled_tokens : ndarray of int64
        Requests of the step and the tokens that it schedules [tokens].
    context_tokens : ndarray of int64
        KV tokens that attention reads, both paths together [tokens].
    decode_requests, decode_context_tokens, decode_pairs : ndarray of int64
        Totals of requests that schedule one token, as ``BatchTotals`` defines them: how
        many, the KV tokens that they read [tokens], and query-key pairs.
    prefill_context_tokens, prefill_pairs : ndarray of int64
        The same of requests that schedule more than one token [tokens] and [pairs].
    past_prompt_requests, past_prompt_tokens : ndarray of int64
        Requests whose prompt was computed before the step, and their tokens [tokens].
    in_prompt_requests, in_prompt_tokens : ndarray of int64
        The other requests, and their tokens [tokens].
    kv_usage : ndarray of float64
        Share of the KV cache in use [1]; NaN where unknown.
    marks : ndarray of int64
        Sums of mark bits.
    segment : ndarray of int64
        Part of the workload, as a place in the run's ``segments``; ``UNKNOWN`` where
        the log names none.
    """

    step: Ints
    engine: Ints
    start_s: Floats
    duration_s: Floats
    schedule_s: Floats
    dispatch_s: Floats
    wait_s: Floats
    update_s: Floats
    probe_s: Floats
    requests: Ints
    scheduled_tokens: Ints
    context_tokens: Ints
    decode_requests: Ints
    decode_context_tokens: Ints
    decode_pairs: Ints
    prefill_context_tokens: Ints
    prefill_pairs: Ints
    past_prompt_requests: Ints
    past_prompt_tokens: Ints
    in_prompt_requests: Ints
    in_prompt_tokens: Ints
    kv_usage: Floats
    marks: Ints
    segment: Ints

    @property
    def count(self) -> int:
        """Number of steps."""
        return int(self.step.size)

    def phases(self) -> tuple[str | None, ...]:
        """Return each step's phase.

        Returns
        -------
        tuple of str or None
            ``decode``, ``mixed`` or ``prefill``; None where the log does not say.
        """
        names = (*PHASES, None)
        return tuple(names[code] for code in self.phase_codes().tolist())

    def phase_codes(self) -> Ints:
        """Return each step's phase as a place in ``PHASES``.

        Returns
        -------
        ndarray of int64
            ``UNKNOWN`` where the log does not say.
        """
        past, all_of_them = self.past_prompt_requests, self.requests
        code = np.where(past == all_of_them, 0, np.where(past == 0, 2, 1))
        return np.where(past == UNKNOWN, UNKNOWN, code)

    def take(self, keep: NDArray[np.bool_] | Ints) -> Steps:
        """Return the chosen steps.

        Parameters
        ----------
        keep : ndarray
            A mask, or positions.

        Returns
        -------
        Steps
            The same columns, shorter or reordered.
        """
        return Steps(*(getattr(self, f.name)[keep] for f in fields(self)))


FLOAT_COLUMNS = frozenset(
    (
        "start_s",
        "duration_s",
        "schedule_s",
        "dispatch_s",
        "wait_s",
        "update_s",
        "probe_s",
        "kv_usage",
    )
)


def make_steps(count: int, columns: Mapping[str, NDArray[np.generic]]) -> Steps:
    """Return steps from the columns that a reader knows.

    Parameters
    ----------
    count : int
        Number of steps.
    columns : mapping of str to ndarray
        Known columns by name; what is missing becomes unknown (marks: none).

    Returns
    -------
    Steps
        Every column, of length ``count``.
    """
    filled: dict[str, NDArray[np.generic]] = {}
    for spec in fields(Steps):
        given = columns.get(spec.name)
        if spec.name in FLOAT_COLUMNS:
            empty = np.full(count, np.nan) if given is None else given
            filled[spec.name] = np.asarray(empty, dtype=np.float64)
        else:
            rest = 0 if spec.name in ("marks", "engine") else UNKNOWN
            ints = np.full(count, rest, dtype=np.int64) if given is None else given
            filled[spec.name] = np.asarray(ints, dtype=np.int64)
    return Steps(**filled)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Requests:
    """Columns of requests in steps; ``UNKNOWN`` where the log does not say.

    Attributes
    ----------
    step, engine : ndarray of int64
        The step that the request was part of.
    scheduled, computed, prompt_len, cached : ndarray of int64
        The four counts of a request shape [tokens].
    """

    step: Ints
    engine: Ints
    scheduled: Ints
    computed: Ints
    prompt_len: Ints
    cached: Ints

    @staticmethod
    def none() -> Requests:
        """Return no requests at all, for logs that hold only aggregates.

        Returns
        -------
        Requests
            Empty columns.
        """
        return Requests(*(np.empty(0, dtype=np.int64) for _ in fields(Requests)))


@dataclass(frozen=True, slots=True)
class Reject:
    """One input line that could not be used.

    Attributes
    ----------
    file : str
        Name of the file, relative to the run.
    line : int
        Line number, from 1.
    reason : str
        What is wrong with it.
    text : str
        The form of the line's beginning, whatever it was built from: a prompt, a token
        id, a host's name or an address never gets further than this.
    """

    file: str
    line: int
    reason: str
    text: str

    def __post_init__(self) -> None:
        """Keep the form of the text only."""
        object.__setattr__(self, "text", form_of(self.text))


@dataclass(frozen=True, slots=True)
class Counts:
    """Input lines by what became of them; ``lines`` is the sum of the others.

    Attributes
    ----------
    lines : int
        Lines read; a physical line that holds two glued records counts twice.
    steps : int
        Lines that became steps.
    recognised : int
        Lines that are known but are no step of their own, worker spans that were
        joined to their step among them.
    rejected : int
        Lines in the rejects file.
    """

    lines: int
    steps: int
    recognised: int
    rejected: int


@dataclass(frozen=True, slots=True)
class ParsedRun:
    """One run as a reader found it.

    Attributes
    ----------
    steps : Steps
        The steps, in order.
    requests : Requests
        One row per request in a step; empty for aggregated logs.
    rejects : tuple of Reject
        What could not be used.
    counts : Counts
        Lines by what became of them.
    timing : str
        What ``duration_s`` means; a name from ``TIMINGS``.
    clock : str
        What ``start_s`` is measured on.
    composition : str
        ``per_request`` or ``aggregated``.
    stated : mapping of str to object
        Facts that the log itself states, by the names of the run document.
    recorder_cost_share : float or None
        Recorder's own time by the sum of durations [1]; None where not recorded.
    fit_refused_reason : str or None
        Why a fit must not use these durations; None when it may.
    segments : tuple of str
        The log's own names of the parts of the workload; none where it has no parts.
    events : Events
        Host work outside steps.
    served : Served
        Requests as served.
    observed : Observed
        Statistics that the source publishes in place of single requests.
    intervals : tuple of Interval
        What the log says about stretches of time; such a line is recognised, no step.
    startup : mapping of str to object
        What the engine printed about itself that the run document has no word for:
        sizes, times and choices of its start.
    host_cpu, tokenizer : str or None
        The CPU that the front end ran on, and its tokeniser, as the log names them.
    unfinished : int
        Recognised lines at the log's end that belong to steps which the engine did not finish.
    """

    steps: Steps
    requests: Requests
    rejects: tuple[Reject, ...]
    counts: Counts
    timing: str
    clock: str
    composition: str
    stated: Mapping[str, object] = field(default_factory=dict)
    recorder_cost_share: float | None = None
    fit_refused_reason: str | None = None
    segments: tuple[str, ...] = ()
    events: Events = field(default_factory=Events.none)
    served: Served = field(default_factory=Served.none)
    observed: Observed = field(default_factory=Observed.none)
    intervals: tuple[Interval, ...] = ()
    startup: Mapping[str, object] = field(default_factory=dict)
    host_cpu: str | None = None
    tokenizer: str | None = None
    unfinished: int = 0
