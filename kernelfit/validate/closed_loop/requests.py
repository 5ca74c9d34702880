"""Requests as they arrive, as they were served, and the latencies of both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

LATENCIES: tuple[str, ...] = ("ttft_s", "tpot_s", "e2e_s")
"""Time to first token, time per output token after it, and end to end, to the last token."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request of an arrival trace.

    Attributes
    ----------
    arrival_s : float
        When it arrives [s].
    prompt_tokens, output_tokens : int
        Lengths of its prompt and of its answer [tokens]; at least 1.
    cached_tokens : int
        Tokens of the prompt that the prefix cache holds when it is scheduled [tokens].
    """

    arrival_s: float
    prompt_tokens: int
    output_tokens: int
    cached_tokens: int = 0

    def __post_init__(self) -> None:
        """Refuse what no request can be."""
        if self.prompt_tokens < 1 or self.output_tokens < 1:
            raise ValueError("a request has at least one token of prompt and of output")
        if not 0 <= self.cached_tokens < self.prompt_tokens:
            raise ValueError("the prefix cache never holds the whole prompt")


@dataclass(frozen=True, slots=True)
class Latencies:
    """Latencies of requests, in the order of their arrival.

    Attributes
    ----------
    ttft_s : ndarray of float64
        Arrival to first token [s].
    tpot_s : ndarray of float64
        Time per output token after the first [s]; NaN for answers of one token.
    e2e_s : ndarray of float64
        Arrival to last token [s].
    """

    ttft_s: Floats
    tpot_s: Floats
    e2e_s: Floats


def latencies(
    arrival_s: Sequence[float] | Floats,
    first_s: Sequence[float] | Floats,
    last_s: Sequence[float] | Floats,
    output_tokens: Sequence[int] | NDArray[np.int64],
) -> Latencies:
    """Return the latencies of requests from their moments.

    Parameters
    ----------
    arrival_s, first_s, last_s : sequence of float
        When each arrived, and when its first and last token were out [s].
    output_tokens : sequence of int
        Tokens of each answer [tokens].

    Returns
    -------
    Latencies
        One of each kind per request.
    """
    arrival = np.asarray(arrival_s, dtype=np.float64)
    first = np.asarray(first_s, dtype=np.float64)
    last = np.asarray(last_s, dtype=np.float64)
    later = np.asarray(output_tokens, dtype=np.float64) - 1.0
    tpot = np.full(arrival.size, np.nan)
    np.divide(last - first, later, out=tpot, where=later > 0)
    return Latencies(first - arrival, tpot, last - arrival)
