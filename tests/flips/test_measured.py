"""Measured steps: what is averaged, and that a proposed measurement settles its flag."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kernelfit.documents.questions import Question
from kernelfit.fit.steps import make_run
from kernelfit.flips import Flag, find_flips
from kernelfit.flips.measured import MeasuredShape, measured_shape, measured_shapes
from kernelfit.kernel import BatchTotals
from kernelfit.kernel.fitted import FittedKernel
from kernelfit.kernel.handover import Range
from kernelfit.kernel.tables import table_of
from kernelfit.kernel.totals import TOTAL_FIELDS
from tests.flips.planted import kernel

NOISE = {"noise_spread": 0.02, "inflation": 1.0}


def decode(requests: int, context: int = 1023) -> dict[str, float]:
    """Return the totals of a decode batch."""
    keys = requests * (context + 1)
    totals = BatchTotals(requests, requests, requests, keys, keys)
    return {name: float(getattr(totals, name)) for name in TOTAL_FIELDS}


def measured(
    pool: FittedKernel, requests: int, time_s: float, error: float = 0.002
) -> MeasuredShape:
    """State a measured decode step."""
    return measured_shape(pool.plan, decode(requests), time_s, error, 100)


def ask(pool: FittedKernel, conclusion: str, target_s: float, shapes: list[MeasuredShape]) -> Flag:
    """Return the flag of 8 requests."""
    flags = find_flips([pool], [Question(1023, target_s, (8,))], measured=shapes, **NOISE)
    (found,) = [flag for flag in flags if flag.conclusion == conclusion]
    return found


# 8 requests take 10 ms under Overlap, 18 ms under NoOverlap and 14 ms as fitted.
@pytest.mark.parametrize(("time_s", "seen"), [(0.0123, "no"), (0.0117, "yes")])
def test_where_the_batch_was_measured_the_bounds_have_nothing_to_say(
    time_s: float, seen: str
) -> None:
    pool = kernel(draws=((1.0, 1.0),) * 40)
    before = ask(pool, "meets_token_latency", 0.012, [])
    assert before.flag == "measure"
    after = ask(pool, "meets_token_latency", 0.012, [measured(pool, 8, time_s)])
    assert (after.flag, after.overlap, after.no_overlap, after.fitted) == (
        "agree",
        seen,
        seen,
        seen,
    )
    assert after.fitted_s == pytest.approx(time_s)
    assert after.measured
    assert after.probability == 1.0


def test_a_measurement_as_near_as_its_error_leaves_it_uncertain() -> None:
    pool = kernel(draws=((1.0, 1.0),) * 100)
    found = ask(pool, "meets_token_latency", 0.012, [measured(pool, 8, 0.01199, error=0.01)])
    assert found.flag == "uncertain"


def test_another_deployment_or_shape_says_nothing_about_this_one() -> None:
    pool = kernel()
    for stranger in (
        measured(kernel(tp=2), 8, 0.0123),
        measured(kernel(gpu="other"), 8, 0.0123),
        measured_shape(pool.plan, decode(8, 2000), 0.0123, 0.002, 100),
    ):
        assert ask(pool, "meets_token_latency", 0.012, [stranger]).flag == "measure"
    # Limits of the scheduler make no step slower.
    assert (
        ask(kernel(max_num_seqs=32), "meets_token_latency", 0.012, [measured(pool, 8, 0.0123)]).flag
        == "agree"
    )


def test_between_two_measured_batches_the_views_follow_both() -> None:
    pool = kernel()
    shapes = [measured(pool, 4, 0.012), measured(pool, 16, 0.020)]
    found = ask(pool, "meets_token_latency", 0.1, shapes)
    # Overlap 10 ms at 4 and at 8, 16 at 16; NoOverlap 14, 18, 26: in the middle of ln(requests).
    over = 0.010 * ((0.012 / 0.010) * (0.020 / 0.016)) ** 0.5
    none = 0.018 * ((0.012 / 0.014) * (0.020 / 0.026)) ** 0.5
    assert (found.overlap_s, found.no_overlap_s) == pytest.approx((over, none))


def test_a_measured_step_says_which_resource_leads() -> None:
    # 6 requests: added up memory leads (10 to 8.5), the maxima are 5.5 (sm) and 5 (hbm); the
    # lead changes at a step of 12.5 ms.
    pool = kernel(attention_s=2.5e-3 / 6)
    question = [Question(1023, 0.03, (6,))]

    def leads(shapes: list[MeasuredShape]) -> Flag:
        flags = find_flips([pool], question, measured=shapes, **NOISE)
        return next(flag for flag in flags if flag.conclusion == "bottleneck")

    assert leads([]).flag == "measure"
    assert (leads([measured(pool, 6, 0.0115)]).flag, leads([measured(pool, 6, 0.0115)]).fitted) == (
        "agree",
        "sm",
    )
    assert leads([measured(pool, 6, 0.0135)]).fitted == "hbm"
    # Not known well enough: the doubt stays.
    assert leads([measured(pool, 6, 0.0125, error=0.01)]).flag == "measure"


def test_what_was_measured_is_not_extrapolated() -> None:
    pool = kernel(domain=(Range("requests", 1.0, 4.0),))
    assert ask(pool, "meets_token_latency", 0.03, []).flag == "extrapolated"
    assert ask(pool, "meets_token_latency", 0.03, [measured(pool, 8, 0.014)]).flag == "agree"
    assert (
        ask(pool, "meets_token_latency", 0.03, [measured(pool, 12, 0.016)]).flag == "extrapolated"
    )


def run_of(times: list[float], requests: list[int], timing: str = "step") -> object:
    """Return a run of decode steps."""
    plan = kernel().plan
    totals = [BatchTotals(n, n, n, n * 1024, n * 1024) for n in requests]
    columns = {**table_of(totals), "duration_s": np.asarray(times)}
    return make_run("r", plan.model, plan.chip, plan.pool, "0.32.0", timing, columns)


def test_steps_that_are_alike_are_averaged_without_disturbed_ones() -> None:
    times = [0.010, 0.0102, 0.0098] * 10 + [0.5]
    (shape,) = measured_shapes([run_of(times, [8] * 31)], 1.0)  # type: ignore[list-item]
    assert shape.steps == 30
    assert shape.mean_s == pytest.approx(0.010, rel=1e-3)
    spread = float(np.std(np.log(times[:30]), ddof=1))
    assert shape.error == pytest.approx(spread / 30**0.5)
    assert shape.totals["requests"] == 8


def test_too_few_steps_or_spans_without_the_host_are_no_measurement() -> None:
    assert measured_shapes([run_of([0.01] * 19, [8] * 19)], 1.0) == ()  # type: ignore[list-item]
    assert len(measured_shapes([run_of([0.01] * 20, [8] * 20)], 1.0)) == 1  # type: ignore[list-item]
    assert measured_shapes([run_of([0.01] * 20, [8] * 20, "device")], 1.0) == ()  # type: ignore[list-item]
    both = run_of([0.01] * 40, [8] * 20 + [9] * 20)
    assert len(measured_shapes([both], 1.0)) == 2  # type: ignore[list-item]


def test_autocorrelation_widens_the_error() -> None:
    times = [0.010, 0.0102] * 20
    (one,) = measured_shapes([run_of(times, [8] * 40)], 1.0)  # type: ignore[list-item]
    (four,) = measured_shapes([run_of(times, [8] * 40)], 4.0)  # type: ignore[list-item]
    assert four.error == pytest.approx(2 * one.error)
    assert replace(four, error=0.0).mean_s == one.mean_s
