"""The functions of a batch that every law is linear in.

A step's time is a sum (or a per-layer maximum of sums) of terms, and each term is a
constant of the deployment times one of a handful of functions of the batch: the
number of tokens, of requests, of context tokens, of query-key pairs, of distinct
experts touched. Naming them once gives one implementation for the scalar path, the
vectorised path and the fit.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kernelfit.kernel.batch import BatchTotals

Array = npt.NDArray[np.float64]

FIXED: tuple[str, ...] = (
    "one",
    "tokens",
    "padded_tokens",
    "requests",
    "decode_context_tokens",
    "prefill_context_tokens",
    "decode_pairs",
    "prefill_pairs",
)
"""Names of the functions that every model has."""


@dataclass(frozen=True, slots=True)
class Basis:
    """Which functions of a batch a deployment's terms use.

    Attributes
    ----------
    routings : tuple of (int, int)
        ``(experts, per_token)`` of each mixture-of-experts kind; each adds one
        function, the expected number of distinct experts touched.
    capture_sizes : tuple of int
        Captured batch sizes, ascending [tokens]; empty without graphs.
    pad_mixed : bool
        Whether batches that hold a prefill are padded too (piecewise graphs).
    """

    routings: tuple[tuple[int, int], ...]
    capture_sizes: tuple[int, ...]
    pad_mixed: bool

    @property
    def size(self) -> int:
        """Number of functions."""
        return len(FIXED) + len(self.routings)

    def padded(self, tokens: int, decode_only: bool) -> int:
        """Return the batch size that a captured graph runs at.

        Parameters
        ----------
        tokens : int
            Tokens scheduled [tokens].
        decode_only : bool
            Whether every request is on the decode path.

        Returns
        -------
        int
            The smallest captured size that fits, or ``tokens`` where no graph is
            replayed [tokens].
        """
        sizes = self.capture_sizes
        if not sizes or tokens > sizes[-1] or not (decode_only or self.pad_mixed):
            return tokens
        return sizes[bisect_left(sizes, tokens)]

    def row(self, totals: BatchTotals) -> tuple[float, ...]:
        """Evaluate the functions for one batch.

        Parameters
        ----------
        totals : BatchTotals
            The batch's totals.

        Returns
        -------
        tuple of float
            One value per function; counts, so without unit.
        """
        tokens = totals.tokens
        decode_only = totals.decode_requests == totals.requests
        padded = self.padded(tokens, decode_only)
        return (
            1.0,
            float(tokens),
            float(padded),
            float(totals.requests),
            float(totals.decode_context_tokens),
            float(totals.prefill_context_tokens),
            float(totals.decode_pairs),
            float(totals.prefill_pairs),
            *(touched(experts, per_token, tokens) for experts, per_token in self.routings),
        )

    def rows(self, columns: Mapping[str, npt.ArrayLike]) -> Array:
        """Evaluate the functions for many batches.

        Parameters
        ----------
        columns : mapping of str to array_like, shape (n_steps,)
            One column per field of ``BatchTotals``.

        Returns
        -------
        ndarray, shape (n_steps, size)
            One row per batch; counts, so without unit.
        """
        total = {name: np.asarray(values, dtype=np.float64) for name, values in columns.items()}
        tokens = total["tokens"]
        requests = total["requests"]
        decode_only = total["decode_requests"] == requests
        padded = tokens
        if self.capture_sizes:
            sizes = np.asarray(self.capture_sizes, dtype=np.float64)
            fits = (tokens <= sizes[-1]) & (decode_only | self.pad_mixed)
            slot = np.minimum(np.searchsorted(sizes, tokens), len(sizes) - 1)
            padded = np.where(fits, sizes[slot], tokens)
        out = np.empty((tokens.size, self.size), dtype=np.float64)
        out[:, 0] = 1.0
        for index, values in enumerate(
            (
                tokens,
                padded,
                requests,
                total["decode_context_tokens"],
                total["prefill_context_tokens"],
                total["decode_pairs"],
                total["prefill_pairs"],
            ),
            start=1,
        ):
            out[:, index] = values
        for index, (experts, per_token) in enumerate(self.routings, start=len(FIXED)):
            miss = 1.0 - per_token / experts
            out[:, index] = experts * (1.0 - np.power(miss, tokens))
        return out


def touched(experts: int, per_token: int, tokens: int) -> float:
    """Return the expected number of distinct experts that a batch touches.

    Parameters
    ----------
    experts : int
        Routed experts of the layer.
    per_token : int
        Experts that each token is routed to.
    tokens : int
        Tokens in the step [tokens].

    Returns
    -------
    float
        ``E * (1 - (1 - k/E) ** tokens)`` [1]: each token misses a given expert with
        probability 1 - k/E, independently under uniform routing.

    Notes
    -----
    Domain: uniform routing; skewed routing touches fewer.
    """
    return float(experts * (1.0 - (1.0 - per_token / experts) ** tokens))
