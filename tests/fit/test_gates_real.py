"""The gates on published measurements whose faults are known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kernelfit.fit.gates import apply_gates, gate_marks, with_copies
from kernelfit.fit.steps import RunSteps
from tests.fit.gate_runs import B300, H100, SPLITWISE, b300, h100_steps, needs, splitwise


def counts(run: RunSteps, off: tuple[str, ...] = ()) -> dict[str, int]:
    return {count.id: count.rows for count in apply_gates(run, off)[1]}


@needs(B300)
def test_merged_steps_of_the_b300_runs() -> None:
    """One 8,187-token step of 807.6 ms before one of 11.5 ms, and what is like it."""
    run = b300(1)
    marks = gate_marks(run)
    for slow_s, fast_s in ((0.807636, 0.011508), (0.786102, 0.011901)):
        (place,) = np.flatnonzero(np.isclose(run.duration_s, slow_s, rtol=0, atol=1e-9))
        assert run.duration_s[place + 1] == pytest.approx(fast_s)
        assert marks[place] == marks[place + 1] == "merged"
        assert marks[place - 1] != "merged" != marks[place + 2]
    assert marks.count("merged") <= 10


@needs(B300)
@pytest.mark.parametrize("tp", [1, 2, 4])
def test_most_of_the_b300_runs_is_kept(tp: int) -> None:
    """Known as clean otherwise: at most 22 decode rows above 1.5 times the usual."""
    run = b300(tp)
    found = counts(run)
    designed = sum(bool(marks) for marks in run.marks)
    assert 0 <= designed - found.pop("shared_prefix") <= 10
    # Prompts of one GPU are launched without a graph, and the step before pays for it.
    assert found.pop("spilled", 0) == pytest.approx(92 if tp == 1 else 0, abs=10)
    assert found.pop("warm_up") == 5
    assert found.pop("gap") == 0
    assert sum(found.values()) <= 0.002 * run.size, found
    # The one step of three requests at 803 ms is dropped whether or not it shares.
    if tp == 2:
        (giant,) = np.flatnonzero((run.duration_s > 0.8) & (run.totals["tokens"] == 3))
        assert gate_marks(run)[giant] is not None
        assert gate_marks(run, off=["shared_prefix"])[giant] is not None


@needs(H100)
def test_the_dispatch_times_of_the_h100_traces_are_refused_whole() -> None:
    runs = list(h100_steps())
    assert [run.size for run in runs] == [5992, 7441]
    for run in runs:
        # Weights at the datasheet's rate: 34.5 GB (17 GB) a rank at 3.35 TB/s.
        assert np.median(run.duration_s) < 1.2e-3
        found = counts(run)
        assert found["not_step_time"] >= run.size - 5
        assert apply_gates(run)[0].size == 0


@needs(H100)
def test_cycles_of_the_h100_traces_are_told_from_spans_over_missing_steps() -> None:
    """Consecutive ids: 593 and 716 pairs; the traces hold a tenth of the steps."""
    for run, pairs in zip(h100_steps(), (593, 716), strict=True):
        span = np.append(np.diff(run.start_s), np.nan)
        next_to = np.append(np.diff(run.step) == 1, False)
        assert np.count_nonzero(next_to) == pairs
        cycle = replace(run, timing="cycle", duration_s=span)
        marks = gate_marks(cycle)
        assert not any(m is None for m, one in zip(marks, next_to, strict=True) if not one)
        kept, _ = apply_gates(cycle)
        assert kept.size > 0.97 * pairs
        assert 0.014 < np.median(kept.duration_s) < 0.022
        # A reader that kept only true cycles, with the starts, loses no more to gaps.
        true = cycle.take(next_to)
        assert counts(true).get("gap", 0) <= 0.01 * pairs


@needs(SPLITWISE)
@pytest.mark.parametrize("what", ["prompt", "token"])
def test_capped_h100_rows_are_copies(what: str) -> None:
    """1.30 times the prompt times and 1.00 times the token times, to the last digit."""
    for run in with_copies(splitwise(what)):
        marks = gate_marks(run, off=["warm_up"])
        if "pcap" in run.run:
            assert marks == ("copied",) * 105
        else:
            assert "copied" not in marks


@needs(SPLITWISE)
@pytest.mark.parametrize("what", ["prompt", "token"])
def test_the_impossible_cell_is_the_only_one_below_the_floor(what: str) -> None:
    """TP2, 64 prompts of 512 tokens: 360 ms, where 32 of them take 2,398 ms."""
    for run in splitwise(what):
        if "pcap" in run.run:
            continue
        impossible = (run.totals["tokens"] == 64 * 512) & (what == "prompt") & ("tp2" in run.run)
        marks = gate_marks(run, off=["warm_up"])
        assert [mark is not None for mark in marks] == impossible.tolist()
        assert {mark for mark in marks if mark} <= {"below_floor"}
