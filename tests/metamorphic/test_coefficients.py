"""Inflate one coefficient: exactly the terms that use it move, by exactly that factor."""

from __future__ import annotations

import pytest

from kernelfit.kernel import Batch, BatchTotals, FittedKernel, Pool, RequestShape
from kernelfit.kernel.catalog import definition
from kernelfit.kernel.costs import unit_cost_s
from kernelfit.kernel.pricing import Plan
from tests.kernel.builders import CHIP, EAGER, coefficients, fitted, mixture

POOL = Pool(**{**{n: getattr(EAGER, n) for n in EAGER.__dataclass_fields__}, "tp": 2})
PLAN = Plan.of(mixture(), CHIP, POOL, "0.32.0")
BATCH = Batch((RequestShape(1, 700, 600), RequestShape(1, 90, 90), RequestShape(300, 64, 500)))
FACTOR = 1.7


def term_times(values: dict[str, float]) -> list[tuple[str, float]]:
    row = PLAN.basis.row(BatchTotals.of(BATCH.requests))
    return [
        (t.coefficient, t.amount * row[t.function] * unit_cost_s(t.coefficient, values, CHIP))
        for t in PLAN.terms
    ]


@pytest.mark.parametrize("name", PLAN.coefficients)
def test_exactly_the_terms_of_a_coefficient_move(name: str) -> None:
    base = {c.name: c.value for c in coefficients()}
    before = term_times(base)
    after = term_times({**base, name: base[name] * FACTOR})
    kind = definition(name).kind
    # An efficiency divides; the half-saturation term carries the efficiency it belongs to.
    ratio = 1.0 / FACTOR if kind == "efficiency" else FACTOR
    partner = name.replace("gemm_eff", "gemm_m_half")
    for (coefficient, old), (_, new) in zip(before, after, strict=True):
        moved = coefficient in (name, partner)
        assert new == pytest.approx(old * ratio if moved else old, rel=1e-12)
        assert old > 0.0


@pytest.mark.parametrize("name", PLAN.coefficients)
def test_the_step_moves_by_what_its_terms_move(name: str) -> None:
    values = {c.name: c.value for c in coefficients()}
    kernel = FittedKernel.of(mixture(), CHIP, POOL, "0.32.0", fitted())
    moved = FittedKernel.of(
        mixture(), CHIP, POOL, "0.32.0", fitted(**{name: values[name] * FACTOR})
    )
    partner = name.replace("gemm_eff", "gemm_m_half")
    mine = sum(time for coefficient, time in term_times(values) if coefficient in (name, partner))
    ratio = 1.0 / FACTOR if definition(name).kind == "efficiency" else FACTOR
    change = moved.step_time(BATCH).no_overlap_s - kernel.step_time(BATCH).no_overlap_s
    assert change == pytest.approx(mine * (ratio - 1.0), rel=1e-9)


def test_repeating_a_batch_repeats_what_is_proportional_to_it() -> None:
    once = BatchTotals.of(BATCH.requests)
    twice = BatchTotals.of(BATCH.requests * 2)
    assert twice == once + once
    row, rows = PLAN.basis.row(once), PLAN.basis.row(twice)
    # All but the constant and the experts touched are proportional.
    assert rows[1:8] == tuple(2 * value for value in row[1:8])
    assert rows[0] == row[0]
    assert row[8] <= rows[8] <= 2 * row[8]
