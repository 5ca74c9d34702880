"""What the coefficients of the front end rest on, as a calibration keeps it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bin:
    """Events of one stretch of the counted thing, against the fitted law.

    Attributes
    ----------
    low, high : float
        Smallest and largest count in it.
    events : int
        Events.
    gap : float
        Median of ln(measured / fitted), less that of all events [1].
    error : float
        Its standard error [1].
    """

    low: float
    high: float
    events: int
    gap: float
    error: float


@dataclass(frozen=True, slots=True)
class Linearity:
    """Whether the time grows in proportion to what it is fitted with.

    Attributes
    ----------
    counted : str
        What is counted: ``prompt_tokens``, ``outputs`` or ``output_tokens``.
    linear : bool
        Whether no stretch is off by both more than chance and more than a tenth.
    worst_gap : float
        Largest absolute gap [1].
    p_value : float
        Probability of gaps as large if the law were right [1].
    bins : tuple of Bin
        Ascending; none where fewer than three counts were seen.
    """

    counted: str
    linear: bool
    worst_gap: float
    p_value: float
    bins: tuple[Bin, ...]


@dataclass(frozen=True, slots=True)
class FrontEndPart:
    """The fit of one kind of host work.

    Attributes
    ----------
    kind : str
        ``admission``, ``output`` or ``completion``.
    events, fitted : int
        Events that passed the gates, and those of them that were fitted.
    scale : float
        Robust standard deviation of ln(fitted / measured) [1].
    lag1 : float
        Autocorrelation at one event [1].
    inflation : float
        Factor by which autocorrelation inflates variances [1].
    block_events : int
        Length of the resampled blocks [events].
    mean_ratio : float
        Mean of the measured times over that of the fitted ones [1]: rare long ones do not
        move the fit, and raise this.
    low, high : float
        Smallest and largest count seen; beyond, the law is extrapolated.
    linearity : Linearity
        The test of the law's shape.
    """

    kind: str
    events: int
    fitted: int
    scale: float
    lag1: float
    inflation: float
    block_events: int
    mean_ratio: float
    low: float
    high: float
    linearity: Linearity


@dataclass(frozen=True, slots=True)
class EventGate:
    """Events that a rule dropped from one run.

    Attributes
    ----------
    id : str
        The rule.
    run : str
        The run.
    events : int
        How many.
    rule : str
        The rule in words.
    """

    id: str
    run: str
    events: int
    rule: str


@dataclass(frozen=True, slots=True)
class FrontEndEvidence:
    """What the front end's coefficients rest on.

    Attributes
    ----------
    scope : str
        CPU, engine version and tokeniser that they hold for.
    others : tuple of str
        Scopes that were recorded too and are only compared.
    runs : tuple of str
        Runs behind the coefficients.
    parts : tuple of FrontEndPart
        One per kind of work that was recorded.
    gates : tuple of EventGate
        What was dropped.
    """

    scope: str
    others: tuple[str, ...]
    runs: tuple[str, ...]
    parts: tuple[FrontEndPart, ...]
    gates: tuple[EventGate, ...]
