"""The hooks against a fake engine: exact counts, ordered times, and an engine left in peace."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kernelfit.record.hooks import Recorder, wrap_executor, wrap_scheduler, wrap_worker
from tests.record.fakes import Again, New, Output, drive, engine

STEPS = [
    Output({"a": 512}, [New("a", [1] * 700)]),
    Output({"a": 188, "b": 40}, [New("b", [1] * 100, 60)], Again(["a"], [512])),
    Output({"a": 1, "b": 1}, [], Again(["a", "b"], [700, 100]), {"a": [5, 6]}),
    Output({"a": 1}, [], Again(["a"], [300], {"a"}), {}, {"b"}, {"z"}),
]


def record(folder: Path, outputs: list[Output]) -> tuple[list[dict[str, Any]], Recorder]:
    """Drive the fake engine with hooks and return every row, by file."""
    scheduler, executor, worker = engine(outputs)
    recorder = Recorder(folder, "0.32.0")
    wrap_scheduler(recorder, scheduler)
    wrap_executor(recorder, executor)
    wrap_worker(recorder, worker)
    drive(scheduler, executor, len(outputs))
    for role in ("engine", "worker"):
        recorder.writer(role).flush()
    rows = [
        json.loads(line)
        for path in sorted(folder.glob("*.jsonl"))
        for line in path.read_text(encoding="utf-8").splitlines()
    ]
    return rows, recorder


def of(rows: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    """Return the rows of one kind."""
    return [row for row in rows if row["t"] == kind]


def test_the_four_counts_of_every_request(tmp_path: Path) -> None:
    rows, recorder = record(tmp_path, STEPS)
    steps = of(rows, "step")
    assert recorder.alive
    assert [row["i"] for row in steps] == [0, 1, 2, 3]
    assert [row["n"] for row in steps] == [512, 228, 2, 1]
    keys = ("scheduled", "computed", "prompt_len", "cached")
    counts = [tuple(zip(*(row[key] for key in keys), strict=True)) for row in steps]
    assert counts == [
        ((512, 0, 700, 0),),
        ((188, 512, 700, 0), (40, 60, 100, 60)),
        ((1, 700, 700, 0), (1, 100, 100, 60)),
        # Resumed after a preemption: what is computed again came from the cache.
        ((1, 300, 700, 300),),
    ]
    assert [row["drafts"] for row in steps] == [0, 0, 2, 0]
    assert [row["resumed"] for row in steps] == [0, 0, 0, 1]
    assert [row["preempted"] for row in steps] == [0, 0, 0, 1]
    assert {row["sampled"] for row in steps} == {2}
    assert {(row["running"], row["waiting"], row["kv_usage"]) for row in steps} == {(2, 1, 0.25)}
    assert recorder.engine.prompt_len == {"a": 700}


def test_times_are_in_the_order_of_events(tmp_path: Path) -> None:
    rows, _ = record(tmp_path, STEPS)
    for step, worker in zip(of(rows, "step"), of(rows, "worker"), strict=True):
        times = [
            *step["sched_ns"],
            step["submit_ns"][0],
            *worker["span_ns"],
            step["submit_ns"][1],
            *step["update_ns"],
        ]
        assert times == sorted(times)
        assert step["i"] == worker["i"]
        assert step["n"] == worker["n"]
        assert worker["rank"] == 1
        assert step["in_flight"] == 1
        assert step["cost_ns"] > 0


def test_headers_name_the_format_and_no_row_holds_a_text_or_token(tmp_path: Path) -> None:
    rows, _ = record(tmp_path, STEPS)
    headers = of(rows, "header")
    assert {row["role"] for row in headers} == {"engine", "worker"}
    assert {(row["format"], row["version"]) for row in headers} == {("kernelfit", 2)}
    for row in of(rows, "step"):
        values = [
            v for value in row.values() for v in (value if isinstance(value, list) else [value])
        ]
        # Null: the fake engine's results do not say which request a token is of.
        assert all(isinstance(v, int | float | None) for v in values if v != "step")


def test_a_fault_switches_recording_off_once_and_the_engine_runs_on(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    broken = Output({"a": 1}, [New("a", [1])])
    broken.scheduled_cached_reqs = None  # type: ignore[assignment]
    rows, recorder = record(tmp_path, [STEPS[0], broken, STEPS[1], STEPS[2]])
    assert not recorder.alive
    said = capfd.readouterr().err
    assert said.count("recording switched off in this process") == 1
    assert [row["i"] for row in of(rows, "step")] == [0]


def test_nothing_stays_on_the_engines_objects(tmp_path: Path) -> None:
    outputs = [Output({"a": 5}, [New("a", [1] * 5)])]
    before = set(vars(outputs[0]))
    _, recorder = record(tmp_path, outputs)
    assert set(vars(outputs[0])) == before
    assert recorder.engine.in_flight == {}


def test_flags_of_older_engines_mark_resumed_requests(tmp_path: Path) -> None:
    class Older:
        req_ids = ("a", "b")
        num_computed_tokens = (10, 20)
        resumed_from_preemption = (False, True)

    first = Output({"a": 10, "b": 20}, [New("a", [1] * 10), New("b", [1] * 20)])
    second = Output({"a": 1, "b": 1})
    second.scheduled_cached_reqs = Older()  # type: ignore[assignment]
    rows, _ = record(tmp_path, [first, second])
    assert [row["resumed"] for row in of(rows, "step")] == [0, 1]
    assert of(rows, "step")[1]["cached"] == [0, 20]


def test_a_worker_that_samples_inside_execute_closes_its_own_span(tmp_path: Path) -> None:
    class Worker:
        def execute_model(self, output: Output) -> str:
            """Run and sample."""
            return "tokens"

    recorder = Recorder(tmp_path, "0.10.0")
    wrap_worker(recorder, Worker)
    assert Worker().execute_model(STEPS[0]) == "tokens"
    recorder.writer("worker").flush()
    (path,) = tmp_path.glob("worker-*.jsonl")
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert [row["n"] for row in of(rows, "worker")] == [512]
