"""The end of a killed engine's recording: what a kill explains is no fault, and nothing else is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelfit.logs.unfinished import MAX_LOST_S, MAX_LOST_STEPS, MOST_LOST_STEPS, unfinished_after
from tests.logs.recording import Recording, adds_up, read


def recording(steps: int, ranks: int = 1) -> Recording:
    """Return decode steps, one every 20 ms."""
    made = Recording(ranks=ranks)
    for number in range(steps):
        made.step([(1, 100 + number, 50, 0)])
    return made


@pytest.mark.parametrize("lost", [1, 5, 9])
def test_steps_that_the_engine_did_not_finish_are_counted_and_not_rejected(
    lost: int, tmp_path: Path
) -> None:
    made = recording(40, ranks=2)
    del made.steps[-lost:]
    del made.workers[1][-1:]
    (run,) = read(made.write(tmp_path / "run"))
    # Killed: rank 0 flushed everything, rank 1 all but one, the engine none of the last ones.
    assert run.steps.step.tolist() == list(range(40 - lost))
    assert run.rejects == ()
    assert run.unfinished == lost + (lost - 1)
    assert adds_up(run)


def test_a_worker_that_was_killed_first_leaves_steps_without_a_span(tmp_path: Path) -> None:
    made = recording(40)
    del made.workers[0][-3:]
    (run,) = read(made.write(tmp_path / "run"))
    assert (run.steps.count, run.rejects, run.unfinished) == (37, (), 3)
    assert adds_up(run)


def test_a_worker_that_stopped_long_before_the_engine_is_a_fault(tmp_path: Path) -> None:
    made = recording(100)
    del made.workers[0][-60:]
    (run,) = read(made.write(tmp_path / "run"))
    assert (run.steps.count, run.unfinished) == (40, 0)
    assert len(run.rejects) == 60
    assert all("has no span for it" in reject.reason for reject in run.rejects)
    assert adds_up(run)


def test_a_span_that_is_missing_before_the_end_is_a_fault(tmp_path: Path) -> None:
    made = recording(40)
    del made.workers[0][-2]
    (run,) = read(made.write(tmp_path / "run"))
    assert (run.steps.count, run.unfinished, len(run.rejects)) == (39, 0, 1)


def test_a_row_that_contradicts_itself_is_a_reject_even_at_the_end(tmp_path: Path) -> None:
    made = recording(40)
    del made.workers[0][-2:]
    made.steps[-1]["n"] += 1
    (run,) = read(made.write(tmp_path / "run"))
    assert (run.steps.count, run.unfinished, len(run.rejects)) == (38, 1, 1)
    assert adds_up(run)


def behind(numbers: np.ndarray, moments: np.ndarray, known: int) -> int:
    """Return how many of the engine's steps a kill left, where a worker knows the first ones."""
    sides = [(numbers, moments), (numbers[:known], moments[:known])]
    last = unfinished_after(
        [int(own.max(initial=-1)) for own, _ in sides],
        lambda at: [begins[own > at] for own, begins in sides],
    )
    return 0 if last is None else int(np.count_nonzero(numbers > last))


def test_the_limits_are_those_stated() -> None:
    def paused(count: int, pause_s: float) -> int:
        numbers = np.arange(20 + count)
        return behind(numbers, np.round(numbers * pause_s * 1e9).astype(np.int64), 20)

    # Few steps in flight may take seconds each; many must fit into what a kill loses.
    assert paused(MAX_LOST_STEPS, 30.0) == MAX_LOST_STEPS
    assert paused(MAX_LOST_STEPS + 1, 30.0) == 0
    many = 51
    assert paused(many, MAX_LOST_S / (many - 1)) == many
    assert paused(many, 1.01 * MAX_LOST_S / (many - 1)) == 0
    # More than any engine does in that time is no kill's, even where the clock stands still.
    assert paused(MOST_LOST_STEPS, 0.0) == MOST_LOST_STEPS
    assert paused(MOST_LOST_STEPS + 1, 0.0) == 0


def test_a_worker_without_a_single_row_explains_nothing(tmp_path: Path) -> None:
    numbers = np.arange(3)
    assert behind(numbers, numbers, 0) == 0
    made = recording(3)
    made.workers[0].clear()
    (run,) = read(made.write(tmp_path / "run"))
    assert (run.steps.count, run.unfinished, len(run.rejects)) == (0, 0, 3)


@settings(max_examples=40, deadline=None)
@given(cuts=st.lists(st.integers(0, 60), min_size=3, max_size=3))
def test_wherever_the_files_end_every_line_is_accounted_for(
    cuts: list[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    made = recording(60, ranks=2)
    for rows, cut in zip((made.steps, *made.workers), cuts, strict=True):
        del rows[len(rows) - cut :]
    (run,) = read(made.write(tmp_path_factory.mktemp("cut") / "run"))
    assert adds_up(run)
    kept = 60 - max(cuts)
    assert run.steps.step.tolist() == list(range(kept))
    assert run.unfinished in (0, run.counts.lines - 6 - 3 * kept)
