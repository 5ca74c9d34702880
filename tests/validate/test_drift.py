"""Whether two calibrations differ, against normal theory and planted changes."""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelfit.fit.calibrate import Options, calibrate
from kernelfit.fit.calibration import Calibration
from kernelfit.kernel import FittedKernel
from kernelfit.kernel.catalog import Coefficient, definition
from kernelfit.kernel.errors import InvalidArgument
from kernelfit.validate.drift import (
    apart,
    check_comparable,
    coefficient_drift,
    composition_drift,
    peaks_that_differ,
)
from kernelfit.validate.drift_predictions import (
    Deployment,
    pair_kernels,
    prediction_drift,
    seen_by_both,
)
from tests.fit.simulate import TRUTH, simulate
from tests.kernel.builders import CHIP, EAGER, dense, mixture

NORMAL = NormalDist()
# Quantiles of the normal distribution: draws without a random number.
DRAWS = np.asarray([NORMAL.inv_cdf((i + 0.5) / 200) for i in range(200)])


def calibration(
    values: dict[str, float],
    spread: float = 0.05,
    verdict: str = "identified",
    *,
    rule: str = "sum",
    share: float = 0.0,
    share_spread: float = 0.0,
    draws: int = 200,
) -> Calibration:
    """A calibration whose draws scatter as a lognormal does."""
    coefficients, columns = [], []
    for name, value in values.items():
        scatter = value * np.exp(spread * DRAWS)
        low, high = value * math.exp(-1.96 * spread), value * math.exp(1.96 * spread)
        unit = definition(name).unit
        coefficients.append(
            Coefficient(name, value, unit, CHIP.name, "measured", verdict, (low, high))
        )
        columns.append(scatter[:draws])
    return replace(
        BASE,
        coefficients=tuple(coefficients),
        evidence=BASE.evidence[:1] * len(coefficients),
        rule=rule,
        overlap_share=share,
        draw_names=tuple(values),
        draws=tuple(tuple(float(v) for v in row) for row in np.column_stack(columns)),
        draw_shares=tuple(float(s) for s in share + share_spread * DRAWS[:draws]),
    )


RUNS = (
    simulate("a", dense("one", layers=24), CHIP, EAGER, seed=1, steps=500),
    simulate("b", mixture("two", layers=12), CHIP, EAGER, seed=2, steps=500),
)
BASE = calibrate(RUNS, [500, 500], Options(draws=40, rule="sum"))


def drift(before: Calibration, after: Calibration, name: str = "hbm_kv_eff") -> object:
    (row,) = [r for r in coefficient_drift(before, after) if r.name == name]
    return row


@pytest.mark.parametrize("factor", [1.0, 1.05, 1.15, 1.3, 1 / 1.3])
def test_ratio_and_probability_are_those_of_two_normal_distributions(factor: float) -> None:
    before = calibration({"hbm_kv_eff": 0.5}, 0.05)
    after = calibration({"hbm_kv_eff": 0.5 * factor}, 0.03)
    row = drift(before, after)
    both = math.hypot(0.05, 0.03)
    assert row.ratio.value == pytest.approx(factor)
    assert row.ratio.low == pytest.approx(factor * math.exp(-1.96 * both), rel=0.01)
    assert row.ratio.high == pytest.approx(factor * math.exp(1.96 * both), rel=0.01)
    expected = 2 * NORMAL.cdf(abs(math.log(factor)) / both) - 1
    assert row.p_differ == pytest.approx(expected, abs=0.01)
    # The intervals touch until the logarithms are 1.96 (0.05 + 0.03) = 0.157 apart.
    (strict,) = coefficient_drift(before, after, 0.0)
    assert strict.verdict == ("moved" if abs(math.log(factor)) > 0.157 else "same")


@pytest.mark.parametrize(
    ("gap", "tolerance", "word"),
    [
        (1.03, 0.02, "moved"),
        (1.01, 0.02, "same"),
        (1.01, 0.0, "moved"),
        (0.99, 0.0, "same"),
    ],
)
def test_the_tolerance_is_what_must_lie_between(gap: float, tolerance: float, word: str) -> None:
    before = calibration({"hbm_kv_eff": 0.5}, 0.05)
    after = calibration({"hbm_kv_eff": 0.5 * gap * math.exp(1.96 * 0.1)}, 0.05)
    (there,), (back,) = (
        coefficient_drift(*sides, tolerance) for sides in ((before, after), (after, before))
    )
    assert there.verdict == back.verdict == word


def test_a_prior_on_either_side_is_unknown() -> None:
    low, high = (calibration({"hbm_kv_eff": v}, 0.02) for v in (0.3, 0.6))
    kept = calibration({"hbm_kv_eff": 0.6}, 0.02, "prior")
    assert drift(low, high).verdict == "moved"
    assert drift(low, kept).verdict == drift(kept, low).verdict == "unknown"
    # One-sided is not nothing: an interval at a bound is still an interval.
    assert drift(low, calibration({"hbm_kv_eff": 0.6}, 0.02, "at_bound")).verdict == "moved"
    # Without enough draws there is no interval to go beyond.
    assert drift(low, calibration({"hbm_kv_eff": 0.6}, 0.02, draws=19)).verdict == "unknown"
    assert drift(low, calibration({"hbm_kv_eff": 0.6}, 0.02, draws=180)).verdict == "moved"


def test_what_only_one_side_prices_appears_or_disappears() -> None:
    one = calibration({"hbm_kv_eff": 0.5, "layer_floor_s": 1e-5})
    two = calibration({"hbm_kv_eff": 0.5, "expert_floor_s": 1e-5})
    words = {row.name: row.verdict for row in coefficient_drift(one, two)}
    assert words == {
        "hbm_kv_eff": "same",
        "layer_floor_s": "disappeared",
        "expert_floor_s": "appeared",
    }


@given(st.floats(0.05, 0.95), st.floats(0.05, 0.95), st.floats(0.001, 0.3), st.floats(0.001, 0.3))
def test_swapping_the_sides_turns_the_ratio_over(
    one: float, two: float, first: float, second: float
) -> None:
    before = calibration({"hbm_kv_eff": one}, first)
    after = calibration({"hbm_kv_eff": two}, second)
    there, back = drift(before, after), drift(after, before)
    assert there.verdict == back.verdict
    assert there.p_differ == pytest.approx(back.p_differ, abs=1e-9)
    assert there.ratio.value * back.ratio.value == pytest.approx(1.0)
    assert there.ratio.low * back.ratio.high == pytest.approx(1.0, rel=1e-3)


def test_composition() -> None:
    def rule(word: str, share: float, spread: float = 0.0) -> Calibration:
        return calibration({"hbm_kv_eff": 0.5}, rule=word, share=share, share_spread=spread)

    assert composition_drift(rule("sum", 0.0), rule("sum", 0.0)).verdict == "same"
    near, far = rule("share", 0.4, 0.05), rule("share", 0.8, 0.05)
    assert composition_drift(rule("share", 0.3, 0.05), near).verdict == "same"
    assert composition_drift(near, far).verdict == "moved"
    # A rule is chosen, not measured, and its choice has no interval.
    assert composition_drift(rule("sum", 0.0), far).verdict == "unknown"
    assert composition_drift(rule("sum", 0.0), rule("sum+host", 0.0)).verdict == "unknown"
    shown = composition_drift(near, far).share_after
    assert (shown.low, shown.high) == pytest.approx((0.8 - 0.098, 0.8 + 0.098), abs=0.002)


def test_two_gpu_types_are_refused_unless_asked_for() -> None:
    one = calibration({"hbm_kv_eff": 0.5})
    two = replace(one, chip=replace(CHIP, name="other", hbm_bytes_per_s=2e12))
    check_comparable(one, one)
    check_comparable(one, two, across=True)
    with pytest.raises(InvalidArgument, match="other"):
        check_comparable(one, two)
    assert peaks_that_differ(one, one) == ()
    assert peaks_that_differ(one, two) == ("hbm_bytes_per_s",)


def test_how_far_apart_intervals_are() -> None:
    assert apart((1.0, 2.0), (3.0, 4.0)) == apart((3.0, 4.0), (1.0, 2.0)) == 1.5
    assert apart((1.0, 2.0), (2.0, 3.0)) == 1.0
    assert apart((1.0, 5.0), (2.0, 3.0)) < 1.0


@pytest.fixture(scope="module")
def slower() -> Calibration:
    """The same deployments after the KV is read at 0.7 of what it was."""
    truth = {**TRUTH, "hbm_kv_eff": 0.7 * TRUTH["hbm_kv_eff"]}
    runs = [
        simulate("c", dense("one", layers=24), CHIP, EAGER, seed=11, steps=500, truth=truth),
        simulate("d", mixture("two", layers=12), CHIP, EAGER, seed=12, steps=500, truth=truth),
    ]
    return calibrate(runs, [500, 500], Options(draws=40, rule="sum", seed=3))


@pytest.fixture(scope="module")
def again() -> Calibration:
    """The same deployments on another day, nothing changed."""
    runs = [
        simulate("e", dense("one", layers=24), CHIP, EAGER, seed=21, steps=500),
        simulate("f", mixture("two", layers=12), CHIP, EAGER, seed=22, steps=500),
    ]
    return calibrate(runs, [500, 500], Options(draws=40, rule="sum", seed=4))


def kernels(calibration: Calibration) -> list[FittedKernel]:
    return [
        FittedKernel.of(r.plan.model, CHIP, EAGER, "0.32.0", calibration.fitted()) for r in RUNS
    ]


def test_a_planted_change_is_found_and_nothing_else(slower: Calibration) -> None:
    rows = {row.name: row for row in coefficient_drift(BASE, slower)}
    assert [name for name, row in rows.items() if row.verdict == "moved"] == ["hbm_kv_eff"]
    ratio = rows["hbm_kv_eff"].ratio
    # Forty draws know the ratio to a percent or so, and the fit itself is off by as much.
    assert ratio.value == pytest.approx(0.7, rel=0.03)
    assert ratio.high < 0.75
    deployments, refused = pair_kernels(BASE, slower, kernels(BASE))
    assert not refused
    found = {(r.model, r.phase): r for pair in deployments for r in prediction_drift(pair)}
    decode = found["one", "decode"]
    assert decode.verdict == "moved"
    assert decode.median.low > 0.0
    # Only the KV slows down: the worst batch is one with a lot of it, and no batch can lose
    # more than the KV did.
    assert 0.1 < decode.worst.value < 1 / 0.7 - 1 + 0.03
    assert int(decode.worst_batch.split(" x ")[1].replace(",", "")) >= 2048


def test_another_day_without_a_change_is_the_same(again: Calibration) -> None:
    assert not [r for r in coefficient_drift(BASE, again) if r.verdict == "moved"]
    deployments, _ = pair_kernels(BASE, again, kernels(again))
    for pair in deployments:
        for row in prediction_drift(pair):
            assert row.verdict == "same"
            assert row.batches > 0
            assert abs(row.median.value) < 0.03
            assert row.median.low <= row.median.value <= row.median.high


def test_changes_are_those_of_the_kernels_themselves(again: Calibration) -> None:
    (pair, _), _ = pair_kernels(BASE, again, kernels(BASE))
    assert (pair.before.fitted.calibration, pair.after.fitted.calibration) == (
        BASE.digest,
        again.digest,
    )
    row = next(r for r in prediction_drift(pair) if r.phase == "decode")
    from kernelfit.kernel import Batch

    count, context = (int(word.replace(",", "")) for word in row.worst_batch.split(" x "))
    one, two = (
        k.mean_step_time(k.totals(Batch.decode(count, context))) for k in (pair.before, pair.after)
    )
    assert row.worst.value == pytest.approx(two / one - 1.0)


def test_a_kernel_with_itself_has_not_changed() -> None:
    kernel = kernels(BASE)[0]
    for row in prediction_drift(Deployment(kernel, kernel)):
        assert row.median.value == row.worst.value == 0.0
        assert row.median.low < 0.0 < row.median.high
        assert row.verdict == "same"


def test_batches_outside_a_domain_are_left_out() -> None:
    narrow = replace(
        BASE,
        domain=tuple(replace(r, high=8.0) if r.quantity == "requests" else r for r in BASE.domain),
    )
    wide, small = (
        prediction_drift(pair_kernels(BASE, other, kernels(BASE))[0][0])[0]
        for other in (BASE, narrow)
    )
    assert 0 < small.batches < wide.batches
    nothing = replace(BASE, domain=tuple(replace(r, low=1e9, high=2e9) for r in BASE.domain[:1]))
    none = prediction_drift(pair_kernels(BASE, nothing, kernels(BASE))[0][0])[0]
    assert (none.batches, none.median, none.verdict) == (0, None, "unknown")


def test_a_deployment_that_one_side_cannot_price_is_named(again: Calibration) -> None:
    less = replace(
        again, coefficients=tuple(c for c in again.coefficients if c.name != "expert_floor_s")
    )
    deployments, refused = pair_kernels(BASE, less, kernels(BASE))
    assert [pair.model for pair in deployments] == ["one"]
    assert [(row.model, row.pool) for row in refused] == [("two", "tp1")]
    assert "expert_floor_s" in refused[0].reason


def test_deployments_that_both_rest_on() -> None:
    only = replace(BASE, runs=BASE.runs[:1])
    assert seen_by_both(BASE, BASE) == {("one", "tp1"), ("two", "tp1")}
    assert seen_by_both(BASE, only) == {("one", "tp1")}
