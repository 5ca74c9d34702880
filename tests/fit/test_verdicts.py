"""What the logs cannot tell is said: constructed cases, one by one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from kernelfit.fit.calibrate import Options, calibrate
from kernelfit.fit.calibration import Calibration, Evidence
from kernelfit.fit.steps import RunSteps
from kernelfit.kernel import FittedKernel, InvalidArgument, RequestShape
from kernelfit.kernel.catalog import Coefficient, definition
from tests.fit.simulate import TRUTH, simulate
from tests.kernel.builders import CHIP, EAGER, GRAPHS, alternating, dense

BIG = dense("big", hidden=4096, layers=8, heads=32, kv_heads=8, intermediate=12288)


def fit(*data: RunSteps, draws: int = 10) -> Calibration:
    return calibrate(data, [run.size for run in data], Options(draws=draws, rule="sum"))


def judged(calibration: Calibration) -> dict[str, tuple[Coefficient, Evidence]]:
    pairs = zip(calibration.coefficients, calibration.evidence, strict=True)
    return {c.name: (c, e) for c, e in pairs}


def decodes(
    seed: int, steps: int, longest: int, spread: float, shortest: int = 1
) -> list[list[RequestShape]]:
    """Decoding batches, up to 96 wide, whose contexts scatter around one length."""
    rng = np.random.default_rng(seed)
    return [
        [
            RequestShape(1, max(1, int(longest * np.exp(spread * rng.standard_normal()))), 1)
            for _ in range(int(rng.integers(shortest, 97)))
        ]
        for _ in range(steps)
    ]


def test_bytes_on_the_link_go_with_multiplications_in_one_width() -> None:
    # One model on two GPUs: FLOP of matrices, bytes of passes and bytes on the link are
    # all the same multiple of the tokens, and the stream never binds.
    truth = {**TRUTH, "allreduce_custom_eff": 0.7, "allgather_eff": 0.7}
    pool = replace(EAGER, tp=2)
    one = judged(fit(simulate("one", BIG, CHIP, pool, seed=1, steps=700, truth=truth)))
    group = ("gemm_eff_bf16", "hbm_activation_eff", "allreduce_custom_transition_eff")
    for name in group:
        coefficient, evidence = one[name]
        assert coefficient.verdict != "identified", name
        assert set(group) - {name} <= set(evidence.alias), name
    # A second width and another model move them against each other.
    other = dense("thin", hidden=1024, layers=24, heads=8, kv_heads=4, intermediate=2816)
    data = [
        simulate(
            f"{m.name}{tp}", m, CHIP, replace(EAGER, tp=tp), seed=9 + tp, steps=700, truth=truth
        )
        for m in (BIG, other)
        for tp in (1, 2, 4)
    ]
    many = judged(fit(*data))
    for name in group:
        coefficient, evidence = many[name]
        assert coefficient.verdict == "identified", name
        assert not evidence.alias
        assert coefficient.value == pytest.approx(truth[name], rel=0.05)


def test_requests_and_their_context_at_a_correlation_of_099() -> None:
    batches = decodes(1, 900, 2000, 0.5)
    count = [len(b) for b in batches]
    context = [sum(r.computed + 1 for r in b) for b in batches]
    assert np.corrcoef(count, context)[0, 1] > 0.99
    found = judged(fit(simulate("alike", BIG, CHIP, EAGER, seed=2, batches=batches)))
    # Per request: the head's time. Per token of context: reading keys and values. Scores
    # are multiplied as often as keys are read, one query each, so those two are aliases.
    pair = ("attention_head_s", "hbm_kv_eff")
    assert {found[name][0].verdict for name in pair} != {"identified"}
    assert found["attention_eff_bf16"][0].verdict != "identified"
    assert "attention_eff_bf16" in found["hbm_kv_eff"][1].alias


def test_launches_that_never_outlast_the_device_keep_their_prior() -> None:
    # Prior: 8 launches of 100 us. The fastest of these steps reads some 3.6 GB of weights,
    # which takes 5 ms at 0.71 of 1 TB/s.
    for pool in (EAGER, replace(GRAPHS, async_scheduling=True)):
        data = simulate("big", BIG, CHIP, pool, seed=3, steps=600)
        assert data.duration_s.min() > 8 * definition("launch_layer_s").prior
        found = judged(fit(data))
        coefficient, evidence = found["launch_layer_s"]
        assert coefficient.verdict == "prior"
        assert coefficient.value == pytest.approx(definition("launch_layer_s").prior)
        assert coefficient.method == definition("launch_layer_s").method != "measured"
        assert evidence.data_spread is None or evidence.data_spread > 0.5


def test_launches_that_outlast_the_device_are_measured() -> None:
    # A second depth tells launches of layers from those of a step.
    truth = {**TRUTH, "launch_layer_s": 2e-4}
    data = [
        simulate(f"{layers}", thin, CHIP, EAGER, seed=layers, steps=500, truth=truth)
        for layers in (16, 48)
        for thin in [dense(f"thin-{layers}", 512, layers, 4, 2, 1024)]
    ]
    coefficient, _ = judged(fit(*data))["launch_layer_s"]
    assert coefficient.verdict == "identified"
    assert coefficient.value == pytest.approx(2e-4, rel=0.02)


def test_a_width_never_seen_has_no_collectives() -> None:
    calibration = fit(simulate("one", BIG, CHIP, EAGER, seed=5, steps=400), draws=3)
    assert not [c.name for c in calibration.coefficients if c.name.startswith("all")]
    widths = {r.quantity: (r.low, r.high) for r in calibration.domain}
    assert widths["tensor_parallel_width"] == (1.0, 1.0)
    assert FittedKernel.of(BIG, CHIP, EAGER, "0.32.0", calibration.fitted())
    with pytest.raises(InvalidArgument, match="allreduce_custom"):
        FittedKernel.of(BIG, CHIP, replace(EAGER, tp=2), "0.32.0", calibration.fitted())


def test_a_rate_that_would_beat_its_peak_is_reported_at_its_bound() -> None:
    data = simulate("fast", BIG, CHIP, EAGER, seed=6, steps=400)
    fast = replace(data, duration_s=data.duration_s * 0.05)
    calibration = fit(fast, draws=5)
    ends = [c for c in calibration.coefficients if c.verdict == "at_bound"]
    assert {c.name for c in ends} & {"hbm_weight_eff", "gemm_eff_bf16", "hbm_kv_eff"}
    for c in ends:
        assert any(w.startswith(f"{c.name} sits at the end") for w in calibration.warnings)
    # The same data at their own speed sit at no bound.
    plain = fit(data, draws=5)
    assert not {"hbm_kv_eff", "gemm_eff_bf16"} & {
        c.name for c in plain.coefficients if c.verdict == "at_bound"
    }


def test_a_fit_that_did_not_converge_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    from kernelfit.fit import point

    data = simulate("short", BIG, CHIP, EAGER, seed=7, steps=300)
    assert fit(data, draws=2).converged
    whole = point.solve

    def cut(*words: object, **options: object) -> object:
        return whole(*words, **{**options, "max_evaluations": 1})  # type: ignore[arg-type]

    monkeypatch.setattr(point, "solve", cut)
    calibration = fit(data, draws=2)
    assert not calibration.converged
    assert any("did not converge" in w for w in calibration.warnings)


# Sums over requests.


def shifted(batches: list[list[RequestShape]], seed: int) -> list[list[RequestShape]]:
    """Other batches with the same sums: context moves from one decoding request to another."""
    rng = np.random.default_rng(seed)
    out = []
    for batch in batches:
        requests = list(batch)
        order = [i for i, r in enumerate(requests) if r.scheduled == 1]
        rng.shuffle(order)
        for i, j in zip(order[::2], order[1::2], strict=False):
            give = int(rng.integers(0, requests[i].computed))
            a, b = requests[i], requests[j]
            requests[i] = RequestShape(1, a.computed - give, 1)
            requests[j] = RequestShape(1, b.computed + give, 1)
        out.append(requests)
    return out


def test_where_costs_are_linear_sums_are_all_that_matters() -> None:
    batches = decodes(8, 300, 900, 0.8)
    others = shifted(batches, 9)
    assert batches != others
    model = dense()
    one, two = (simulate("r", model, CHIP, EAGER, seed=10, batches=b) for b in (batches, others))
    # Every request priced by itself in plain loops, the two give the same times, ...
    assert one.duration_s == pytest.approx(two.duration_s, rel=1e-12)
    # ... and the logs, which hold sums, the same calibration.
    values = [{c.name: c.value for c in fit(run, draws=3).coefficients} for run in (one, two)]
    assert values[0] == pytest.approx(values[1], rel=1e-6)
    assert one.totals.keys() == two.totals.keys()
    for name, column in one.totals.items():
        assert np.array_equal(column, two.totals[name]), name


def windowed(per_request: bool, batches: list[list[RequestShape]]) -> RunSteps:
    return simulate(
        "w", alternating(512), CHIP, EAGER, seed=11, batches=batches, per_request=per_request
    )


def about_windows(calibration: Calibration) -> list[str]:
    return [w for w in calibration.warnings if "sliding window" in w]


def test_sums_overstate_what_a_window_leaves_within_limits() -> None:
    batches = decodes(12, 300, 512, 1.0)
    exact, sums = windowed(True, batches), windowed(False, batches)
    true = exact.totals["window_512_decode_context_tokens"]
    alike = sums.totals["window_512_decode_context_tokens"]
    # The smaller of context and window is concave, so that the mean request reads no less
    # than the requests do on average, and at most the window or the whole context.
    assert np.all(alike >= true)
    assert np.any(alike > 1.02 * true)
    assert np.all(alike <= 512 * sums.totals["decode_requests"])
    assert np.all(alike <= sums.totals["decode_context_tokens"])
    # What is not windowed is the same, and so the durations.
    assert np.array_equal(exact.duration_s, sums.duration_s)
    precise, rough = fit(exact, draws=3), fit(sums, draws=3)
    assert about_windows(precise) == []
    (note,) = about_windows(rough)
    assert note.startswith("alternating: ")
    assert "overstated" in note
    # The calibrations differ by no more than the columns do.
    most = float(np.max(alike / true))
    values: list[Mapping[str, float]] = [
        {c.name: c.value for c in calibration.coefficients} for calibration in (precise, rough)
    ]
    assert 1.0 / most < values[1]["hbm_kv_eff"] / values[0]["hbm_kv_eff"] < most


def test_requests_that_are_alike_need_no_note() -> None:
    # One request a step, or no window: sums lose nothing.
    rng = np.random.default_rng(13)
    single = [[RequestShape(1, int(c), 1)] for c in rng.integers(1, 2000, 250)]
    exact, sums = windowed(True, single), windowed(False, single)
    for name, column in exact.totals.items():
        assert np.array_equal(column, sums.totals[name]), name
    assert not sums.windows_alike
    assert about_windows(fit(sums, draws=2)) == []
    plain = simulate("p", dense(), CHIP, EAGER, seed=14, steps=60, per_request=False)
    assert not plain.windows_alike
