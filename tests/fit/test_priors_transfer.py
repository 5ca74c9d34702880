"""What a calibration says about a later one, and about another GPU type."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from kernelfit.documents.priors import PriorValue
from kernelfit.fit.calibrate import Options, calibrate
from kernelfit.fit.calibration import Calibration
from kernelfit.fit.splits import ACROSS_GPUS, make_folds
from kernelfit.fit.transfer import (
    carried,
    given_by,
    given_in,
    predict_from_others,
    usual_composition,
)
from kernelfit.kernel.catalog import Coefficient
from kernelfit.validate.validate import gpu_left_out
from tests.fit.simulate import simulate
from tests.kernel.builders import CHIP, EAGER, dense

FAST = replace(
    CHIP,
    name="fast-gpu",
    peak_flop_per_s=tuple((dtype, 3 * peak) for dtype, peak in CHIP.peak_flop_per_s),
    hbm_bytes_per_s=2 * CHIP.hbm_bytes_per_s,
)
WIDE = dense("two", hidden=2048, heads=16, kv_heads=8, layers=16)
OLD, NEW = (
    [
        simulate("a", dense("one", layers=24), chip, EAGER, seed=seed, steps=500),
        simulate("b", WIDE, chip, EAGER, seed=seed + 1, steps=500),
    ]
    for chip, seed in ((CHIP, 1), (FAST, 11))
)


@pytest.fixture(scope="module")
def calibration() -> Calibration:
    return calibrate(OLD, [500, 500], Options(draws=20, rule="sum"))


def with_coefficients(calibration: Calibration, chip: str, **values: float) -> Calibration:
    """The calibration with these coefficients alone, intervals of 10 % either way."""
    made = tuple(
        Coefficient(
            name,
            v,
            "s" if name.endswith("_s") else "1",
            chip,
            "measured",
            "identified",
            (v / 1.1, v * 1.1),
        )
        for name, v in values.items()
    )
    return replace(calibration, chip=replace(CHIP, name=chip), coefficients=made)


def test_an_earlier_calibration_is_a_prior_of_what_it_knows(calibration: Calibration) -> None:
    base = with_coefficients(calibration, "g", hbm_kv_eff=0.5, layer_floor_s=1e-5)
    known, floor = base.coefficients
    wide = replace(known, ci95=(0.25, 1.0), verdict="weak")
    base = replace(
        base,
        coefficients=(
            wide,
            floor,
            replace(floor, name="launch_step_s", verdict="prior"),
            replace(floor, name="launch_layer_s", verdict="at_bound"),
        ),
    )
    first, second = given_by(base, "old.json")
    assert (first.name, first.value, first.unit, first.method) == ("hbm_kv_eff", 0.5, "1", "copied")
    assert first.file == "old.json"
    assert base.digest in first.source
    # 4 = exp(2 x 1.96 x 0.354); others add 0.2 in quadrature, and no interval counts below 0.1.
    assert first.spread == pytest.approx(math.hypot(math.log(4.0) / 3.92, 0.2))
    assert second.spread == pytest.approx(math.hypot(0.1, 0.2))


def test_kernels_timed_alone_say_less_about_steps() -> None:
    words = ("1", 0.3, "measured", "operator tables", "a scope")
    table = PriorValue("hbm_kv_eff", 0.8, *words, rows=900)
    known = PriorValue("hbm_weight_eff", 0.8, *words, rows=0)
    first, second = given_in((table, known), CHIP.name, "p.yaml")
    # Three, four, five.
    assert first.spread == pytest.approx(0.5)
    assert second.spread == 0.3
    assert (first.value, first.method, first.file) == (0.8, "measured", "p.yaml")


def test_what_carries_over_is_the_geometric_mean(calibration: Calibration) -> None:
    one = with_coefficients(calibration, "one", hbm_kv_eff=0.4, layer_floor_s=1e-5)
    two = with_coefficients(calibration, "two", hbm_kv_eff=0.9)
    by_name = {prior.name: prior for prior in carried([one, two], CHIP)}
    assert by_name["hbm_kv_eff"].value == pytest.approx(0.6)
    # ln 0.9 / 0.4 over the square root of 2 is the scatter of two.
    scatter = math.log(0.9 / 0.4) / math.sqrt(2.0)
    expected = math.sqrt(0.1**2 + scatter**2 + 0.3**2)
    assert by_name["hbm_kv_eff"].spread == pytest.approx(expected)
    assert by_name["layer_floor_s"].value == pytest.approx(1e-5)
    # A time of another GPU type says its order and little more.
    assert by_name["layer_floor_s"].spread == pytest.approx(math.hypot(0.1, 0.7))
    assert {prior.chip for prior in by_name.values()} == {CHIP.name}
    with pytest.raises(ValueError, match=r"calibration of ONE; allowed: other GPU types"):
        carried([one, two], replace(CHIP, name="ONE"))


def test_the_usual_composition_is_the_commonest(calibration: Calibration) -> None:
    shared = replace(calibration, rule="share", overlap_share=0.4)
    other = replace(calibration, rule="share", overlap_share=0.6)
    rule, share = usual_composition([calibration, shared, other])
    assert (rule, share) == ("share", pytest.approx(0.5))


def test_a_gpu_type_is_predicted_from_another_and_its_datasheet(calibration: Calibration) -> None:
    # Shares and times are planted equal, so what is left is the noise of 2 % and what the
    # other GPU type's runs could not tell apart.
    predicted = predict_from_others(NEW, [calibration])
    errors = np.concatenate(
        [np.abs(p / run.measured_s - 1.0) for p, run in zip(predicted, NEW, strict=True)]
    )
    assert np.median(errors) < 0.04
    # A share of the old chip's peak would not do: this one is two to three times as fast.
    pairs = zip(predict_from_others(NEW, [calibration]), NEW, strict=True)
    ratio = np.concatenate([run.measured_s / p for p, run in pairs])
    assert np.median(ratio) == pytest.approx(1.0, abs=0.04)


def test_the_split_holds_out_whole_gpu_types() -> None:
    runs = [*OLD, *NEW]
    by_gpu = {fold.held_out: fold for fold in make_folds(runs, ACROSS_GPUS)}
    assert set(by_gpu) == {CHIP.name, FAST.name}
    assert [bool(t.all()) for t in by_gpu[FAST.name].test] == [False, False, True, True]
    # With one GPU type there is nothing to carry over.
    assert make_folds(OLD, ACROSS_GPUS) == ()
    with pytest.raises(ValueError, match="split"):
        make_folds(runs, "random")


def test_the_score_stands_beside_the_baselines(calibration: Calibration) -> None:
    rows = [
        row
        for row in gpu_left_out(NEW, [(OLD, calibration)])
        if (row.group, row.phase) == ("all", "all")
    ]
    assert {row.split for row in rows} == {ACROSS_GPUS}
    assert {row.n for row in rows} == {1000}
    by_predictor = {row.predictor: row.median_ape for row in rows}
    assert by_predictor["kernelfit"] < 0.04
    for name in ("datasheet", "random_forest", "gradient_boosting", "nnls_sums", "constant"):
        assert by_predictor[name] > 2 * by_predictor["kernelfit"], name
