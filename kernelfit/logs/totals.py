"""Totals of steps from the counts of their requests, for whole logs at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kernelfit.logs.columns import UNKNOWN, Ints

DECODE_THRESHOLD = 1
"""Scheduled tokens up to which a request takes the decode attention path [tokens]."""


def _sums(values: Ints, offsets: Ints) -> Ints:
    """Sum consecutive groups exactly; a difference of running sums cannot round."""
    running = np.zeros(values.size + 1, dtype=np.int64)
    np.cumsum(values, out=running[1:])
    return running[offsets[1:]] - running[offsets[:-1]]


def request_totals(
    offsets: Ints, scheduled: Ints, computed: Ints, prompt_len: Ints
) -> dict[str, Ints]:
    """Return the totals of every step.

    The totals mean exactly what ``kernelfit.kernel.batch.BatchTotals`` says: with
    ``s`` scheduled and ``c`` computed tokens of a request, context is the sum of
    ``c + s``, and pairs are the sum of ``s*c + s*(s + 1)/2``; a request that
    schedules one token is on the decode path. A step with one unknown ``computed``
    has unknown context, pairs and phase; one unknown ``prompt_len`` makes the
    counts past and in the prompt unknown. Nothing is guessed from the rest.

    Parameters
    ----------
    offsets : ndarray of int64, shape (steps + 1,)
        Where each step's requests begin; the last entry is their number.
    scheduled, computed, prompt_len : ndarray of int64, shape (requests,)
        Counts of the requests [tokens]; ``UNKNOWN`` where the log does not say.

    Returns
    -------
    dict of str to ndarray of int64, shape (steps,)
        Columns of ``kernelfit.logs.columns.Steps``; ``UNKNOWN`` where unknown.
    """
    context = scheduled + computed
    pairs = scheduled * computed + scheduled * (scheduled + 1) // 2
    decode = scheduled <= DECODE_THRESHOLD
    past = computed >= prompt_len

    def total(values: Ints, chosen: NDArray[np.bool_]) -> Ints:
        return _sums(np.where(chosen, values, 0), offsets)

    ones = np.ones_like(scheduled)
    no_computed = total(ones, computed == UNKNOWN) > 0
    no_prompt = no_computed | (total(ones, prompt_len == UNKNOWN) > 0)
    columns = {
        "requests": np.diff(offsets),
        "scheduled_tokens": _sums(scheduled, offsets),
        "decode_requests": total(ones, decode),
        "context_tokens": _sums(context, offsets),
        "decode_context_tokens": total(context, decode),
        "decode_pairs": total(pairs, decode),
        "prefill_context_tokens": total(context, ~decode),
        "prefill_pairs": total(pairs, ~decode),
        "past_prompt_requests": total(ones, past),
        "past_prompt_tokens": total(scheduled, past),
        "in_prompt_requests": total(ones, ~past),
        "in_prompt_tokens": total(scheduled, ~past),
    }
    for name, column in columns.items():
        if "prompt" in name:
            column[no_prompt] = UNKNOWN
        elif "context" in name or "pairs" in name:
            column[no_computed] = UNKNOWN
    return columns
