"""Add work: no bound falls, except by what another way of launching saves."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelfit.kernel import Batch, FittedKernel, RequestShape, Resource
from kernelfit.kernel.basis import FIXED
from kernelfit.kernel.costs import unit_cost_s
from tests.kernel.builders import (
    CHIP,
    DEPLOYED,
    GRAPHS,
    batches,
    dense,
    fitted,
    kernels,
    linear_hybrid,
    shapes,
)

GIVEN = fitted(share=0.4)
KERNELS = kernels(GIVEN)
NAMES = tuple(KERNELS)
SLOTS = FIXED.index("padded_requests")
each = pytest.mark.parametrize("name", NAMES)
few = settings(max_examples=15)


def times(kernel: FittedKernel, batch: Batch) -> tuple[float, float, float]:
    estimate = kernel.step_time(batch)
    return estimate.overlap_s, estimate.no_overlap_s, kernel.mean_step_time(kernel.totals(batch))


def launched(kernel: FittedKernel, batch: Batch) -> str:
    totals = kernel.totals(batch)
    return kernel.plan.basis.graph_of(totals.tokens, totals.requests, totals.decode_requests)


def saved_by_launching(kernel: FittedKernel, before: Batch, after: Batch) -> float:
    """What another way of launching can save: host time, and slots that padded a graph."""
    if launched(kernel, before) == launched(kernel, after):
        return 0.0
    hosts = [dict(kernel.step_time(b).per_resource_s)[Resource.HOST] for b in (before, after)]
    slots = [kernel.plan.basis.row(kernel.totals(b))[SLOTS] for b in (before, after)]
    values = kernel.fitted.values()
    slot_s = sum(
        term.amount * unit_cost_s(term.coefficient, values, kernel.plan.chip)
        for term in kernel.plan.terms
        if term.function == SLOTS
    )
    return max(hosts[0] - hosts[1], 0.0) + max(slots[0] - slots[1], 0.0) * slot_s


def assert_no_shorter(kernel: FittedKernel, before: Batch, after: Batch) -> None:
    slack = saved_by_launching(kernel, before, after)
    for one, two in zip(times(kernel, before), times(kernel, after), strict=True):
        assert two >= one * (1 - 1e-12) - slack


@each
@few
@given(batch=batches(), more=shapes())
def test_another_request_never_makes_a_step_shorter(
    name: str, batch: Batch, more: RequestShape
) -> None:
    assert_no_shorter(KERNELS[name], batch, Batch((*batch.requests, more)))


@each
@few
@given(batch=batches(), tokens=st.integers(1, 50), data=st.data())
def test_more_context_never_makes_a_step_shorter(
    name: str, batch: Batch, tokens: int, data: st.DataObject
) -> None:
    place = data.draw(st.integers(0, len(batch.requests) - 1))
    requests = list(batch.requests)
    requests[place] = replace(requests[place], computed=requests[place].computed + tokens)
    assert_no_shorter(KERNELS[name], batch, Batch(tuple(requests)))


@each
@few
@given(batch=batches(), tokens=st.integers(1, 40), data=st.data())
def test_another_token_never_makes_a_step_shorter_on_the_same_path(
    name: str, batch: Batch, tokens: int, data: st.DataObject
) -> None:
    place = data.draw(st.integers(0, len(batch.requests) - 1))
    request = batch.requests[place]
    if request.scheduled <= batch.decode_threshold and name.startswith(("mla", "spec")):
        # One more token would leave the absorbed path for one that multiplies less per pair,
        # or a decode whose proposals all have logits for a prompt with one row of them.
        request = replace(request, scheduled=batch.decode_threshold + 1)
    requests = list(batch.requests)
    requests[place] = request
    before = Batch(tuple(requests))
    requests[place] = replace(request, scheduled=request.scheduled + tokens)
    assert_no_shorter(KERNELS[name], before, Batch(tuple(requests)))


@each
def test_every_batch_size_of_decodes_costs_at_least_the_one_before(name: str) -> None:
    kernel = KERNELS[name]
    for context in (0, 1000):
        at = [times(kernel, Batch.decode(n, context)) for n in range(1, 100)]
        for n, (one, two) in enumerate(itertools.pairwise(at), start=1):
            slack = saved_by_launching(
                kernel, Batch.decode(n, context), Batch.decode(n + 1, context)
            )
            assert all(b >= a * (1 - 1e-12) - slack for a, b in zip(one, two, strict=True))


def test_a_prompt_that_joins_may_free_the_slots_that_padded_a_graph() -> None:
    # Nine decodes replay a graph of sixteen slots. With a prompt of two tokens beside them
    # attention is launched by itself, for the ten requests that there are.
    kernel = FittedKernel.of(dense(), CHIP, GRAPHS, "", fitted(attention_head_s=1e-4))
    nine = Batch.decode(9, 100)
    ten = Batch((*nine.requests, RequestShape(2, 0, 2)))
    sm = [dict(kernel.step_time(b).per_resource_s)[Resource.SM] for b in (nine, ten)]
    # Four layers of two KV heads, six slots; against that one head row and 3 pairs.
    freed = 4 * 2 * 6 * 1e-4
    added = 2 * 1024 * 32_000 / (100e12 * 0.8)
    pairs = 4 * 4 * 8 * 128 * 3 / (100e12 * 0.4)
    assert sm[0] - sm[1] == pytest.approx(freed - added - pairs, rel=1e-9)
    assert times(kernel, ten)[1] < times(kernel, nine)[1]


def test_a_prompt_that_joins_may_free_the_states_that_padded_a_graph() -> None:
    kernel = FittedKernel.of(linear_hybrid(), CHIP, GRAPHS, "", fitted())
    nine = Batch.decode(9, 0)
    ten = Batch((*nine.requests, RequestShape(2, 0, 2)))
    hbm = [dict(kernel.step_time(b).per_resource_s)[Resource.HBM] for b in (nine, ten)]
    # Six states in three layers, read and written; one more row of logits, and one full
    # layer's cache of two KV heads of 256: two tokens read and written.
    state = 16 * 128 * 128 * 4 + 3 * 4096 * 2
    freed = 6 * 3 * 2 * state / (1e12 * 0.7)
    added = 32_000 * 12 / (1e12 * 0.5) + 4 * 2 * 2 * 256 * 2 / (1e12 * 0.7)
    assert hbm[0] - hbm[1] == pytest.approx(freed - added, rel=1e-9)


def test_a_batch_beyond_every_graph_may_be_launched_for_less() -> None:
    # Where replaying costs more than launching, as slow replays would make it.
    slow = fitted(launch_graph_s=1e-2, launch_layer_s=1e-5)
    kernel = FittedKernel.of(dense(), CHIP, replace(GRAPHS, cudagraph_mode="FULL"), "", slow)
    inside, beyond = (kernel.step_time(Batch.decode(n, 0)) for n in (64, 65))
    host = [dict(e.per_resource_s)[Resource.HOST] for e in (inside, beyond)]
    assert host[0] - host[1] == pytest.approx(1e-2 - 4e-5 - 2e-5, rel=1e-9)
    # At the usual costs it is not: four layers launched cost more than one graph.
    usual = FittedKernel.of(dense(), CHIP, GRAPHS, "", fitted())
    at = [usual.step_time(Batch.decode(n, 0)).no_overlap_s for n in (64, 65)]
    assert at[1] > at[0]


def test_a_latent_request_that_leaves_the_absorbed_path_may_cost_less() -> None:
    # Attention so slow that its FLOP per pair, 1,088 against 320 per head, outweigh the
    # expansion of the context, which is a fast multiplication.
    kernel = FittedKernel.of(
        DEPLOYED["mla-packed"].model,
        CHIP,
        DEPLOYED["mla-packed"].pool,
        "",
        fitted(attention_eff_bf16=1e-4),
    )
    one, two = (Batch((RequestShape(n, 1000, 900),)) for n in (1, 2))
    sm = [dict(kernel.step_time(b).per_resource_s)[Resource.SM] for b in (one, two)]
    pairs = [1001 * 8 * 2 * 1088, (1001 + 1002) * 8 * 2 * 320]
    # One token's row against the whole context expanded, and one token's other matrices.
    expansion = 2 * 512 * 8 * 256 * (1002 - 1)
    matrices = 2 * (1024 * 960 + 384 * 8 * 192 + 8 * 128 * 1024 + 3 * 1024 * 4096)
    saved = 4 * (pairs[0] - pairs[1]) / (100e12 * 1e-4)
    spent = 4 * (expansion + matrices) / (100e12 * 0.8)
    assert sm[0] - sm[1] == pytest.approx(saved - spent, rel=1e-9)
    assert sm[1] < sm[0]
    # At the usual rates the longer step is the longer one.
    usual = KERNELS["mla-packed"]
    assert times(usual, two)[1] > times(usual, one)[1]
