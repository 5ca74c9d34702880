"""Planted coefficients: the identified ones are recovered, the aliased ones reported."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kernelfit.fit.calibrate import Options, calibrate
from kernelfit.fit.calibration import Calibration
from kernelfit.fit.point import choose_rule
from kernelfit.fit.steps import RunSteps
from kernelfit.kernel import RequestShape
from tests.fit.simulate import TRUTH, simulate
from tests.kernel.builders import CHIP, EAGER, dense, mixture

TWO = replace(EAGER, tp=2)
MODELS = (
    dense("wide", hidden=4096, layers=8, heads=32, kv_heads=8, intermediate=12288),
    dense("full", hidden=2048, layers=12, heads=16, kv_heads=16, intermediate=5632),
    dense("deep", hidden=1024, layers=48, heads=8, kv_heads=2, intermediate=2816),
    mixture("moe", hidden=2048, layers=16, experts=64, per_token=4, intermediate=1024),
)


def runs(share: float = 0.0, steps: int = 1600) -> list[RunSteps]:
    one = [
        simulate(m.name, m, CHIP, EAGER, seed=i, share=share, steps=steps)
        for i, m in enumerate(MODELS)
    ]
    return [
        *one,
        simulate("wide-2", MODELS[0], CHIP, TWO, seed=9, share=share, steps=steps),
        simulate("deep-2", MODELS[2], CHIP, TWO, seed=10, share=share, steps=steps),
    ]


def fit(data: list[RunSteps], **options: object) -> Calibration:
    chosen = Options(draws=20, **options)  # type: ignore[arg-type]
    return calibrate(data, [run.size for run in data], chosen)


@pytest.fixture(scope="module")
def added() -> Calibration:
    return fit(runs(), rule="sum")


@pytest.fixture(scope="module")
def overlapped() -> Calibration:
    return fit(runs(share=0.6), rule="share")


def check(calibration: Calibration) -> list[str]:
    """Identified coefficients lie within 2 %; returns their names."""
    names = []
    for c in calibration.coefficients:
        if c.verdict == "identified":
            assert c.value == pytest.approx(TRUTH[c.name], rel=0.02), c.name
            names.append(c.name)
    return names


def test_identified_coefficients_are_within_two_percent(added: Calibration) -> None:
    found = check(added)
    for name in (
        "gemm_eff_bf16",
        "attention_eff_bf16",
        "hbm_kv_eff",
        "allreduce_floor_s",
        "launch_layer_s",
        "schedule_step_s",
        "schedule_request_s",
    ):
        assert name in found


def test_weights_and_half_saturation_are_aliases_when_everything_adds_up(
    added: Calibration,
) -> None:
    # A started matrix costs 2 P m_half / peak on the SMs and 2 P bytes / bandwidth in
    # memory: the same multiple of P in every step, so only the sum can be known.
    by_name = {c.name: (c, e) for c, e in zip(added.coefficients, added.evidence, strict=True)}
    for name, other in (
        ("gemm_m_half_bf16", "hbm_weight_eff"),
        ("hbm_weight_eff", "gemm_m_half_bf16"),
    ):
        coefficient, evidence = by_name[name]
        assert coefficient.verdict in ("prior", "weak")
        assert evidence.alias == (other,)
    peak, bandwidth = 100e12, 1e12

    def started(values: dict[str, float]) -> float:
        return 2 * values["gemm_m_half_bf16"] / (peak * values["gemm_eff_bf16"]) + 2 / (
            bandwidth * values["hbm_weight_eff"]
        )

    values = {c.name: c.value for c in added.coefficients}
    assert started(values) == pytest.approx(started(TRUTH), rel=0.02)


def test_intervals_hold_the_truth(added: Calibration) -> None:
    # 95 % intervals of some fifteen coefficients: two may miss by chance.
    missed = [
        c.name
        for c in added.coefficients
        if not c.ci95[0] * 0.995 <= TRUTH[c.name] <= c.ci95[1] * 1.005
    ]
    assert len(missed) <= 2, missed


def test_a_partial_overlap_is_found_and_tells_the_aliases_apart(overlapped: Calibration) -> None:
    assert overlapped.overlap_share == pytest.approx(0.6, abs=0.05)
    found = check(overlapped)
    # Where resources overlap, memory and arithmetic no longer add: both show.
    assert "hbm_weight_eff" in found
    assert "gemm_m_half_bf16" in found


@pytest.mark.parametrize(("share", "rule"), [(0.0, "sum"), (0.6, "share"), (1.0, "max")])
def test_the_composition_is_chosen_by_held_out_score(share: float, rule: str) -> None:
    chosen, scores, _ = choose_rule(runs(share=share, steps=300))
    by_rule = {s.rule: s.median_ape for s in scores}
    assert set(by_rule) == {"sum", "max", "share"}
    # A fitted share of 0 or 1 is as good as the rule itself; nothing else is.
    assert chosen == rule or by_rule[chosen] <= by_rule[rule]
    wrong = "max" if share < 0.5 else "sum"
    assert by_rule[wrong] > 1.1 * by_rule[rule]


def test_one_pool_cannot_tell_the_step_constant_from_the_weights() -> None:
    # Decode only, one model, one pool: weights, launches and the step constant are one
    # number; the width and the context are two more.
    rng = np.random.default_rng(3)
    batches = [
        [RequestShape(1, int(rng.integers(50, 900)), 40)] * int(rng.integers(1, 60))
        for _ in range(800)
    ]
    data = simulate("alone", MODELS[0], CHIP, EAGER, seed=1, timing="cycle", batches=batches)
    calibration = fit([data], rule="sum")
    verdicts = {c.name: c.verdict for c in calibration.coefficients}
    for name in (
        "hbm_weight_eff",
        "gemm_m_half_bf16",
        "launch_layer_s",
        "launch_step_s",
        "schedule_step_s",
    ):
        assert verdicts[name] in ("prior", "weak"), name
    assert any("only their sum is known" in w for w in calibration.warnings)


def test_a_collective_never_seen_keeps_its_prior() -> None:
    # Tensor parallelism 1 only: no row holds a collective, none is invented.
    data = runs(steps=400)[:4]
    names = [c.name for c in fit(data, rule="sum").coefficients]
    assert "nvlink_eff" not in names
    assert "allreduce_floor_s" not in names
