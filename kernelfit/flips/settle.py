"""The one measurement that settles a conclusion: what to run and for how many steps."""

from __future__ import annotations

import math

from kernelfit.kernel.errors import InvalidArgument

FEWEST_STEPS = 30
"""Below this a mean says little about its own error."""

MOST_STEPS = 100_000
"""A conclusion that needs more is a tie for every practical purpose."""

NORMAL = 1.4826
"""Standard deviation of a normal distribution over its median absolute deviation [1]."""

CERTAINTY = 3.0
"""How many standard errors the margin must hold."""


def steps_needed(margin: float | None, noise_spread: float, inflation: float) -> int | None:
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
    int or None
        The fewest steps, at least 30, whose mean has a standard error
        ``1.4826 x noise_spread x sqrt(inflation / steps)`` below a third of the margin;
        30 without a margin. None when more than 100,000 were needed.
    """
    if margin is None:
        return FEWEST_STEPS
    if margin <= 0.0:
        return None
    exact = inflation * (CERTAINTY * NORMAL * noise_spread / margin) ** 2
    if exact >= MOST_STEPS:
        return None
    return max(FEWEST_STEPS, math.floor(exact) + 1)


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


def measurement(
    where: str, shape: str, steps: int | None, margin: float | None, *, refit: bool
) -> str:
    """Return the sentence that says what to measure.

    Parameters
    ----------
    where : str
        The deployment.
    shape : str
        Requests and context, such as ``32 x 2,048 tokens``.
    steps : int or None
        Steps to record; None when they would be too many.
    margin : float or None
        Relative distance from the point where the conclusion changes [1].
    refit : bool
        Whether the measurement speaks through a new fit instead of by its mean.

    Returns
    -------
    str
        One sentence.
    """
    if steps is None:
        return (
            f"{shape} on {where} is too close to call: it would take more than "
            f"{MOST_STEPS:,d} decode steps, so take the outcomes as equal."
        )
    text = f"Record {steps:,d} decode steps of {shape} on {where}"
    if refit:
        return f"{text} and fit again with them."
    if margin is None:
        return f"{text}."
    return f"{text}: their mean settles a margin of {100.0 * margin:.2g} %."
