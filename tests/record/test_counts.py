"""The four counts where engines differ from the simple case."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from kernelfit.record.hooks import Recorder, wrap_executor, wrap_scheduler, wrap_worker
from tests.record.fakes import Again, New, Output, drive, engine, rows_of

Counts = tuple[int, int | None, int | None, int | None]


def counts(folder: Path, outputs: list[Output]) -> tuple[list[list[Counts]], Recorder]:
    """Return scheduled, computed, prompt length and cached of every request of every step."""
    scheduler, executor, worker = engine(outputs)
    recorder = Recorder(folder, "0.32.0")
    wrap_scheduler(recorder, scheduler)
    wrap_executor(recorder, executor)
    wrap_worker(recorder, worker)
    drive(scheduler, executor, len(outputs))
    assert recorder.alive
    recorder.writer("engine").flush()
    recorder.writer("worker").flush()
    keys = ("scheduled", "computed", "prompt_len", "cached")
    steps = rows_of(folder, "step")
    return [list(zip(*(row[key] for key in keys), strict=True)) for row in steps], recorder


def test_a_prompt_of_embeddings_has_a_length_too(tmp_path: Path) -> None:
    embeds = New("a", None, prompt_embeds=[[0.1, 0.2]] * 30)
    unknown = New("b", None)
    found, _ = counts(tmp_path, [Output({"a": 30, "b": 4}, [embeds, unknown])])
    # A length that nothing states is unknown; zero would call the request past its prompt.
    assert found == [[(30, 0, 30, 0), (4, 0, None, 0)]]


def test_a_step_without_tokens_is_a_row_on_both_sides(tmp_path: Path) -> None:
    outputs = [Output({}), Output({"a": 3}, [New("a", [1] * 3)]), Output({})]
    found, _ = counts(tmp_path, outputs)
    assert found == [[], [(3, 0, 3, 0)], []]
    for kind in ("step", "worker"):
        assert [(r["i"], r["n"]) for r in rows_of(tmp_path, kind)] == [(0, 0), (1, 3), (2, 0)]


def test_a_resumed_request_may_come_as_a_new_one(tmp_path: Path) -> None:
    outputs = [
        Output({"a": 20, "b": 8}, [New("a", [1] * 20), New("b", [1] * 8)]),
        Output({"b": 1}, [], Again(["b"], [8]), preempted_req_ids={"a"}),
        Output({"a": 5, "b": 1}, [New("a", [1] * 20, 16)], Again(["b"], [9])),
    ]
    found, _ = counts(tmp_path, outputs)
    assert found[2] == [(5, 16, 20, 16), (1, 9, 8, 0)]
    rows = rows_of(tmp_path, "step")
    assert [(r["resumed"], r["preempted"]) for r in rows] == [(0, 0), (0, 1), (1, 0)]
    # Counted beside the engine's own set, which workers read as well.
    assert outputs[2].scheduled_cached_reqs.resumed_req_ids == set()


def test_a_prompt_in_chunks_after_a_prefix_hit_keeps_what_was_cached(tmp_path: Path) -> None:
    outputs = [
        Output({"a": 64}, [New("a", [1] * 200, 96)]),
        Output({"a": 40}, [], Again(["a"], [160])),
        Output({"a": 1}, [], Again(["a"], [200])),
    ]
    found, _ = counts(tmp_path, outputs)
    assert found == [[(64, 96, 200, 96)], [(40, 160, 200, 96)], [(1, 200, 200, 96)]]


def test_a_finished_id_is_forgotten_and_may_come_back(tmp_path: Path) -> None:
    outputs = [
        Output({"a": 9, "b": 2}, [New("a", [1] * 9, 0), New("b", [1] * 2)]),
        # Aborted and sent again under its old id, before the engine was told of the end.
        Output({"a": 5}, [New("a", [1] * 25, 20)], finished_req_ids={"a", "b"}),
        Output({"a": 1}, [], Again(["a"], [25])),
        Output({}, finished_req_ids={"a"}),
    ]
    found, recorder = counts(tmp_path, outputs)
    assert found[1:] == [[(5, 20, 25, 20)], [(1, 25, 25, 20)], []]
    assert [row["resumed"] for row in rows_of(tmp_path, "step")] == [0, 0, 0, 0]
    assert recorder.engine.prompt_len == {}
    assert recorder.engine.cached == {}


def test_a_request_that_was_running_before_the_recorder_has_unknown_counts(tmp_path: Path) -> None:
    found, _ = counts(tmp_path, [Output({"a": 1}, [], Again(["a"], [77]))])
    assert found == [[(1, 77, None, None)]]


def test_two_steps_in_flight_complete_in_any_order(tmp_path: Path) -> None:
    outputs = [
        Output({"a": 6}, [New("a", [1] * 6)]),
        Output({"a": 1, "b": 3}, [New("b", [1] * 3)], Again(["a"], [6])),
        Output({"a": 1}, [], Again(["a"], [7])),
    ]
    scheduler_cls, executor_cls, worker_cls = engine(outputs)
    recorder = Recorder(tmp_path, "0.32.0")
    wrap_scheduler(recorder, scheduler_cls)
    wrap_executor(recorder, executor_cls)
    wrap_worker(recorder, worker_cls)
    scheduler, executor = scheduler_cls(), executor_cls()
    flying: list[tuple[Output, Any]] = []
    for _ in range(2):
        output = scheduler.schedule()
        flying.append((output, executor.execute_model(output)))
    for output, _ in reversed(flying):
        scheduler.update_from_output(output, SimpleNamespace(sampled_token_ids=[[1]] * 2))
    last = scheduler.schedule()
    scheduler.update_from_output(last, executor.execute_model(last))
    # An output that the recorder never saw is passed through.
    assert scheduler.update_from_output(Output({"z": 1}), None) == "updated"
    recorder.writer("engine").flush()
    rows = {row["i"]: row for row in rows_of(tmp_path, "step")}
    assert [row["i"] for row in rows_of(tmp_path, "step")] == [1, 0, 2]
    assert [rows[i]["in_flight"] for i in range(3)] == [1, 2, 1]
    assert (rows[0]["scheduled"], rows[1]["scheduled"]) == ([6], [1, 3])
    assert rows[1]["update_ns"][1] <= rows[0]["update_ns"][0]
    assert recorder.engine.in_flight == {}
