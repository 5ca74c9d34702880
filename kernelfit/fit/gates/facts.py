"""Gates on what the record itself says: missing values, the reader's marks, run facts."""

from __future__ import annotations

import numpy as np

from kernelfit.fit.steps import Bools, RunSteps

RECORDER_COST_LIMIT = 0.01
CHUNK_TOLERANCE = 0.02
"""Departure of chunks per token from 1 beyond which chunks are not tokens [1]: streams
seen in the open give 1.00, or 2.0 to 2.5 where an extra event is counted per token."""

COPIED = "copied"
SHARED_PREFIX = "shared_prefix"
DISTURBING: frozenset[str] = frozenset(
    {"resumed", "preempted", "spec", "resume_or_spec", "in_flight"}
)
"""Marks of steps whose counts or duration are not those of one plain step."""


def marked(run: RunSteps, names: frozenset[str]) -> Bools:
    """Return which steps carry any of some marks.

    Parameters
    ----------
    run : RunSteps
        The run.
    names : frozenset of str
        The marks.

    Returns
    -------
    ndarray of bool, shape (n_steps,)
        The mask.
    """
    known = {marks: not names.isdisjoint(marks) for marks in set(run.marks)}
    return np.fromiter((known[marks] for marks in run.marks), dtype=bool, count=run.size)


def unusable(run: RunSteps) -> Bools:
    """Return the steps without a finite positive duration, or with counts missing.

    Parameters
    ----------
    run : RunSteps
        The run.

    Returns
    -------
    ndarray of bool, shape (n_steps,)
        The mask.
    """
    bad = ~np.isfinite(run.duration_s) | (run.duration_s <= 0.0)
    for values in run.totals.values():
        bad |= ~np.isfinite(values) | (values < 0.0)
    return np.asarray(bad | (run.totals["tokens"] < 1) | (run.totals["requests"] < 1))


def recorder_cost(run: RunSteps) -> Bools:
    """Return every step of a run that was slowed by being recorded.

    Parameters
    ----------
    run : RunSteps
        The run.

    Returns
    -------
    ndarray of bool, shape (n_steps,)
        All or none.
    """
    return np.full(run.size, run.recorder_cost_share > RECORDER_COST_LIMIT)


def chunks_per_token(run: RunSteps) -> Bools:
    """Return every step of a client-side record whose chunks are not tokens.

    Parameters
    ----------
    run : RunSteps
        The run.

    Returns
    -------
    ndarray of bool, shape (n_steps,)
        All or none; none where the ratio is unknown.
    """
    return np.full(run.size, abs(run.chunks_per_token - 1.0) > CHUNK_TOLERANCE)


def copied(run: RunSteps) -> Bools:
    """Return the steps that are an exact multiple of another run's (see ``with_copies``).

    Parameters
    ----------
    run : RunSteps
        The run.

    Returns
    -------
    ndarray of bool, shape (n_steps,)
        The mask.
    """
    return marked(run, frozenset({COPIED}))


def disturbed(run: RunSteps) -> Bools:
    """Return the steps that the reader marked as other than one plain step.

    Parameters
    ----------
    run : RunSteps
        The run.

    Returns
    -------
    ndarray of bool, shape (n_steps,)
        The mask.
    """
    return marked(run, DISTURBING)


def shared_prefix(run: RunSteps) -> Bools:
    """Return the steps of several requests that read the same KV blocks.

    Parameters
    ----------
    run : RunSteps
        The run.

    Returns
    -------
    ndarray of bool, shape (n_steps,)
        The mask.

    Notes
    -----
    Their contexts add up to more than is read, by an amount that no count tells. A
    request alone shares with nobody, and its context is what it says.
    """
    return marked(run, frozenset({SHARED_PREFIX})) & (run.totals["requests"] > 1)
