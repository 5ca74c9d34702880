"""What changed between two calibrations, as far as their intervals let anyone say so."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from kernelfit.fit.calibration import Calibration
from kernelfit.fit.solve import device_rule_of
from kernelfit.fit.steps import Floats
from kernelfit.kernel.catalog import Coefficient
from kernelfit.kernel.errors import InvalidArgument

LEVEL = 0.95
"""Nominal coverage of every interval here [1]."""

FEWEST_DRAWS = 20
"""Draws below which a calibration's intervals say nothing."""

TOLERANCE = 0.02
"""Change that is none [1]: resampling one set of runs does not show all that another set
brings. Of 45 pairs of fits of one simulated machine (1,900 steps each, 2 % noise), 10 have a
coefficient whose intervals lie apart, and 32 a deployment whose step times do; with this
tolerance 1 and 0."""

MOVED, SAME, UNKNOWN, APPEARED, DISAPPEARED = "moved", "same", "unknown", "appeared", "disappeared"
"""``moved``: the intervals lie apart by more than the tolerance; ``same``: they do not;
``unknown``: one side only kept its prior, or has no interval; the other two: one side does
not price it."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A value with its 95 % interval.

    Attributes
    ----------
    value : float
        The value.
    low, high : float
        Ends of the interval.
    """

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class CoefficientDrift:
    """One coefficient before and after.

    Attributes
    ----------
    name : str
        The coefficient.
    before, after : Coefficient or None
        What either calibration says; None where it does not price it.
    ratio : Interval or None
        After over before [1], over every pair of draws.
    p_differ : float or None
        Probability that they differ, as far as the draws go [1]: 0 where either is as often
        the larger one, 1 where the same one always is.
    verdict : str
        ``moved``, ``same``, ``unknown``, ``appeared`` or ``disappeared``.
    """

    name: str
    before: Coefficient | None
    after: Coefficient | None
    ratio: Interval | None
    p_differ: float | None
    verdict: str


@dataclass(frozen=True, slots=True)
class CompositionDrift:
    """How resources combine, before and after.

    Attributes
    ----------
    rule_before, rule_after : str
        The rules.
    share_before, share_after : Interval
        Share of the possible overlap that happens [1].
    verdict : str
        ``moved`` where both fitted a share and the intervals lie apart by more than the
        tolerance, ``unknown`` where the rules differ: a rule is chosen by held-out score,
        which has no interval.
    """

    rule_before: str
    rule_after: str
    share_before: Interval
    share_after: Interval
    verdict: str


def check_comparable(before: Calibration, after: Calibration, *, across: bool = False) -> None:
    """Refuse two calibrations that are not of one GPU type.

    Parameters
    ----------
    before, after : Calibration
        The calibrations.
    across : bool
        Accept two GPU types all the same.

    Raises
    ------
    InvalidArgument
        When they are of two GPU types and ``across`` is False.
    """
    if not across and before.chip.name != after.chip.name:
        raise InvalidArgument("chip", after.chip.name, f"{before.chip.name}, as in the first")


def coefficient_drift(
    before: Calibration, after: Calibration, tolerance: float = TOLERANCE
) -> tuple[CoefficientDrift, ...]:
    """Compare the coefficients of two calibrations.

    Parameters
    ----------
    before, after : Calibration
        The calibrations; efficiencies are shares of each one's own datasheet peaks.
    tolerance : float
        Change that is none [1].

    Returns
    -------
    tuple of CoefficientDrift
        In the order of the first; what only the second prices comes last.
    """
    old = {c.name: c for c in before.coefficients}
    new = {c.name: c for c in after.coefficients}
    return tuple(
        _compare(
            name,
            (old.get(name), new.get(name)),
            (_draws(before, name), _draws(after, name)),
            tolerance,
        )
        for name in dict.fromkeys((*old, *new))
    )


def _draws(calibration: Calibration, name: str) -> Floats:
    if name not in calibration.draw_names or len(calibration.draws) < FEWEST_DRAWS:
        return np.empty(0)
    column = calibration.draw_names.index(name)
    return np.asarray([draw[column] for draw in calibration.draws])


def _compare(
    name: str,
    sides: tuple[Coefficient | None, Coefficient | None],
    draws: tuple[Floats, Floats],
    tolerance: float,
) -> CoefficientDrift:
    before, after = sides
    if before is None or after is None:
        verdict = APPEARED if before is None else DISAPPEARED
        return CoefficientDrift(name, before, after, None, None, verdict)
    if not draws[0].size or not draws[1].size:
        return CoefficientDrift(name, before, after, None, None, UNKNOWN)
    ratios = (draws[1][:, None] / draws[0][None, :]).ravel()
    larger = float(np.mean(ratios > 1.0) + 0.5 * np.mean(ratios == 1.0))
    ratio = interval(ratios, after.value / before.value)
    if "prior" in (before.verdict, after.verdict):
        verdict = UNKNOWN
    else:
        verdict = MOVED if apart(before.ci95, after.ci95) > 1.0 + tolerance else SAME
    return CoefficientDrift(name, before, after, ratio, abs(2.0 * larger - 1.0), verdict)


def interval(samples: Floats, value: float) -> Interval:
    """Return the 95 % interval of samples, widened to hold a value.

    Parameters
    ----------
    samples : ndarray, shape (n,)
        The samples; without any, the interval is the value.
    value : float
        The value.

    Returns
    -------
    Interval
        From the 2.5th to the 97.5th percentile.
    """
    if not samples.size:
        return Interval(value, value, value)
    low, high = np.quantile(samples, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(value, min(float(low), value), max(float(high), value))


def apart(one: tuple[float, float], other: tuple[float, float]) -> float:
    """Return how far apart two intervals of positive numbers are.

    Parameters
    ----------
    one, other : tuple of (float, float)
        The intervals.

    Returns
    -------
    float
        Ratio of the ends that face each other [1]; below 1 where the intervals overlap.
    """
    low, high = min(one[1], other[1]), max(one[0], other[0])
    return high / low if low > 0.0 else math.inf if high > 0.0 else 0.0


def composition_drift(
    before: Calibration, after: Calibration, tolerance: float = TOLERANCE
) -> CompositionDrift:
    """Compare how resources combine in two calibrations.

    Parameters
    ----------
    before, after : Calibration
        The calibrations.
    tolerance : float
        Difference of the shares that is none [1].

    Returns
    -------
    CompositionDrift
        The comparison.
    """
    shares = [
        interval(np.asarray(c.draw_shares, dtype=np.float64), c.overlap_share)
        for c in (before, after)
    ]
    if before.rule != after.rule:
        verdict = UNKNOWN
    elif device_rule_of(before.rule) == "share":
        known = min(len(before.draw_shares), len(after.draw_shares)) >= FEWEST_DRAWS
        gap = max(s.low for s in shares) - min(s.high for s in shares)
        verdict = UNKNOWN if not known else MOVED if gap > tolerance else SAME
    else:
        verdict = SAME
    return CompositionDrift(before.rule, after.rule, shares[0], shares[1], verdict)


def peaks_that_differ(before: Calibration, after: Calibration) -> tuple[str, ...]:
    """Return the datasheet values by which two calibrations' chips differ.

    Parameters
    ----------
    before, after : Calibration
        The calibrations.

    Returns
    -------
    tuple of str
        Names of the fields; empty for one datasheet. A share of one peak is then not
        comparable with a share of the other.
    """
    names = ("peak_flop_per_s", "hbm_bytes_per_s", "nvlink_bytes_per_s", "nic_bytes_per_s")
    return tuple(n for n in names if getattr(before.chip, n) != getattr(after.chip, n))
