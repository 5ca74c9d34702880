"""Inflate one coefficient: exactly the terms that use it move, by exactly that factor."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import pytest

from kernelfit.kernel import Batch, FittedKernel, RequestShape, Resource
from kernelfit.kernel.catalog import definition
from kernelfit.kernel.costs import unit_cost_s
from kernelfit.kernel.plan import Plan
from tests.kernel.builders import DEPLOYED, coefficients, fitted

PLANS = {name: Plan.of(d.model, d.chip, d.pool, "0.32.0") for name, d in DEPLOYED.items()}
BASE = {c.name: c.value for c in coefficients()}
CASES = [(name, c) for name, plan in PLANS.items() for c in plan.coefficients]
DECODES = (RequestShape(1, 700, 600), RequestShape(1, 90, 90), RequestShape(1, 20, 20))
# Each way of launching, and beyond the largest captured size.
BATCHES = (
    Batch(DECODES),
    Batch((*DECODES, RequestShape(30, 64, 500))),
    Batch((*DECODES, RequestShape(300, 64, 500))),
)
FACTOR = 1.7


def stage_times(plan: Plan, batch: Batch, values: Mapping[str, float]) -> dict[str, float]:
    """Time of each coefficient in the step, adding up terms and choosing between forms."""
    totals = FittedKernel.from_plan(plan, fitted()).totals(batch)
    row = plan.basis.row(totals)
    spent: dict[str, float] = {}
    forms: dict[tuple[str, str], list[dict[str, float]]] = {}
    for term in plan.terms:
        cost = unit_cost_s(term.coefficient, dict(values), plan.chip)
        time = term.amount * row[term.function] * cost
        into = spent
        if term.group:
            into = forms.setdefault((term.stage, term.group), [{}, {}])[term.form]
        into[term.coefficient] = into.get(term.coefficient, 0.0) + time
    for one, other in forms.values():
        chosen = one if sum(one.values()) > sum(other.values()) else other
        for coefficient, time in chosen.items():
            spent[coefficient] = spent.get(coefficient, 0.0) + time
    return spent


def moved_by(name: str) -> tuple[set[str], float]:
    """The coefficients whose time moves with one, and the factor that it moves by."""
    # An efficiency divides; the half-saturation term carries the efficiency it belongs to.
    partner = name.replace("gemm_eff", "gemm_m_half")
    return {name, partner}, 1 / FACTOR if definition(name).kind == "efficiency" else FACTOR


@pytest.mark.parametrize(("deployment", "name"), CASES)
def test_a_step_moves_by_what_its_terms_move(deployment: str, name: str) -> None:
    plan = PLANS[deployment]
    inflated = {**BASE, name: BASE[name] * FACTOR}
    base = FittedKernel.from_plan(plan, fitted())
    other = FittedKernel.from_plan(plan, fitted(**{name: inflated[name]}))
    names, ratio = moved_by(name)
    for batch in BATCHES:
        before, after = (stage_times(plan, batch, v) for v in (BASE, inflated))
        for kernel, spent in ((base, before), (other, after)):
            total = kernel.step_time(batch).no_overlap_s
            assert total == pytest.approx(sum(spent.values()), rel=1e-12, abs=0.0)
        for coefficient in set(before) & set(after):
            expected = before[coefficient] * (ratio if coefficient in names else 1.0)
            assert after[coefficient] == pytest.approx(expected, rel=1e-12, abs=0.0)
        # Another form of a collective may take over: then the floor and both rates trade places.
        for coefficient in set(before) ^ set(after):
            op = name.removesuffix("_floor_s").removesuffix("_eff").removesuffix("_transition")
            assert coefficient.startswith(op)


@pytest.mark.parametrize(("deployment", "name"), CASES)
def test_a_step_is_monotone_in_every_coefficient(deployment: str, name: str) -> None:
    plan = PLANS[deployment]
    kernels = [
        FittedKernel.from_plan(plan, fitted(share=0.4, **{name: BASE[name] * factor}))
        for factor in (0.6, 1.0, 1.2)
    ]
    sign = -1 if definition(name).kind == "efficiency" else 1
    for batch in BATCHES:
        answers = [kernel.step_time(batch) for kernel in kernels]
        means = [kernel.calibrated_step_time(batch).mean_s for kernel in kernels]
        for times in (
            [a.overlap_s for a in answers],
            [a.no_overlap_s for a in answers],
            means,
            *([dict(a.per_resource_s)[r] for a in answers] for r in resources(answers[0])),
        ):
            for one, two in itertools.pairwise(times):
                assert sign * (two - one) >= -1e-12 * one


def resources(estimate: object) -> list[Resource]:
    return [resource for resource, _ in estimate.per_resource_s]  # type: ignore[attr-defined]


@pytest.mark.parametrize(("deployment", "name"), CASES)
def test_every_coefficient_that_is_asked_for_can_move_a_step(deployment: str, name: str) -> None:
    # Inflated beyond everything else, or an efficiency next to nothing: some step shows it.
    plan = PLANS[deployment]
    extreme = 1e-9 if definition(name).kind == "efficiency" else 1e6
    base = FittedKernel.from_plan(plan, fitted())
    other = FittedKernel.from_plan(plan, fitted(**{name: BASE[name] * extreme}))
    ratios = [
        other.step_time(batch).no_overlap_s / base.step_time(batch).no_overlap_s
        for batch in BATCHES
    ]
    assert max(ratios) > 2.0


def test_repeating_a_batch_repeats_what_is_proportional_to_it() -> None:
    for name, plan in PLANS.items():
        kernel = FittedKernel.from_plan(plan, fitted())
        once = kernel.totals(BATCHES[0])
        twice = kernel.totals(Batch(BATCHES[0].requests * 2))
        assert twice == once + once
        rows = [dict(zip(plan.basis.names, plan.basis.row(t), strict=True)) for t in (once, twice)]
        for function, value in rows[0].items():
            again = rows[1][function]
            if function.startswith(("decode", "prefill", "tokens", "requests", "window")):
                assert again == 2 * value, (name, function)
            elif function.startswith(("touched", "expert", "padded")):
                # Experts saturate, and padding rounds up.
                assert value <= again <= 2 * max(value, 8), (name, function)
            else:
                assert again == value, (name, function)
