"""The design of a joint fit: the kernel's own terms, evaluated over many steps.

The fit prices steps with the terms that the frozen kernel prices them with; there is no
second implementation. Unknowns are unit costs (seconds per FLOP, per byte, per count):
the step time is linear in them within each resource of each stage.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kernelfit.fit.steps import Floats, RunSteps
from kernelfit.kernel.catalog import definition
from kernelfit.kernel.chip import Chip
from kernelfit.kernel.costs import peak_of, resource_of
from kernelfit.kernel.laws import SCHEDULE_COEFFICIENTS
from kernelfit.kernel.resources import Resource

COLLECTIVES: tuple[str, ...] = ("nvlink_eff", "allreduce_floor_s")
CPU_COLLECTIVE_SPREAD = 2.3
"""Spread of the collectives' priors on a CPU, a factor of ten either way [1]: ranks there
reduce through shared memory, of which figures from GPUs say little."""

DEVICE: tuple[Resource, ...] = (Resource.SM, Resource.HBM, Resource.NVLINK)


@dataclass(frozen=True, slots=True, eq=False)
class Design:
    """Work of every observation, by cell and coefficient.

    Attributes
    ----------
    names : tuple of str
        Coefficients, in column order.
    device : ndarray, shape (n_stages, n_resources, n_steps, n_coefficients)
        Work on the device of the first ``n_steps`` rows; the rows after them measured
        the host alone.
    device_sum : ndarray, shape (n_steps, n_coefficients)
        The same, stages and resources together.
    host : ndarray, shape (n_rows, n_coefficients)
        Host work that the row's duration covers.
    measured_s : ndarray, shape (n_rows,)
        Measured durations [s].
    block : ndarray of int, shape (n_rows,)
        Number of the row's time block, for resampling.
    run : ndarray of int, shape (n_rows,)
        Number of the row's run.
    origin : ndarray of int, shape (n_rows,)
        Index of the row's step in the order of the runs; host rows repeat it.
    hidden : ndarray of bool, shape (n_rows,)
        Whether host work hides behind the device.
    """

    names: tuple[str, ...]
    device: Floats
    device_sum: Floats
    host: Floats
    measured_s: Floats
    block: npt.NDArray[np.int64]
    run: npt.NDArray[np.int64]
    origin: npt.NDArray[np.int64]
    hidden: npt.NDArray[np.bool_]

    @property
    def summed(self) -> Floats:
        """Work with nothing overlapping, host included; shape (n_rows, n_coefficients)."""
        total = self.host.copy()
        total[: self.steps] += self.device_sum
        return total

    @property
    def steps(self) -> int:
        """Number of rows that measured a step; the rest measured the host alone."""
        return int(self.device_sum.shape[0])

    def take(self, rows: npt.NDArray[np.bool_]) -> Design:
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
        return Design(
            names=self.names,
            device=self.device[:, :, rows[: self.steps]],
            device_sum=self.device_sum[rows[: self.steps]],
            host=self.host[rows],
            measured_s=self.measured_s[rows],
            block=self.block[rows],
            run=self.run[rows],
            origin=self.origin[rows],
            hidden=self.hidden[rows],
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


def run_work(run: RunSteps, names: Sequence[str]) -> tuple[Floats, Floats]:
    """Return the work of a run's steps by cell and coefficient.

    Parameters
    ----------
    run : RunSteps
        The run.
    names : sequence of str
        Coefficients, in column order.

    Returns
    -------
    ndarray, shape (n_stages, n_resources, n_steps, n_coefficients)
        Device work.
    ndarray, shape (n_steps, n_coefficients)
        Host work, scheduling included.
    """
    rows = run.plan.basis.rows(run.totals)
    stages = [stage for stage in run.plan.stages if stage != "host"]
    device = np.zeros((len(stages), len(DEVICE), rows.shape[0], len(names)))
    host = np.zeros((rows.shape[0], len(names)))
    column = {name: index for index, name in enumerate(names)}
    for term in run.plan.terms:
        work = term.amount * rows[:, term.function]
        if term.resource is Resource.HOST:
            host[:, column[term.coefficient]] += work
        else:
            cell = device[stages.index(term.stage), DEVICE.index(term.resource)]
            cell[:, column[term.coefficient]] += work
    return device, host


@dataclass(frozen=True, slots=True, eq=False)
class _Rows:
    host: Floats
    measured_s: Floats
    block: npt.NDArray[np.int64]
    run: int
    origin: npt.NDArray[np.int64]
    hidden: npt.NDArray[np.bool_]


def build_design(runs: Sequence[RunSteps], names: Sequence[str], block_steps: int) -> Design:
    """Stack the runs of one GPU type.

    Parameters
    ----------
    runs : sequence of RunSteps
        Gated runs.
    names : sequence of str
        Coefficients, in column order.
    block_steps : int
        Length of a time block [steps].

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
    devices: list[Floats] = []
    step_rows: list[_Rows] = []
    host_rows: list[_Rows] = []
    first_block = first_step = 0
    for number, run in enumerate(runs):
        device, host = run_work(run, names)
        block = first_block + np.arange(run.size) // block_steps
        origin = first_step + np.arange(run.size)
        covered = host if run.timing != "device" else np.where(schedule, 0.0, host)
        hidden = np.full(run.size, run.plan.resolution.async_scheduling)
        devices.append(device)
        step_rows.append(_Rows(covered, run.duration_s, block, number, origin, hidden))
        known = np.isfinite(run.host_s) & (run.host_s > 0.0)
        if run.timing == "device" and known.any():
            outside = np.where(schedule, host, 0.0)[known]
            never = np.zeros(outside.shape[0], dtype=bool)
            host_rows.append(
                _Rows(outside, run.host_s[known], block[known], number, origin[known], never)
            )
        first_block = int(block[-1]) + 1 if run.size else first_block
        first_step += run.size
    widest = max((d.shape[0] for d in devices), default=0)
    padded = [np.pad(d, ((0, widest - d.shape[0]), (0, 0), (0, 0), (0, 0))) for d in devices]
    device = np.concatenate(padded, axis=2)
    rows = step_rows + host_rows
    return Design(
        names=tuple(names),
        device=device,
        device_sum=device.sum(axis=(0, 1)),
        host=np.concatenate([r.host for r in rows]),
        measured_s=np.concatenate([r.measured_s for r in rows]),
        block=np.concatenate([r.block for r in rows]),
        run=np.concatenate([np.full(r.block.size, r.run) for r in rows]),
        origin=np.concatenate([r.origin for r in rows]),
        hidden=np.concatenate([r.hidden for r in rows]),
    )


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
            bottom = -float(np.log(peak))
            middle = bottom - float(np.log(definition_eff(name)))
            if entry.kind == "m_half":
                middle += float(np.log(entry.prior))
                bottom = middle - 14.0
        wide = chip.kind == "cpu" and name in COLLECTIVES
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
