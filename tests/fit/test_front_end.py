"""Host work around the step: planted coefficients come back, and what data lack is said."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelfit.fit.front_end import FrontEndFit, fit_front_end
from kernelfit.fit.front_end_runs import FrontEndRun, gate_front_end
from kernelfit.fit.linearity import linearity
from kernelfit.kernel.catalog import Coefficient, definition
from tests.fit.front_ends import SCOPE, TRUTH, simulate
from tests.kernel.builders import CHIP


def fit(*runs: FrontEndRun, draws: int = 30) -> FrontEndFit:
    found = fit_front_end(runs, CHIP, draws=draws, seed=3)
    assert found is not None
    return found


def by_name(found: FrontEndFit) -> dict[str, Coefficient]:
    return {c.name: c for c in found.coefficients}


@pytest.fixture(scope="module")
def planted() -> FrontEndFit:
    return fit(simulate(1))


def test_planted_coefficients_lie_within_their_intervals(planted: FrontEndFit) -> None:
    known = by_name(planted)
    assert set(known) == set(TRUTH)
    for name, value in TRUTH.items():
        c = known[name]
        assert c.ci95[0] <= value <= c.ci95[1], c
        assert c.ci95[1] / c.ci95[0] < 2.0
        assert c.method == "measured"
        assert (c.unit, c.scope) == ("s", SCOPE)
    assert known["admission_token_s"].verdict == known["output_token_s"].verdict == "identified"
    assert all(part.linearity.linear for part in planted.rests_on.parts)
    admission = planted.rests_on.parts[0]
    assert (admission.kind, admission.events) == ("admission", 799)
    assert admission.low < 5 < 25_000 < admission.high
    # Noise with a memory of a half inflates variances threefold.
    assert 1.5 < admission.inflation < 6.0


@pytest.mark.slow
def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    held = tried = 0
    # Forty seeds differ by five points of a hundred from the next forty.
    for seed in range(140):
        run = simulate(100 + seed, calls=1500, requests=400)
        for name, c in by_name(fit(run, draws=100)).items():
            tried += 1
            held += c.ci95[0] <= TRUTH[name] <= c.ci95[1]
    assert held / tried > 0.88


def test_what_never_varied_keeps_its_prior_or_shares_a_sum() -> None:
    known = by_name(fit(simulate(2, prompts=(500, 500), extra=False)))
    # All prompts are as long: only the sum is known, and it is right.
    whole = known["admission_request_s"].value + 500 * known["admission_token_s"].value
    assert whole == pytest.approx(
        TRUTH["admission_request_s"] + 500 * TRUTH["admission_token_s"], rel=0.1
    )
    for name in ("admission_request_s", "admission_token_s"):
        assert known[name].verdict in ("weak", "prior")
        assert known[name].method == "assumed"
    extra = known["output_extra_token_s"]
    assert (extra.verdict, extra.method) == ("prior", "assumed")
    assert extra.value == pytest.approx(definition("output_extra_token_s").prior)
    assert extra.ci95[1] / extra.ci95[0] > 10
    assert known["output_token_s"].verdict == "identified"


def test_a_law_that_bends_is_told_and_not_believed() -> None:
    found = fit(simulate(4, power=0.6, truth={**TRUTH, "admission_token_s": 30e-6}))
    shape = found.rests_on.parts[0].linearity
    assert not shape.linear
    assert shape.p_value < 1e-6
    assert shape.worst_gap > 0.1
    known = by_name(found)
    for name in ("admission_request_s", "admission_token_s"):
        c = known[name]
        assert c.verdict != "identified"
        assert c.ci95[1] >= c.value * np.exp(shape.worst_gap) * 0.999
    assert any("not linear in prompt_tokens" in text for text in found.warnings)
    # The other kinds are not touched.
    assert known["completion_s"].verdict == "identified"


def test_a_completion_that_grows_with_its_output_is_told() -> None:
    run = simulate(5)
    grows = run.kind == 2
    longer = np.where(grows, run.duration_s + 1e-6 * run.tokens, run.duration_s)
    shape = fit(replace(run, duration_s=longer)).rests_on.parts[2].linearity
    assert (shape.counted, shape.linear) == ("output_tokens", False)


def test_another_tokeniser_that_contradicts_widens_the_interval() -> None:
    own = simulate(6)
    slower = {**TRUTH, "admission_token_s": 2 * TRUTH["admission_token_s"]}
    other = simulate(7, requests=400, calls=600, scope="other tokeniser", truth=slower, run="b")
    found = fit(own, other)
    alone = by_name(fit(own))
    known = by_name(found)
    assert found.rests_on.scope == SCOPE
    assert found.rests_on.others == ("other tokeniser",)
    token = known["admission_token_s"]
    assert token.value == alone["admission_token_s"].value
    assert token.verdict == "weak"
    assert token.ci95[1] >= 1.8 * token.value
    assert any("under other tokeniser" in text for text in found.warnings)
    assert known["output_token_s"].verdict == "identified"


def test_rare_stalls_move_the_mean_and_not_the_coefficients() -> None:
    found = fit(simulate(8, stalls=0.04))
    assert by_name(found)["output_token_s"].value == pytest.approx(TRUTH["output_token_s"], rel=0.1)
    assert found.rests_on.parts[1].mean_ratio > 1.25
    assert any("rare long calls" in text for text in found.warnings)


def test_too_few_events_are_not_fitted() -> None:
    run = simulate(9, requests=40)
    few = run.take(np.flatnonzero((run.kind == 1) | (np.arange(run.kind.size) < 20)))
    found = fit(few)
    assert set(by_name(found)) == {"output_call_s", "output_token_s", "output_extra_token_s"}
    assert any("too few to fit" in text for text in found.warnings)
    assert fit_front_end([run.take(run.kind == 9)], CHIP, draws=20, seed=0) is None
    assert fit_front_end([], CHIP, draws=20, seed=0) is None


def test_the_seed_decides_the_draws() -> None:
    run = simulate(10, requests=100, calls=200)
    first, again = fit(run, draws=20), fit(run, draws=20)
    np.testing.assert_array_equal(first.draws, again.draws)
    other = fit_front_end([run], CHIP, draws=20, seed=4)
    assert other is not None
    assert not np.array_equal(first.draws, other.draws)
    assert first.names == tuple(c.name for c in first.coefficients)


@settings(max_examples=3, deadline=None)
@given(factor=st.floats(0.01, 100.0))
def test_a_slower_host_has_coefficients_as_much_slower(factor: float) -> None:
    run = simulate(11, requests=300, calls=600)
    once = by_name(fit(run, draws=20))
    slower = replace(run, duration_s=factor * run.duration_s, start_s=factor * run.start_s)
    scaled = by_name(fit(slower, draws=20))
    for name in ("admission_token_s", "output_token_s", "completion_s"):
        assert scaled[name].value == pytest.approx(factor * once[name].value, rel=0.03)


def test_gates_name_and_count_what_they_drop() -> None:
    run = simulate(12, requests=50, calls=100)
    duration, tokens, requests = run.duration_s.copy(), run.tokens.copy(), run.requests.copy()
    duration[3], duration[4], tokens[5], requests[60] = 0.0, np.nan, np.nan, np.nan
    tokens[70] = 0.0
    left, counts = gate_front_end(
        replace(run, duration_s=duration, tokens=tokens, requests=requests)
    )
    assert {gate.id: gate.events for gate in counts} == {
        "events_unusable": 4,
        "events_idle": 1,
        "events_warm_up": 3,
    }
    assert left.kind.size == 200 - 8
    assert {gate.run for gate in counts} == {"planted"}
    # An admission whose prompt is one token is the nearest that is kept.
    tokens[6] = 1.0
    assert gate_front_end(replace(run, tokens=tokens))[0].tokens.min() == 1.0


def test_work_that_waited_for_other_work_is_left_out() -> None:
    run = simulate(14, requests=100, calls=100)
    start, duration = run.start_s.copy(), run.duration_s.copy()
    # Admissions 40 and 41 came at once: the one waited for the other.
    start[41] = start[40] + 0.5 * duration[40]
    duration[41] += 0.5 * duration[40]
    left, counts = gate_front_end(replace(run, start_s=start, duration_s=duration))
    assert {gate.id: gate.events for gate in counts}["events_together"] == 2
    assert left.kind.size == 300 - 3 - 2
    # In two processes neither waited.
    process = (np.arange(run.kind.size) == 41).astype(np.int64)
    _, apart = gate_front_end(replace(run, start_s=start, process=process))
    assert "events_together" not in {gate.id for gate in apart}
    # Where all came together, that is all there is.
    crowd = replace(run, start_s=np.zeros(run.kind.size))
    kept, none = gate_front_end(crowd)
    assert "events_together" not in {gate.id for gate in none}
    assert kept.kind.size == 300 - 3


def test_a_law_that_bends_only_at_the_longest_prompts_is_told() -> None:
    run = simulate(15, requests=400)
    long = (run.kind == 0) & (run.tokens > 15_000)
    assert 10 < np.count_nonzero(long) < 40
    duration = np.where(long, 2.5 * run.duration_s, run.duration_s)
    slow = replace(run, duration_s=duration, start_s=10.0 * run.start_s)
    shape = fit(slow).rests_on.parts[0].linearity
    assert not shape.linear
    assert max(shape.bins, key=lambda each: abs(each.gap)).high > 15_000


def test_every_process_warms_up_by_itself() -> None:
    run = simulate(13, requests=50, calls=100)
    process = np.arange(run.kind.size) % 2
    _, counts = gate_front_end(replace(run, process=process))
    assert {gate.id: gate.events for gate in counts} == {"events_warm_up": 6}


def test_shapes_are_judged_by_stretches() -> None:
    rng = np.random.default_rng(0)
    count = np.exp(rng.uniform(0.0, 8.0, 800))
    flat = rng.normal(0.0, 0.1, 800)
    assert linearity("prompt_tokens", count, flat, 1.0, 2).linear
    bent = flat + 0.4 * (np.log(count) / 8.0 - 0.5) ** 2 * 4
    assert not linearity("prompt_tokens", count, bent, 1.0, 2).linear
    # A gap that is sure but small is no reason to distrust a law.
    slight = flat + 0.03 * (np.log(count) / 8.0 - 0.5)
    assert linearity("prompt_tokens", count, slight, 1.0, 2).linear
    assert linearity("outputs", np.ones(800), bent, 1.0, 2) == linearity(
        "outputs", np.ones(800), flat, 1.0, 2
    )
