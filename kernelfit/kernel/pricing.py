"""From terms and coefficients to seconds: one plan, priced scalar or vectorised."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kernelfit.kernel.basis import Array, Basis
from kernelfit.kernel.batch import TOTAL_FIELDS, Batch, BatchTotals
from kernelfit.kernel.chip import Chip
from kernelfit.kernel.costs import unit_cost_s
from kernelfit.kernel.errors import InvalidArgument
from kernelfit.kernel.estimate import StepEstimate
from kernelfit.kernel.laws import Term, basis_of, build_terms
from kernelfit.kernel.model import Model
from kernelfit.kernel.pool import Pool
from kernelfit.kernel.resolution import resolve
from kernelfit.kernel.resolved import Resolution
from kernelfit.kernel.resources import Resource


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything of a deployment that does not depend on the batch or on coefficients.

    Attributes
    ----------
    model : Model
        The model.
    chip : Chip
        The GPU type.
    pool : Pool
        The pool as stated.
    engine_version : str
        The engine's version.
    resolution : Resolution
        What will run.
    basis : Basis
        The functions of a batch.
    terms : tuple of Term
        The terms of the step time.
    """

    model: Model
    chip: Chip
    pool: Pool
    engine_version: str
    resolution: Resolution
    basis: Basis
    terms: tuple[Term, ...]

    @staticmethod
    def of(model: Model, chip: Chip, pool: Pool, engine_version: str) -> Plan:
        """Resolve a pool and lay out its terms.

        Parameters
        ----------
        model : Model
            The model.
        chip : Chip
            The GPU type.
        pool : Pool
            The pool as stated.
        engine_version : str
            The engine's version.

        Returns
        -------
        Plan
            The plan.

        Raises
        ------
        Refusal
            When the pool cannot be priced truthfully.
        InvalidArgument
            When a width does not divide the model.
        """
        resolution = resolve(pool, model, chip, engine_version)
        basis = basis_of(model, resolution)
        terms = build_terms(model, resolution, basis, chip.kind)
        return Plan(model, chip, pool, engine_version, resolution, basis, terms)

    @property
    def coefficients(self) -> tuple[str, ...]:
        """Names of the coefficients that the terms use, in order of first use."""
        return tuple(dict.fromkeys(term.coefficient for term in self.terms))

    @property
    def stages(self) -> tuple[str, ...]:
        """Names of the stages, in order."""
        return tuple(dict.fromkeys(term.stage for term in self.terms))


@dataclass(frozen=True, slots=True)
class Cell:
    """The time of one resource in one stage, linear in the basis.

    Attributes
    ----------
    stage : int
        Index of the stage.
    resource : Resource
        The resource.
    costs : tuple of (int, float)
        ``(function, seconds per unit of it)``.
    """

    stage: int
    resource: Resource
    costs: tuple[tuple[int, float], ...]


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
        When a coefficient that the plan needs is missing.
    """
    missing = [name for name in plan.coefficients if name not in values]
    if missing:
        raise InvalidArgument(
            "coefficients", ", ".join(missing) + " missing", "a value for each coefficient used"
        )
    given = dict(values)
    stages = plan.stages
    gathered: dict[tuple[int, Resource], dict[int, float]] = {}
    for term in plan.terms:
        cell = gathered.setdefault((stages.index(term.stage), term.resource), {})
        cost_s = term.amount * unit_cost_s(term.coefficient, given, plan.chip)
        cell[term.function] = cell.get(term.function, 0.0) + cost_s
    return tuple(
        Cell(stage, resource, tuple(costs.items())) for (stage, resource), costs in gathered.items()
    )


@dataclass(frozen=True, slots=True)
class CellTimes:
    """Times of every cell for one batch or many.

    Attributes
    ----------
    overlap_s, no_overlap_s : float or ndarray, shape (n_steps,)
        Device time under each bound [s].
    host_s : float or ndarray, shape (n_steps,)
        Host time [s].
    per_resource_s : tuple of (Resource, float or ndarray)
        Time by resource, the host's included [s].
    """

    overlap_s: float | Array
    no_overlap_s: float | Array
    host_s: float | Array
    per_resource_s: tuple[tuple[Resource, float | Array], ...]


def check_batch(plan: Plan, batch: Batch) -> None:
    """Refuse a batch that the pool's engine would never run.

    Parameters
    ----------
    plan : Plan
        The plan.
    batch : Batch
        The batch.

    Raises
    ------
    InvalidArgument
        When it exceeds ``max_num_seqs`` or ``max_num_batched_tokens``, or when a
        request is longer than ``max_model_len`` where that is stated.
    """
    limits = plan.resolution
    if len(batch.requests) > limits.max_num_seqs:
        raise InvalidArgument(
            "requests", len(batch.requests), f"at most max_num_seqs = {limits.max_num_seqs}"
        )
    tokens = batch.tokens()
    if tokens > limits.max_num_batched_tokens:
        raise InvalidArgument(
            "tokens",
            tokens,
            f"at most max_num_batched_tokens = {limits.max_num_batched_tokens}",
        )
    longest = plan.pool.max_model_len
    if longest is not None:
        for request in batch.requests:
            if request.computed + request.scheduled > longest:
                raise InvalidArgument(
                    "computed + scheduled",
                    request.computed + request.scheduled,
                    f"at most max_model_len = {longest}",
                )
    if batch.sm_budget > plan.chip.sm_count:
        raise InvalidArgument(
            "sm_budget", batch.sm_budget, f"0 to {plan.chip.sm_count} SMs of {plan.chip.name}"
        )


def check_totals(plan: Plan, totals: BatchTotals) -> None:
    """Refuse totals that no batch of the pool has.

    Parameters
    ----------
    plan : Plan
        The plan.
    totals : BatchTotals
        The totals.

    Raises
    ------
    InvalidArgument
        When a total is negative, when there is no request or a request without a token,
        or when the pool's limits are exceeded.
    """
    limits = plan.resolution
    for name in TOTAL_FIELDS:
        if getattr(totals, name) < 0:
            raise InvalidArgument(name, getattr(totals, name), ">= 0")
    if not 1 <= totals.requests <= limits.max_num_seqs:
        raise InvalidArgument(
            "requests", totals.requests, f"1 to max_num_seqs = {limits.max_num_seqs}"
        )
    if not totals.requests <= totals.tokens <= limits.max_num_batched_tokens:
        raise InvalidArgument(
            "tokens",
            totals.tokens,
            "at least one per request, at most max_num_batched_tokens = "
            f"{limits.max_num_batched_tokens}",
        )
    if totals.decode_requests > totals.requests:
        raise InvalidArgument(
            "decode_requests", totals.decode_requests, f"at most {totals.requests} requests"
        )


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
    host = 0.0
    by_resource: dict[Resource, float] = {}
    for cell in cells:
        time = 0.0
        for function, cost in cell.costs:
            time += cost * row[function]
        if cell.resource is Resource.SM:
            time *= slowdown
        by_resource[cell.resource] = by_resource.get(cell.resource, 0.0) + time
        if cell.resource is Resource.HOST:
            host += time
        else:
            summed += time
            if time > largest[cell.stage]:
                largest[cell.stage] = time
    overlap = 0.0
    for time in largest:
        overlap += time
    # Rounding may put the sum of maxima an ulp above the sum of everything.
    return CellTimes(min(overlap, summed), summed, host, tuple(by_resource.items()))


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
        One column per field of ``BatchTotals``.

    Returns
    -------
    CellTimes
        Arrays of shape (n_steps,) [s].
    """
    rows = plan.basis.rows(columns)
    matrix = np.zeros((plan.basis.size, len(cells)))
    for index, cell in enumerate(cells):
        for function, cost in cell.costs:
            matrix[function, index] = cost
    times = rows @ matrix
    largest = np.zeros((len(plan.stages), rows.shape[0]))
    summed = np.zeros(rows.shape[0])
    host = np.zeros(rows.shape[0])
    by_resource: dict[Resource, Array] = {}
    for index, cell in enumerate(cells):
        time = times[:, index]
        by_resource[cell.resource] = by_resource.get(cell.resource, 0.0) + time
        if cell.resource is Resource.HOST:
            host += time
        else:
            summed += time
            np.maximum(largest[cell.stage], time, out=largest[cell.stage])
    overlap = np.minimum(largest.sum(axis=0), summed)
    return CellTimes(overlap, summed, host, tuple(by_resource.items()))


def with_host(device_s: float | Array, host_s: float | Array, hidden: bool) -> float | Array:
    """Add host time to device time.

    Parameters
    ----------
    device_s : float or ndarray [s]
        Device time.
    host_s : float or ndarray [s]
        Host time of the same steps.
    hidden : bool
        Whether host work of the next step runs behind the device (asynchronous
        scheduling).

    Returns
    -------
    float or ndarray
        ``device + host``, or the larger of the two where it hides [s].
    """
    if hidden:
        return np.maximum(device_s, host_s)
    return device_s + host_s


def estimate(plan: Plan, times: CellTimes) -> StepEstimate:
    """Turn the cell times of one batch into its two bounds.

    Parameters
    ----------
    plan : Plan
        The plan.
    times : CellTimes
        Floats from ``price`` [s].

    Returns
    -------
    StepEstimate
        Under ``overlap``, host time hides where the resolution lets it; under
        ``no_overlap`` it is always added.
    """
    host = float(times.host_s)
    overlap = float(times.overlap_s)
    no_overlap = float(times.no_overlap_s)
    hidden = plan.resolution.async_scheduling
    per_resource = tuple((resource, float(time)) for resource, time in times.per_resource_s)
    # Host time that hides behind the device is nobody's bottleneck.
    judged = [
        pair
        for pair in per_resource
        if not (hidden and host <= no_overlap and pair[0] is Resource.HOST)
    ]
    bottleneck = max(judged, key=lambda pair: pair[1])[0]
    return StepEstimate(
        overlap_s=max(overlap, host) if hidden else overlap + host,
        no_overlap_s=no_overlap + host,
        bottleneck=bottleneck,
        per_resource_s=per_resource,
    )
