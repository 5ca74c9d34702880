"""Draws and intervals: what they join, and that a draw is a kernel of its own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

from kernelfit.kernel import Batch, FittedKernel, InvalidArgument
from tests.kernel.builders import CHIP, DEPLOYED, EAGER, batches, dense, fitted


def test_the_interval_joins_draws_and_residuals() -> None:
    # Draws that double every host time move a host-bound step; residuals add +-10 %.
    slow = {"launch_step_s": 2e-3}
    kernel = FittedKernel.of(dense(), CHIP, EAGER, "0.32.0", fitted(draws=({}, slow)))
    answer = kernel.calibrated_step_time(Batch.decode(1, 16), level=0.98)
    doubled = kernel.with_draw(1).calibrated_step_time(Batch.decode(1, 16)).mean_s
    assert doubled == pytest.approx(answer.mean_s + 1e-3, rel=1e-9)
    assert answer.low_s == pytest.approx(answer.mean_s * np.exp(-0.1), rel=0.01)
    assert answer.high_s == pytest.approx(doubled * np.exp(0.1), rel=0.02)
    assert answer.in_domain
    assert not kernel.calibrated_step_time(Batch.decode(65, 16)).in_domain


def test_a_draw_brings_its_own_overlap_share() -> None:
    base = fitted(share=0.2, draws=({}, {}))
    kernel = FittedKernel.of(dense(), CHIP, EAGER, "", replace(base, draw_shares=(0.0, 1.0)))
    # Eight requests of 500 tokens keep the device busier than the host's launches do.
    batch = Batch.decode(8, 500)
    estimate = kernel.step_time(batch)
    launches = 4 * 1e-4
    none, full = (kernel.with_draw(i).calibrated_step_time(batch).mean_s for i in (0, 1))
    # Under the fitted time launches hide; the bound adds them.
    assert none == pytest.approx(max(estimate.no_overlap_s - launches, launches), rel=1e-9)
    assert full == pytest.approx(estimate.overlap_s, rel=1e-9)
    assert kernel.with_draw(0).fitted.overlap_share == 0.0
    with pytest.raises(InvalidArgument, match="draw_shares"):
        replace(base, draw_shares=(0.5,))


DRAWS = (
    {},
    {"hbm_weight_eff": 0.5, "expert_floor_s": 9e-6},
    {"allreduce_custom_floor_s": 1e-4, "allreduce_custom_eff": 0.01},
    {"launch_layer_s": 1e-2, "launch_graph_s": 1e-4},
)


@pytest.mark.parametrize("rule", ["hidden", "added"])
@pytest.mark.parametrize("name", ["graphs", "moe", "cpu", "hybrid"])
@settings(max_examples=8)
@given(batch=batches())
def test_draws_priced_at_once_are_the_kernels_of_each_draw(
    name: str, rule: str, batch: Batch
) -> None:
    given_draws = replace(fitted(draws=DRAWS), draw_shares=(0.0, 0.3, 0.7, 1.0), host_rule=rule)
    # Without residuals the ends of a wide interval are the extreme draws.
    kernel = DEPLOYED[name].kernel(replace(given_draws, residuals=()))
    answer = kernel.calibrated_step_time(batch, level=1 - 1e-12)
    totals = kernel.totals(batch)
    means = [kernel.with_draw(i).mean_step_time(totals) for i in range(len(DRAWS))]
    assert answer.low_s == pytest.approx(min([answer.mean_s, *means]), rel=1e-9)
    assert answer.high_s == pytest.approx(max([answer.mean_s, *means]), rel=1e-9)
    assert answer.low_s <= answer.mean_s <= answer.high_s


def test_an_interval_follows_a_budget_of_sms() -> None:
    kernel = DEPLOYED["graphs"].kernel(replace(fitted(draws=DRAWS), residuals=()))
    requests = Batch.decode(8, 100).requests
    whole, half = (kernel.calibrated_step_time(Batch(requests, sm_budget=n)) for n in (0, 50))
    assert half.mean_s > whole.mean_s
    low, high = half.low_s / half.mean_s, half.high_s / half.mean_s
    assert low <= 1.0 <= high
    # The slowest draw is slow by host time, which more SM time dilutes.
    assert high < whole.high_s / whole.mean_s
