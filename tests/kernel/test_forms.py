"""Costs folded by case price like the cells they were folded from.

The reference walks every term of every cell over the full row of functions, for batches of
each case: all decoding one token, several tokens per decode, chunks of prompts, with graphs
of each mode and beyond them, with and without a budget of SMs.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelfit.kernel import (
    Batch,
    DatasheetKernel,
    FittedKernel,
    Model,
    Pool,
    RequestShape,
    Resource,
)
from kernelfit.kernel.model import Attention
from kernelfit.kernel.pricing import Costs
from tests.kernel.builders import CHIP, EAGER, dense, fitted, mixture
from tests.kernel.shapes import hybrid, latent, with_attention

SIZES = (1, 2, 4, 8, 16)
GRAPHS = replace(EAGER, enforce_eager=False, cudagraph_capture_sizes=SIZES)
SLIDING = with_attention(
    Attention("full", 8, 2, 128),
    Attention("sliding", 8, 2, 128, window_tokens=64),
    Attention("sliding", 8, 2, 128, window_tokens=256),
)


def kernel_of(model: Model, pool: Pool) -> FittedKernel:
    return FittedKernel.of(model, CHIP, pool, "0.32.0", fitted(share=0.4))


KERNELS = {
    f"{name} {mode}": kernel_of(model, pool)
    for name, model, base in (
        ("dense", dense(heads=8, kv_heads=4), {"tp": 4}),
        ("experts", mixture(), {}),
        ("spread experts", mixture(), {"tp": 2, "dp": 2, "enable_expert_parallel": True}),
        ("windows", SLIDING, {}),
        ("latent", latent(), {}),
        ("linear", hybrid(), {}),
        ("speculation", dense(), {"speculative_method": "ngram", "num_speculative_tokens": 3}),
    )
    for mode, pool in (
        ("eager", replace(EAGER, **base)),
        ("graphs", replace(GRAPHS, **base)),
        ("piecewise", replace(GRAPHS, cudagraph_mode="PIECEWISE", **base)),
        ("decode graphs", replace(GRAPHS, cudagraph_mode="FULL_DECODE_ONLY", **base)),
    )
}


def reference(kernel: FittedKernel, batch: Batch) -> tuple[float, float, dict[Resource, float]]:
    """Both bounds and the time by resource, from the cells as they are."""
    plan = kernel.plan
    row = plan.basis.row(kernel.totals(batch))
    slowdown = CHIP.sm_count / batch.sm_budget if batch.sm_budget else 1.0

    def linear(costs: Costs) -> float:
        return sum(cost * row[function] for function, cost in costs)

    largest = dict.fromkeys(plan.stages, 0.0)
    spent: dict[Resource, float] = {}
    device = 0.0
    for cell in kernel.cells:
        time = linear(cell.costs)
        time += sum(max(linear(one), linear(other)) for one, other in cell.choices)
        time *= slowdown if cell.resource is Resource.SM else 1.0
        stage = plan.stages[cell.stage]
        largest[stage] = max(largest[stage], time)
        spent[cell.resource] = spent.get(cell.resource, 0.0) + time
        device += time if stage not in ("launch", "host") else 0.0
    launch, host = largest.pop("launch", 0.0), largest.pop("host", 0.0)
    return max(sum(largest.values()), launch) + host, device + launch + host, spent


@st.composite
def any_case(draw: st.DrawFn) -> Batch:
    """Batches of one kind of request, or of several."""
    counts = draw(st.sampled_from(((1,), (4,), (1, 4), (1, 40), (40,))))
    many = draw(st.integers(1, 20))
    shapes = tuple(
        RequestShape(draw(st.sampled_from(counts)), draw(st.integers(0, 600)), 5)
        for _ in range(many)
    )
    return Batch(shapes, draw(st.sampled_from((1, 4))), draw(st.sampled_from((0, 0, 0, 30))))


@pytest.mark.parametrize("name", KERNELS)
@settings(max_examples=20, deadline=None)
@given(batch=any_case())
def test_folded_costs_price_like_the_cells(name: str, batch: Batch) -> None:
    kernel = KERNELS[name]
    estimate = kernel.step_time(batch)
    overlap, no_overlap, spent = reference(kernel, batch)
    assert estimate.overlap_s == pytest.approx(overlap, rel=1e-12)
    assert estimate.no_overlap_s == pytest.approx(no_overlap, rel=1e-12)
    assert dict(estimate.per_resource_s) == pytest.approx(spent, rel=1e-12)
    totals = kernel.totals(batch)
    assert kernel.totals_time(totals, batch.sm_budget) == estimate
    device = max(t for r, t in estimate.per_resource_s if r is not Resource.HOST)
    if estimate.bottleneck is not Resource.HOST:
        assert dict(estimate.per_resource_s)[estimate.bottleneck] == device


def test_the_short_way_is_taken_for_decodes_and_only_for_them() -> None:
    # Decodes do not see the prices of a prompt's attention; a chunk beside them does.
    kernel = KERNELS["dense graphs"]
    assert kernel.forms.captured is not None
    assert kernel.forms.eager is not None
    alone = kernel.step_time(Batch.decode(4, 100))
    beside = Batch((*Batch.decode(4, 100).requests, RequestShape(2, 100, 200)))
    assert kernel.step_time(beside).no_overlap_s > alone.no_overlap_s


def test_a_datasheet_kernel_is_folded_too() -> None:
    kernel = DatasheetKernel(dense(), CHIP, EAGER)
    # Two of the same request read twice the KV and the same weights.
    one, two, four = (kernel.step_time(Batch.decode(n, 500)).no_overlap_s for n in (1, 2, 4))
    assert four - two == pytest.approx(2 * (two - one), rel=1e-9)
