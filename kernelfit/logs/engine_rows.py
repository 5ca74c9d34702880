"""The step rows of one engine process as arrays, with what is wrong with each."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from itertools import chain

import numpy as np

from kernelfit.logs.columns import UNKNOWN, Ints
from kernelfit.logs.rows import RecorderFile


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
        counts = file.counts
        self.offsets = np.concatenate((np.zeros(1, dtype=np.int64), _flat(counts.ends)))
        self.scheduled = _flat(counts.scheduled)
        self.computed = _flat(counts.computed)
        # The recorder writes 0 for a prompt whose length the engine does not state.
        prompt_len = _flat(counts.prompt_len)
        self.prompt_len = np.where(prompt_len == 0, UNKNOWN, prompt_len)
        self.cached = _flat(counts.cached)
        self._check()

    def _check(self) -> None:
        """Note what no single value shows: sums, hits, repeats and order."""
        running = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(self.scheduled)))
        sums = running[self.offsets[1:]] - running[self.offsets[:-1]]
        for step in np.flatnonzero(sums != self.tokens).tolist():
            self.reasons[step] = (
                f"the requests schedule {sums[step]} tokens and the step {self.tokens[step]}"
            )
        excess = (self.cached > self.computed) & (self.computed != UNKNOWN)
        for place in np.flatnonzero(excess).tolist():
            step = int(np.searchsorted(self.offsets, place, side="right")) - 1
            self.reasons.setdefault(step, "a prefix-cache hit exceeds the computed tokens")
        again = np.ones(self.ordinal.size, dtype=bool)
        again[np.unique(self.ordinal, return_index=True)[1]] = False
        for step in np.flatnonzero(again).tolist():
            self.reasons.setdefault(step, f"the ordinal {self.ordinal[step]} is repeated")
        for name, pairs in (("sched", self.sched), ("submit", self.submit)):
            for step in np.flatnonzero(pairs[:, 1] < pairs[:, 0]).tolist():
                self.reasons.setdefault(step, f"{name}_ns runs backwards")

    def replica(self) -> int:
        """Return the engine's data-parallel rank.

        Returns
        -------
        int
            As the file's header states it; 0 where it does not.
        """
        stated = (header.dp for _, header in self.file.headers)
        return next((rank for rank in stated if rank is not None), 0)

    def window(self) -> tuple[int, int]:
        """Return the first and last moment of the engine.

        Returns
        -------
        tuple of (int, int)
            On its monotonic clock [ns]; zeros for an engine without steps.
        """
        if not self.ordinal.size:
            return (0, 0)
        return int(self.sched.min()), int(max(self.sched.max(), self.update.max()))


def _flat(values: array[int]) -> Ints:
    return np.frombuffer(values, dtype=np.int64)


def ints(values: Sequence[int]) -> Ints:
    """Return counts as an array.

    Parameters
    ----------
    values : sequence of int
        The counts.

    Returns
    -------
    ndarray of int64, shape (n,)
        The counts.
    """
    return np.array(values, dtype=np.int64)


def pairs_of(values: Iterable[tuple[int, int]]) -> Ints:
    """Return pairs of moments as an array.

    Parameters
    ----------
    values : iterable of (int, int)
        Begin and end of each span [ns].

    Returns
    -------
    ndarray of int64, shape (n, 2)
        The pairs [ns].
    """
    return np.fromiter(chain.from_iterable(values), dtype=np.int64).reshape(-1, 2)
