"""Marks of a step: what makes it unlike others, as bits."""

from __future__ import annotations

import numpy as np

from kernelfit.logs.arrays import Floats, Ints

MARKS: tuple[str, ...] = (
    "resumed",
    "preempted",
    "spec",
    "in_flight",
    "zero_duration",
    "resume_or_spec",
    "warmup",
    "pairs_approximated",
    "context_approximated",
    "shared_prefix",
    "neighbour_batch",
    "padded_or_spec",
)
"""Marks of a step, in bit order of the ``marks`` column; new ones come last."""

WARMUP_RATIO = 10.0


def mark_bit(name: str) -> int:
    """Return the bit of a mark.

    Parameters
    ----------
    name : str
        A name from ``MARKS``.

    Returns
    -------
    int
        A power of two.
    """
    return 1 << MARKS.index(name)


def mark_names(bits: int) -> tuple[str, ...]:
    """Return the names of the marks that are set.

    Parameters
    ----------
    bits : int
        Sum of mark bits.

    Returns
    -------
    tuple of str
        In the order of ``MARKS``.
    """
    return tuple(name for place, name in enumerate(MARKS) if bits >> place & 1)


def warmup_bits(step: Ints, duration_s: Floats) -> Ints:
    """Return mark bits for a first step that holds compilation.

    Only step 0 is judged, and only against its own run: it is warm-up when it took
    more than ten times the longest of the other steps. A longer-running first
    prefill stays unmarked, since the longest other step is the measure.

    Parameters
    ----------
    step : ndarray of int64, shape (n,)
        Step indices.
    duration_s : ndarray of float64, shape (n,)
        Durations [s].

    Returns
    -------
    ndarray of int64, shape (n,)
        The bit of ``warmup``, or 0.
    """
    bits = np.zeros(step.size, dtype=np.int64)
    first = np.flatnonzero(step == 0)
    others = duration_s[step != 0]
    if first.size and others.size:
        slow = duration_s[first] > WARMUP_RATIO * float(np.max(others))
        bits[first[slow]] = mark_bit("warmup")
    return bits
