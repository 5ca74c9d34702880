"""Priors that a user gives: where they go, what they can do, and what they cannot."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from kernelfit.fit.calibrate import Options, calibrate
from kernelfit.fit.calibration import Calibration
from kernelfit.fit.given import GivenPrior
from kernelfit.fit.point import fit_runs
from kernelfit.fit.priors import build_priors
from kernelfit.fit.steps import RunSteps
from kernelfit.kernel import Batch, FittedKernel, RequestShape
from kernelfit.kernel.errors import InvalidArgument
from kernelfit.kernel.frozen import digest, from_data
from tests.fit.simulate import TRUTH, simulate
from tests.kernel.builders import CHIP, EAGER, dense, mixture

PEAK = dict(CHIP.peak_flop_per_s)["bf16"]
NAMES = ("gemm_eff_bf16", "gemm_m_half_bf16", "hbm_kv_eff", "layer_floor_s")


def given(name: str, value: float, spread: float = 0.1, unit: str = "1", **more: str) -> GivenPrior:
    words = {"method": "measured", "source": "a table", "chip": CHIP.name, "file": "p.yaml"}
    return GivenPrior(name, value, unit, spread, **{**words, **more})


def test_given_values_are_the_middle_of_the_prior() -> None:
    told = (
        given("gemm_eff_bf16", 0.8, 0.3),
        given("gemm_m_half_bf16", 20.0, 0.4, "tokens"),
        given("layer_floor_s", 5e-5, 0.7, "s"),
    )
    priors = build_priors(NAMES, CHIP, told)
    usual = build_priors(NAMES, CHIP)
    # Seconds per FLOP; tokens times that; the KV as before; seconds.
    expected = [1 / (0.8 * PEAK), 20.0 / (0.8 * PEAK), math.exp(usual.centre[2]), 5e-5]
    assert np.exp(priors.centre) == pytest.approx(expected, rel=1e-12)
    # An envelope is tokens over a rate, so it is as uncertain as both: 3-4-5.
    assert priors.spread == pytest.approx([0.3, 0.5, usual.spread[2], 0.7])
    # What is possible does not depend on what is believed.
    assert np.array_equal(priors.low, usual.low)
    assert np.array_equal(priors.high, usual.high)


def test_the_later_prior_counts() -> None:
    priors = build_priors(NAMES, CHIP, (given("hbm_kv_eff", 0.9), given("hbm_kv_eff", 0.5, 0.2)))
    assert np.exp(priors.centre[2]) == pytest.approx(1 / (0.5 * CHIP.hbm_bytes_per_s))
    assert priors.spread[2] == 0.2


def test_priors_of_another_chip_are_refused() -> None:
    build_priors(NAMES, CHIP, (given("hbm_kv_eff", 0.9, chip=CHIP.name.upper()),))
    with pytest.raises(ValueError, match=r"priors of other-gpu; allowed: priors of round-gpu"):
        build_priors(NAMES, CHIP, (given("hbm_kv_eff", 0.9, chip="other-gpu"),))


@pytest.mark.parametrize(
    ("good", "bad", "field"),
    [
        (("hbm_kv_eff", 1.0, 0.1, "1"), ("hbm_kv_eff", 1.01, 0.1, "1"), "hbm_kv_eff.value"),
        (("hbm_expert_eff", 1.2, 0.1, "1"), ("hbm_expert_eff", 1.6, 0.1, "1"), "value"),
        (("layer_floor_s", 2.0, 0.1, "s"), ("layer_floor_s", 2.0, 0.1, "1"), "layer_floor_s.unit"),
        (("layer_floor_s", 1e-9, 0.1, "s"), ("layer_floor_s", 0.0, 0.1, "s"), "value"),
        (("layer_floor_s", 1e-9, 5.0, "s"), ("layer_floor_s", 1e-9, 0.0, "s"), "spread"),
        (("hbm_kv_eff", 0.5, 0.1, "1"), ("hbm_kv_speed", 0.5, 0.1, "1"), "coefficient"),
    ],
)
def test_what_is_no_prior_is_refused(
    good: tuple[str, float, float, str], bad: tuple[str, float, float, str], field: str
) -> None:
    assert given(*good).value == good[1]
    with pytest.raises(InvalidArgument, match=field):
        given(*bad)
    with pytest.raises(InvalidArgument, match="method"):
        given(*good, method="guessed")


def bare_runs() -> list[RunSteps]:
    """Worker spans whose scheduling nobody measured: its times cannot be known."""
    runs = [
        simulate("a", dense("one", layers=24), CHIP, EAGER, seed=1, steps=400),
        simulate("b", mixture("two", layers=12), CHIP, EAGER, seed=2, steps=400),
    ]
    return [replace(run, host_s=np.full(run.size, np.nan)) for run in runs]


def fit(prior: GivenPrior | None) -> Calibration:
    told = () if prior is None else (prior,)
    return calibrate(bare_runs(), [400, 400], Options(draws=40, rule="sum", priors=told))


BATCH = Batch((RequestShape(1, 500, 100),) * 4)


def interval(calibration: Calibration) -> tuple[float, float]:
    run = bare_runs()[0]
    kernel = FittedKernel.of(run.plan.model, CHIP, EAGER, "0.32.0", calibration.fitted())
    time = kernel.calibrated_step_time(BATCH)
    return time.mean_s, time.high_s - time.low_s


def test_what_the_data_do_not_say_keeps_the_given_prior() -> None:
    sharp = fit(given("schedule_step_s", 3e-2, 0.05, "s", method="literature"))
    wide = fit(given("schedule_step_s", 3e-2, 0.8, "s", method="literature"))
    for calibration, spread in ((sharp, 0.05), (wide, 0.8)):
        (kept,) = [c for c in calibration.coefficients if c.name == "schedule_step_s"]
        assert kept.value == pytest.approx(3e-2)
        assert (kept.verdict, kept.method) == ("prior", "literature")
        (shown,) = [
            c for c in calibration.summary()["coefficients"] if c["name"] == "schedule_step_s"
        ]
        assert shown["prior"] == {
            "value": 3e-2,
            "spread": spread,
            "method": "literature",
            "source": "a table",
            "file": "p.yaml",
        }
        assert calibration.summary()["priors"] == ["p.yaml"]
    # The draws scatter as the prior does: 1.96 x 2 x 0.8 in the logarithm.
    (low, high) = next(c.ci95 for c in wide.coefficients if c.name == "schedule_step_s")
    assert math.log(high / low) == pytest.approx(3.92 * 0.8, rel=0.4)
    # 30 ms of scheduling dominate the step, and so does what is not known of them.
    (mean, narrow), (_, broad) = interval(sharp), interval(wide)
    assert mean > 3e-2
    assert broad > 3 * narrow


def test_data_win_over_a_wrong_prior_that_is_sure_of_itself() -> None:
    true = TRUTH["hbm_kv_eff"]
    calibration = fit(given("hbm_kv_eff", true / 2, 0.1))
    (found,) = [c for c in calibration.coefficients if c.name == "hbm_kv_eff"]
    assert found.verdict == "identified"
    assert found.method == "measured"
    assert found.value == pytest.approx(true, rel=0.05)


def test_held_out_fits_take_the_priors_too() -> None:
    told = (given("schedule_step_s", 3e-2, 0.05, "s"),)
    names = fit_runs(bare_runs(), NAMES_OF_RUNS, "sum", given=told).names
    point = fit_runs(bare_runs(), names, "sum", given=told)
    column = names.index("schedule_step_s")
    assert point.solution.log_cost[column] == pytest.approx(math.log(3e-2))


NAMES_OF_RUNS = tuple(dict.fromkeys(name for run in bare_runs() for name in run.plan.coefficients))


def test_the_document_holds_the_priors_that_were_used() -> None:
    unused = given("internode_eff", 0.4)
    used = given("schedule_step_s", 3e-2, 0.05, "s")
    told = calibrate(bare_runs(), [400, 400], Options(draws=2, rule="sum", priors=(unused, used)))
    assert told.priors == (used,)
    document = json.loads(json.dumps(told.to_document()))
    assert document["digest"] == digest(document)
    body = {k: v for k, v in document.items() if k not in ("kind", "schema_version", "digest")}
    assert from_data(Calibration, body) == told
    # Without priors a document is what it was before they could be given.
    assert "priors" not in fit(None).to_document()
