"""Graphs, launches and host time: what is launched, what waits and what hides."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kernelfit.kernel import Batch, DatasheetKernel, FittedKernel, Pool, RequestShape, Resource
from kernelfit.kernel.basis import FIXED
from kernelfit.kernel.launches import launches
from kernelfit.kernel.plan import Plan
from tests.kernel.builders import (
    CHIP,
    CPU,
    DEPLOYED,
    EAGER,
    GRAPHS,
    dense,
    fitted,
    latent,
    linear_hybrid,
    mixture,
)
from tests.kernel.law_v2 import Step

DECODES = Batch.decode(9, 0)
MIXED = Batch((*DECODES.requests[:8], RequestShape(2, 0, 2)))


def per_resource(kernel: DatasheetKernel | FittedKernel, batch: Batch) -> dict[Resource, float]:
    return dict(kernel.step_time(batch).per_resource_s)


@pytest.mark.parametrize("batch", range(1, 70))
def test_matrices_follow_the_padded_batch_in_stairs(batch: int) -> None:
    kernel = DatasheetKernel(dense(), CHIP, GRAPHS)
    stairs = {1: 1, 2: 2, 3: 4, 4: 4, **dict.fromkeys(range(5, 9), 8)}
    stairs |= dict.fromkeys(range(9, 17), 16) | dict.fromkeys(range(17, 25), 24)
    stairs |= dict.fromkeys(range(25, 33), 32) | dict.fromkeys(range(33, 65), 64)
    # Beyond the largest captured size a batch runs as it is.
    rows = stairs.get(batch, batch)
    # Head and attention see the requests that there are.
    flop = rows * 2 * 60_817_408 + batch * (2 * 32_768_000 + 4 * 4 * 8 * 128)
    time = per_resource(kernel, Batch.decode(batch, 0))[Resource.SM]
    assert time == pytest.approx(flop / 100e12, rel=1e-12)


@pytest.mark.parametrize(
    ("mode", "decode", "mixed"),
    [
        ("NONE", "eager", "eager"),
        ("PIECEWISE", "piecewise", "piecewise"),
        ("FULL", "full", "full"),
        ("FULL_DECODE_ONLY", "full", "eager"),
        ("FULL_AND_PIECEWISE", "full", "piecewise"),
    ],
)
def test_graph_modes_say_how_each_batch_is_launched(mode: str, decode: str, mixed: str) -> None:
    given = fitted(launch_layer_s=1e-4, launch_graph_s=7e-6, launch_attention_s=2e-5)
    kernel = FittedKernel.of(dense(), CHIP, replace(GRAPHS, cudagraph_mode=mode), "", given)
    # Four layers: a whole graph is one replay; in pieces, five of them and the attentions.
    cost = {"eager": 4 * 1e-4, "full": 7e-6, "piecewise": 5 * 7e-6 + 4 * 2e-5}
    # Preparing and scheduling, per step and per request, at the priors.
    rest = 1e-3 + 3e-4 + 9 * (1e-5 + 1e-5)
    for batch, way in ((DECODES, decode), (MIXED, mixed)):
        host = per_resource(kernel, batch)[Resource.HOST]
        assert host == pytest.approx(cost[way] + rest, rel=1e-12)
        seen = kernel.plan.basis.row(kernel.totals(batch))[FIXED.index("padded_tokens")]
        assert seen == (batch.tokens() if way == "eager" else 16)
    # One token more than the largest captured size: launched layer by layer.
    beyond = Batch.decode(65, 0)
    host = per_resource(kernel, beyond)[Resource.HOST]
    assert host == pytest.approx(cost["eager"] + 1.3e-3 + 65 * 2e-5, rel=1e-12)


def test_a_whole_graph_pays_attention_for_every_slot_it_was_captured_for() -> None:
    whole = FittedKernel.of(dense(), CHIP, GRAPHS, "", fitted(attention_head_s=1e-4))
    pieces = FittedKernel.of(
        dense(),
        CHIP,
        replace(GRAPHS, cudagraph_mode="PIECEWISE"),
        "",
        fitted(attention_head_s=1e-4),
    )
    sm = [per_resource(kernel, DECODES)[Resource.SM] for kernel in (whole, pieces)]
    # Four layers of two KV heads: 16 slots against the 9 requests.
    assert sm[0] - sm[1] == pytest.approx(4 * 2 * (16 - 9) * 1e-4, rel=1e-9)


def test_a_speculating_decode_is_uniform_at_all_its_tokens() -> None:
    deployed = DEPLOYED["speculating"]
    kernel = deployed.kernel(fitted())
    four = Batch((RequestShape(4, 100, 90),) * 3, decode_threshold=4)
    one = Batch((RequestShape(1, 100, 90),) * 3, decode_threshold=4)
    row = dict(
        zip(kernel.plan.basis.names, kernel.plan.basis.row(kernel.totals(four)), strict=True)
    )
    # 12 tokens fall to 16, which hold 4 requests of 4 tokens.
    assert (row["padded_tokens"], row["padded_requests"], row["full_graphs"]) == (16, 4, 1)
    row = dict(zip(kernel.plan.basis.names, kernel.plan.basis.row(kernel.totals(one)), strict=True))
    # Requests of one token are no uniform decode of four.
    assert (row["padded_tokens"], row["padded_requests"], row["piecewise_graphs"]) == (4, 3, 1)


@pytest.mark.parametrize(("batch", "linear"), [(DECODES, 0), (MIXED, 3), (Batch.decode(65, 0), 3)])
def test_linear_attention_is_launched_by_itself_but_in_a_whole_graph(
    batch: Batch, linear: int
) -> None:
    dear, cheap = (
        FittedKernel.of(linear_hybrid(), CHIP, GRAPHS, "0.32.0", fitted(launch_linear_s=time))
        for time in (1e-3, 1e-4)
    )
    extra = per_resource(dear, batch)[Resource.HOST] - per_resource(cheap, batch)[Resource.HOST]
    assert extra == pytest.approx(linear * 9e-4, rel=1e-9)


def test_launches_are_counted_by_what_a_layer_runs() -> None:
    plain, moe = dense().layers[0], mixture().layers[0]
    # Two norms, four projections' worth of attention and rotary, three in the MLP.
    assert launches(plain, "gpu") == 2 + 5 + 3
    assert launches(moe, "gpu") == 2 + 5 + 3
    normed = replace(plain, attention=replace(plain.attention, qk_norm=True))
    assert launches(normed, "gpu") == 12
    # On a CPU a norm is seven tensor operations.
    assert launches(plain, "cpu") == 14 + 5 + 3
    assert launches(normed, "cpu") == 28 + 5 + 3
    # Latent: two more norms, eight operations; linear: a third norm, six operations.
    assert launches(latent().layers[0], "gpu") == 4 + 8 + 3
    assert launches(linear_hybrid().layers[0], "gpu") == 3 + 6 + 3
    assert moe.experts is not None
    shared = replace(moe, experts=replace(moe.experts, shared_intermediate=512))
    assert launches(shared, "gpu") == 10 + 3


def test_a_layer_with_more_launches_costs_more_host_time_and_a_higher_floor() -> None:
    kind = replace(dense().layers[0], attention=replace(dense().layers[0].attention, qk_norm=True))
    given = fitted(launch_layer_s=1e-3, layer_floor_s=1e-4)
    batch = Batch.decode(1, 16)
    plain, normed = (
        per_resource(FittedKernel.of(model, CHIP, EAGER, "", given), batch)
        for model in (dense(), replace(dense(), layers=(kind,)))
    )
    extra = {r: normed[r] - plain[r] for r in plain}
    assert extra[Resource.HOST] == pytest.approx(4 * 1e-3 * (12 / 10 - 1), rel=1e-9)
    assert extra[Resource.SM] == pytest.approx(4 * 1e-4 * (12 / 10 - 1), rel=1e-9)
    assert extra[Resource.HBM] == 0.0


SMALL, LARGE = Batch.decode(1, 16), Batch((RequestShape(4096, 0, 4096),))
# Four layers launched one by one; the step and its one request prepared and scheduled.
AHEAD, WAITED = 4 * 3e-4, 1e-3 + 3e-4 + 2 * 1e-5
GIVEN = fitted(launch_layer_s=3e-4)
VALUES = GIVEN.values()


@pytest.mark.parametrize("batch", [SMALL, LARGE])
@pytest.mark.parametrize("hides_all", [False, True])
def test_host_work_that_runs_ahead_hides_behind_the_device(batch: Batch, hides_all: bool) -> None:
    pool = replace(EAGER, async_scheduling=hides_all)
    answer = FittedKernel.of(dense(), CHIP, pool, "", GIVEN).step_time(batch)
    times = dict(answer.per_resource_s)
    device = times[Resource.SM] + times[Resource.HBM]
    ahead = AHEAD + (WAITED if hides_all else 0.0)
    waited = 0.0 if hides_all else WAITED
    assert times[Resource.HOST] == pytest.approx(AHEAD + WAITED, rel=1e-12)
    # Nothing hides under the other bound.
    assert answer.no_overlap_s == pytest.approx(device + AHEAD + WAITED, rel=1e-12)
    overlapped = Step(dense(), CHIP, 1, batch.requests, VALUES).overlap()
    assert (ahead > overlapped) is (batch is SMALL)
    assert answer.overlap_s == pytest.approx(max(overlapped, ahead) + waited, rel=1e-12)


@pytest.mark.parametrize("rule", ["hidden", "added"])
@pytest.mark.parametrize("batch", [SMALL, LARGE])
def test_the_fitted_time_joins_device_and_host_by_the_rule_of_the_data(
    rule: str, batch: Batch
) -> None:
    given = replace(fitted(share=0.25, launch_layer_s=3e-4), host_rule=rule)
    kernel = FittedKernel.of(dense(), CHIP, EAGER, "", given)
    alone = Step(dense(), CHIP, 1, batch.requests, VALUES)
    device = 0.75 * alone.no_overlap() + 0.25 * alone.overlap()
    joined = device + AHEAD if rule == "added" else max(device, AHEAD)
    mean = kernel.calibrated_step_time(batch).mean_s
    assert mean == pytest.approx(joined + WAITED, rel=1e-9)


def test_a_cpu_waits_for_its_own_launches() -> None:
    kernel = FittedKernel.of(dense(), CPU, EAGER, "", GIVEN)
    answer = kernel.step_time(LARGE)
    times = dict(answer.per_resource_s)
    # 22 operations are a CPU's plain layer, so four layers are four units.
    assert times[Resource.HOST] == pytest.approx(AHEAD + WAITED, rel=1e-12)
    device = Step(dense(), CPU, 1, LARGE.requests, VALUES).overlap()
    assert answer.overlap_s == pytest.approx(device + AHEAD + WAITED, rel=1e-12)
    # A layer has no floor of device time there.
    assert "layer_floor_s" not in kernel.plan.coefficients
    assert "layer_floor_s" in FittedKernel.of(dense(), CHIP, EAGER, "", GIVEN).plan.coefficients


def test_host_time_that_hides_is_nobodys_bottleneck() -> None:
    kernel = FittedKernel.of(dense(), CHIP, replace(EAGER, async_scheduling=True), "", GIVEN)
    assert kernel.step_time(SMALL).bottleneck is Resource.HOST
    assert kernel.step_time(LARGE).bottleneck is not Resource.HOST


@pytest.mark.parametrize("name", ["dense", "mla", "hybrid", "two-nodes"])
def test_a_budget_of_sms_stretches_their_work_and_nothing_else(name: str) -> None:
    kernel = DEPLOYED[name].kernel(fitted())
    requests = (RequestShape(48, 0, 48), RequestShape(1, 300, 200))
    whole = per_resource(kernel, Batch(requests))
    for budget in (1, 25, 50, 100):
        part = per_resource(kernel, Batch(requests, sm_budget=budget))
        stretched = whole[Resource.SM] * 100 / budget
        assert part[Resource.SM] == pytest.approx(stretched, rel=1e-12)
        assert {r: t for r, t in part.items() if r is not Resource.SM} == {
            r: t for r, t in whole.items() if r is not Resource.SM
        }


def test_the_plan_of_an_eager_pool_knows_no_graphs() -> None:
    plan = Plan.of(dense(), CHIP, EAGER, "0.32.0")
    assert "launch_graph_s" not in plan.coefficients
    graphs = Plan.of(dense(), CHIP, Pool(cudagraph_mode="PIECEWISE"), "0.32.0")
    assert {"launch_graph_s", "launch_layer_s"} <= set(graphs.coefficients)
