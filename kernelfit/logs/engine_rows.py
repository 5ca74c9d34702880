"""The step rows of one engine process as arrays, with what is wrong with each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain

import numpy as np

from kernelfit.logs.columns import MAX_TOKENS, UNKNOWN, Ints
from kernelfit.logs.rows import RecorderFile, StepRow


class EngineRows:
    """The step rows of one engine process, in file order.

    Parameters
    ----------
    file : RecorderFile
        An ``engine`` file.

    Attributes
    ----------
    reasons : dict of int to str
        What is wrong with a step, by its position; sound steps are absent.
    ordinal, tokens : ndarray of int64, shape (steps,)
        Ordinal and token total [tokens].
    sched, submit, update : ndarray of int64, shape (steps, 2)
        Moments on the monotonic clock [ns]; zeros where not recorded.
    has_submit, has_update : ndarray of bool, shape (steps,)
        Whether those moments were recorded.
    offsets : ndarray of int64, shape (steps + 1,)
        Where each step's requests begin.
    scheduled, computed, prompt_len, cached : ndarray of int64, shape (requests,)
        The four counts [tokens]; ``UNKNOWN`` where not recorded.
    """

    def __init__(self, file: RecorderFile) -> None:
        rows = file.steps
        self.file = file
        self.reasons: dict[int, str] = {}
        self.ordinal = ints([r.i for r in rows])
        self.tokens = ints([r.n for r in rows])
        self.sched = pairs_of(r.sched_ns for r in rows)
        self.submit = pairs_of(r.submit_ns or (0, 0) for r in rows)
        self.update = pairs_of(r.update_ns or (0, 0) for r in rows)
        self.has_submit = np.array([r.submit_ns is not None for r in rows], dtype=bool)
        self.has_update = np.array([r.update_ns is not None for r in rows], dtype=bool)
        lengths = [len(r.scheduled) for r in rows]
        for place, (row, length) in enumerate(zip(rows, lengths, strict=True)):
            if not length == len(row.computed) == len(row.prompt_len) == len(row.cached):
                self.reasons[place] = "the lists of counts differ in length"
        if self.reasons:
            rows = [_emptied(r) if p in self.reasons else r for p, r in enumerate(rows)]
            lengths = [len(r.scheduled) for r in rows]
        self.offsets = np.zeros(len(rows) + 1, dtype=np.int64)
        np.cumsum(ints(lengths), out=self.offsets[1:])
        total = int(self.offsets[-1])
        self.scheduled = np.fromiter(
            chain.from_iterable(r.scheduled for r in rows), dtype=np.int64, count=total
        )
        self.computed = _optional([r.computed for r in rows], total)
        # The recorder writes 0 for a prompt whose length the engine does not state.
        prompt_len = _optional([r.prompt_len for r in rows], total)
        self.prompt_len = np.where(prompt_len == 0, UNKNOWN, prompt_len)
        self.cached = _optional([r.cached for r in rows], total)
        self._check()

    def _check(self) -> None:
        file, owner = self.file, np.repeat(np.arange(self.ordinal.size), np.diff(self.offsets))
        bounds = (
            ("scheduled", self.scheduled, 1),
            ("computed", self.computed, UNKNOWN),
            ("prompt_len", self.prompt_len, UNKNOWN),
            ("cached", self.cached, UNKNOWN),
        )
        for name, values, low in bounds:
            for place in np.flatnonzero((values < low) | (values > MAX_TOKENS)).tolist():
                allowed = f"{max(low, 0)} to {MAX_TOKENS}"
                value = int(values[place])
                if value < UNKNOWN:  # a stated negative count was moved below UNKNOWN
                    value += 1
                self.reasons.setdefault(
                    int(owner[place]), f"{name} is out of range (got {value}; allowed {allowed})"
                )
        excess = (self.cached > self.computed) & (self.computed != UNKNOWN)
        for step in owner[excess].tolist():
            self.reasons.setdefault(step, "a prefix-cache hit exceeds the computed tokens")
        running = np.concatenate(([0], np.cumsum(self.scheduled)))
        sums = running[self.offsets[1:]] - running[self.offsets[:-1]]
        for step in np.flatnonzero(sums != self.tokens).tolist():
            self.reasons.setdefault(
                step, f"the requests schedule {sums[step]} tokens and the step {self.tokens[step]}"
            )
        seen: set[int] = set()
        for step, ordinal in enumerate(self.ordinal.tolist()):
            if ordinal in seen or ordinal < 0:
                self.reasons.setdefault(step, f"the ordinal {ordinal} is repeated or negative")
            seen.add(ordinal)
        for name, pairs in (("sched", self.sched), ("submit", self.submit)):
            for step in np.flatnonzero(pairs[:, 1] < pairs[:, 0]).tolist():
                self.reasons.setdefault(step, f"{name}_ns runs backwards")
        for step, row in enumerate(file.steps):
            if row.kv_usage is not None and not 0.0 <= row.kv_usage <= 1.0:
                self.reasons.setdefault(step, f"kv_usage is not a share (got {row.kv_usage})")
            if min(row.resumed, row.preempted, row.drafts, row.in_flight, row.cost_ns) < 0:
                self.reasons.setdefault(step, "a count is negative")

    def window(self) -> tuple[int, int]:
        """First and last moment of the engine [ns]."""
        if not self.ordinal.size:
            return (0, 0)
        return int(self.sched.min()), int(max(self.sched.max(), self.update.max()))


def _emptied(row: StepRow) -> StepRow:
    return StepRow(row.i, row.n, row.sched_ns, [], [], [], [])


def ints(values: Sequence[int]) -> Ints:
    """Return counts as an array of 64-bit integers."""
    return np.array(values, dtype=np.int64)


def pairs_of(values: Iterable[tuple[int, int]]) -> Ints:
    """Return pairs of integers as an array of shape (n, 2)."""
    return np.fromiter(chain.from_iterable(values), dtype=np.int64).reshape(-1, 2)


def _optional(lists: Sequence[Sequence[int | None]], total: int) -> Ints:
    """Flatten counts; null becomes UNKNOWN and a stated negative moves below it."""
    try:
        values = np.fromiter(chain.from_iterable(lists), dtype=np.int64, count=total)
        return np.where(values < 0, values - 1, values)
    except TypeError:
        flat = (
            UNKNOWN if v is None else (v - 1 if v < 0 else v) for v in chain.from_iterable(lists)
        )
        return np.fromiter(flat, dtype=np.int64, count=total)
