"""Each gate catches what it is for and leaves clean data alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kernelfit.fit.gates import GATES, apply_gates, with_probe_reference
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
    # The dispatch time of an asynchronous engine: far below reading the weights once.
    assert dropped(replace(run, duration_s=run.duration_s * 0.05))["below_floor"] > 500
    assert "below_floor" not in dropped(run)


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
    assert dropped(replace(run, marks=tuple(marks))) == {"warm_up": 5, "disturbed": 4}


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
