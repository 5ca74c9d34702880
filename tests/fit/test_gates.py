"""Each gate catches what it is for and leaves clean data alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kernelfit.fit.gates import GATES, apply_gates, gate_marks, with_copies, with_probe_reference
from kernelfit.fit.steps import RunSteps
from kernelfit.kernel import RequestShape
from tests.fit.simulate import simulate
from tests.kernel.builders import CHIP, EAGER, dense

STEADY = [[RequestShape(1, 200 + i, 100)] * 8 for i in range(200)]


def clean(**options: object) -> RunSteps:
    return simulate("clean", dense(), CHIP, EAGER, seed=4, steps=600, outliers=0.0, **options)  # type: ignore[arg-type]


def dropped(run: RunSteps) -> dict[str, int]:
    return {count.id: count.rows for count in apply_gates(run)[1]}


def changed(run: RunSteps, index: int, duration_s: float) -> RunSteps:
    values = run.duration_s.copy()
    values[index] = duration_s
    return replace(run, duration_s=values)


def test_clean_steps_lose_only_their_warm_up() -> None:
    assert dropped(clean()) == {"warm_up": 5}


@pytest.mark.parametrize("bad", [np.nan, 0.0, -1.0, np.inf])
def test_a_duration_that_is_none_is_unusable(bad: float) -> None:
    assert dropped(changed(clean(), 100, bad)) == {"unusable": 1, "warm_up": 5}


def test_a_duration_below_the_datasheet_is_not_the_steps() -> None:
    run = clean()
    few = run.duration_s.copy()
    few[100:300] *= 0.01
    marks = gate_marks(replace(run, duration_s=few))
    assert set(marks[100:300]) <= {"below_floor", "merged"}
    assert marks[:5] == ("warm_up",) * 5
    # The step before the first of them may hold its time, and is not known to be usual.
    assert set(marks[5:99] + marks[300:]) == {None}
    assert "below_floor" not in dropped(run)


def test_a_column_mostly_below_the_datasheet_is_dropped_whole() -> None:
    run = clean()
    # The dispatch time of an asynchronous engine: far below reading the weights once,
    # but for some steps that waited for something.
    dispatch = np.where(np.arange(run.size) % 5, run.duration_s * 0.01, run.duration_s)
    assert dropped(replace(run, duration_s=dispatch)) == {"not_step_time": 600}
    kept, _ = apply_gates(replace(run, duration_s=dispatch), off=["not_step_time"])
    assert 0 < kept.size <= 120


def test_a_wrong_regime_is_dropped_whole_but_single_giants_are_not() -> None:
    run = clean()
    assert dropped(replace(run, duration_s=run.duration_s * 1e4))["above_ceiling"] == 595
    assert "above_ceiling" not in dropped(changed(run, 100, 60.0))


def test_marks_of_the_reader_are_heeded() -> None:
    run = clean()
    marks = list(run.marks)
    for index, mark in ((50, "preempted"), (60, "resumed"), (70, "spec"), (80, "in_flight")):
        marks[index] = (mark,)
    marks[90] = ("pairs_approximated",)
    marks[95] = ("warmup",)
    assert dropped(replace(run, marks=tuple(marks))) == {"warm_up": 6, "disturbed": 4}


def test_a_burst_stands_out_from_neighbours_of_its_shape() -> None:
    run = simulate("steady", dense(), CHIP, EAGER, seed=5, outliers=0.0, batches=STEADY)
    assert dropped(run) == {"warm_up": 5}
    assert dropped(changed(run, 100, run.duration_s[100] * 2.0)) == {"warm_up": 5, "burst": 1}
    # A step of another shape beside them is no burst, however long it is.
    other = [*STEADY[:100], [RequestShape(512, 0, 512)], *STEADY[101:]]
    assert dropped(
        simulate("steady", dense(), CHIP, EAGER, seed=5, outliers=0.0, batches=other)
    ) == {"warm_up": 5}


def test_a_slow_probe_marks_its_step_and_the_one_after() -> None:
    run = clean()
    probe = np.full(run.size, 20e-6)
    probe[[100, 300]] = 40e-6
    probed = with_probe_reference([replace(run, probe_s=probe)])[0]
    assert probed.probe_reference_s == pytest.approx(20e-6)
    assert dropped(probed) == {"warm_up": 5, "contended": 4}


def test_a_run_that_was_slow_throughout_is_told_from_the_others() -> None:
    run = clean()
    fast = replace(run, probe_s=np.full(run.size, 20e-6))
    slow = replace(run, run="slow", probe_s=np.full(run.size, 40e-6))
    alone = with_probe_reference([slow])[0]
    assert "contended" not in dropped(alone)
    *_, beside = with_probe_reference([fast, fast, slow])
    assert dropped(beside)["contended"] == 595


def test_without_probes_nothing_is_called_contended() -> None:
    assert "contended" not in dropped(with_probe_reference([clean()])[0])


def test_costly_recording_refuses_the_run() -> None:
    assert dropped(replace(clean(), recorder_cost_share=0.02)) == {"recorder_cost": 600}
    assert dropped(replace(clean(), recorder_cost_share=0.005)) == {"warm_up": 5}


def test_gates_can_be_switched_off_and_each_states_its_rule() -> None:
    run = changed(clean(), 100, float("nan"))
    kept, counts = apply_gates(run, off=[gate.id for gate in GATES])
    assert kept.size == run.size
    assert counts == ()
    assert len({gate.id for gate in GATES}) == len(GATES)
    assert all(gate.rule for gate in GATES)


def test_counts_add_up_and_name_examples() -> None:
    run = changed(changed(clean(), 100, -1.0), 200, float("nan"))
    kept, counts = apply_gates(run)
    assert kept.size + sum(count.rows for count in counts) == run.size
    assert counts[0].examples == (100, 200)


def test_marks_name_the_gate_that_drops_each_step() -> None:
    run = changed(changed(clean(), 100, -1.0), 200, 60.0)
    marks = gate_marks(run)
    assert len(marks) == run.size
    assert marks[:5] == ("warm_up",) * 5
    assert marks[100] == "unusable"
    kept, counts = apply_gates(run)
    assert sum(mark is None for mark in marks) == kept.size
    assert {c.id: c.rows for c in counts} == {m: marks.count(m) for m in set(marks) if m}
    assert gate_marks(run, off=[gate.id for gate in GATES]) == (None,) * run.size


def test_a_run_without_steps_passes() -> None:
    none = clean().take(np.zeros(600, dtype=bool))
    assert apply_gates(none)[1] == ()
    assert gate_marks(none) == ()
    assert with_copies([none, none])[1].size == 0
    assert with_probe_reference([]) == ()


def test_steps_that_share_their_prefix_cannot_be_priced() -> None:
    run = clean()
    shared = replace(run, marks=(("shared_prefix",),) * run.size)
    alone = int(np.count_nonzero(run.totals["requests"][5:] == 1))
    assert alone > 0
    # A request alone shares with nobody.
    assert dropped(shared) == {"warm_up": 5, "shared_prefix": 595 - alone}


@pytest.mark.parametrize(("ratio", "refused"), [(2.0, True), (1.03, True), (1.01, False)])
def test_chunks_that_are_not_tokens_refuse_the_run(ratio: float, refused: bool) -> None:
    found = dropped(replace(clean(), chunks_per_token=ratio))
    assert found == ({"chunks_per_token": 600} if refused else {"warm_up": 5})


def test_a_slow_start_is_dropped_as_far_as_it_goes() -> None:
    run = simulate("steady", dense(), CHIP, EAGER, seed=5, outliers=0.0, batches=STEADY * 5)
    slow = run.duration_s.copy()
    slow[:30] *= 1.4
    # Its neighbours are slow too, so that it is no burst; the same shape is fast later.
    assert dropped(replace(run, duration_s=slow)) == {"warm_up": 30}
    slow[500:530] *= 1.4
    assert dropped(replace(run, duration_s=slow)) == {"warm_up": 30}


def test_a_restart_warms_up_again() -> None:
    run = clean()
    step = np.concatenate([np.arange(100, 400), np.arange(300)])
    assert dropped(replace(run, step=step)) == {"warm_up": 10}
    # Missing ids are no restart.
    assert dropped(replace(run, step=np.arange(600) * 3)) == {"warm_up": 5, "gap": 0}


def test_a_gap_in_the_ids_spoils_cycles_and_is_noted_for_others() -> None:
    run = clean()
    step = np.arange(600) + (np.arange(600) >= 300)
    (noted,) = [c for c in apply_gates(replace(run, step=step))[1] if c.id == "gap"]
    assert (noted.rows, noted.examples) == (0, (301,))
    cycle = replace(run, step=step, timing="cycle")
    assert dropped(cycle) == {"warm_up": 5, "gap": 2}
    # With starts it is known which of the two steps spans the gap, if any.
    ends = np.cumsum(run.duration_s)
    begun = np.concatenate([[0.0], ends[:-1]])
    assert dropped(replace(cycle, start_s=begun)) == {"warm_up": 5, "gap": 1}
    lost = 1.7 * run.duration_s[299]
    later = begun + np.where(np.arange(600) >= 300, lost, 0.0)
    assert dropped(replace(cycle, start_s=later)) == {"warm_up": 5}


def test_a_clock_that_jumps_is_seen_in_the_starts() -> None:
    run = clean()
    begun = np.concatenate([[0.0], np.cumsum(run.duration_s)[:-1]])
    assert dropped(replace(run, start_s=begun)) == {"warm_up": 5}
    idle = begun + np.where(np.arange(600) >= 200, 30.0, 0.0)
    assert dropped(replace(run, start_s=idle)) == {"warm_up": 5}
    back = begun - np.where(np.arange(600) >= 200, 1.0, 0.0)
    marks = gate_marks(replace(run, start_s=back))
    assert marks[199] == marks[200] == "clock"
    # Two steps in flight: each is scheduled when the one before it begins to run.
    ahead = np.concatenate([[-1.0], begun[:-1]])
    whole = run.duration_s + np.concatenate([[1.0], run.duration_s[:-1]])
    assert "clock" not in gate_marks(replace(run, start_s=ahead, duration_s=whole))


def test_a_step_that_outlasts_the_two_after_it_is_a_fault_of_the_clock() -> None:
    steady = simulate("steady", dense(), CHIP, EAGER, seed=5, outliers=0.0, batches=STEADY)
    begun = np.concatenate([[0.0], np.cumsum(steady.duration_s)[:-1]])
    run = replace(steady, start_s=begun)
    assert dropped(changed(run, 100, run.duration_s[100] * 2.5)) == {"warm_up": 5, "clock": 1}
    assert dropped(changed(run, 100, run.duration_s[100] * 1.4)) == {"warm_up": 5}
