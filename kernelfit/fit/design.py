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

from kernelfit.fit.steps import Floats, RunSteps
from kernelfit.kernel.laws import SCHEDULE_COEFFICIENTS
from kernelfit.kernel.resources import Resource
from kernelfit.kernel.stage import HOST_STAGE, LAUNCH_STAGE

DEVICE: tuple[Resource, ...] = (Resource.SM, Resource.HBM, Resource.NVLINK, Resource.NIC)


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """Work with two forms, of which the longer counts.

    Attributes
    ----------
    stage, resource : int
        The cell that it belongs to.
    one, other : ndarray, shape (n_steps, n_coefficients)
        Work of each form.
    """

    stage: int
    resource: int
    one: Floats
    other: Floats


@dataclass(frozen=True, slots=True, eq=False)
class Design:
    """Work of every observation, by cell and coefficient.

    Attributes
    ----------
    names : tuple of str
        Coefficients, in column order.
    device : ndarray, shape (n_stages, n_resources, n_steps, n_coefficients)
        Work on the device of the first ``n_steps`` rows; the rows after them measured
        the host alone. Without the choices.
    device_sum : ndarray, shape (n_steps, n_coefficients)
        The same, stages and resources together.
    choices : tuple of Choice
        Collectives.
    launch : ndarray, shape (n_rows, n_coefficients)
        Host work that the row's duration covers and that runs ahead of the device.
    host : ndarray, shape (n_rows, n_coefficients)
        Host work that the row's duration covers and that the device waits for.
    measured_s : ndarray, shape (n_rows,)
        Measured durations [s].
    block : ndarray of int, shape (n_rows,)
        Number of the row's time block, for resampling.
    run : ndarray of int, shape (n_rows,)
        Number of the row's run.
    origin : ndarray of int, shape (n_rows,)
        Index of the row's step in the order of the runs; host rows repeat it.
    """

    names: tuple[str, ...]
    device: Floats
    device_sum: Floats
    choices: tuple[Choice, ...]
    launch: Floats
    host: Floats
    measured_s: Floats
    block: npt.NDArray[np.int64]
    run: npt.NDArray[np.int64]
    origin: npt.NDArray[np.int64]

    @property
    def summed(self) -> Floats:
        """Work with nothing overlapping; shape (n_rows, n_coefficients).

        Of collectives the form with floor and transition is taken.
        """
        total = self.host + self.launch
        total[: self.steps] += self.device_sum
        for choice in self.choices:
            total[: self.steps] += choice.one
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
        steps = rows[: self.steps]
        return Design(
            names=self.names,
            device=self.device[:, :, steps],
            device_sum=self.device_sum[steps],
            choices=tuple(
                Choice(c.stage, c.resource, c.one[steps], c.other[steps]) for c in self.choices
            ),
            launch=self.launch[rows],
            host=self.host[rows],
            measured_s=self.measured_s[rows],
            block=self.block[rows],
            run=self.run[rows],
            origin=self.origin[rows],
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


@dataclass(frozen=True, slots=True, eq=False)
class _Work:
    """Work of one run's steps; choices by stage, resource and group."""

    device: Floats
    choices: dict[tuple[int, int, str], tuple[Floats, Floats]]
    launch: Floats
    host: Floats


def _run_work(run: RunSteps, names: Sequence[str]) -> _Work:
    rows = run.plan.basis.rows(run.totals)
    stages = [stage for stage in run.plan.stages if stage not in (LAUNCH_STAGE, HOST_STAGE)]
    shape = (rows.shape[0], len(names))
    device = np.zeros((len(stages), len(DEVICE), *shape))
    on_host = {LAUNCH_STAGE: np.zeros(shape), HOST_STAGE: np.zeros(shape)}
    choices: dict[tuple[int, int, str], tuple[Floats, Floats]] = {}
    column = {name: index for index, name in enumerate(names)}
    for term in run.plan.terms:
        work = term.amount * rows[:, term.function]
        if term.stage in on_host:
            target = on_host[term.stage]
        else:
            cell = (stages.index(term.stage), DEVICE.index(term.resource))
            target = device[cell]
            if term.group:
                key = (*cell, term.group)
                target = choices.setdefault(key, (np.zeros(shape), np.zeros(shape)))[term.form]
        target[:, column[term.coefficient]] += work
    return _Work(device, choices, on_host[LAUNCH_STAGE], on_host[HOST_STAGE])


@dataclass(frozen=True, slots=True, eq=False)
class _Rows:
    launch: Floats
    host: Floats
    measured_s: Floats
    block: npt.NDArray[np.int64]
    run: int
    origin: npt.NDArray[np.int64]


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
    works: list[_Work] = []
    step_rows: list[_Rows] = []
    host_rows: list[_Rows] = []
    first_block = first_step = 0
    for number, run in enumerate(runs):
        work = _run_work(run, names)
        works.append(work)
        launch, host = work.launch, work.host
        if host_rule == "added":
            launch, host = np.zeros_like(launch), launch + host
        block = first_block + np.arange(run.size) // block_steps
        origin = first_step + np.arange(run.size)
        outside = np.where(schedule, launch + host, 0.0)
        if run.timing == "device":
            launch, host = np.where(schedule, 0.0, launch), np.where(schedule, 0.0, host)
        step_rows.append(_Rows(launch, host, run.duration_s, block, number, origin))
        known = np.isfinite(run.host_s) & (run.host_s > 0.0)
        if run.timing == "device" and known.any():
            waited = outside[known]
            host_rows.append(
                _Rows(
                    np.zeros_like(waited),
                    waited,
                    run.host_s[known],
                    block[known],
                    number,
                    origin[known],
                )
            )
        first_block = int(block[-1]) + 1 if run.size else first_block
        first_step += run.size
    rows = step_rows + host_rows
    device = _stacked(works)
    return Design(
        names=tuple(names),
        device=device,
        device_sum=device.sum(axis=(0, 1)),
        choices=_choices(works),
        launch=np.concatenate([r.launch for r in rows]),
        host=np.concatenate([r.host for r in rows]),
        measured_s=np.concatenate([r.measured_s for r in rows]),
        block=np.concatenate([r.block for r in rows]),
        run=np.concatenate([np.full(r.block.size, r.run) for r in rows]),
        origin=np.concatenate([r.origin for r in rows]),
    )


def _stacked(works: Sequence[_Work]) -> Floats:
    widest = max((work.device.shape[0] for work in works), default=0)
    padded = [
        np.pad(w.device, ((0, widest - w.device.shape[0]), (0, 0), (0, 0), (0, 0))) for w in works
    ]
    return np.concatenate(padded, axis=2)


def _choices(works: Sequence[_Work]) -> tuple[Choice, ...]:
    """Choices of all runs; a run without one has no work in either of its forms."""
    keys = dict.fromkeys(key for work in works for key in work.choices)
    return tuple(
        Choice(
            key[0],
            key[1],
            *(
                np.concatenate(
                    [
                        work.choices[key][form]
                        if key in work.choices
                        else np.zeros_like(work.launch)
                        for work in works
                    ]
                )
                for form in (0, 1)
            ),
        )
        for key in keys
    )
