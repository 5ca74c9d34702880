"""The totals that a batch is reduced to: every law is a function of them alone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields

from kernelfit.kernel.batch import RequestShape, make_whole
from kernelfit.kernel.errors import InvalidArgument


@dataclass(frozen=True, slots=True)
class WindowTotals:
    """What attention with a sliding window reads and multiplies.

    Attributes
    ----------
    window_tokens : int
        The window: a token attends to itself and to at most ``window_tokens - 1``
        before it [tokens].
    decode_context_tokens : int
        KV tokens read by the decode path, sum of min(c + s, s + w - 1) [tokens].
    decode_pairs : int
        Query-key pairs of the decode path.
    prefill_context_tokens : int
        KV tokens read by the prefill path, sum of min(c + s, s + w - 1) [tokens].
    prefill_pairs : int
        Query-key pairs of the prefill path.
    """

    window_tokens: int
    decode_context_tokens: int = 0
    decode_pairs: int = 0
    prefill_context_tokens: int = 0
    prefill_pairs: int = 0

    def __post_init__(self) -> None:
        """Check the counts.

        Raises
        ------
        InvalidArgument
            When one is no whole number.
        """
        if not (
            type(self.decode_context_tokens)
            is type(self.decode_pairs)
            is type(self.prefill_context_tokens)
            is type(self.prefill_pairs)
            is type(self.window_tokens)
            is int
        ):
            make_whole(self, ("window_tokens", *WINDOW_FIELDS))


@dataclass(frozen=True, slots=True)
class BatchTotals:
    """What a batch is reduced to; every field adds and subtracts exactly.

    A simulator can keep these incrementally instead of walking its requests.

    Attributes
    ----------
    requests : int
        Requests in the step.
    tokens : int
        Tokens scheduled [tokens].
    decode_requests : int
        Requests on the decode attention path.
    decode_context_tokens : int
        KV tokens read by the decode path, sum of computed + scheduled [tokens].
    decode_pairs : int
        Query-key pairs of the decode path, sum of s*c + s*(s+1)/2.
    prefill_context_tokens : int
        KV tokens read by the prefill path, sum of computed + scheduled [tokens].
    prefill_pairs : int
        Query-key pairs of the prefill path, sum of s*c + s*(s+1)/2.
    windows : tuple of WindowTotals
        One entry per sliding window of the model, ascending; empty for models without.
    """

    requests: int = 0
    tokens: int = 0
    decode_requests: int = 0
    decode_context_tokens: int = 0
    decode_pairs: int = 0
    prefill_context_tokens: int = 0
    prefill_pairs: int = 0
    windows: tuple[WindowTotals, ...] = ()

    def __post_init__(self) -> None:
        """Check the counts.

        Raises
        ------
        InvalidArgument
            When one is no whole number. Negative ones are refused where they are priced:
            differences on the way there may be.
        """
        if not (
            type(self.requests)
            is type(self.tokens)
            is type(self.decode_requests)
            is type(self.decode_context_tokens)
            is type(self.decode_pairs)
            is type(self.prefill_context_tokens)
            is type(self.prefill_pairs)
            is int
        ):
            make_whole(self, TOTAL_FIELDS)

    def __add__(self, other: BatchTotals) -> BatchTotals:
        """Return the totals of both together; both must hold the same windows."""
        return _combined(self, other, 1)

    def __sub__(self, other: BatchTotals) -> BatchTotals:
        """Return these totals without the other's; both must hold the same windows."""
        return _combined(self, other, -1)

    @staticmethod
    def of(
        requests: Iterable[RequestShape],
        decode_threshold: int = 1,
        windows: tuple[int, ...] = (),
    ) -> BatchTotals:
        """Reduce requests to their totals.

        Parameters
        ----------
        requests : iterable of RequestShape
            The requests, in any order.
        decode_threshold : int
            Scheduled tokens up to which a request takes the decode path [tokens].
        windows : tuple of int
            Sliding windows of the model [tokens], ``Kernel``'s ``windows``.

        Returns
        -------
        BatchTotals
            The sums; exact integers.

        Raises
        ------
        InvalidArgument
            When there is anything but requests.
        """
        shapes = requests if isinstance(requests, tuple) else tuple(requests)
        try:
            scheduled = [request.scheduled for request in shapes]
            computed = [request.computed for request in shapes]
        except AttributeError as error:
            raise InvalidArgument("requests", shapes, "only RequestShape") from error
        return totals_of(scheduled, computed, decode_threshold, windows)


def totals_of(
    scheduled: list[int], computed: list[int], decode_threshold: int, windows: tuple[int, ...]
) -> BatchTotals:
    """Reduce two lists of counts to totals.

    Parameters
    ----------
    scheduled, computed : list of int, length n_requests
        Tokens of this step, and tokens before it, per request [tokens].
    decode_threshold : int
        Scheduled tokens up to which a request takes the decode path [tokens].
    windows : tuple of int
        Sliding windows of the model [tokens].

    Returns
    -------
    BatchTotals
        The sums; exact integers.
    """
    count, tokens = len(scheduled), sum(scheduled)
    if count == tokens and decode_threshold >= 1:
        # Every request schedules one token, so a pair is a context token. The usual step.
        context = sum(computed) + tokens
        inside = [
            WindowTotals(w, total, total)
            for w in windows
            for total in [sum([c + 1 if c < w else w for c in computed])]
        ]
        return BatchTotals(count, tokens, count, context, context, 0, 0, tuple(inside))
    chunks = [(s, c) for s, c in zip(scheduled, computed, strict=True) if s > decode_threshold]
    prefill_context = sum([s + c for s, c in chunks])
    prefill_pairs = sum([s * c + s * (s + 1) // 2 for s, c in chunks])
    decode_context = tokens + sum(computed) - prefill_context
    decoding = count - len(chunks)
    decode_tokens = tokens - sum([s for s, _ in chunks])
    if decode_tokens == decoding:
        # As above: what decodes schedules one token each.
        decode_pairs = decode_context
    else:
        pairs = sum([s * c + s * (s + 1) // 2 for s, c in zip(scheduled, computed, strict=True)])
        decode_pairs = pairs - prefill_pairs
    return BatchTotals(
        count,
        tokens,
        decoding,
        decode_context,
        decode_pairs,
        prefill_context,
        prefill_pairs,
        tuple([_window_totals(scheduled, computed, decode_threshold, w) for w in windows]),
    )


def window_pairs(scheduled: int, computed: int, window_tokens: int) -> int:
    """Return the query-key pairs of one request under a sliding window.

    Parameters
    ----------
    scheduled, computed : int
        The request's counts [tokens].
    window_tokens : int
        The window [tokens].

    Returns
    -------
    int
        Sum over the new tokens of ``min(position, window)``, positions from 1.
    """
    ramp = min(max(window_tokens - computed, 0), scheduled)
    return ramp * computed + ramp * (ramp + 1) // 2 + (scheduled - ramp) * window_tokens


def _window_totals(
    scheduled: list[int], computed: list[int], decode_threshold: int, window: int
) -> WindowTotals:
    context = pairs = long_context = long_pairs = 0
    for s, c in zip(scheduled, computed, strict=True):
        if s == 1 <= decode_threshold:
            read = c + 1 if c < window else window
            context += read
            pairs += read
        elif s <= decode_threshold:
            context += min(c + s, s + window - 1)
            pairs += window_pairs(s, c, window)
        else:
            long_context += min(c + s, s + window - 1)
            long_pairs += window_pairs(s, c, window)
    return WindowTotals(window, context, pairs, long_context, long_pairs)


def _combined(one: BatchTotals, other: BatchTotals, sign: int) -> BatchTotals:
    windows: tuple[WindowTotals, ...] = ()
    if one.windows or other.windows:
        sizes = tuple(w.window_tokens for w in one.windows)
        others = tuple(w.window_tokens for w in other.windows)
        if sizes != others:
            raise InvalidArgument("windows", others, f"the same sliding windows, {sizes}")
        windows = tuple(
            WindowTotals(
                a.window_tokens,
                a.decode_context_tokens + sign * b.decode_context_tokens,
                a.decode_pairs + sign * b.decode_pairs,
                a.prefill_context_tokens + sign * b.prefill_context_tokens,
                a.prefill_pairs + sign * b.prefill_pairs,
            )
            for a, b in zip(one.windows, other.windows, strict=True)
        )
    return BatchTotals(
        one.requests + sign * other.requests,
        one.tokens + sign * other.tokens,
        one.decode_requests + sign * other.decode_requests,
        one.decode_context_tokens + sign * other.decode_context_tokens,
        one.decode_pairs + sign * other.decode_pairs,
        one.prefill_context_tokens + sign * other.prefill_context_tokens,
        one.prefill_pairs + sign * other.prefill_pairs,
        windows,
    )


TOTAL_FIELDS: tuple[str, ...] = tuple(f.name for f in fields(BatchTotals) if f.name != "windows")
"""Names of the totals that every model has, in the column order of every totals array."""

WINDOW_FIELDS: tuple[str, ...] = tuple(f.name for f in fields(WindowTotals))[1:]
"""Names of the totals of one sliding window."""


def window_column(window_tokens: int, field: str) -> str:
    """Return the name of a table's column for one total of one sliding window.

    Parameters
    ----------
    window_tokens : int
        The window [tokens].
    field : str
        One of ``WINDOW_FIELDS``.

    Returns
    -------
    str
        For example ``window_128_decode_pairs``.
    """
    return f"window_{window_tokens}_{field}"
