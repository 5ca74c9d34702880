"""Errors, baselines, coverage and bounds on simulated runs whose answers are known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kernelfit.fit.calibrate import Options, calibrate
from kernelfit.fit.calibration import Calibration
from kernelfit.fit.choose import held_out
from kernelfit.kernel import DatasheetKernel
from kernelfit.validate.baselines import baseline_predictions, learned, roofline
from kernelfit.validate.intervals import bounds_rows, coverage_rows, kernel_of, measured_bounds
from kernelfit.validate.metrics import error_rows
from kernelfit.validate.validate import breakdown, validate
from tests.fit.simulate import simulate
from tests.kernel.builders import CHIP, EAGER, dense, mixture

RUNS = (
    simulate("a", dense("one", layers=24), CHIP, EAGER, seed=1, steps=700),
    simulate(
        "b",
        dense("two", hidden=2048, heads=16, kv_heads=8, layers=16),
        CHIP,
        EAGER,
        seed=2,
        steps=700,
    ),
    simulate("c", mixture("three", layers=12), CHIP, EAGER, seed=3, steps=700),
)


@pytest.fixture(scope="module")
def calibration() -> Calibration:
    return calibrate(RUNS, [run.size for run in RUNS], Options(draws=20, rule="sum"))


@pytest.fixture(scope="module")
def judged(calibration: Calibration) -> dict[str, list[dict[str, object]]]:
    return validate(RUNS, calibration)


def row(judged: dict[str, list[dict[str, object]]], **wanted: str) -> dict[str, object]:
    found = [r for r in judged["validation"] if all(r[k] == v for k, v in wanted.items())]
    assert len(found) == 1, wanted
    return found[0]


def test_error_figures_by_hand() -> None:
    run = RUNS[0].take(np.arange(RUNS[0].size) < 4)
    predicted = run.measured_s * np.asarray([1.1, 0.8, 1.0, 1.3])
    (all_row,) = [
        r
        for r in error_rows([run], [predicted], gpu="g", predictor="p", split="s")
        if r.group == "all" and r.phase == "all"
    ]
    # Absolute errors 0.1, 0.2, 0, 0.3; signed 0.1, -0.2, 0, 0.3.
    assert all_row.median_ape == pytest.approx(0.15)
    assert all_row.mape == pytest.approx(0.15)
    assert all_row.p90_ape == pytest.approx(0.27)
    assert all_row.bias == pytest.approx(0.05)
    assert all_row.n == 4


def test_steps_that_no_fold_holds_out_do_not_count() -> None:
    run = RUNS[0]
    predicted = np.where(np.arange(run.size) < 10, run.measured_s, np.nan)
    rows = list(error_rows([run], [predicted], gpu="g", predictor="p", split="s"))
    assert rows[0].n == 10
    assert rows[0].median_ape == 0.0


def test_the_law_finds_the_noise_and_the_baselines_do_not(judged: dict) -> None:  # type: ignore[type-arg]
    ours = row(judged, predictor="kernelfit", split="time_block", group="all", phase="all")
    # The noise is 2 %: its median absolute value is 1.35 %.
    assert ours["median_ape"] < 0.02
    for name in ("datasheet", "datasheet_derated", "nnls_sums", "random_forest", "constant"):
        other = row(judged, predictor=name, split="time_block", group="all", phase="all")
        assert other["n"] == ours["n"]
        assert other["median_ape"] > 2 * ours["median_ape"], name


def test_a_model_left_out_is_predicted_by_the_law_alone(judged: dict) -> None:  # type: ignore[type-arg]
    ours = row(
        judged, predictor="kernelfit", split="leave_one_model_out", group="two tp1", phase="all"
    )
    forest = row(
        judged, predictor="random_forest", split="leave_one_model_out", group="two tp1", phase="all"
    )
    assert ours["median_ape"] < 0.1
    assert forest["median_ape"] > 2 * ours["median_ape"]
    assert not [r for r in judged["validation"] if r["split"] == "leave_one_pool_out"]


def test_the_roofline_is_the_datasheet_kernels_overlap_bound() -> None:
    run = RUNS[0]
    kernel = DatasheetKernel(run.plan.model, CHIP, run.plan.pool, "0.32.0")
    assert roofline(run, 1.0) == pytest.approx(kernel.step_times(run.totals)["overlap_s"])
    assert roofline(run, 0.8) == pytest.approx(roofline(run, 1.0) / 0.8)


def test_a_learner_never_sees_what_it_predicts() -> None:
    seen: list[set[float]] = []

    def spy(x: np.ndarray, y: np.ndarray, new: np.ndarray) -> np.ndarray:
        seen.append(set(y))
        return np.full(new.shape[0], len(seen), dtype=float)

    out = learned(RUNS[:2], "leave_one_run_out", lambda r: np.ones((r.size, 1)), spy)
    for values, run in zip(out, RUNS[:2], strict=True):
        trained = seen[int(values[0]) - 1]
        assert not trained.intersection(run.measured_s)


def test_a_split_without_folds_has_no_baselines() -> None:
    for _, predicted in baseline_predictions(RUNS[:1], "leave_one_model_out"):
        assert np.isnan(predicted[0]).all()


def test_intervals_cover_what_they_promise(judged: dict) -> None:  # type: ignore[type-arg]
    (all_row,) = [
        r
        for r in judged["coverage"]
        if r["split"] == "time_block" and r["group"] == "all" and r["phase"] == "all"
    ]
    assert all_row["level"] == 0.9
    assert 0.85 <= all_row["covered"] <= 0.95


@pytest.mark.slow
@pytest.mark.parametrize("seed", [11, 12, 13])
@pytest.mark.parametrize(("share", "rule"), [(0.0, "sum"), (0.5, "share")])
def test_coverage_over_seeds(share: float, rule: str, seed: int) -> None:
    runs = [
        simulate(m.name, m, CHIP, EAGER, seed=10 * seed + i, steps=900, share=share)
        for i, m in enumerate((dense("one", layers=24), mixture("three", layers=12)))
    ]
    fit = calibrate(runs, [900, 900], Options(draws=20, rule=rule, seed=seed))
    predicted = held_out(runs, "time_block", rule)
    rows = coverage_rows(runs, predicted, fit, "time_block")
    (all_row,) = [r for r in rows if r.group == "all" and r.phase == "all"]
    assert 0.85 <= all_row.covered <= 0.95


def test_predictions_that_are_off_lose_their_coverage(calibration: Calibration) -> None:
    # One run off by half in the other folds' sight: its own fold's width cannot hide it.
    predicted = [
        run.measured_s * np.exp(0.3 * ((np.arange(run.size) // 150) % 3 == 0)) for run in RUNS
    ]
    rows = coverage_rows(RUNS, predicted, calibration, "time_block")
    (all_row,) = [r for r in rows if r.group == "all" and r.phase == "all"]
    assert all_row.covered < 0.75


def test_measured_steps_lie_between_the_bounds_of_an_overlapping_gpu() -> None:
    runs = [
        simulate(f"s{i}", m, CHIP, EAGER, seed=20 + i, steps=500, share=0.5, outliers=0.0)
        for i, m in enumerate((dense("one", layers=24), mixture("three", layers=12)))
    ]
    fit = calibrate(runs, [500, 500], Options(draws=5, rule="share"))
    (all_row,) = [r for r in bounds_rows(runs, fit) if r.group == "all" and r.phase == "all"]
    assert all_row.inside > 0.8
    assert all_row.below + all_row.inside + all_row.above == pytest.approx(1.0)
    assert all_row.inside_with_noise >= all_row.inside


def test_bounds_hold_for_worker_spans_without_host_times() -> None:
    bare = [replace(run, host_s=np.full(run.size, np.nan)) for run in RUNS]
    fit = calibrate(bare, [700] * 3, Options(draws=5, rule="sum"))
    verdicts = {c.name: c.verdict for c in fit.coefficients}
    # Nothing measured the scheduler, so its terms keep their prior, ...
    assert verdicts["schedule_step_s"] == verdicts["schedule_request_s"] == "prior"
    # ... and the spans' bounds are those of the whole step without them.
    for run in bare:
        low, high = measured_bounds(run, fit)
        times = kernel_of(run, fit).step_times(run.totals)
        values = {c.name: c.value for c in fit.coefficients}
        schedule = values["schedule_step_s"] + values["schedule_request_s"] * run.totals["requests"]
        assert low == pytest.approx(times["overlap_s"] - schedule)
        assert high == pytest.approx(times["no_overlap_s"] - schedule)
    # Launches hide behind these devices, so that only the 3 % of outliers lie above.
    (all_row,) = [r for r in bounds_rows(bare, fit) if r.group == "all" and r.phase == "all"]
    assert all_row.inside > 0.94
    assert all_row.above < 0.045


def test_hidden_host_work_is_no_part_of_the_lower_bound() -> None:
    # Asynchronous scheduling: the lower bound of a worker's span is the device alone.
    pool = replace(EAGER, async_scheduling=True)
    run = simulate("async", dense("one", layers=24), CHIP, pool, seed=5, steps=300)
    bare = replace(run, host_s=np.full(run.size, np.nan))
    fit = calibrate([bare], [300], Options(draws=5, rule="sum"))
    low, high = measured_bounds(bare, fit)
    kernel = kernel_of(bare, fit)
    times = kernel.step_times(bare.totals)
    values = {c.name: c.value for c in fit.coefficients}
    schedule = values["schedule_step_s"] + values["schedule_request_s"] * bare.totals["requests"]
    assert np.all(low <= high)
    # The whole step's bounds differ from the span's by the scheduling, and only above.
    assert high == pytest.approx(times["no_overlap_s"] - schedule)
    assert np.all(low <= times["overlap_s"])
    # Where the device takes longer, scheduling hides and the bounds are the same.
    device = times["host_s"] < times["overlap_s"] * (1 - 1e-12)
    assert device.any()
    assert low[device] == pytest.approx(times["overlap_s"][device])
    assert np.all(low >= times["overlap_s"] - schedule - 1e-12)


def test_the_breakdown_adds_up(calibration: Calibration) -> None:
    table = breakdown(RUNS[2], calibration)
    parts = np.sum([table["per_resource_s"][name] for name in table["per_resource_s"]], axis=0)
    assert parts == pytest.approx(table["no_overlap_s"])
    assert table["requests"][0] == 1
    assert np.all(np.diff(table["fitted_s"]) > 0)
