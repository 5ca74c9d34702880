"""The design of a joint fit: the kernel's own terms, evaluated over many steps.

The fit prices steps with the terms that the frozen kernel prices them with; there is no
second implementation. Unknowns are unit costs (seconds per FLOP, per byte, per count):
the step time is linear in them within each resource of each stage, but for collectives,
where the longer of two linear forms counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kernelfit.fit.blocks import Block, Cell, Choice, price_block
from kernelfit.fit.steps import Bools, Floats, RunSteps
from kernelfit.kernel.laws import SCHEDULE_COEFFICIENTS
from kernelfit.kernel.resources import Resource
from kernelfit.kernel.stage import HOST_STAGE, LAUNCH_STAGE, Term

Ints = npt.NDArray[np.int64]

MOST_WEIGHT = 10.0
"""Largest weight of a step of one phase over one of another [1]."""


@dataclass(frozen=True, slots=True, eq=False)
class Design:
    """Every observation, block by block.

    Attributes
    ----------
    names : tuple of str
        Coefficients, in column order.
    blocks : tuple of Block
        One per run, and after them one per run whose host time outside the duration was
        measured by itself.
    measured_s : ndarray, shape (n_rows,)
        Measured durations [s], in the order of the blocks.
    block : ndarray of int, shape (n_rows,)
        Number of the row's time block, for resampling.
    run : ndarray of int, shape (n_rows,)
        Number of the row's run.
    origin : ndarray of int, shape (n_rows,)
        Index of the row's step in the order of the runs; host rows repeat it.
    weight : ndarray, shape (n_rows,)
        Weight of each row, 1 on average over the steps: a phase that is seen rarely is
        not left to the others.
    steps : int
        Number of rows that measured a step; the rest measured the host alone.
    """

    names: tuple[str, ...]
    blocks: tuple[Block, ...]
    measured_s: Floats
    block: Ints
    run: Ints
    origin: Ints
    weight: Floats
    steps: int

    @property
    def summed(self) -> Floats:
        """Work with nothing overlapping; shape (n_rows, n_coefficients)."""
        return np.concatenate([block.summed() for block in self.blocks])

    def take(self, rows: Bools) -> Design:
        """Return a design of some of the rows.

        Parameters
        ----------
        rows : ndarray of bool, shape (n_rows,)
            Which rows to keep.

        Returns
        -------
        Design
            The same columns, fewer rows.
        """
        ends = np.cumsum([block.size for block in self.blocks])
        return Design(
            names=self.names,
            blocks=tuple(
                block.take(rows[end - block.size : end])
                for block, end in zip(self.blocks, ends, strict=True)
            ),
            measured_s=self.measured_s[rows],
            block=self.block[rows],
            run=self.run[rows],
            origin=self.origin[rows],
            weight=self.weight[rows],
            steps=int(np.count_nonzero(rows[: self.steps])),
        )


def predict(design: Design, log_cost: Floats, share: float) -> tuple[Floats, Floats, Floats]:
    """Price every row, with its derivatives.

    Parameters
    ----------
    design : Design
        The design.
    log_cost : ndarray, shape (n_coefficients,)
        ln of the unit costs [ln s].
    share : float
        Share of the possible overlap that happens [1].

    Returns
    -------
    ndarray, shape (n_rows,)
        Predicted durations [s].
    ndarray, shape (n_rows, n_coefficients)
        Derivatives of the prediction by ln cost [s].
    ndarray, shape (n_rows,)
        Derivative of the prediction by the share [s]; never positive.
    """
    cost = np.exp(log_cost)
    priced = [price_block(block, cost, share) for block in design.blocks]
    return (
        np.concatenate([p.predicted_s for p in priced]),
        np.concatenate([p.slope_s for p in priced]),
        np.concatenate([p.by_share_s for p in priced]),
    )


def coefficient_names(runs: Sequence[RunSteps]) -> tuple[str, ...]:
    """Return the coefficients that the runs' deployments use.

    Parameters
    ----------
    runs : sequence of RunSteps
        The runs.

    Returns
    -------
    tuple of str
        Names in order of first use.
    """
    return tuple(dict.fromkeys(name for run in runs for name in run.plan.coefficients))


class _Sheet:
    """Collects the work of a plan's terms per function and coefficient."""

    def __init__(self, run: RunSteps, names: Sequence[str]) -> None:
        self.shape = (run.plan.basis.size, len(names))
        self.column = {name: index for index, name in enumerate(names)}
        self.cells: dict[tuple[int, Resource], dict[tuple[str, int], Floats]] = {}
        self.on_host = {name: np.zeros(self.shape) for name in (LAUNCH_STAGE, HOST_STAGE)}
        for term in run.plan.terms:
            self._target(run, term)[term.function, self.column[term.coefficient]] += term.amount

    def _target(self, run: RunSteps, term: Term) -> Floats:
        if term.stage in self.on_host:
            return self.on_host[term.stage]
        key = (run.plan.stages.index(term.stage), term.resource)
        forms = self.cells.setdefault(key, {})
        return forms.setdefault((term.group, term.form), np.zeros(self.shape))

    def finished(self) -> tuple[Cell, ...]:
        return tuple(
            Cell(
                stage,
                forms.get(("", 0), np.zeros(self.shape)),
                tuple(
                    Choice.of(work, forms[group, 1])
                    for (group, form), work in forms.items()
                    if group and form == 0
                ),
            )
            for (stage, _), forms in self.cells.items()
        )


@dataclass(frozen=True, slots=True, eq=False)
class _Rows:
    block: Block
    measured_s: Floats
    number: Ints
    run: int
    origin: Ints


def build_design(
    runs: Sequence[RunSteps], names: Sequence[str], block_steps: int, host_rule: str = "hidden"
) -> Design:
    """Stack the runs of one GPU type.

    Parameters
    ----------
    runs : sequence of RunSteps
        Gated runs.
    names : sequence of str
        Coefficients, in column order.
    block_steps : int
        Length of a time block [steps].
    host_rule : str
        ``hidden`` where host work that runs ahead hides behind the device, ``added``
        where it is waited for all the same.

    Returns
    -------
    Design
        One row per step, and one more where the host time outside the duration was
        measured by itself.

    Notes
    -----
    ``device`` durations cover the launch terms (the worker's own host work) but not
    scheduling; ``cycle`` and ``step`` durations cover everything.
    """
    schedule = np.asarray([name in SCHEDULE_COEFFICIENTS for name in names])
    step_rows: list[_Rows] = []
    host_rows: list[_Rows] = []
    first_block = first_step = 0
    for number, run in enumerate(runs):
        rows = np.ascontiguousarray(run.plan.basis.rows(run.totals))
        sheet = _Sheet(run, names)
        launch, host = sheet.on_host[LAUNCH_STAGE], sheet.on_host[HOST_STAGE]
        if host_rule == "added":
            launch, host = np.zeros_like(launch), launch + host
        blocks = first_block + np.arange(run.size) // block_steps
        origin = first_step + np.arange(run.size)
        outside = np.where(schedule, launch + host, 0.0)
        if run.timing == "device":
            launch, host = np.where(schedule, 0.0, launch), np.where(schedule, 0.0, host)
        step_rows.append(
            _Rows(
                Block(rows, sheet.finished(), launch, host),
                run.duration_s,
                blocks,
                number,
                origin,
            )
        )
        known = np.isfinite(run.host_s) & (run.host_s > 0.0)
        if run.timing == "device" and known.any():
            alone = Block(rows[known], (), np.zeros_like(launch), outside)
            host_rows.append(_Rows(alone, run.host_s[known], blocks[known], number, origin[known]))
        first_block = int(blocks[-1]) + 1 if run.size else first_block
        first_step += run.size
    stacked = step_rows + host_rows
    return Design(
        names=tuple(names),
        blocks=tuple(r.block for r in stacked),
        measured_s=np.concatenate([r.measured_s for r in stacked]),
        block=np.concatenate([r.number for r in stacked]),
        run=np.concatenate([np.full(r.number.size, r.run) for r in stacked]),
        origin=np.concatenate([r.origin for r in stacked]),
        weight=np.concatenate([phase_weights(runs), *(np.ones(r.number.size) for r in host_rows)]),
        steps=first_step,
    )


def phase_weights(runs: Sequence[RunSteps]) -> Floats:
    """Return weights that keep a rare phase from being left to the others.

    Parameters
    ----------
    runs : sequence of RunSteps
        The runs.

    Returns
    -------
    ndarray, shape (n_steps,)
        Per step of all runs: 1 on average; decode steps against all others in proportion
        to the square root of how often the others are seen, at most ten to one.

    Notes
    -----
    A server decodes fifty times for every prompt that it takes, but a prompt takes as
    long as fifty decodes. Left alone, the few steps with prompts would not be heard; at
    equal weight of the phases, the noise of a few steps would drown the many.
    """
    decode = np.asarray([phase == "decode" for run in runs for phase in run.phase], dtype=bool)
    count = int(np.count_nonzero(decode))
    other = decode.size - count
    if not count or not other:
        return np.ones(decode.size)
    factor = float(np.clip(np.sqrt(count / other), 1.0 / MOST_WEIGHT, MOST_WEIGHT))
    weight = np.where(decode, 1.0, factor)
    return np.asarray(weight / weight.mean())
