"""The steps of one run as a block of the design: basis functions, and work per function.

A step's time is a product of three things: the functions of its batch, the work that a
unit of each function asks of each coefficient, and the unit costs. The first is one
matrix per run, the second one small matrix per resource and stage, so that pricing all
steps of a run is a matrix product and its derivative another.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from kernelfit.fit.steps import Bools, Floats


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """Work with two forms, of which the longer counts.

    Attributes
    ----------
    columns : ndarray of int, shape (n_used,)
        Coefficients that either form uses.
    one, other : ndarray, shape (n_functions, n_used)
        Work of each form by those coefficients.
    """

    columns: npt.NDArray[np.int64]
    one: Floats
    other: Floats

    @staticmethod
    def of(one: Floats, other: Floats) -> Choice:
        """Keep the coefficients that are used.

        Parameters
        ----------
        one, other : ndarray, shape (n_functions, n_coefficients)
            Work of each form.

        Returns
        -------
        Choice
            The two forms.
        """
        columns = np.flatnonzero((one != 0.0).any(axis=0) | (other != 0.0).any(axis=0))
        return Choice(columns, one[:, columns], other[:, columns])

    def slope_s(self, rows: Floats, cost: Floats) -> Floats:
        """Return the time of the longer form by coefficient.

        Parameters
        ----------
        rows : ndarray, shape (n_rows, n_functions)
            Basis functions.
        cost : ndarray, shape (n_coefficients,)
            Unit costs [s].

        Returns
        -------
        ndarray, shape (n_rows, n_used)
            Times [s].
        """
        used = cost[self.columns]
        longer = (rows @ (self.one @ used)) >= (rows @ (self.other @ used))
        return np.where(longer[:, None], rows @ (self.one * used), rows @ (self.other * used))


@dataclass(frozen=True, slots=True, eq=False)
class Cell:
    """Work of one resource in one stage.

    Attributes
    ----------
    stage : int
        The stage.
    work : ndarray, shape (n_functions, n_coefficients)
        Linear part.
    choices : tuple of Choice
        Works with two forms, of which the longer counts.
    """

    stage: int
    work: Floats
    choices: tuple[Choice, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Rows that are priced by the same terms.

    Attributes
    ----------
    rows : ndarray, shape (n_rows, n_functions)
        Basis functions of each row's batch.
    cells : tuple of Cell
        Work on the device; none where the rows measured the host alone.
    launch, host : ndarray, shape (n_functions, n_coefficients)
        Host work that the rows' durations cover: what runs ahead of the device, and
        what the device waits for.
    """

    rows: Floats
    cells: tuple[Cell, ...]
    launch: Floats
    host: Floats

    @property
    def size(self) -> int:
        """Number of rows."""
        return int(self.rows.shape[0])

    def take(self, keep: Bools) -> Block:
        """Return a block of some of the rows.

        Parameters
        ----------
        keep : ndarray of bool, shape (n_rows,)
            Which rows.

        Returns
        -------
        Block
            The same terms, fewer rows.
        """
        return replace(self, rows=self.rows[keep])

    def summed(self) -> Floats:
        """Return the work of every row with nothing overlapping.

        Returns
        -------
        ndarray, shape (n_rows, n_coefficients)
            Of works with two forms the first is taken.
        """
        total = self.launch + self.host
        for cell in self.cells:
            total = total + cell.work
            for choice in cell.choices:
                total[:, choice.columns] += choice.one
        return self.rows @ total


@dataclass(frozen=True, slots=True, eq=False)
class Priced:
    """A block under unit costs.

    Attributes
    ----------
    predicted_s : ndarray, shape (n_rows,)
        Durations [s].
    slope_s : ndarray, shape (n_rows, n_coefficients)
        Derivatives by ln cost [s].
    by_share_s : ndarray, shape (n_rows,)
        Derivative by the share of overlap [s]; never positive.
    """

    predicted_s: Floats
    slope_s: Floats
    by_share_s: Floats


def price_block(block: Block, cost: Floats, share: float) -> Priced:
    """Price a block's rows.

    Parameters
    ----------
    block : Block
        The block.
    cost : ndarray, shape (n_coefficients,)
        Unit costs [s].
    share : float
        Share of the possible overlap that happens [1].

    Returns
    -------
    Priced
        ``max(device, launch) + host``, with its derivatives.
    """
    rows = block.rows
    work = block.host
    for cell in block.cells:
        work = work + cell.work
    # Linear parts together are one product; only what depends on the row is kept apart.
    slope = rows @ (work * cost)
    host = rows @ (block.host @ cost)
    if not block.cells:
        return Priced(host, slope, np.zeros(block.size))
    chosen = [[choice.slope_s(rows, cost) for choice in cell.choices] for cell in block.cells]
    for cell, parts in zip(block.cells, chosen, strict=True):
        for choice, part in zip(cell.choices, parts, strict=True):
            slope[:, choice.columns] += part
    device = slope.sum(axis=1) - host
    by_share = np.zeros(block.size)
    if share > 0.0:
        overlapped = _overlapped(block, chosen, cost)
        by_share = overlapped.sum(axis=1) - device
        slope *= 1.0 - share
        slope += share * overlapped
        slope += share * (rows @ (block.host * cost))
        device = device + share * by_share
    launch = rows @ (block.launch @ cost)
    ahead = np.flatnonzero(launch > device)
    if ahead.size:
        by_share[ahead] = 0.0
        device[ahead] = launch[ahead]
        slope[ahead] = rows[ahead] @ ((block.launch + block.host) * cost)
    return Priced(device + host, slope, by_share)


def _overlapped(block: Block, chosen: list[list[Floats]], cost: Floats) -> Floats:
    """Return time by coefficient of the largest resource of every stage, added up."""
    rows = block.rows
    out = np.zeros((block.size, cost.size))
    stages = [cell.stage for cell in block.cells]
    for stage in dict.fromkeys(stages):
        members = [i for i, name in enumerate(stages) if name == stage]
        times = [
            sum((part.sum(axis=1) for part in chosen[i]), rows @ (block.cells[i].work @ cost))
            for i in members
        ]
        widest = np.argmax(np.stack(times), axis=0)
        for place, i in enumerate(members):
            mine = np.flatnonzero(widest == place)
            if mine.size == 0:
                continue
            whole = mine.size == block.size
            part = (rows if whole else rows[mine]) @ (block.cells[i].work * cost)
            for choice, more in zip(block.cells[i].choices, chosen[i], strict=True):
                part[:, choice.columns] += more[mine]
            if whole:
                out += part
            else:
                out[mine] += part
    return out
