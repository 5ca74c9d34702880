"""Splits hold out what they say; draws resample blocks and repeat with their seed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelfit.fit.calibrate import Options, calibrate
from kernelfit.fit.design import build_design, coefficient_names
from kernelfit.fit.front_end import fit_front_end
from kernelfit.fit.noise import noise_floor
from kernelfit.fit.point import fit_runs
from kernelfit.fit.priors import build_priors
from kernelfit.fit.splits import SPLITS, make_folds, train_and_test
from kernelfit.fit.uncertainty import (
    autocorrelation,
    block_length,
    block_weights,
    bootstrap,
    variance_inflation,
)
from kernelfit.kernel import RequestShape
from tests.fit import front_ends
from tests.fit.simulate import simulate
from tests.kernel.builders import CHIP, EAGER, dense, mixture

RUNS = (
    simulate("a", dense(), CHIP, EAGER, seed=1, steps=700),
    simulate("b", mixture(), CHIP, EAGER, seed=2, steps=500),
    simulate("c", dense(), CHIP, replace(EAGER, tp=2), seed=3, steps=400),
    simulate("d", dense(), CHIP, replace(EAGER, tp=4), seed=4, steps=300),
)


ONE = np.zeros(20000, dtype=np.int64)


@pytest.mark.parametrize("split", SPLITS)
def test_every_step_is_held_out_exactly_once(split: str) -> None:
    folds = make_folds(RUNS, split)
    for index, run in enumerate(RUNS):
        held = np.sum([fold.test[index] for fold in folds], axis=0)
        assert np.all(held == 1), run.run
    for fold in folds:
        train, test = train_and_test(RUNS, fold)
        assert sum(r.size for r in train) + sum(r.size for r in test) == 1900
        assert train


def test_groups_are_held_out_whole() -> None:
    by_model = {f.held_out: f for f in make_folds(RUNS, "leave_one_model_out")}
    assert set(by_model) == {"dense", "moe"}
    assert [bool(t.all()) for t in by_model["dense"].test] == [True, False, True, True]
    by_pool = {f.held_out: f for f in make_folds(RUNS, "leave_one_pool_out")}
    assert [bool(t.any()) for t in by_pool["tp2"].test] == [False, False, True, False]


def test_time_blocks_are_contiguous() -> None:
    first = make_folds(RUNS, "time_block")[0].test[0]
    assert first[:150].all()
    assert not first[150:450].any()


def test_one_group_cannot_be_left_out() -> None:
    assert make_folds(RUNS[:1], "leave_one_model_out") == ()
    # Two pools are not enough to leave one out, two models are.
    assert make_folds(RUNS[:3], "leave_one_pool_out") == ()
    assert len(make_folds(RUNS[:2], "leave_one_model_out")) == 2


def test_random_rows_are_refused() -> None:
    with pytest.raises(ValueError, match="time_block"):
        make_folds(RUNS, "random_rows")


def test_draws_repeat_with_their_seed_and_differ_between_seeds() -> None:
    names = coefficient_names(RUNS)
    fit = fit_runs(RUNS, names, "sum")
    design = build_design(RUNS, names, 50)

    def draw(seed: int) -> np.ndarray:
        return bootstrap(
            design, fit.priors, "sum", fit.solution, draws=3, seed=seed, inflation=1.0
        )[0]

    assert np.array_equal(draw(5), draw(5))
    assert not np.array_equal(draw(5), draw(6))


@given(st.integers(1, 30), st.integers(1, 20), st.integers(0, 1000))
def test_blocks_are_drawn_whole_and_as_many_as_there_are(
    blocks: int, length: int, seed: int
) -> None:
    block = np.repeat(np.arange(blocks), length)
    weights = block_weights(block, np.random.default_rng(seed))
    assert weights.sum() == blocks * length
    for number in range(blocks):
        assert len(set(weights[block == number])) == 1


def test_autocorrelation_sets_block_length_and_inflation() -> None:
    rng = np.random.default_rng(0)
    white = rng.standard_normal(4000)
    assert block_length(autocorrelation(white, ONE[: white.size], 200)) == 10
    assert variance_inflation(autocorrelation(white, ONE[: white.size], 200)) < 1.2
    # AR(1) with 0.9: 1 + 2 sum 0.9^k = 19; below 0.1 after 22 lags.
    slow = np.zeros(20000)
    for i in range(1, slow.size):
        slow[i] = 0.9 * slow[i - 1] + rng.standard_normal()
    correlation = autocorrelation(slow, ONE, 200)
    assert correlation[1] == pytest.approx(0.9, abs=0.03)
    assert variance_inflation(correlation) == pytest.approx(19.0, rel=0.3)
    assert 30 <= block_length(correlation) <= 60


def test_a_bias_between_runs_is_no_correlation_within_them() -> None:
    rng = np.random.default_rng(1)
    run = np.repeat([0, 1], 3000)
    biased = rng.standard_normal(6000) + 5.0 * run
    assert variance_inflation(autocorrelation(biased, run, 200)) < 1.2


def test_the_noise_floor_is_the_scatter_of_equal_shapes() -> None:
    shape = [RequestShape(1, 300, 200)] * 4
    run = simulate(
        "same",
        dense(),
        CHIP,
        EAGER,
        seed=8,
        noise=0.05,
        outliers=0.0,
        timing="cycle",
        batches=[shape] * 2000,
    )
    floor = noise_floor([run])
    assert floor.groups == 1
    assert floor.steps == 2000
    # The median of |N(0, 0.05)| is 0.0337; the 90th percentile 0.0822.
    assert floor.median_spread == pytest.approx(0.0337, rel=0.1)
    assert floor.p90_spread == pytest.approx(0.0822, rel=0.1)
    different = simulate("no", dense(), CHIP, EAGER, seed=9, steps=40)
    assert noise_floor([different]).groups == 0


def test_a_calibration_is_deterministic_for_its_seed_and_says_what_it_rests_on() -> None:
    options = Options(seed=3, draws=5, rule="sum")
    one = calibrate(RUNS, [800, 600, 500, 300], options)
    two = calibrate(RUNS, [800, 600, 500, 300], options)
    assert one.digest == two.digest
    assert [(r.steps, r.kept) for r in one.runs] == [(800, 700), (600, 500), (500, 400), (300, 300)]
    assert len(one.draws) == 5
    assert one.converged
    assert {r.phase for r in one.residuals} == {"decode", "mixed", "prefill"}
    summary = one.summary()
    assert summary["digest"] == one.digest
    for row in summary["coefficients"]:
        assert row["ci95"][0] <= row["value"] <= row["ci95"][1]


def test_no_runs_is_an_error() -> None:
    with pytest.raises(ValueError, match="no runs"):
        calibrate([], [], Options())


def test_collectives_of_a_cpu_are_hardly_known_beforehand() -> None:
    names = coefficient_names(RUNS)
    gpu = build_priors(names, CHIP)
    cpu = build_priors(names, replace(CHIP, kind="cpu"))
    wider = {n for n, a, b in zip(names, gpu.spread, cpu.spread, strict=True) if b > a}
    # Two ranks and more reduce layers and gather logits; nothing else crosses the link.
    assert wider == {
        f"{op}_{what}"
        for op in ("allreduce_custom", "allgather")
        for what in ("floor_s", "transition_eff", "eff")
    }
    assert np.array_equal(gpu.centre, cpu.centre)


def test_an_alias_is_warned_of_once() -> None:
    notes = calibrate(RUNS, [700, 500, 400, 300], Options(draws=2, rule="sum")).warnings
    assert len([n for n in notes if "cannot be told" in n and "hbm_weight_eff" in n]) == 1


def test_draws_scatter_as_a_robust_location_does() -> None:
    """Draws whose trust stayed with the start scattered a fifth too little."""
    run = front_ends.simulate(7, requests=1500, memory=0.0, stalls=0.0)
    found = fit_front_end((run,), CHIP, draws=200, seed=3)
    assert found is not None
    # Independent errors of 15 %: the deviation of a mean of n is 0.15 / sqrt(n), and soft-L1's
    # efficiency under a normal law lies between that of the median (0.64) and of the mean (1).
    least = 0.15 / np.sqrt(1500)
    draws = np.log(
        found.draws[:, found.names.index("completion_s")] / front_ends.TRUTH["completion_s"]
    )
    assert 0.9 * least < float(np.std(draws)) < 1.3 * least / np.sqrt(0.64)
