"""From terms and coefficients to seconds: one plan, priced scalar or vectorised."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kernelfit.kernel.basis import Array
from kernelfit.kernel.costs import unit_cost_s
from kernelfit.kernel.errors import InvalidArgument
from kernelfit.kernel.plan import Plan
from kernelfit.kernel.resources import Resource
from kernelfit.kernel.stage import HOST_STAGE, LAUNCH_STAGE
from kernelfit.kernel.totals import BatchTotals

Costs = tuple[tuple[int, float], ...]
"""``(function, seconds per unit of it)`` of a linear form."""


@dataclass(frozen=True, slots=True)
class Cell:
    """The time of one resource in one stage.

    Attributes
    ----------
    stage : int
        Index of the stage.
    resource : Resource
        The resource.
    costs : tuple of (int, float)
        Its linear part: ``(function, seconds per unit of it)``.
    choices : tuple of (costs, costs)
        Works with two forms, of which the longer counts.
    """

    stage: int
    resource: Resource
    costs: Costs
    choices: tuple[tuple[Costs, Costs], ...] = ()


def cells_of(plan: Plan, values: Mapping[str, float]) -> tuple[Cell, ...]:
    """Price a plan's terms and gather them by stage and resource.

    Parameters
    ----------
    plan : Plan
        The plan.
    values : mapping of str to float
        Value of every coefficient in its own unit.

    Returns
    -------
    tuple of Cell
        Device cells first, the host's last.

    Raises
    ------
    InvalidArgument
        When a coefficient that the plan needs is missing, a collective's with the width
        that needs it.
    """
    missing = [name for name in plan.coefficients if name not in values]
    if missing:
        width = plan.resolution.tensor_parallel_width
        raise InvalidArgument(
            "coefficients",
            ", ".join(missing) + " missing",
            "a value for each coefficient that this deployment uses "
            f"(tensor-parallel width {width}); a calibration knows those of the widths, "
            "models and graph modes it was fitted on",
        )
    given = dict(values)
    gathered: dict[tuple[int, Resource], dict[tuple[str, int], dict[int, float]]] = {}
    for term in plan.terms:
        cell = gathered.setdefault((plan.stages.index(term.stage), term.resource), {})
        form = cell.setdefault((term.group, term.form), {})
        cost_s = term.amount * unit_cost_s(term.coefficient, given, plan.chip)
        form[term.function] = form.get(term.function, 0.0) + cost_s
    return tuple(
        Cell(
            stage,
            resource,
            tuple(forms.get(("", 0), {}).items()),
            tuple(
                (tuple(costs.items()), tuple(forms[group, 1].items()))
                for (group, form), costs in forms.items()
                if group and form == 0
            ),
        )
        for (stage, resource), forms in gathered.items()
    )


@dataclass(frozen=True, slots=True)
class CellTimes:
    """Times of every cell for one batch or many.

    Attributes
    ----------
    overlap_s, no_overlap_s : float or ndarray, shape (n_steps,)
        Device time under each bound [s].
    launch_s : float or ndarray, shape (n_steps,)
        Host time that runs ahead of the device [s].
    host_s : float or ndarray, shape (n_steps,)
        Host time that the device waits for [s].
    per_resource_s : tuple of (Resource, float or ndarray)
        Time by resource, all of the host's included [s].
    """

    overlap_s: float | Array
    no_overlap_s: float | Array
    launch_s: float | Array
    host_s: float | Array
    per_resource_s: tuple[tuple[Resource, float | Array], ...]


def price(
    plan: Plan, cells: tuple[Cell, ...], totals: BatchTotals, sm_budget: int = 0
) -> CellTimes:
    """Price one batch.

    Parameters
    ----------
    plan : Plan
        The plan.
    cells : tuple of Cell
        Its priced cells.
    totals : BatchTotals
        The batch's totals.
    sm_budget : int
        SMs that the step may use; 0 means all of them.

    Returns
    -------
    CellTimes
        Floats [s].
    """
    row = plan.basis.row(totals)
    slowdown = plan.chip.sm_count / sm_budget if sm_budget else 1.0
    largest = [0.0] * len(plan.stages)
    summed = 0.0
    by_resource: dict[Resource, float] = {}
    for cell in cells:
        time = 0.0
        for function, cost in cell.costs:
            time += cost * row[function]
        for one, other in cell.choices:
            first = second = 0.0
            for function, cost in one:
                first += cost * row[function]
            for function, cost in other:
                second += cost * row[function]
            # Not max(): a call costs more than the comparison, in the innermost loop.
            time += first if first > second else second  # noqa: FURB136
        resource = cell.resource
        if resource is _SM:
            time *= slowdown
        by_resource[resource] = by_resource.get(resource, 0.0) + time
        if resource is not _HOST:
            summed += time
        if time > largest[cell.stage]:
            largest[cell.stage] = time
    launch = host = 0.0
    overlap = 0.0
    for name, time in zip(plan.stages, largest, strict=True):
        if name == LAUNCH_STAGE:
            launch = time
        elif name == HOST_STAGE:
            host = time
        else:
            overlap += time
    # Rounding may put the sum of maxima an ulp above the sum of everything.
    if overlap > summed:
        overlap = summed
    return CellTimes(overlap, summed, launch, host, tuple(by_resource.items()))


_SM, _HOST = Resource.SM, Resource.HOST


def _matrix(size: int, forms: list[Costs]) -> Array:
    matrix = np.zeros((size, len(forms)))
    for index, costs in enumerate(forms):
        for function, cost in costs:
            matrix[function, index] = cost
    return matrix


def price_many(
    plan: Plan, cells: tuple[Cell, ...], columns: Mapping[str, npt.ArrayLike]
) -> CellTimes:
    """Price many batches.

    Parameters
    ----------
    plan : Plan
        The plan.
    cells : tuple of Cell
        Its priced cells.
    columns : mapping of str to array_like, shape (n_steps,)
        One column per field of ``BatchTotals``, and per total of each sliding window.

    Returns
    -------
    CellTimes
        Arrays of shape (n_steps,) [s].
    """
    rows = plan.basis.rows(columns)
    times = (rows @ _matrix(plan.basis.size, [cell.costs for cell in cells])).T
    for index, cell in enumerate(cells):
        for one, other in cell.choices:
            forms = rows @ _matrix(plan.basis.size, [one, other])
            times[index] += forms.max(axis=1)
    count = rows.shape[0]
    largest = np.zeros((len(plan.stages), count))
    summed = np.zeros(count)
    by_resource: dict[Resource, Array] = {}
    for cell, time in zip(cells, times, strict=True):
        known = by_resource.get(cell.resource)
        by_resource[cell.resource] = time if known is None else known + time
        if cell.resource is not _HOST:
            summed += time
        np.maximum(largest[cell.stage], time, out=largest[cell.stage])
    overlap, launch, host = np.zeros(count), np.zeros(count), np.zeros(count)
    for name, time in zip(plan.stages, largest, strict=True):
        target = {LAUNCH_STAGE: launch, HOST_STAGE: host}.get(name, overlap)
        target += time
    overlap = np.minimum(overlap, summed)
    return CellTimes(overlap, summed, launch, host, tuple(by_resource.items()))
