"""The draws of a calibration, priced at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from kernelfit.kernel.basis import Array
from kernelfit.kernel.handover import Fitted
from kernelfit.kernel.plan import Plan
from kernelfit.kernel.pricing import Costs, cells_of
from kernelfit.kernel.resources import Resource
from kernelfit.kernel.stage import HOST_STAGE, LAUNCH_STAGE


@dataclass(frozen=True, slots=True, eq=False)
class DrawPrices:
    """Cells of every draw as read-only arrays.

    Attributes
    ----------
    stages : tuple of str
        Stage of each cell.
    slowed : tuple of bool
        Whether a cell's work lands on the SMs.
    linear : ndarray, shape (n_draws, n_cells, n_functions)
        Linear costs [s].
    chosen : tuple of (int, ndarray, ndarray)
        Works with two forms: the cell, and the costs of each form, shape
        (n_draws, n_functions) [s].
    shares : ndarray, shape (n_draws,)
        Overlap share of each draw [1].
    added : bool
        Whether host work that runs ahead is added all the same.
    """

    stages: tuple[str, ...]
    slowed: tuple[bool, ...]
    linear: Array
    chosen: tuple[tuple[int, Array, Array], ...]
    shares: Array
    added: bool

    @staticmethod
    def of(plan: Plan, fitted: Fitted) -> DrawPrices | None:
        """Price every draw.

        Parameters
        ----------
        plan : Plan
            The plan.
        fitted : Fitted
            What the calibration handed over.

        Returns
        -------
        DrawPrices or None
            None where there is no draw.
        """
        if not fitted.draws:
            return None
        priced = [cells_of(plan, draw_values(fitted, i)) for i in range(len(fitted.draws))]
        first = priced[0]
        size = plan.basis.size
        linear = np.stack([_dense([cell.costs for cell in cells], size) for cells in priced])
        chosen = tuple(
            (
                index,
                np.stack([_dense([c[index].choices[k][0]], size)[0] for c in priced]),
                np.stack([_dense([c[index].choices[k][1]], size)[0] for c in priced]),
            )
            for index, cell in enumerate(first)
            for k in range(len(cell.choices))
        )
        count = len(fitted.draws)
        shares = np.asarray(fitted.draw_shares or (fitted.overlap_share,) * count)
        return DrawPrices(
            tuple(plan.stages[cell.stage] for cell in first),
            tuple(cell.resource is Resource.SM for cell in first),
            linear,
            chosen,
            shares,
            fitted.host_rule == "added",
        )

    def __post_init__(self) -> None:
        """Make the arrays read-only."""
        forms = [form for _, one, other in self.chosen for form in (one, other)]
        for array in (self.linear, self.shares, *forms):
            array.setflags(write=False)

    def __setstate__(self, state: Sequence[Any]) -> None:
        """Restore a copy; copied arrays can be written to until they are told otherwise."""
        for entry, value in zip(fields(self), state, strict=True):
            object.__setattr__(self, entry.name, value)
        self.__post_init__()

    def mean_s(self, row: tuple[float, ...], slowdown: float) -> Array:
        """Price one batch with every draw.

        Parameters
        ----------
        row : tuple of float
            The batch's basis functions.
        slowdown : float
            What a budget of SMs stretches their work by [1].

        Returns
        -------
        ndarray, shape (n_draws,)
            Step time of each draw [s].
        """
        functions = np.asarray(row)
        times = self.linear @ functions
        for index, one, other in self.chosen:
            times[:, index] += np.maximum(one @ functions, other @ functions)
        if slowdown != 1.0:
            times[:, list(self.slowed)] *= slowdown
        launch = host = summed = overlap = np.zeros(times.shape[0])
        for stage in dict.fromkeys(self.stages):
            cells = times[:, [i for i, name in enumerate(self.stages) if name == stage]]
            if stage == LAUNCH_STAGE:
                launch = cells.sum(axis=1)
            elif stage == HOST_STAGE:
                host = cells.sum(axis=1)
            else:
                summed = summed + cells.sum(axis=1)
                overlap = overlap + cells.max(axis=1)
        device = summed - self.shares * (summed - overlap)
        joined = device + launch if self.added else np.maximum(device, launch)
        return np.asarray(joined + host)


def draw_values(fitted: Fitted, index: int) -> Mapping[str, float]:
    """Return the values of every coefficient in one draw.

    Parameters
    ----------
    fitted : Fitted
        What the calibration handed over.
    index : int
        Number of the draw.

    Returns
    -------
    mapping of str to float
        Values in their own units; those that the draws do not hold keep the fitted one.
    """
    values = fitted.values()
    values.update(zip(fitted.draw_names, fitted.draws[index], strict=True))
    return values


def _dense(forms: list[Costs], size: int) -> Array:
    out = np.zeros((len(forms), size))
    for index, costs in enumerate(forms):
        for function, cost in costs:
            out[index, function] = cost
    return out
