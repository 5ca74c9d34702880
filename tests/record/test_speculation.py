"""Draft tokens: how many were accepted, and what is in the KV cache before a step."""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kernelfit.record.hooks import Recorder, wrap_executor, wrap_scheduler
from tests.record.fakes import Again, New, Output, engine, rows_of


def rig(folder: Path, outputs: list[Output]) -> tuple[Recorder, Any, Any]:
    """Return a recorder, a scheduler and an executor over some outputs."""
    scheduler_cls, executor_cls, _ = engine(outputs)
    recorder = Recorder(folder, "0.32.0")
    wrap_scheduler(recorder, scheduler_cls)
    wrap_executor(recorder, executor_cls)
    return recorder, scheduler_cls(), executor_cls()


def result(**emitted: int) -> SimpleNamespace:
    """Return a model runner's output; its order is not the scheduler's."""
    names = sorted(emitted, reverse=True)
    return SimpleNamespace(
        sampled_token_ids=[[1] * emitted[name] for name in names],
        req_id_to_index={name: place for place, name in enumerate(names)},
    )


def rows(recorder: Recorder, folder: Path) -> list[dict[str, Any]]:
    """Return the steps recorded by now."""
    assert recorder.alive
    recorder.writer("engine").flush()
    return rows_of(folder, "step")


def test_accepted_tokens_are_those_beyond_the_first(tmp_path: Path) -> None:
    step = Output(
        {"a": 4, "b": 4, "c": 1, "d": 30},
        [New("d", [1] * 60)],
        Again(["a", "b", "c"], [100, 200, 300]),
        {"a": [5, 6, 7], "b": [5, 6, 7]},
    )
    recorder, scheduler, executor = rig(tmp_path, [step])
    executor.execute_model(scheduler.schedule())
    # Two of three drafts of a, none of b; d is in its prompt and emits nothing.
    scheduler.update_from_output(step, result(a=3, b=1, c=1, d=0))
    (row,) = rows(recorder, tmp_path)
    assert (row["drafts"], row["accepted"], row["sampled"]) == (6, 2, 5)
    assert row["emitted"] == [3, 1, 1, 0]
    assert row["computed"] == [100, 200, 300, 0]


def test_a_step_without_drafts_says_nothing_of_them(tmp_path: Path) -> None:
    step = Output({"a": 4}, [New("a", [1] * 4)])
    recorder, scheduler, executor = rig(tmp_path, [step])
    executor.execute_model(scheduler.schedule())
    scheduler.update_from_output(step, result(a=1))
    (row,) = rows(recorder, tmp_path)
    assert "emitted" not in row
    assert "accepted" not in row


def test_a_request_that_the_result_does_not_name_has_no_count(tmp_path: Path) -> None:
    step = Output({"a": 4, "b": 1}, [], Again(["a", "b"], [9, 9]), {"a": [1, 2, 3]})
    recorder, scheduler, executor = rig(tmp_path, [step])
    executor.execute_model(scheduler.schedule())
    scheduler.update_from_output(step, result(a=2))
    (row,) = rows(recorder, tmp_path)
    assert (row["emitted"], row["accepted"]) == ([2, None], 1)


@pytest.mark.parametrize("submitted", [True, False])
def test_rejected_drafts_were_never_in_the_cache(submitted: bool, tmp_path: Path) -> None:
    first = Output(
        {"a": 4, "b": 4, "c": 4},
        [],
        Again(["a", "b", "c"], [100, 200, 300]),
        dict.fromkeys("abc", [-1] * 3),
    )
    # Scheduled before the first one's result: all of its drafts count as computed. c was
    # preempted and comes back from the cache, which holds what it says.
    second = Output(
        {"a": 4, "b": 4, "c": 16},
        [],
        Again(["a", "b", "c"], [104, 204, 288], {"c"}),
        dict.fromkeys("ab", [-1] * 3),
    )
    recorder, scheduler, executor = rig(tmp_path, [first, second])
    executor.execute_model(scheduler.schedule())
    scheduler.schedule()
    if submitted:
        executor.execute_model(second)
    scheduler.update_from_output(first, result(a=4, b=2, c=1))
    if not submitted:
        executor.execute_model(second)
    scheduler.update_from_output(second, result(a=1, b=1, c=1))
    one, two = rows(recorder, tmp_path)
    assert one["computed"] == [100, 200, 300]
    assert two["computed"] == [104, 202, 288]
    # The engine's own list is another: it was already sent to the workers.
    assert second.scheduled_cached_reqs.num_computed_tokens == [104, 204, 288]


def test_computed_is_the_truth_however_many_drafts_are_rejected(tmp_path: Path) -> None:
    rng = random.Random(5)
    truth = {f"r{n}": 50 * n + 7 for n in range(6)}
    counted = dict(truth)  # as the engine counts, ahead of its results
    outputs, kept = [], []
    for _ in range(40):
        drafts = {r: [-1] * rng.randrange(0, 5) for r in truth}
        scheduled = {r: 1 + len(d) for r, d in drafts.items()}
        emitted = {r: rng.randrange(1, s + 1) for r, s in scheduled.items()}
        outputs.append(
            Output(
                scheduled,
                [],
                Again(list(truth), list(counted.values())),
                {r: d for r, d in drafts.items() if d},
            )
        )
        kept.append(emitted)
        # The engine learns what became of a step one step later.
        counted = {r: counted[r] + s for r, s in scheduled.items()}
        if len(kept) > 1:
            was, before = outputs[-2].num_scheduled_tokens, kept[-2]
            counted = {r: c - (was[r] - before[r]) for r, c in counted.items()}
    recorder, scheduler, executor = rig(tmp_path, list(outputs))
    flying: list[int] = []
    for place in range(40):
        output = scheduler.schedule()
        executor.execute_model(output)
        flying.append(place)
        if len(flying) == 2:
            done = flying.pop(0)
            scheduler.update_from_output(outputs[done], result(**kept[done]))
    scheduler.update_from_output(outputs[39], result(**kept[39]))
    found = rows(recorder, tmp_path)
    now = list(truth.values())
    for place, row in enumerate(found):
        assert row["in_flight"] == min(place + 1, 2)
        assert row["computed"] == now
        now = [n + kept[place][r] for n, r in zip(now, truth, strict=True)]
