"""Plans: the information of rows, the choice within a budget, and what is expected of it."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelfit.documents.workloads import load_workload
from kernelfit.fit.calibration import Calibration
from kernelfit.fit.priors import build_priors
from kernelfit.fit.steps import RunSteps
from kernelfit.flips import Question, find_flips
from kernelfit.kernel.errors import InvalidArgument
from kernelfit.kernel.totals import TOTAL_FIELDS
from kernelfit.plan.choose import choose, updated
from kernelfit.plan.episodes import Shape, episodes_of, shapes_for, step_rows, steps_of
from kernelfit.plan.goals import goals_of
from kernelfit.plan.knowledge import Knowledge, coefficient_rows, know, spreads
from kernelfit.plan.plan import Plan, compare, make_plan, plan_document
from tests.flips.worlds import MODELS, kernel_of, make_world
from tests.kernel.builders import EAGER
from tests.reference.fleet import fit

WORLD = make_world(1)


@cache
def little() -> tuple[tuple[RunSteps, ...], Calibration]:
    """Return a fit that has seen one model on one GPU, and few of its steps."""
    runs = [run for run in WORLD.runs(widths=(1,), steps=300) if run.run.startswith("wide")]
    return tuple(runs), fit(runs, rule="share")


@cache
def planned(gpu_minutes: float | None = 1.0, criterion: str = "d") -> Plan:
    """Plan for two widths of the seen model."""
    runs, calibration = little()
    pools = [kernel_of(calibration, MODELS[0], EAGER)]
    flags = find_flips(
        pools,
        [Question(1000, 0.02, (8, 32))],
        noise_spread=calibration.noise.median_spread,
        inflation=calibration.inflation,
    )
    return make_plan(
        runs,
        calibration,
        pools,
        ["tp1"],
        flags,
        criterion=criterion,
        gpu_minutes=gpu_minutes,
        startup_minutes=0.1,
    )


def test_adding_rows_is_inverting_the_sum_of_informations() -> None:
    rng = np.random.default_rng(0)
    start = rng.standard_normal((30, 5))
    information = start.T @ start
    rows = rng.standard_normal((4, 5))
    expected = np.linalg.inv(information + rows.T @ rows)
    assert np.allclose(updated(np.linalg.inv(information), rows), expected, rtol=1e-9)


def test_without_rows_only_priors_are_known() -> None:
    runs, calibration = little()
    known = know(runs, calibration, ("allreduce_custom_floor_s", "launch_layer_s"))
    place = known.names.index("allreduce_custom_floor_s")
    prior = build_priors(known.names, calibration.chip)
    assert np.sqrt(known.covariance[place, place]) == pytest.approx(prior.spread[place])
    with pytest.raises(InvalidArgument, match="at least one on round-gpu"):
        know([], calibration)


def test_the_information_is_that_of_the_draws() -> None:
    # Draws of blocks and the curvature are two ways to the same spread.
    runs, calibration = little()
    known = know(runs, calibration)
    seen = spreads(coefficient_rows(known.names, known.names), known.covariance)
    ratios = [
        evidence.bootstrap_cv / spread
        for evidence, spread, c in zip(
            calibration.evidence, seen, calibration.coefficients, strict=True
        )
        if c.verdict in ("identified", "weak")
    ]
    assert len(ratios) >= 5
    assert 0.6 < float(np.exp(np.mean(np.log(ratios)))) < 1.6


def test_an_envelope_is_a_cost_over_another() -> None:
    names = ("gemm_eff_bf16", "gemm_m_half_bf16", "layer_floor_s")
    rows = coefficient_rows(names, ("gemm_m_half_bf16", "layer_floor_s"))
    assert rows.tolist() == [[-1.0, 1.0, 0.0], [0.0, 0.0, 1.0]]


def test_steps_of_a_shape_hold_every_token() -> None:
    for shape in (Shape(8, 1000, 33), Shape(3, 20_000, 33), Shape(8, 300, 2, one_by_one=True)):
        steps = steps_of(shape, 8192)
        prompts = sum(n * t.tokens for t, n in steps if not t.decode_requests)
        assert prompts == pytest.approx(shape.requests * shape.prompt_tokens, rel=0.35)
        assert max(t.tokens for t, _ in steps) <= 8192
        decoded = sum(n * t.decode_requests for t, n in steps)
        assert decoded == shape.requests * (shape.output_tokens - 1)


def test_only_what_a_pool_holds_is_a_candidate() -> None:
    _, calibration = little()
    small = kernel_of(calibration, MODELS[0], replace(EAGER, max_num_seqs=4, max_model_len=600))
    shapes = shapes_for(small)
    assert max(s.requests for s in shapes if not s.one_by_one) == 4
    assert max(s.prompt_tokens + s.output_tokens for s in shapes) <= 600


def test_rows_are_what_a_fit_would_see() -> None:
    # The derivative of ln(time) by all unit costs together is 1: everything costs twice as much.
    runs, calibration = little()
    kernel = kernel_of(calibration, MODELS[0], EAGER)
    known = know(runs, calibration)
    totals = [steps[0] for shape in shapes_for(kernel)[:5] for steps in steps_of(shape, 8192)]
    rows, times = step_rows(known, kernel, totals)
    assert np.allclose(rows.sum(axis=2) * known.row_noise, 1.0)
    columns = {name: np.asarray([float(getattr(t, name)) for t in totals]) for name in TOTAL_FIELDS}
    assert np.allclose(times, kernel.mean_step_times(columns), rtol=1e-9)


@pytest.mark.parametrize("criterion", ["d", "i"])
def test_a_plan_keeps_to_its_budget_and_more_is_worth_more(criterion: str) -> None:
    less, more = planned(0.3, criterion), planned(1.0, criterion)
    assert 0.0 < less.chosen.gpu_minutes <= 0.3 + 1e-9
    assert less.chosen.gpu_minutes <= more.chosen.gpu_minutes <= 1.0 + 1e-9
    one = less.goals.spreads(less.chosen.covariance)
    two = more.goals.spreads(more.chosen.covariance)
    before = less.goals.spreads(less.knowledge.covariance)
    assert (one <= before + 1e-12).all()
    assert np.log(two).sum() < np.log(one).sum() < np.log(before).sum()


def test_nothing_is_planned_for_nothing() -> None:
    plan = planned(0.0)
    assert plan.chosen.repeats == ()
    assert plan_document(plan)["runs"] == []
    with pytest.raises(ValueError, match="allowed d, i"):
        choose(plan.knowledge.covariance, plan.goals, [], [], criterion="z")


@settings(max_examples=8, deadline=None)
@given(budget=st.floats(0.12, 2.0), seed=st.integers(0, 1000))
def test_the_plan_beats_random_choices_of_its_cost(budget: float, seed: int) -> None:
    plan = planned(None)
    found = choose(
        plan.knowledge.covariance,
        plan.goals,
        plan.episodes,
        [1],
        gpu_minutes=budget,
        startup_minutes=0.1,
    )
    rng = np.random.default_rng(seed)
    spent, covariance = 0.1, plan.knowledge.covariance
    for number in rng.permutation(np.tile(np.arange(len(plan.episodes)), 20)):
        cost = plan.episodes[number].gpu_s / 60.0
        if spent + cost <= budget:
            spent += cost
            covariance = updated(covariance, plan.episodes[number].rows)

    def volume(of: np.ndarray) -> float:
        inner = plan.goals.rows @ of @ plan.goals.rows.T
        return float(np.linalg.slogdet(inner)[1])

    # The plan is for flags, too, so it may give up some of what is counted here.
    assert volume(found.covariance) <= volume(covariance) + 0.5


def test_a_flag_is_settled_by_steps_of_its_own_shape() -> None:
    runs, calibration = little()
    pool = kernel_of(calibration, MODELS[0], EAGER)
    over, none, right = WORLD.decode(MODELS[0], EAGER, 8, 1000)
    target = (over + none) / 2
    flags = [
        flag
        for flag in find_flips(
            [pool],
            [Question(1000, target, (8,))],
            noise_spread=calibration.noise.median_spread,
            inflation=calibration.inflation,
        )
        if flag.conclusion == "meets_token_latency"
    ]
    assert flags[0].flag == "measure"
    plan = make_plan(runs, calibration, [pool], ["tp1"], flags, startup_minutes=0.0)
    document = plan_document(plan)
    (row,) = document["flags"]
    assert row["expected"] < row["before"]
    assert row["steps"] > 0
    assert row["settled"]
    assert plan.chosen.steps[0] == row["steps"]
    assert abs(right / target - 1) < 1


def test_a_plan_s_workload_is_a_document_that_reads_back(tmp_path: Path) -> None:
    plan = planned()
    document = plan_document(plan)
    path = tmp_path / "workload.json"
    path.write_text(json.dumps(document["workload"]))
    assert load_workload(path) == plan.workload()
    (run,) = document["runs"]
    assert run["gpu_minutes"] == pytest.approx(document["gpu_minutes"])
    assert len(run["commands"]) == len(run["episodes"])
    assert all("vllm bench latency --model wide" in command for command in run["commands"])
    assert "--enforce-eager" in run["commands"][0]


def test_what_was_expected_stands_beside_what_came() -> None:
    plan = planned()
    document = json.loads(json.dumps(plan_document(plan)))
    calibration = plan.knowledge.calibration
    same = compare(document, calibration)
    assert {row["name"] for row in same} == {c.name for c in calibration.coefficients}
    for row in same:
        assert row["real"] == pytest.approx(1.0)
        low, high = row["ci95"]
        wide = math.log(row["expected_ci95"][1] / row["expected_ci95"][0])
        assert wide == pytest.approx(row["expected"] * math.log(high / low), abs=1e-9)
        assert 0.0 < row["expected"] <= 1.0 + 1e-9


def test_memory_and_doubtful_parts_are_left_to_others() -> None:
    plan = planned()
    kernel = plan.pools[0]
    prompts = Question(1151, 1.0, (100_000,), prompt_tokens=1024, output_tokens=256)
    flags = find_flips([kernel], [prompts], noise_spread=0.02, inflation=1.0)
    flags = tuple(replace(f, flag="measure") for f in flags if f.conclusion == "kv_fits")
    _, left = goals_of(plan.knowledge, plan.pools, plan.labels, flags)
    assert [flag.conclusion for flag in left] == ["kv_fits"]


def test_a_pool_s_gpus_count(tmp_path: Path) -> None:
    del tmp_path
    runs, calibration = little()
    from kernelfit.flips.pools import Wanted, kernels_for

    made, _ = kernels_for(calibration, [Wanted(None, MODELS[0], replace(EAGER, tp=2), "0.32.0")])
    wide = made[0][1]
    known: Knowledge = know(runs, calibration, wide.plan.coefficients)
    (episode,) = episodes_of(known, 0, wide, [Shape(8, 256, 33)])
    steps = steps_of(Shape(8, 256, 33), 8192)
    _, times = step_rows(known, wide, [totals for totals, _ in steps])
    counts = np.asarray([n for _, n in steps])
    assert episode.gpu_s == pytest.approx(2 * float(times @ counts))
