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

from kernelfit.kernel.errors import InvalidArgument
from kernelfit.kernel.routing import (
    Rates,
    Routing,
    both,
    busiest_rows,
    rates_of,
    touched,
)
from kernelfit.kernel.totals import WINDOW_FIELDS, BatchTotals, window_column

__all__ = ["FIXED", "PAGE", "Array", "Basis", "Routing", "busiest_rows", "evaluated", "touched"]

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
    "padded_requests",
    "decode_requests",
    "full_graphs",
    "piecewise_graphs",
    "eager",
)
"""Names of the functions that every model has; the last three are 1 for the way that the
step is launched and 0 for the others."""

PAGE = len(FIXED)


@dataclass(frozen=True, slots=True)
class Basis:
    """Which functions of a batch a deployment's terms use.

    Attributes
    ----------
    routings : tuple of Routing
        Each adds two functions: the expected number of distinct experts that a rank
        touches, and the rows of the busiest rank.
    windows : tuple of int
        Sliding windows, ascending [tokens]; each adds one function per entry of
        ``WINDOW_FIELDS``.
    capture_sizes : tuple of int
        Captured batch sizes, ascending [tokens]; empty without graphs.
    decode_graph, mixed_graph : str
        What a batch of uniform decodes, and any other, is launched as where a captured
        size holds it: ``full``, ``piecewise`` or ``none``.
    decode_query_tokens : int
        Tokens of each request in a uniform decode [tokens].
    """

    routings: tuple[Routing, ...] = ()
    windows: tuple[int, ...] = ()
    capture_sizes: tuple[int, ...] = ()
    decode_graph: str = "none"
    mixed_graph: str = "none"
    decode_query_tokens: int = 1

    @property
    def size(self) -> int:
        """Number of functions."""
        return PAGE + 2 * len(self.routings) + len(WINDOW_FIELDS) * len(self.windows)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the functions, in order."""
        routed = tuple(
            f"{what}_{r.experts}_{r.per_token}"
            for r in self.routings
            for what in ("touched_experts", "expert_rows")
        )
        windowed = tuple(window_column(w, f) for w in self.windows for f in WINDOW_FIELDS)
        return FIXED + routed + windowed

    def touched_at(self, routing: Routing) -> int:
        """Return the function of the experts that a routing touches.

        Parameters
        ----------
        routing : Routing
            One of ``routings``; the rows of its busiest rank are the next function.

        Returns
        -------
        int
            Its index.
        """
        return PAGE + 2 * self.routings.index(routing)

    def window_at(self, window_tokens: int, field: str) -> int:
        """Return the function of one total of a sliding window.

        Parameters
        ----------
        window_tokens : int
            One of ``windows`` [tokens].
        field : str
            One of ``WINDOW_FIELDS``.

        Returns
        -------
        int
            Its index.
        """
        place = self.windows.index(window_tokens) * len(WINDOW_FIELDS)
        return PAGE + 2 * len(self.routings) + place + WINDOW_FIELDS.index(field)

    def graph_of(self, tokens: int, requests: int, decode_requests: int) -> str:
        """Return how a batch is launched.

        Parameters
        ----------
        tokens, requests, decode_requests : int
            Totals of the batch.

        Returns
        -------
        str
            ``full``, ``piecewise`` or ``none``.
        """
        sizes = self.capture_sizes
        if not sizes or tokens > sizes[-1]:
            return "none"
        uniform = decode_requests == requests and tokens == requests * self.decode_query_tokens
        return self.decode_graph if uniform else self.mixed_graph

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

        Raises
        ------
        InvalidArgument
            When the totals lack a sliding window of the model.
        """
        graph = self.graph_of(totals.tokens, totals.requests, totals.decode_requests)
        return evaluated(self, tuple(rates_of(r) for r in self.routings), totals, graph)

    def rows(self, columns: Mapping[str, npt.ArrayLike]) -> Array:
        """Evaluate the functions for many batches.

        Parameters
        ----------
        columns : mapping of str to array_like, shape (n_steps,)
            One column per field of ``BatchTotals``, and one ``window_column`` per total
            of each sliding window.

        Returns
        -------
        ndarray, shape (n_steps, size)
            One row per batch; counts, so without unit.

        Raises
        ------
        InvalidArgument
            When a column of a sliding window is missing.
        """
        total = {name: np.asarray(values, dtype=np.float64) for name, values in columns.items()}
        tokens, requests = total["tokens"], total["requests"]
        query = self.decode_query_tokens
        # One function after the other in memory: each is written and read as a whole.
        out = np.zeros((self.size, tokens.size), dtype=np.float64)
        padded, padded_requests = tokens, requests
        eager = np.ones(tokens.size, dtype=bool)
        if self.capture_sizes and {self.decode_graph, self.mixed_graph} != {"none"}:
            sizes = np.asarray(self.capture_sizes, dtype=np.float64)
            fits = tokens <= sizes[-1]
            even = tokens == requests * query
            uniform = fits & even & (total["decode_requests"] == requests)
            full, piecewise = (
                uniform * (self.decode_graph == way) + (fits & ~uniform) * (self.mixed_graph == way)
                for way in ("full", "piecewise")
            )
            captured = (full + piecewise) > 0
            slot = np.minimum(np.searchsorted(sizes, tokens), len(sizes) - 1)
            padded = np.where(captured, sizes[slot], tokens)
            filled = (full > 0) & even
            padded_requests = np.where(filled, np.ceil(padded / query), requests)
            out[_FULL], out[_PIECEWISE] = full, piecewise
            eager = ~captured
        fixed: tuple[Array | float, ...] = (
            1.0,
            tokens,
            padded,
            requests,
            total["decode_context_tokens"],
            total["prefill_context_tokens"],
            total["decode_pairs"],
            total["prefill_pairs"],
            padded_requests,
            total["decode_requests"],
        )
        for index, values in enumerate(fixed):
            out[index] = values
        out[_EAGER] = eager
        for routing in self.routings:
            index = self.touched_at(routing)
            rates = rates_of(routing)
            routed = padded if rates.padding else tokens
            out[index] = rates.held * -np.expm1(routed * rates.miss_log)
            out[index + 1] = rates.mean * routed
            if rates.variance:
                out[index + 1] += np.sqrt(rates.variance * routed)
                np.minimum(out[index + 1], rates.most * routed, out=out[index + 1])
        for window in self.windows:
            for field in WINDOW_FIELDS:
                name = window_column(window, field)
                if name not in total:
                    raise InvalidArgument(name, "nothing", "a column: the model has this window")
                out[self.window_at(window, field)] = total[name]
        return out.T


_FULL, _PIECEWISE, _EAGER = range(PAGE - 3, PAGE)


def evaluated(
    basis: Basis, rates: tuple[Rates, ...], totals: BatchTotals, graph: str
) -> tuple[float, ...]:
    """Evaluate the functions for one batch.

    Parameters
    ----------
    basis : Basis
        The functions.
    rates : tuple of Rates
        Constants of its routings, in their order.
    totals : BatchTotals
        The batch's totals.
    graph : str
        How the batch is launched, from ``Basis.graph_of``.

    Returns
    -------
    tuple of float
        One value per function; counts, so without unit.

    Raises
    ------
    InvalidArgument
        When the totals lack a sliding window of the model.
    """
    tokens, requests, query = totals.tokens, totals.requests, basis.decode_query_tokens
    padded, padded_requests = tokens, requests
    if graph != "none":
        padded = basis.capture_sizes[bisect_left(basis.capture_sizes, tokens)]
        if graph == "full" and tokens == requests * query:
            padded_requests = -(-padded // query)
    row: tuple[float, ...] = (
        1.0,
        tokens,
        padded,
        requests,
        totals.decode_context_tokens,
        totals.prefill_context_tokens,
        totals.decode_pairs,
        totals.prefill_pairs,
        padded_requests,
        totals.decode_requests,
        graph == "full",
        graph == "piecewise",
        graph == "none",
    )
    for one in rates:
        row += both(one, padded if one.padding else tokens)
    given = totals.windows
    if tuple([w.window_tokens for w in given]) != basis.windows:
        sizes = tuple(w.window_tokens for w in given)
        raise InvalidArgument("windows", sizes, f"the model's, {basis.windows}")
    for w in given:
        row += (
            w.decode_context_tokens,
            w.decode_pairs,
            w.prefill_context_tokens,
            w.prefill_pairs,
        )
    return row
