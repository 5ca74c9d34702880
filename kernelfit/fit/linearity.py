"""Whether a fitted law of the front end has the right shape.

Without a rival law in mind: events are grouped by what is counted, and each group's median
error is held against chance. A law that bends where the data do not shows as groups that
are off, whatever the bend.
"""

from __future__ import annotations

import numpy as np
from scipy.stats import chi2

from kernelfit.fit.front_end_evidence import Bin, Linearity
from kernelfit.fit.steps import Floats

BINS = 8
FEWEST_EVENTS = 8
"""Events below which a group is joined to its neighbour."""

WIDEST = 3.0
"""Ratio of counts beyond which a group is closed early [1]: the longest prompts are few, and
are where a law that bends is furthest off."""

TOLERATED = 0.1
"""Gap that a law may have in a group before its shape is called wrong [1]."""

CHANCE = 1e-3
"""Probability below which gaps are not chance [1]."""


def linearity(
    counted: str, count: Floats, log_ratio: Floats, inflation: float, parameters: int
) -> Linearity:
    """Test the shape of a law.

    Parameters
    ----------
    counted : str
        What ``count`` counts.
    count : ndarray, shape (n_events,)
        The counted thing [count].
    log_ratio : ndarray, shape (n_events,)
        ln(measured / fitted) [1].
    inflation : float
        Factor by which autocorrelation inflates variances [1].
    parameters : int
        Fitted parameters, which the gaps are less free by.

    Returns
    -------
    Linearity
        The result; linear where fewer than three groups can be made.

    Notes
    -----
    The standard error of a group's median is ``1.2533 s / sqrt(n / inflation)`` with ``s``
    its robust deviation; the gaps' squares over their variances are held against chi-squared.
    """
    centred = log_ratio - float(np.median(log_ratio)) if log_ratio.size else log_ratio
    groups = _groups(count)
    if len(groups) < 3:
        return Linearity(counted, True, 0.0, 1.0, ())
    bins = []
    for low, high in groups:
        held = centred[(count >= low) & (count <= high)]
        gap = float(np.median(held))
        spread = 1.4826 * float(np.median(np.abs(held - gap)))
        error = 1.2533 * max(spread, 1e-4) * float(np.sqrt(inflation / held.size))
        bins.append(Bin(low, high, int(held.size), gap, error))
    statistic = sum((each.gap / each.error) ** 2 for each in bins)
    freedom = max(1, len(bins) - parameters)
    p_value = float(chi2.sf(statistic, freedom))
    worst = max(abs(each.gap) for each in bins)
    sure = [each for each in bins if abs(each.gap) > TOLERATED and abs(each.gap) > 3 * each.error]
    return Linearity(counted, not (sure and p_value < CHANCE), worst, p_value, tuple(bins))


def _groups(count: Floats) -> list[tuple[float, float]]:
    """Return stretches of counts with enough events each, as first and last count."""
    values, events = np.unique(count, return_counts=True)
    wanted = max(FEWEST_EVENTS, int(np.ceil(count.size / BINS)))
    groups: list[tuple[float, float]] = []
    first, held = 0, 0
    for place, number in enumerate(events.tolist()):
        held += number
        wide = values[place] > WIDEST * values[first] and held >= FEWEST_EVENTS
        if held >= wanted or wide:
            groups.append((float(values[first]), float(values[place])))
            first, held = place + 1, 0
    if held and groups and held < FEWEST_EVENTS:
        groups[-1] = (groups[-1][0], float(values[-1]))
    elif held:
        groups.append((float(values[first]), float(values[-1])))
    return groups
