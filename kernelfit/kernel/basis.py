"""The functions of a batch that every law is linear in.

A step's time is a sum (or a per-layer maximum of sums) of terms, and each term is a
constant of the deployment times one of a handful of functions of the batch: the
number of tokens, of requests, of context tokens, of query-key pairs, of distinct
experts touched. Naming them once gives one implementation for the scalar path, the
vectorised path and the fit.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kernelfit.kernel.errors import InvalidArgument
from kernelfit.kernel.totals import WINDOW_FIELDS, BatchTotals, window_column

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
class Routing:
    """How the tokens of a step are spread over experts, seen from the busiest rank.

    Attributes
    ----------
    experts : int
        Routed experts of the layer.
    per_token : int
        Experts that each token is routed to.
    ranks : int
        Expert-parallel ranks; 1 where every rank holds a slice of every expert.
    copies : int
        Data-parallel ranks whose tokens meet in the layer, each with an equal batch.
    imbalance : float
        Rows of the busiest rank over the mean [1]; 0 takes uniform routing's own
        expectation.
    """

    experts: int
    per_token: int
    ranks: int = 1
    copies: int = 1
    imbalance: float = 0.0


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
        tokens, requests = totals.tokens, totals.requests
        graph = self.graph_of(tokens, requests, totals.decode_requests)
        padded, padded_requests = tokens, requests
        if graph != "none":
            padded = self.capture_sizes[bisect_left(self.capture_sizes, tokens)]
            if graph == "full" and tokens == requests * self.decode_query_tokens:
                padded_requests = -(-padded // self.decode_query_tokens)
        fixed = (
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
        if not self.routings and not self.windows:
            return fixed
        routed: list[float] = []
        for routing in self.routings:
            routed.append(touched(routing, tokens))
            routed.append(busiest_rows(routing, padded))
        windowed: list[float] = []
        given = totals.windows
        if tuple([w.window_tokens for w in given]) != self.windows:
            raise InvalidArgument(
                "windows", tuple(w.window_tokens for w in given), f"the model's, {self.windows}"
            )
        for w in given:
            windowed += (
                w.decode_context_tokens,
                w.decode_pairs,
                w.prefill_context_tokens,
                w.prefill_pairs,
            )
        return (*fixed, *routed, *windowed)

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
        out = np.empty((tokens.size, self.size), dtype=np.float64)
        full = piecewise = np.zeros(tokens.size, dtype=bool)
        padded, padded_requests = tokens, requests
        if self.capture_sizes:
            sizes = np.asarray(self.capture_sizes, dtype=np.float64)
            fits = tokens <= sizes[-1]
            even = tokens == requests * query
            uniform = even & (total["decode_requests"] == requests)
            graph = np.where(uniform, self.decode_graph, self.mixed_graph)
            full, piecewise = fits & (graph == "full"), fits & (graph == "piecewise")
            slot = np.minimum(np.searchsorted(sizes, tokens), len(sizes) - 1)
            padded = np.where(full | piecewise, sizes[slot], tokens)
            padded_requests = np.where(full & even, np.ceil(padded / query), requests)
        fixed = (
            np.ones(tokens.size),
            tokens,
            padded,
            requests,
            total["decode_context_tokens"],
            total["prefill_context_tokens"],
            total["decode_pairs"],
            total["prefill_pairs"],
            padded_requests,
            total["decode_requests"],
            full,
            piecewise,
            ~(full | piecewise),
        )
        for index, values in enumerate(fixed):
            out[:, index] = values
        for routing in self.routings:
            index = self.touched_at(routing)
            out[:, index] = _touched_many(routing, tokens)
            out[:, index + 1] = _busiest_many(routing, padded)
        for window in self.windows:
            for field in WINDOW_FIELDS:
                name = window_column(window, field)
                if name not in total:
                    raise InvalidArgument(name, "nothing", "a column: the model has this window")
                out[:, self.window_at(window, field)] = total[name]
        return out


def touched(routing: Routing, tokens: float) -> float:
    """Return the expected number of distinct experts that a rank touches.

    Parameters
    ----------
    routing : Routing
        The routing.
    tokens : float
        Tokens that one data-parallel rank schedules [tokens].

    Returns
    -------
    float
        ``E/r * (1 - (1 - k/E) ** (copies * tokens))`` [1]: each token misses a given
        expert with probability 1 - k/E, independently under uniform routing, and a rank
        holds E/r of the experts.

    Notes
    -----
    Domain: uniform routing; skewed routing touches fewer.
    """
    miss = 1.0 - routing.per_token / routing.experts
    held = routing.experts / routing.ranks
    return float(held * (1.0 - miss ** (routing.copies * tokens)))


def busiest_rows(routing: Routing, tokens: float) -> float:
    """Return the rows of experts' work on the busiest rank.

    Parameters
    ----------
    routing : Routing
        The routing.
    tokens : float
        Tokens that one data-parallel rank schedules [tokens].

    Returns
    -------
    float
        Token-expert pairs on the rank that has most [1]. With a stated imbalance, that
        times the mean; else the mean plus ``sqrt(2 ln r)`` standard deviations of the
        binomial count, at most all pairs that a rank can get.

    Notes
    -----
    The expected maximum of r normal variables is below ``sqrt(2 ln r)`` standard
    deviations and approaches it for large r. Domain: uniform routing unless stated.
    """
    rows = routing.copies * tokens * routing.per_token
    ranks = routing.ranks
    if ranks == 1:
        return rows
    mean = rows / ranks
    if routing.imbalance:
        return mean * routing.imbalance
    most = min(rows, routing.copies * tokens * routing.experts / ranks)
    spread = math.sqrt(2.0 * math.log(ranks) * mean * (1.0 - 1.0 / ranks))
    return min(mean + spread, most)


def _touched_many(routing: Routing, tokens: Array) -> Array:
    miss = 1.0 - routing.per_token / routing.experts
    held = routing.experts / routing.ranks
    return np.asarray(held * (1.0 - np.power(miss, routing.copies * tokens)))


def _busiest_many(routing: Routing, tokens: Array) -> Array:
    rows = routing.copies * tokens * routing.per_token
    ranks = routing.ranks
    if ranks == 1:
        return rows
    mean = rows / ranks
    if routing.imbalance:
        return mean * routing.imbalance
    most = np.minimum(rows, routing.copies * tokens * routing.experts / ranks)
    spread = np.sqrt(2.0 * math.log(ranks) * mean * (1.0 - 1.0 / ranks))
    return np.minimum(mean + spread, most)
