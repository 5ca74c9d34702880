"""The one measurement that settles a conclusion: what to run and for how many steps."""

from __future__ import annotations

import math
from dataclasses import dataclass

from kernelfit.kernel.errors import InvalidArgument

FEWEST_STEPS = 30
"""Below this a mean says little about its own error."""

MOST_STEPS = 10_000
"""A margin that needs more is a tie for every practical purpose."""

NORMAL = 1.4826
"""Standard deviation of a normal distribution over its median absolute deviation [1]."""

CERTAINTY = 3.0
"""How many standard errors the margin must hold."""


def steps_needed(margin: float | None, noise_spread: float, inflation: float) -> int:
    """Return how many steps a measurement takes to settle a conclusion.

    Parameters
    ----------
    margin : float or None
        Relative distance from the point where the conclusion changes [1]; None when there
        is no such point.
    noise_spread : float
        Median absolute relative deviation of steps of the same shape [1].
    inflation : float
        Factor by which autocorrelation inflates the variance of a mean [1].

    Returns
    -------
    int
        The fewest steps, from 30 to 10,000, whose mean has a standard error
        ``1.4826 x noise_spread x sqrt(inflation / steps)`` below a third of the margin;
        30 without a margin or without noise.
    """
    sigma = NORMAL * noise_spread
    if margin is None or sigma == 0.0:
        return FEWEST_STEPS
    if margin <= tie_margin(noise_spread, inflation):
        return MOST_STEPS
    exact = inflation * (CERTAINTY * sigma / margin) ** 2
    return max(FEWEST_STEPS, math.floor(exact) + 1)


def tie_margin(noise_spread: float, inflation: float) -> float:
    """Return the margin below which no reasonable measurement decides.

    Parameters
    ----------
    noise_spread : float
        Median absolute relative deviation of steps of the same shape [1].
    inflation : float
        Factor by which autocorrelation inflates the variance of a mean [1].

    Returns
    -------
    float
        Three standard errors of the mean of 10,000 steps [1].
    """
    return CERTAINTY * NORMAL * noise_spread * math.sqrt(inflation / MOST_STEPS)


def check_noise(noise_spread: float, inflation: float) -> None:
    """Refuse a noise that no calibration has.

    Parameters
    ----------
    noise_spread : float
        Median absolute relative deviation of steps of the same shape [1].
    inflation : float
        Factor by which autocorrelation inflates the variance of a mean [1].

    Raises
    ------
    InvalidArgument
        When the spread is negative, the factor not positive, or one of them not finite.
    """
    if not 0.0 <= noise_spread < math.inf:
        raise InvalidArgument("noise_spread", noise_spread, "a share, 0 or above")
    if not 0.0 < inflation < math.inf:
        raise InvalidArgument("inflation", inflation, "a factor above 0")


@dataclass(frozen=True, slots=True)
class Proposed:
    """A measurement that settles a conclusion.

    Attributes
    ----------
    gpu, model, pool : str
        The deployment.
    requests : int
        Requests in flight, one of them with the chunk where there is one.
    context_tokens : int
        Tokens in the KV cache of a request that decodes [tokens].
    chunk_tokens : int
        Tokens of a prompt in the step; 0 for decode steps [tokens].
    prompt_tokens : int
        The prompt that the chunk is of [tokens].
    steps : int
        Steps to record.
    """

    gpu: str
    model: str
    pool: str
    requests: int
    context_tokens: int
    chunk_tokens: int
    prompt_tokens: int
    steps: int

    def sentence(self, aim: str) -> str:
        """Say what to measure.

        Parameters
        ----------
        aim : str
            What it is good for, from ``aim_of``.

        Returns
        -------
        str
            One sentence.
        """
        where = f"{self.model} {self.pool} ({self.gpu})"
        shape = f"{self.requests:,d} x {self.context_tokens:,d} tokens"
        if not self.chunk_tokens:
            return f"Record {self.steps:,d} decode steps of {shape} on {where}{aim}."
        chunk = f"a chunk of {self.chunk_tokens:,d} tokens of a prompt of {self.prompt_tokens:,d}"
        if self.requests > 1:
            shape = f"{self.requests - 1:,d} x {self.context_tokens:,d} tokens"
            chunk += f", beside {shape} that decode,"
        return f"Record {self.steps:,d} steps with {chunk} on {where}{aim}."


def aim_of(conclusion: str, flag: str, margin: float | None, tie: float) -> str:
    """Say what the recorded steps are good for.

    Parameters
    ----------
    conclusion, flag : str
        The conclusion and its flag.
    margin : float or None
        Relative distance from the point where the conclusion changes [1].
    tie : float
        Margin below which no reasonable measurement decides [1].

    Returns
    -------
    str
        The end of the sentence, without its full stop.
    """
    if conclusion == "bottleneck" and flag != "measure":
        # The time of a step does not say what it is made of; a fit over more shapes does.
        return " and fit again with them"
    if conclusion == "kv_fits":
        return ""
    if conclusion == "largest_batch":
        return ": their mean fixes the number to one request or 5 %"
    if margin is None:
        return ""
    if margin <= tie:
        return f": a margin that stays below {_percent(tie)} is a tie"
    return f": their mean settles a margin of {_percent(margin)}"


def _percent(share: float) -> str:
    return f"{100.0 * share:.2g} %" if share < 1.0 else f"{100.0 * share:,.0f} %"
