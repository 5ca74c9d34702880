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
    """Times of many batches.

    Attributes
    ----------
    overlap_s, no_overlap_s : ndarray, shape (n_steps,)
        Device time under each bound [s].
    launch_s : ndarray, shape (n_steps,)
        Host time that runs ahead of the device [s].
    host_s : ndarray, shape (n_steps,)
        Host time that the device waits for [s].
    per_resource_s : tuple of (Resource, ndarray)
        Time by resource, all of the host's included [s].
    """

    overlap_s: Array
    no_overlap_s: Array
    launch_s: Array
    host_s: Array
    per_resource_s: tuple[tuple[Resource, Array], ...]


BLOCK = 2048
"""Batches that are priced at once, so that what is worked on stays in the cache."""


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
    arrays = {name: np.asarray(values, dtype=np.float64) for name, values in columns.items()}
    forms = [cell.costs for cell in cells]
    pairs = [(index, pair) for index, cell in enumerate(cells) for pair in cell.choices]
    linear = _matrix([*forms, *(form for _, pair in pairs for form in pair)], plan.basis.size)
    where = [plan.stages[cell.stage] for cell in cells]
    resources = tuple(dict.fromkeys(cell.resource for cell in cells))
    places = [4 + resources.index(cell.resource) for cell in cells]
    out = np.zeros((4 + len(resources), arrays["tokens"].size))
    for start in range(0, out.shape[1], BLOCK):
        part = slice(start, start + BLOCK)
        rows = plan.basis.rows({name: values[part] for name, values in arrays.items()})
        times = linear @ rows.T
        for k, (index, _) in enumerate(pairs):
            one = len(forms) + 2 * k
            times[index] += np.maximum(times[one], times[one + 1])
        _joined(out[:, part], times, where, places)
    overlap, summed, launch, host = out[:4]
    return CellTimes(
        np.minimum(overlap, summed, out=overlap),
        summed,
        launch,
        host,
        tuple(zip(resources, out[4:], strict=True)),
    )


def _joined(out: Array, times: Array, where: list[str], places: list[int]) -> None:
    """Add up the times of a block: bounds, host times, then time by resource."""
    overlap, summed, launch, host = out[:4]
    ahead = {LAUNCH_STAGE: launch, HOST_STAGE: host}
    for stage in dict.fromkeys(where):
        largest = None
        for time, place, name in zip(times, places, where, strict=False):
            if name != stage:
                continue
            out[place] += time
            if stage not in ahead:
                summed += time
            largest = time if largest is None else np.maximum(largest, time)
        target = ahead.get(stage, overlap)
        target += largest


def _matrix(forms: list[Costs], size: int) -> Array:
    matrix = np.zeros((len(forms), size))
    for index, costs in enumerate(forms):
        for function, cost in costs:
            matrix[index, function] = cost
    return matrix
