"""A pool's step times under both bounds, as fitted and under its draws, for many batches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from kernelfit.flips.loads import Floats
from kernelfit.kernel.bounds import added_host, hidden_host
from kernelfit.kernel.fitted import FittedKernel
from kernelfit.kernel.pricing import Costs, price_many
from kernelfit.kernel.stage import HOST_STAGE, LAUNCH_STAGE

DRAWS_USED = 100
"""Draws behind a probability; enough to tell 5 % from 10 %."""


@dataclass(frozen=True, slots=True, eq=False)
class Priced:
    """Step times of some batches.

    Attributes
    ----------
    overlap_s, no_overlap_s, fitted_s : ndarray, shape (n_batches,)
        Under each bound and as fitted [s].
    draws_s : ndarray, shape (n_draws, n_batches)
        As fitted, under each draw [s].
    """

    overlap_s: Floats
    no_overlap_s: Floats
    fitted_s: Floats
    draws_s: Floats

    @property
    def times(self) -> tuple[Floats, Floats, Floats, Floats]:
        """The times in every view [s], the draws last."""
        return self.overlap_s, self.no_overlap_s, self.fitted_s, self.draws_s


@dataclass(frozen=True, slots=True, eq=False)
class Draws:
    """The cells of a kernel under the draws that probabilities are counted over.

    Attributes
    ----------
    linear : ndarray, shape (n_draws, n_cells, n_functions)
        Linear costs of each cell [s].
    chosen : tuple of (int, ndarray, ndarray)
        Works with two forms: the cell, and the costs of each form, shape
        (n_draws, n_functions) [s].
    shares : ndarray, shape (n_draws,)
        Share of overlap [1].
    """

    linear: Floats
    chosen: tuple[tuple[int, Floats, Floats], ...]
    shares: Floats

    @staticmethod
    def of(kernel: FittedKernel, *, fitted: bool = False) -> Draws:
        """Take at most ``DRAWS_USED`` draws, evenly chosen.

        Parameters
        ----------
        kernel : FittedKernel
            The kernel; pools of one calibration get the same draws.
        fitted : bool
            Whether the fitted values stand before the draws.

        Returns
        -------
        Draws
            Their costs; no draws where the kernel has none.
        """
        size = kernel.plan.basis.size
        own = np.stack([_dense(cell.costs, size) for cell in kernel.cells])[None]
        pairs = [
            (index, _dense(one, size)[None], _dense(other, size)[None])
            for index, cell in enumerate(kernel.cells)
            for one, other in cell.choices
        ]
        linear = own if fitted else own[:0]
        chosen = pairs if fitted else [(i, one[:0], other[:0]) for i, one, other in pairs]
        shares = np.full(int(fitted), kernel.fitted.overlap_share)
        priced = kernel.draws
        if priced is not None:
            count = priced.linear.shape[0]
            used = np.unique(np.linspace(0, count - 1, min(count, DRAWS_USED)).astype(int))
            linear = np.concatenate([linear, priced.linear[used]])
            chosen = [
                (i, np.concatenate([one, more[used]]), np.concatenate([other, rest[used]]))
                for (i, one, other), (_, more, rest) in zip(chosen, priced.chosen, strict=True)
            ]
            shares = np.concatenate([shares, priced.shares[used]])
        return Draws(linear, tuple(chosen), shares)

    @property
    def count(self) -> int:
        """Number of draws."""
        return int(self.shares.size)


@dataclass(frozen=True, slots=True, eq=False)
class Pricer:
    """A kernel made ready to price many batches under every view.

    Attributes
    ----------
    kernel : FittedKernel
        The kernel.
    draws : Draws
        Its draws.
    """

    kernel: FittedKernel
    draws: Draws

    @staticmethod
    def of(kernel: FittedKernel) -> Pricer:
        """Make a kernel ready.

        Parameters
        ----------
        kernel : FittedKernel
            The kernel.

        Returns
        -------
        Pricer
            The same numbers as the kernel and its draws give.
        """
        return Pricer(kernel, Draws.of(kernel))

    def price(self, columns: Mapping[str, Floats]) -> Priced:
        """Price batches.

        Parameters
        ----------
        columns : mapping of str to ndarray, shape (n_batches,)
            Totals of the batches, those of sliding windows too.

        Returns
        -------
        Priced
            Their times.
        """
        kernel = self.kernel
        times = price_many(kernel.plan, kernel.cells, columns)
        share = kernel.fitted.overlap_share
        no_overlap = added_host(times.no_overlap_s, times)
        device = times.no_overlap_s - share * (times.no_overlap_s - times.overlap_s)
        join = added_host if kernel.fitted.host_rule == "added" else hidden_host
        rows = kernel.plan.basis.rows(columns)
        return Priced(
            np.minimum(hidden_host(times.overlap_s, times), no_overlap),
            no_overlap,
            join(device, times),
            self._drawn(rows),
        )

    def _drawn(self, rows: Floats) -> Floats:
        """Price batches under every draw, shape (n_draws, n_batches) [s]."""
        draws = self.draws
        if draws.count == 0:
            return np.zeros((0, rows.shape[0]))
        plan = self.kernel.plan
        where = [plan.stages[cell.stage] for cell in self.kernel.cells]
        parts = {
            name: [i for i, other in enumerate(where) if other == name]
            for name in dict.fromkeys(where)
        }
        functions = np.ascontiguousarray(rows.T)
        on_host = [i for name in (LAUNCH_STAGE, HOST_STAGE) for i in parts.get(name, [])]
        device = [i for i in range(len(where)) if i not in on_host]
        # Whatever does not compete within a stage can be added up before it meets a batch.
        summed = draws.linear[:, device].sum(axis=1) @ functions
        extra = {
            index: np.maximum(one @ functions, other @ functions)
            for index, one, other in draws.chosen
        }
        for times in extra.values():
            summed += times
        if draws.shares.any():
            saved = np.zeros_like(summed)
            for name, cells in parts.items():
                if name not in (LAUNCH_STAGE, HOST_STAGE) and len(cells) > 1:
                    saved += self._saved(cells, extra, functions)
            summed -= draws.shares[:, None] * saved
        launch = draws.linear[:, parts.get(LAUNCH_STAGE, [])].sum(axis=1) @ functions
        host = draws.linear[:, parts.get(HOST_STAGE, [])].sum(axis=1) @ functions
        if self.kernel.fitted.host_rule == "added":
            return np.asarray(summed + launch + host)
        return np.asarray(np.maximum(summed, launch) + host)

    def _saved(self, cells: list[int], extra: Mapping[int, Floats], functions: Floats) -> Floats:
        """Return what full overlap within a stage saves under every draw [s]."""
        total = np.zeros((self.draws.count, functions.shape[1]))
        largest = np.zeros_like(total)
        for index in cells:
            times = self.draws.linear[:, index] @ functions
            if index in extra:
                times += extra[index]
            total += times
            np.maximum(largest, times, out=largest)
        return np.asarray(total - largest)


def _dense(costs: Costs, size: int) -> Floats:
    out = np.zeros(size)
    for function, cost in costs:
        out[function] = cost
    return out
