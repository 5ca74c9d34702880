"""Join of worker spans to engine steps: by ordinal, verified by the token total."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kernelfit.logs.columns import Floats, Ints

_MISSING = -1


@dataclass(frozen=True, slots=True)
class Spans:
    """The spans of one worker process.

    Attributes
    ----------
    name : str
        The worker's file, for messages.
    rank : int
        Its rank.
    ordinal, tokens : ndarray of int64, shape (n,)
        Ordinal of each call and the tokens it was given, in any order.
    begin_ns, end_ns : ndarray of int64, shape (n,)
        Start and end of the call on the host's monotonic clock [ns].
    gpu_s : ndarray of float64, shape (n,)
        Time between the events on the GPU [s]; NaN where not recorded.
    probe_s : ndarray of float64, shape (n,)
        Time of the speed probe after the call [s]; NaN where not recorded.
    on_gpu : bool
        Whether the worker recorded times on the GPU, here or anywhere in its file.
    """

    name: str
    rank: int
    ordinal: Ints
    tokens: Ints
    begin_ns: Ints
    end_ns: Ints
    gpu_s: Floats
    probe_s: Floats
    on_gpu: bool = False

    @property
    def host_s(self) -> Floats:
        """Time between start and end of each call on the host [s]."""
        return (self.end_ns - self.begin_ns).astype(np.float64) * 1e-9


@dataclass(frozen=True, slots=True)
class Slip:
    """Where the ordinals of an engine and of a worker stopped meaning the same call.

    Attributes
    ----------
    ordinal : int
        The first ordinal whose token totals disagree.
    reason : str
        What disagrees.
    """

    ordinal: int
    reason: str


@dataclass(frozen=True, slots=True)
class Joined:
    """What the join found for every step.

    Attributes
    ----------
    duration_s : ndarray of float64, shape (steps,)
        Span of the slowest rank [s]; NaN where not joined.
    host_s : ndarray of float64, shape (steps,)
        The slowest rank's span on the host [s]; NaN where not joined.
    probe_s : ndarray of float64, shape (steps,)
        The slowest rank's speed probe [s]; NaN where no rank recorded one.
    reasons : mapping of int to str
        Position of each step that was not joined, and why.
    used : tuple of ndarray of bool
        For each worker, which of its rows were joined.
    slip : Slip or None
        From where on nothing is joined any more; None while all agrees.
    """

    duration_s: Floats
    host_s: Floats
    probe_s: Floats
    reasons: Mapping[int, str]
    used: tuple[NDArray[np.bool_], ...]
    slip: Slip | None

    @property
    def unused(self) -> str:
        """Why the workers' other rows were not joined."""
        if self.slip is not None:
            return self.slip.reason
        return "no usable step of the engine has its ordinal"


def _rows_of(ordinal: Ints, spans: Spans) -> Ints:
    """Return the worker row of every step, ``_MISSING`` where there is none."""
    rows = np.full(ordinal.size, _MISSING, dtype=np.int64)
    if spans.ordinal.size == 0:
        return rows
    # Of repeated ordinals the first row counts; a stable sort keeps it in front.
    order = np.argsort(spans.ordinal, kind="stable")
    place = np.searchsorted(spans.ordinal[order], ordinal)
    inside = place < order.size
    candidate = order[np.where(inside, place, 0)]
    hit = inside & (spans.ordinal[candidate] == ordinal)
    rows[hit] = candidate[hit]
    return rows


def join_spans(
    ordinal: Ints, tokens: Ints, workers: Sequence[Spans], slip: Slip | None = None
) -> Joined:
    """Join the spans of every rank to the steps of one engine.

    A step ends when its last rank ends, so the slowest rank counts. At the first
    ordinal whose token totals disagree the two sequences have slipped against each
    other, so that step and every later one stay unjoined. A step that one rank does
    not know is unjoined by itself.

    Parameters
    ----------
    ordinal, tokens : ndarray of int64, shape (steps,)
        The engine's steps, ordinals rising; they may be a stretch of a longer sequence.
    workers : sequence of Spans
        Every rank's calls of that stretch; at least the ordinals of the steps.
    slip : Slip, optional
        What an earlier stretch ended with.

    Returns
    -------
    Joined
        Durations, and why the other steps have none.
    """
    count = ordinal.size
    rows = [_rows_of(ordinal, spans) for spans in workers]
    for spans, row in zip(workers, rows, strict=True):
        known = row != _MISSING
        differs = np.zeros(count, dtype=bool)
        differs[known] = spans.tokens[row[known]] != tokens[known]
        if differs.any():
            first = int(np.argmax(differs))
            at = int(ordinal[first])
            if slip is None or at < slip.ordinal:
                slip = Slip(
                    at,
                    f"not joined: at ordinal {at} the engine scheduled {tokens[first]} tokens "
                    f"and {spans.name} computed {spans.tokens[row[first]]}",
                )
    reasons: dict[int, str] = {}
    duration = np.zeros(count) if workers else np.full(count, np.nan)
    host = duration.copy()
    probe = np.full(count, np.nan)
    slipped = ordinal >= (np.iinfo(np.int64).max if slip is None else slip.ordinal)
    backwards = np.full(count, np.nan)
    for spans, row in zip(workers, rows, strict=True):
        missing = row == _MISSING
        safe = np.where(missing, 0, row)
        host_s = spans.host_s[safe] if spans.ordinal.size else np.full(count, np.nan)
        span_s = host_s
        if spans.on_gpu:
            span_s = spans.gpu_s[safe] if spans.ordinal.size else np.full(count, np.nan)
        for step in np.flatnonzero(missing & ~slipped).tolist():
            reasons.setdefault(step, f"not joined: {spans.name} has no span for it")
        if spans.on_gpu:
            for step in np.flatnonzero(~missing & ~slipped & np.isnan(span_s)).tolist():
                reasons.setdefault(step, f"not joined: {spans.name} has no GPU time for it")
        duration = np.maximum(duration, np.where(missing, np.nan, span_s))
        host = np.maximum(host, np.where(missing, np.nan, host_s))
        probe_s = spans.probe_s[safe] if spans.ordinal.size else np.full(count, np.nan)
        probe = np.fmax(probe, np.where(missing, np.nan, probe_s))
        negative = ~missing & ((host_s < 0) | (span_s < 0))
        backwards[negative] = np.minimum(host_s, span_s)[negative]
    if slip is not None:
        for step in np.flatnonzero(slipped).tolist():
            reasons[step] = slip.reason
    if not workers:
        reasons = dict.fromkeys(range(count), "not joined: no worker file belongs to this engine")
    # One rank's clock running backwards must not hide behind another rank's span.
    duration = np.where(np.isnan(backwards), duration, backwards)
    bad = np.zeros(count, dtype=bool)
    bad[list(reasons)] = True
    duration[bad] = np.nan
    used = []
    for spans, row in zip(workers, rows, strict=True):
        mask = np.zeros(spans.ordinal.size, dtype=bool)
        mask[row[(row != _MISSING) & ~slipped]] = True
        used.append(mask)
    return Joined(duration, host, probe, reasons, tuple(used), slip)


def agreement(ordinal: Ints, tokens: Ints, spans: Spans) -> int:
    """Return for how many steps a worker agrees with an engine.

    Parameters
    ----------
    ordinal, tokens : ndarray of int64, shape (steps,)
        The engine's steps.
    spans : Spans
        A worker.

    Returns
    -------
    int
        Steps with tokens up to the first disagreement; 0 when the first differs.
    """
    row = _rows_of(ordinal, spans)
    known = row != _MISSING
    same = np.ones(ordinal.size, dtype=bool)
    same[known] = spans.tokens[row[known]] == tokens[known]
    end = int(np.argmin(same)) if not same.all() else ordinal.size
    return int(np.count_nonzero(known[:end] & (tokens[:end] > 0)))
