"""A seeded arrival trace: when each request is due, and how long it and its answer are.

Pure: from a seed to a list of requests. Lengths are spread evenly over their logarithm.
"""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True)
class Span:
    """A range of lengths.

    Attributes
    ----------
    low, high : int
        Shortest and longest [tokens], both within it.
    """

    low: int
    high: int

    def __post_init__(self) -> None:
        """Refuse an empty span."""
        if not 1 <= self.low <= self.high:
            raise ValueError(f"a span needs 1 <= low <= high (got {self.low}:{self.high})")

    @classmethod
    def parse(cls, text: str) -> Span:
        """Return the span that ``low:high``, or one number, names.

        Parameters
        ----------
        text : str
            For example ``16:512``.

        Returns
        -------
        Span
            The range [tokens].

        Raises
        ------
        ValueError
            When it is no range.
        """
        low, _, high = text.partition(":")
        return cls(int(low), int(high or low))

    def draw(self, rng: random.Random) -> int:
        """Return one length of the span [tokens].

        Parameters
        ----------
        rng : random.Random
            Where chance comes from.

        Returns
        -------
        int
            A length, evenly spread over the logarithm [tokens].
        """
        span: float = (self.high / self.low) ** rng.random()
        return min(self.high, max(self.low, round(self.low * span)))


@dataclass(frozen=True)
class Planned:
    """One request of a trace.

    Attributes
    ----------
    due_s : float
        When it is sent, after the start of the trace [s].
    prompt_tokens : int
        About how long its prompt is [tokens]; the server counts exactly.
    output_tokens : int
        How many tokens it asks for [tokens].
    text_at : float
        Where in the text its prompt is cut from, as a share of the text [1].
    shared_tokens : int
        About how many tokens at its beginning are those of other requests [tokens].
    """

    due_s: float
    prompt_tokens: int
    output_tokens: int
    text_at: float
    shared_tokens: int = 0


@dataclass(frozen=True)
class Load:
    """What a trace is drawn from.

    Attributes
    ----------
    requests : int
        How many.
    rate_per_s : float or None
        Mean arrivals per second, at random (Poisson) [1/s]; None where all are due at once.
    prompt, output : Span
        Lengths [tokens].
    shared : float
        Share of requests whose first half is a common beginning [1].
    """

    requests: int
    rate_per_s: float | None
    prompt: Span
    output: Span
    shared: float = 0.0


def arrivals(seed: int, load: Load) -> tuple[Planned, ...]:
    """Return the trace of a load.

    Parameters
    ----------
    seed : int
        Seed of every choice; the same seed gives the same trace.
    load : Load
        What it is drawn from.

    Returns
    -------
    tuple of Planned
        In order of arrival.
    """
    rng = random.Random(seed)
    planned = []
    due_s = 0.0
    for _ in range(load.requests):
        if load.rate_per_s is not None:
            due_s += rng.expovariate(load.rate_per_s)
        prompt = load.prompt.draw(rng)
        output = load.output.draw(rng)
        text_at = rng.random()
        shared = prompt // 2 if rng.random() < load.shared else 0
        planned.append(Planned(due_s, prompt, output, text_at, shared))
    return tuple(planned)
