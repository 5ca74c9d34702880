"""The design prices like the kernel; the Jacobian is the derivative; robustness."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from kernelfit.fit.design import build_design, coefficient_names
from kernelfit.fit.priors import Priors, build_priors, to_values
from kernelfit.fit.solve import predict, robust_scale, solve
from kernelfit.fit.starts import nnls_start
from kernelfit.fit.steps import RunSteps
from kernelfit.kernel import FittedKernel, Model, Pool
from kernelfit.kernel.catalog import definition
from tests.fit.simulate import TRUTH, simulate
from tests.kernel.builders import (
    CHIP,
    EAGER,
    alternating,
    coefficients,
    dense,
    fitted,
    mixture,
)

POOLS = (EAGER, replace(EAGER, tp=2))


def run(index: int = 0, **options: object) -> RunSteps:
    model = (dense, mixture)[index % 2]()
    return simulate(
        f"r{index}", model, CHIP, POOLS[index // 2 % 2], seed=index, steps=120, **options
    )  # type: ignore[arg-type]


@pytest.mark.parametrize("share", [0.0, 0.35, 1.0])
@pytest.mark.parametrize("index", range(4))
def test_the_fit_prices_steps_as_the_kernel_does(index: int, share: float) -> None:
    data = run(index)
    names = coefficient_names([data])
    values = {c.name: c.value for c in coefficients()}
    design = build_design([replace(data, timing="cycle")], names, 50)
    cost = [_unit_cost(name, values) for name in names]
    predicted, _, _ = predict(design, np.log(cost), share)
    kernel = FittedKernel.of(data.plan.model, CHIP, data.plan.pool, "0.32.0", fitted(share=share))
    assert predicted == pytest.approx(kernel.mean_step_times(data.totals), rel=1e-12)


def _unit_cost(name: str, values: Mapping[str, float]) -> float:
    from kernelfit.kernel.costs import unit_cost_s

    return unit_cost_s(name, values, CHIP)


def test_unit_costs_and_values_are_inverse() -> None:
    names = coefficient_names([run(3)])
    values = {c.name: c.value for c in coefficients()}
    cost = np.asarray([_unit_cost(name, values) for name in names])
    assert to_values(names, cost, CHIP) == pytest.approx({n: values[n] for n in names})


SIZES = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128)
GRAPHS = replace(
    EAGER,
    enforce_eager=False,
    async_scheduling=True,
    cudagraph_mode="FULL_AND_PIECEWISE",
    cudagraph_capture_sizes=SIZES,
)


@pytest.mark.parametrize("share", [0.0, 0.4])
@pytest.mark.parametrize("timing", ["device", "step"])
@pytest.mark.parametrize("pool", [EAGER, GRAPHS], ids=["eager", "graphs"])
@pytest.mark.parametrize("model", [dense(), mixture(), alternating()], ids=lambda m: m.name)
def test_planted_times_are_the_laws(model: Model, pool: Pool, timing: str, share: float) -> None:
    # Plain loops over requests and matrices against the design's functions and amounts.
    for tp in (1, 2, 4):
        data = simulate(
            "clean",
            model,
            CHIP,
            replace(pool, tp=tp),
            seed=tp,
            steps=60,
            share=share,
            noise=0.0,
            outliers=0.0,
            timing=timing,
        )
        names = coefficient_names([data])
        cost = np.asarray([_unit_cost(name, TRUTH) for name in names])
        design = build_design([data], names, 50)
        predicted, _, _ = predict(design, np.log(cost), share)
        assert predicted[:60] == pytest.approx(data.duration_s, rel=1e-9)
        assert predicted[60:] == pytest.approx(data.host_s[: predicted.size - 60], rel=1e-9)


@pytest.mark.parametrize("share", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("ahead", ["none", "some", "all"])
def test_the_jacobian_is_the_derivative(share: float, ahead: str) -> None:
    data = run(3)
    names = coefficient_names([data])
    costs = {name: _unit_cost(name, TRUTH) for name in names}
    costs["launch_layer_s"] *= {"none": 1e-3, "some": 8.0, "all": 1e3}[ahead]
    # A slow start for small messages and a slow stream for large ones: both forms are met.
    costs["allreduce_custom_transition_eff"] /= 3.0
    costs["allgather_transition_eff"] /= 3.0
    log_cost = np.log([costs[name] for name in names])
    design = build_design([data], names, 50)
    predicted, slope, by_share = predict(design, log_cost, share)
    steps = design.blocks[0]
    launch = steps.rows @ (steps.launch @ np.exp(log_cost))
    waited = steps.rows @ (steps.host @ np.exp(log_cost))
    bound = np.isclose(predicted[: design.steps], launch + waited, rtol=1e-12)
    assert ahead == ("all" if bound.all() else "some" if bound.any() else "none")
    if ahead == "none" and share == 0.0:
        for name in ("allreduce_custom_transition_eff", "allreduce_custom_eff"):
            assert slope[:, names.index(name)].any(), name
    step = 1e-6
    for k in range(len(names)):
        up, down = log_cost.copy(), log_cost.copy()
        up[k] += step
        down[k] -= step
        numeric = (predict(design, up, share)[0] - predict(design, down, share)[0]) / (2 * step)
        # At a change of form the derivative jumps; none of these rows sits on one.
        assert slope[:, k] == pytest.approx(numeric, rel=1e-5, abs=1e-7 * predicted.max()), names[k]
    other = share - step if share == 1.0 else share + step
    if share > 0.0:
        numeric = (predict(design, log_cost, other)[0] - predicted) / (other - share)
        assert by_share == pytest.approx(numeric, rel=1e-5, abs=1e-9)
        assert np.all(by_share <= 0.0)
    # Rows that measured the host alone know of schedules and of nothing else.
    schedules = [names.index(n) for n in ("schedule_step_s", "schedule_request_s")]
    others = np.delete(slope[design.steps :], schedules, axis=1)
    assert design.measured_s.size > design.steps
    assert not others.any()


def test_five_percent_of_wild_rows_hardly_move_the_fit() -> None:
    clean = [run(i, outliers=0.0) for i in range(4)]
    wild = [run(i, outliers=0.05) for i in range(4)]
    names = coefficient_names(clean)
    priors = build_priors(names, CHIP)
    tidy, rough = (solve(build_design(d, names, 50), priors, "sum") for d in (clean, wild))
    pred_tidy, _, _ = predict(build_design(clean, names, 50), tidy.log_cost, 0.0)
    pred_rough, _, _ = predict(build_design(clean, names, 50), rough.log_cost, 0.0)
    assert np.median(np.abs(pred_rough / pred_tidy - 1.0)) < 0.01


def test_row_order_and_doubling_change_nothing() -> None:
    data = [run(i) for i in range(4)]
    names = coefficient_names(data)
    priors = build_priors(names, CHIP)
    base = solve(build_design(data, names, 50), priors, "sum")
    backwards = [d.take(np.ones(d.size, dtype=bool)) for d in reversed(data)]
    again = solve(build_design(backwards, names, 50), priors, "sum")
    # The prior weighs one row; doubling the rows halves its weight and no more.
    doubled = build_design([*data, *data], names, 50)
    twice = solve(doubled, priors, "sum")
    halves = solve(doubled, priors, "sum", weights=np.full(doubled.measured_s.size, 0.5))
    one, two, three, four = (
        predict(build_design(data, names, 50), s.log_cost, 0.0)[0]
        for s in (base, again, twice, halves)
    )
    assert two == pytest.approx(one, rel=1e-4)
    assert four == pytest.approx(one, rel=1e-4)
    assert np.median(np.abs(three / one - 1.0)) < 5e-3


def test_the_order_of_steps_changes_nothing() -> None:
    data = [run(i) for i in range(4)]
    rng = np.random.default_rng(5)
    mixed = []
    for one in data:
        order = rng.permutation(one.size)
        mixed.append(
            replace(
                one,
                totals={name: values[order] for name, values in one.totals.items()},
                duration_s=one.duration_s[order],
                host_s=one.host_s[order],
                phase=tuple(one.phase[i] for i in order),
            )
        )
    names = coefficient_names(data)
    priors = build_priors(names, CHIP)
    solved = [solve(build_design(d, names, 50), priors, "sum") for d in (data, mixed)]
    one, two = (predict(build_design(data, names, 50), s.log_cost, 0.0)[0] for s in solved)
    assert two == pytest.approx(one, rel=1e-4)


@pytest.mark.parametrize("factor", [1000.0, 1e-3])
def test_a_clock_in_another_unit_scales_every_cost(factor: float) -> None:
    # With priors in the same unit, so that nothing else changes: times grow by the factor,
    # rates fall by it.
    data = [run(i) for i in range(4)]
    names = coefficient_names(data)
    priors = build_priors(names, CHIP)
    move = np.log(factor)
    other = Priors(priors.centre + move, priors.spread, priors.low + move, priors.high + move)
    design = build_design(data, names, 50)
    plain = solve(design, priors, "sum")
    scaled = solve(replace(design, measured_s=design.measured_s * factor), other, "sum")
    assert scaled.log_cost - move == pytest.approx(plain.log_cost, abs=1e-6)
    assert scaled.scale == pytest.approx(plain.scale)


@pytest.mark.parametrize("stream", [0.05, 0.6])
def test_both_forms_of_a_collective_are_found(stream: float) -> None:
    # At 0.05 of the link messages beyond some 200 kB are bound by the stream, at 0.6 none
    # ever: then the start alone explains them, and the stream keeps its prior.
    truth = {**TRUTH, "allreduce_custom_eff": stream}
    data = [
        simulate(f"{n}", dense(), CHIP, replace(EAGER, tp=n), seed=n, steps=300, truth=truth)
        for n in (2, 4)
    ]
    names = coefficient_names(data)
    priors = build_priors(names, CHIP)
    found = solve(build_design(data, names, 50), priors, "sum")
    values = to_values(names, np.exp(found.log_cost), CHIP)
    # One line through both would put the start at 0.05, too.
    assert 0.08 < values["allreduce_custom_transition_eff"] < 0.18
    expected = {0.05: 0.05, 0.6: definition("allreduce_custom_eff").prior}[stream]
    assert values["allreduce_custom_eff"] == pytest.approx(expected, rel=0.05)


def test_rates_never_beat_the_peak() -> None:
    # Times far below what the datasheet allows push every rate to its bound, not past it.
    data = run(0)
    fast = replace(data, duration_s=data.duration_s * 0.01)
    names = coefficient_names([fast])
    priors = build_priors(names, CHIP)
    solution = solve(build_design([fast], names, 50), priors, "sum")
    values = to_values(names, np.exp(solution.log_cost), CHIP)
    for name, value in values.items():
        if name.startswith(("gemm_eff", "hbm", "attention_eff")):
            assert value <= 1.0 + 1e-9


def test_the_start_is_inside_the_bounds() -> None:
    data = [run(i) for i in range(4)]
    names = coefficient_names(data)
    priors = build_priors(names, CHIP)
    start = nnls_start(build_design(data, names, 50), priors)
    assert np.all((start >= priors.low) & (start <= priors.high))


def test_bad_requests_are_refused() -> None:
    data = run(0)
    names = coefficient_names([data])
    design = build_design([data], names, 50)
    with pytest.raises(ValueError, match="rule"):
        solve(design, build_priors(names, CHIP), "average")
    empty = design.take(np.zeros(design.measured_s.size, dtype=bool))
    with pytest.raises(ValueError, match="no rows"):
        solve(empty, build_priors(names, CHIP), "sum")


def test_the_robust_scale_is_a_standard_deviation() -> None:
    rng = np.random.default_rng(0)
    assert robust_scale(0.1 * rng.standard_normal(20000)) == pytest.approx(0.1, rel=0.03)
    assert robust_scale(np.zeros(10)) == 0.002


def test_truth_is_complete() -> None:
    names = coefficient_names([run(i) for i in range(4)])
    assert set(names) <= set(TRUTH)
