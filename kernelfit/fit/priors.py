"""Priors and bounds of unit costs, and the way from unit costs to coefficients."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kernelfit.fit.given import GivenPrior, by_name
from kernelfit.fit.steps import Floats
from kernelfit.kernel.catalog import COLLECTIVE_OPS, definition
from kernelfit.kernel.chip import Chip
from kernelfit.kernel.costs import peak_of, resource_of
from kernelfit.kernel.definitions import MOST

COLLECTIVES: tuple[str, ...] = tuple(entry[0] for entry in COLLECTIVE_OPS)
CPU_COLLECTIVE_SPREAD = 2.3
"""Spread of the collectives' priors on a CPU, a factor of ten either way [1]: ranks there
reduce through shared memory, of which figures from GPUs say little."""


@dataclass(frozen=True, slots=True, eq=False)
class Priors:
    """Prior and bounds of every unit cost, in natural logarithms.

    Attributes
    ----------
    centre : ndarray, shape (n_coefficients,)
        ln of the prior unit cost [ln s].
    spread : ndarray, shape (n_coefficients,)
        One standard deviation [1].
    low, high : ndarray, shape (n_coefficients,)
        Bounds [ln s]: a rate never beats its datasheet peak.
    """

    centre: Floats
    spread: Floats
    low: Floats
    high: Floats


def build_priors(names: Sequence[str], chip: Chip, given: Sequence[GivenPrior] = ()) -> Priors:
    """Return the priors of unit costs for a GPU type.

    Parameters
    ----------
    names : sequence of str
        Coefficients.
    chip : Chip
        The GPU type.
    given : sequence of GivenPrior
        What the user knows; where two are about one coefficient, the later one counts.

    Returns
    -------
    Priors
        From what is given, else from ``kernelfit.kernel.catalog``.

    Raises
    ------
    ValueError
        When a given prior is about another GPU type.

    Notes
    -----
    Bounds come from the catalogue and the datasheet alone: what somebody believes
    beforehand moves the middle of what is likely, not the ends of what is possible. A
    time may lie a factor of ``exp(14)`` below and ``exp(10)`` above its middle, a rate
    between ``exp(-10)`` of its middle and its peak. The unit cost of ``gemm_m_half`` is
    its tokens times the cost of a FLOP, so a given one takes the spread of the rate, too.
    """
    told = by_name(given)
    foreign = sorted(
        {prior.chip for prior in given if prior.chip.casefold() != chip.name.casefold()}
    )
    if foreign:
        raise ValueError(f"priors of {', '.join(foreign)}; allowed: priors of {chip.name}")
    centre, spread, low, high = [], [], [], []
    for name in names:
        entry = definition(name)
        value = told[name].value if name in told else entry.prior
        if entry.kind == "time":
            middle = float(np.log(value))
            usual = float(np.log(entry.prior))
            bottom, top = usual - 14.0, usual + 10.0
        else:
            rate = peak_of(name, resource_of(name), chip)
            middle = -float(np.log(rate * _eff(name, told)))
            usual = -float(np.log(rate * definition_eff(name)))
            bottom = -float(np.log(rate * MOST.get(name, 1.0)))
            if entry.kind == "m_half":
                middle += float(np.log(value))
                usual += float(np.log(entry.prior))
                bottom = usual - 14.0
            top = usual + 10.0
        wide = chip.kind == "cpu" and name.startswith(COLLECTIVES)
        centre.append(middle)
        spread.append(
            _given_spread(name, told)
            if name in told
            else CPU_COLLECTIVE_SPREAD
            if wide
            else entry.prior_spread
        )
        low.append(bottom)
        high.append(top)
    return Priors(np.asarray(centre), np.asarray(spread), np.asarray(low), np.asarray(high))


def _eff_name(name: str) -> str:
    if definition(name).kind == "m_half":
        return f"gemm_eff_{name.rpartition('_')[2]}"
    return name


def _eff(name: str, told: Mapping[str, GivenPrior]) -> float:
    """Return the share of the peak that is expected behind a rate or an envelope."""
    rate = _eff_name(name)
    return told[rate].value if rate in told else definition_eff(name)


def _given_spread(name: str, told: Mapping[str, GivenPrior]) -> float:
    rate = _eff_name(name)
    if rate == name:
        return told[name].spread
    behind = told[rate].spread if rate in told else definition(rate).prior_spread
    return math.hypot(told[name].spread, behind)


TIED: tuple[tuple[str, str], ...] = (("hbm_expert_eff", "hbm_weight_eff"),)
"""Coefficients whose prior follows what was fitted for another: until data tell, experts'
weights are read as other weights are."""


def tied_priors(
    priors: Priors,
    names: Sequence[str],
    log_cost: Floats,
    given: Sequence[GivenPrior] = (),
) -> Priors:
    """Move the priors that follow another coefficient to where that one was fitted.

    Parameters
    ----------
    priors : Priors
        Priors of the unit costs.
    names : sequence of str
        Coefficients, in column order.
    log_cost : ndarray, shape (n_coefficients,)
        ln of the unit costs of a first fit [ln s].
    given : sequence of GivenPrior
        Priors that were stated; they stay where they are.

    Returns
    -------
    Priors
        The same but for the centres of ``TIED``.
    """
    centre = priors.centre.copy()
    stated = {prior.name for prior in given}
    for follower, leader in TIED:
        if follower in names and leader in names and follower not in stated:
            place = list(names).index(follower)
            moved = log_cost[list(names).index(leader)]
            centre[place] = np.clip(moved, priors.low[place], priors.high[place])
    return Priors(centre, priors.spread, priors.low, priors.high)


def definition_eff(name: str) -> float:
    """Return the prior efficiency behind a rate or an envelope.

    Parameters
    ----------
    name : str
        An efficiency, or ``gemm_m_half`` of a data type.

    Returns
    -------
    float
        Prior share of the peak [1].
    """
    return definition(_eff_name(name)).prior


def to_values(names: Sequence[str], unit_costs_s: Floats, chip: Chip) -> dict[str, float]:
    """Turn unit costs into coefficients in their own units.

    Parameters
    ----------
    names : sequence of str
        Coefficients, in column order.
    unit_costs_s : ndarray, shape (n_coefficients,)
        Seconds per unit of work [s].
    chip : Chip
        The GPU type.

    Returns
    -------
    dict of str to float
        Efficiencies [1], ``m_half`` [tokens] and times [s].
    """
    cost = dict(zip(names, (float(c) for c in unit_costs_s), strict=True))
    values = {}
    for name in names:
        kind = definition(name).kind
        if kind == "time":
            values[name] = cost[name]
        elif kind == "m_half":
            values[name] = cost[name] / cost[f"gemm_eff_{name.rpartition('_')[2]}"]
        else:
            values[name] = 1.0 / (cost[name] * peak_of(name, resource_of(name), chip))
    return values
