"""Where the time of one step goes: by stage, resource, operation and coefficient."""

from __future__ import annotations

from dataclasses import dataclass

from kernelfit.kernel.batch import Batch
from kernelfit.kernel.costs import unit_cost_s
from kernelfit.kernel.limits import check_batch
from kernelfit.kernel.plan import Plan
from kernelfit.kernel.resources import Resource
from kernelfit.kernel.stage import Term
from kernelfit.kernel.totals import BatchTotals


@dataclass(frozen=True, slots=True)
class Part:
    """The time of one product of work and unit cost, all layers of its stage together.

    Attributes
    ----------
    stage : str
        Layer kind, head, launches or host.
    resource : Resource
        What it lands on.
    operator : str
        The operation within the stage; empty for host work.
    coefficient : str
        The coefficient that prices it.
    time_s : float
        Its time [s].
    """

    stage: str
    resource: Resource
    operator: str
    coefficient: str
    time_s: float


def step_parts(
    plan: Plan, values: dict[str, float], batch: Batch, totals: BatchTotals
) -> tuple[Part, ...]:
    """Return the parts of one step.

    Parameters
    ----------
    plan : Plan
        The deployment.
    values : dict of str to float
        Value of every coefficient in its own unit.
    batch : Batch
        The batch.
    totals : BatchTotals
        Its totals.

    Returns
    -------
    tuple of Part
        In the order of the terms, those without time left out; over a resource they add up
        to its time, over everything to NoOverlap [s].

    Raises
    ------
    InvalidArgument
        When the batch exceeds the pool's limits.

    Notes
    -----
    Of two forms of one work (``max(floor + bytes/transition, bytes/rate)``) only the one
    that takes longer is counted, as in the step time itself.
    """
    check_batch(plan, batch, totals)
    row = plan.basis.row(totals)
    slowdown = plan.chip.sm_count / batch.sm_budget if batch.sm_budget else 1.0
    times = [_time_s(plan, values, term, row, slowdown) for term in plan.terms]
    forms: dict[tuple[str, Resource, str, int], float] = {}
    for term, time_s in zip(plan.terms, times, strict=True):
        if term.group:
            key = (term.stage, term.resource, term.group, term.form)
            forms[key] = forms.get(key, 0.0) + time_s
    gathered: dict[tuple[str, Resource, str, str], float] = {}
    for term, time_s in zip(plan.terms, times, strict=True):
        place = (term.stage, term.resource, term.group)
        if term.group and forms[*place, term.form] < forms.get((*place, 1 - term.form), 0.0):
            continue
        # Of two forms that take as long the first is counted.
        if term.form == 1 and forms[*place, 1] <= forms.get((*place, 0), 0.0):
            continue
        name = (term.stage, term.resource, term.operator, term.coefficient)
        gathered[name] = gathered.get(name, 0.0) + time_s
    return tuple(Part(*name, time_s) for name, time_s in gathered.items() if time_s > 0.0)


def _time_s(
    plan: Plan, values: dict[str, float], term: Term, row: tuple[float, ...], slowdown: float
) -> float:
    time_s = term.amount * unit_cost_s(term.coefficient, values, plan.chip) * row[term.function]
    return time_s * slowdown if term.resource is Resource.SM else time_s
