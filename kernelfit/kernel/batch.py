"""A batch as counts, and the totals that every law is a function of.

A request is described by four counts and never by a prefill or decode label: the
counts are what the engine's own scheduler reads, and a label would be wrong for a
request that schedules several tokens while it decodes (speculative decoding).
"""

from __future__ import annotations

import operator
from dataclasses import dataclass

from kernelfit.kernel.errors import InvalidArgument


def whole(field: str, value: object) -> int:
    """Return a count as a plain integer.

    Parameters
    ----------
    field : str
        What the count is, for the message.
    value : object
        An integer of Python or numpy.

    Returns
    -------
    int
        The same number.

    Raises
    ------
    InvalidArgument
        When it is anything else: a float, even if whole, a boolean, text or nothing.
    """
    if not isinstance(value, bool):
        try:
            return operator.index(value)  # type: ignore[arg-type]
        except TypeError:
            pass
    raise InvalidArgument(field, value, "a whole number")


def make_whole(counts: object, fields: tuple[str, ...]) -> None:
    """Turn the counts of a frozen value into plain integers.

    Parameters
    ----------
    counts : object
        The value, while it is being built.
    fields : tuple of str
        Names of its counts.

    Raises
    ------
    InvalidArgument
        When a count is no whole number.
    """
    for field in fields:
        object.__setattr__(counts, field, whole(field, getattr(counts, field)))


@dataclass(frozen=True, slots=True)
class RequestShape:
    """The four counts of one request in one step.

    Attributes
    ----------
    scheduled : int
        Tokens computed in this step [tokens]; at least 1.
    computed : int
        Tokens whose KV exists before this step, cache hits included [tokens].
    prompt_len : int
        Length of the prompt [tokens]; at least 1.
    cached_tokens : int
        Prefix-cache hit of the request [tokens], already subtracted from
        ``scheduled`` and part of ``computed``.
    """

    scheduled: int
    computed: int
    prompt_len: int
    cached_tokens: int = 0

    def __post_init__(self) -> None:
        """Check the counts.

        Raises
        ------
        InvalidArgument
            When a count is no whole number, negative, zero where a token is needed, or
            the cache hit exceeds what is computed.
        """
        if not (
            type(self.scheduled)
            is type(self.computed)
            is type(self.prompt_len)
            is type(self.cached_tokens)
            is int
        ):
            make_whole(self, ("scheduled", "computed", "prompt_len", "cached_tokens"))
        if self.scheduled < 1:
            raise InvalidArgument("scheduled", self.scheduled, ">= 1 token")
        if self.computed < 0:
            raise InvalidArgument("computed", self.computed, ">= 0 tokens")
        if self.prompt_len < 1:
            raise InvalidArgument("prompt_len", self.prompt_len, ">= 1 token")
        if not 0 <= self.cached_tokens <= self.computed:
            raise InvalidArgument(
                "cached_tokens", self.cached_tokens, f"0 to computed ({self.computed}) tokens"
            )


@dataclass(frozen=True, slots=True)
class Batch:
    """One step's batch.

    Attributes
    ----------
    requests : tuple of RequestShape
        At least one request.
    decode_threshold : int
        A request with at most this many scheduled tokens takes the decode
        attention path [tokens].
    sm_budget : int
        SMs that the step may use; 0 means all of them.
    """

    requests: tuple[RequestShape, ...]
    decode_threshold: int = 1
    sm_budget: int = 0

    def __post_init__(self) -> None:
        """Check the batch.

        Raises
        ------
        InvalidArgument
            When the batch is empty, or a setting is negative or no whole number.
        """
        if not isinstance(self.requests, tuple):
            object.__setattr__(self, "requests", tuple(self.requests))
        if not self.requests:
            raise InvalidArgument("requests", (), "at least one request")
        if not (type(self.decode_threshold) is type(self.sm_budget) is int):
            make_whole(self, ("decode_threshold", "sm_budget"))
        if self.decode_threshold < 0:
            raise InvalidArgument("decode_threshold", self.decode_threshold, ">= 0 tokens")
        if self.sm_budget < 0:
            raise InvalidArgument("sm_budget", self.sm_budget, ">= 0 SMs; 0 means all")

    def tokens(self) -> int:
        """Return the tokens scheduled in this step.

        Returns
        -------
        int
            Sum of ``scheduled`` [tokens].
        """
        return sum(r.scheduled for r in self.requests)

    @staticmethod
    def decode(requests: int, context: int) -> Batch:
        """Return a uniform decode batch.

        Parameters
        ----------
        requests : int
            Number of requests, each scheduling one token.
        context : int
            Tokens in each request's KV before the step [tokens].

        Returns
        -------
        Batch
            The batch, with every request just past its prompt.

        Raises
        ------
        InvalidArgument
            When there is no request or the context is negative.
        """
        if requests < 1:
            raise InvalidArgument("requests", requests, ">= 1 request")
        shape = RequestShape(scheduled=1, computed=context, prompt_len=max(1, context))
        return Batch(requests=(shape,) * requests)
