"""One pool seen four ways: Overlap, NoOverlap, as fitted, and under the calibration's draws."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from kernelfit.flips.loads import Floats, limit_of
from kernelfit.flips.measured import Anchors
from kernelfit.flips.pricing import Priced, Pricer
from kernelfit.flips.steady import Load, Steady, busiest, steady
from kernelfit.kernel.tables import alike_windows

Four = tuple[Floats, Floats, Floats, Floats]
"""Values under Overlap, under NoOverlap, as fitted, and under the draws."""


@dataclass(frozen=True, slots=True, eq=False)
class Views:
    """Times of one pool at one load, for 1, 2, 3, ... requests in flight.

    Attributes
    ----------
    overlap_s, no_overlap_s, fitted_s : ndarray, shape (n_batches,)
        Time per output token under each bound and as fitted [s]; none when not one request
        fits.
    draws_s : ndarray, shape (n_draws, n_batches)
        Fitted composition under each draw of the coefficients [s].
    first : Views or None
        Time to first token of a prompt that does not wait, likewise; None without prompts.
    output_tokens : int
        Tokens of an answer [tokens]; 0 for decoding alone.
    """

    overlap_s: Floats
    no_overlap_s: Floats
    fitted_s: Floats
    draws_s: Floats
    first: Views | None = None
    output_tokens: int = 0

    @property
    def times(self) -> Four:
        """Time per output token in every view [s]."""
        return self.overlap_s, self.no_overlap_s, self.fitted_s, self.draws_s

    def rates(self) -> Four:
        """Return output tokens per second of one engine.

        Returns
        -------
        tuple of ndarray
            In every view [tokens/s]: by Little's law the requests in flight over the time
            from one token to the next, or over the life of a request times its tokens.
        """
        sizes = np.arange(1, self.fitted_s.size + 1, dtype=np.float64)
        if self.first is None:
            return _each(lambda token: sizes / token, self.times)
        tokens = self.output_tokens
        one, two, three, draws = (
            sizes * tokens / (first + (tokens - 1.0) * token)
            for token, first in zip(self.times, self.first.times, strict=True)
        )
        return one, two, three, draws

    def uses(self, target_s: float, first_target_s: float = np.inf) -> Four:
        """Return how much of the targets is used up.

        Parameters
        ----------
        target_s : float
            Longest acceptable time per output token [s]; infinite for none.
        first_target_s : float
            Longest acceptable time to first token [s].

        Returns
        -------
        tuple of ndarray
            The larger share of the two in every view [1]; both are met up to 1.
        """
        if self.first is None or not np.isfinite(first_target_s):
            return _each(lambda token: token / target_s, self.times)
        one, two, three, draws = (
            np.maximum(token / target_s, first / first_target_s)
            for token, first in zip(self.times, self.first.times, strict=True)
        )
        return one, two, three, draws


def _each(apply: Callable[[Floats], Floats], values: Four) -> Four:
    return apply(values[0]), apply(values[1]), apply(values[2]), apply(values[3])


@dataclass(frozen=True, slots=True, eq=False)
class Seen:
    """A pool at one load: its batches, their step times, and what follows from them.

    Attributes
    ----------
    load : Load
        The load.
    steady : Steady
        Its batches.
    decode, chunk : Priced
        Times of the steps without and with a chunk of a prompt; of none without prompts.
    views : Views
        Times per output token and to first token.
    """

    load: Load
    steady: Steady
    decode: Priced
    chunk: Priced
    views: Views

    @property
    def size(self) -> int:
        """The most requests in flight."""
        return self.steady.size

    def row(self, requests: int, *, chunk: bool) -> dict[str, float]:
        """Return the totals of one batch.

        Parameters
        ----------
        requests : int
            Requests in flight.
        chunk : bool
            Whether the step holds a chunk of a prompt.

        Returns
        -------
        dict of str to float
            By name of the total.
        """
        at = requests - 1 + (self.size if chunk else 0)
        return {name: float(values[at]) for name, values in self.steady.columns.items()}


def look(pricer: Pricer, load: Load, anchors: Anchors | None = None) -> Seen:
    """Price every batch of a load that a pool can hold.

    Parameters
    ----------
    pricer : Pricer
        The pool.
    load : Load
        The load.
    anchors : Anchors, optional
        Measured steps of the pool, which every view is made to pass through.

    Returns
    -------
    Seen
        Its step times and views.
    """
    kernel = pricer.kernel
    most = limit_of(kernel, load.context_tokens, load.longest_tokens).requests
    batches = steady(
        load, most, kernel.resolved().max_num_batched_tokens, kernel.plan.basis.windows
    )
    priced = pricer.price(batches.columns)
    decode, chunk = _part(priced, slice(0, most)), _part(priced, slice(most, None))
    if anchors is not None:
        decode, chunk = anchors.through(pricer, load, batches, decode, chunk)
    if not load.prompt_tokens:
        return Seen(load, batches, decode, chunk, Views(*decode.times))
    first = _each(lambda times: batches.chunks * times, chunk.times)
    one, two, three, draws = (
        batches.decode_share * steps + batches.chunk_share * mixed
        for steps, mixed in zip(decode.times, chunk.times, strict=True)
    )
    views = Views(one, two, three, draws, Views(*first), load.output_tokens)
    return Seen(load, batches, decode, chunk, views)


def longest_step(pricer: Pricer, load: Load, requests: int) -> Four:
    """Return how long any step of a load can take.

    Parameters
    ----------
    pricer : Pricer
        The pool.
    load : Load
        The load, with a prompt.
    requests : int
        Requests in flight.

    Returns
    -------
    tuple of ndarray
        In every view, the draws with shape (n_draws, 1) [s].
    """
    kernel = pricer.kernel
    columns = busiest(load, requests, kernel.resolved().max_num_batched_tokens)
    windows = alike_windows(columns, kernel.plan.basis.windows)
    return pricer.price({**columns, **windows}).times


def _part(priced: Priced, part: slice) -> Priced:
    return Priced(
        priced.overlap_s[part],
        priced.no_overlap_s[part],
        priced.fitted_s[part],
        priced.draws_s[:, part],
    )
