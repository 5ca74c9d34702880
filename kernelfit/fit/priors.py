"""Priors and bounds of unit costs, and the way from unit costs to coefficients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

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


def build_priors(names: Sequence[str], chip: Chip) -> Priors:
    """Return the priors of unit costs for a GPU type.

    Parameters
    ----------
    names : sequence of str
        Coefficients.
    chip : Chip
        The GPU type.

    Returns
    -------
    Priors
        From ``kernelfit.kernel.catalog``.
    """
    centre, spread, low, high = [], [], [], []
    for name in names:
        entry = definition(name)
        if entry.kind == "time":
            middle = float(np.log(entry.prior))
            bottom = middle - 14.0
        else:
            peak = peak_of(name, resource_of(name), chip)
            middle = -float(np.log(peak * definition_eff(name)))
            bottom = -float(np.log(peak * MOST.get(name, 1.0)))
            if entry.kind == "m_half":
                middle += float(np.log(entry.prior))
                bottom = middle - 14.0
        wide = chip.kind == "cpu" and name.startswith(COLLECTIVES)
        centre.append(middle)
        spread.append(CPU_COLLECTIVE_SPREAD if wide else entry.prior_spread)
        low.append(bottom)
        high.append(middle + 10.0)
    return Priors(np.asarray(centre), np.asarray(spread), np.asarray(low), np.asarray(high))


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
    entry = definition(name)
    if entry.kind == "m_half":
        return definition(f"gemm_eff_{name.rpartition('_')[2]}").prior
    return entry.prior


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
