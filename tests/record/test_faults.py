"""Whatever happens in a hook, the engine's calls return what they return without it."""

from __future__ import annotations

import pickle
from pathlib import Path
from types import SimpleNamespace

import pytest

from kernelfit.record import hooks, spans, writer
from kernelfit.record.hooks import Recorder
from kernelfit.record.spans import speed_probe_ns
from tests.record.fakes import Again, New, Output, engine, rows_of

WARNING = "kernelfit: recording switched off in this process"


def outputs() -> list[Output]:
    """Return two steps of one request."""
    return [Output({"a": 4}, [New("a", [1] * 4)]), Output({"a": 1}, [], Again(["a"], [4]))]


def wrapped(folder: Path, steps: list[Output]) -> tuple[Recorder, type, type, type]:
    """Return a recorder and a fresh engine's classes with hooks."""
    scheduler, executor, worker = engine(steps)
    recorder = Recorder(folder, "0.32.0")
    hooks.wrap_scheduler(recorder, scheduler)
    hooks.wrap_executor(recorder, executor)
    hooks.wrap_worker(recorder, worker)
    return recorder, scheduler, executor, worker


@pytest.mark.parametrize(
    ("side", "hook"),
    [
        ("engine", "scheduled"),
        ("engine", "submitted"),
        ("engine", "updated"),
        ("worker", "started"),
        ("worker", "executed"),
        ("worker", "sampling"),
        ("worker", "sampled"),
    ],
)
def test_a_hook_that_raises_warns_once_and_leaves_the_results(
    side: str,
    hook: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    recorder, scheduler_cls, executor_cls, _ = wrapped(tmp_path, outputs())
    calls = []

    def broken(*args: object) -> None:
        calls.append(args)
        raise ValueError("broken on purpose")

    monkeypatch.setattr(getattr(recorder, side), hook, broken)
    scheduler, executor = scheduler_cls(), executor_cls()
    for step in outputs():
        output = scheduler.schedule()
        assert output == step
        result = executor.execute_model(output)
        assert result.sampled_token_ids == [[7], [8]]
        assert scheduler.update_from_output(output, result) == "updated"
    assert len(calls) == 1
    assert not recorder.alive
    assert recorder.engine.in_flight == {}
    said = capfd.readouterr()
    assert said.err.count("\n") == 1
    assert said.err.startswith(WARNING)
    assert "broken on purpose" in said.err
    assert said.out == ""


def test_a_fault_of_the_engine_passes_and_recording_goes_on(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    recorder, scheduler_cls, executor_cls, worker_cls = wrapped(tmp_path, [])
    # Each wrapped method goes through the fake's own: no output is left, none has counts.
    for call in (
        lambda: scheduler_cls().schedule(),
        lambda: executor_cls().execute_model(Output({"a": 1}), "too", "many", "words"),
        lambda: worker_cls().execute_model(Output({"a": 1}), "a word too many"),
        lambda: worker_cls().sample_tokens(None, "a word too many"),
        lambda: scheduler_cls().update_from_output(Output({}), None, "a word too many"),
    ):
        with pytest.raises((IndexError, TypeError)):
            call()
    assert recorder.alive
    worker = worker_cls()
    worker.execute_model(Output({"a": 3}))
    assert worker.sample_tokens().sampled_token_ids == [[7], [8]]
    recorder.writer("worker").flush()
    # The pass that raised has no span, and keeps its place in the count.
    assert [(row["i"], row["n"]) for row in rows_of(tmp_path, "worker")] == [(1, 3)]
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("fault", ["a full disk", "a row that is no JSON"])
def test_rows_that_cannot_be_written_switch_recording_off(
    fault: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    recorder = Recorder(tmp_path, "0.32.0")
    if fault == "a full disk":

        def full(file: int, data: bytes) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(writer, "write_all", full)
    rows = recorder.writer("engine")
    rows.put({"t": "step"} if fault == "a full disk" else {"t": "step", "scheduled": {1, 2}})
    rows._thread.join(10)
    assert not rows._thread.is_alive()
    assert not recorder.alive
    said = capfd.readouterr().err
    assert said.count("\n") == 1
    assert said.startswith(WARNING)


def test_a_second_fault_is_not_told_again(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    recorder = Recorder(tmp_path, "0.32.0")
    recorder.fail("schedule", KeyError("a"))
    recorder.fail("writing rows", OSError(28, "No space left on device"))
    said = capfd.readouterr().err
    assert said.count("\n") == 1
    assert "(schedule: KeyError('a'))" in said


def test_nothing_is_put_on_the_engines_objects(tmp_path: Path) -> None:
    recorder, scheduler_cls, executor_cls, _ = wrapped(tmp_path, outputs())
    scheduler, executor = scheduler_cls(), executor_cls()
    names = [set(vars(item)) for item in (scheduler, executor, executor.worker)]
    for step in outputs():
        output = scheduler.schedule()
        assert pickle.dumps(output) == pickle.dumps(step)
        result = executor.execute_model(output)
        shape = dict(vars(result))
        scheduler.update_from_output(output, result)
        # An output is pickled to every worker: it is byte for byte what it was.
        assert pickle.dumps(output) == pickle.dumps(step)
        assert vars(output) == vars(step)
        assert vars(result) == shape
    assert [set(vars(item)) for item in (scheduler, executor, executor.worker)] == names
    assert recorder.alive


def test_a_class_that_inherits_is_recorded_too(tmp_path: Path) -> None:
    recorder, scheduler_cls, executor_cls, worker_cls = wrapped(tmp_path, outputs())

    class AsyncScheduler(scheduler_cls):  # type: ignore[misc, valid-type]
        """Inherits both wrapped methods, as vLLM's own does."""

    class CpuWorker(worker_cls):  # type: ignore[misc, valid-type]
        rank = 3

    scheduler, executor = AsyncScheduler(), executor_cls()
    executor.worker = CpuWorker()
    for _ in outputs():
        output = scheduler.schedule(throttle_prefills=True)
        scheduler.update_from_output(output, executor.execute_model(output, non_block=False))
    recorder.writer("engine").flush()
    recorder.writer("worker").flush()
    assert [row["n"] for row in rows_of(tmp_path, "step")] == [4, 1]
    assert [(r["n"], r["rank"]) for r in rows_of(tmp_path, "worker")] == [(4, 3), (1, 3)]
    assert scheduler_cls.schedule.__name__ == "schedule"
    assert scheduler_cls.schedule.__doc__ == "Return the next output."


def test_an_engine_without_queues_or_usage_costs_only_those_facts(tmp_path: Path) -> None:
    recorder, scheduler_cls, executor_cls, _ = wrapped(tmp_path, outputs())
    scheduler, executor = scheduler_cls(), executor_cls()
    del scheduler.kv_cache_manager
    del scheduler.vllm_config
    output = scheduler.schedule()
    executor.execute_model(output)
    scheduler.update_from_output(output, SimpleNamespace())
    recorder.writer("engine").flush()
    (row,) = rows_of(tmp_path, "step")
    assert (row["kv_usage"], row["sampled"]) == (None, None)
    assert not (tmp_path / "run.yaml").exists()
    assert recorder.alive


def test_the_worker_is_open_until_its_tokens_are_sampled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = iter(range(100, 300, 10))
    monkeypatch.setattr(spans, "_now", lambda: next(now))
    recorder, _, _, worker_cls = wrapped(tmp_path, outputs())
    worker = worker_cls()
    worker.execute_model(Output({"a": 4}))
    recorder.writer("worker").flush()
    assert rows_of(tmp_path, "worker") == []
    worker.sample_tokens(None)
    # Sampling without a forward pass before it is no step.
    worker.sample_tokens(None)
    recorder.writer("worker").flush()
    (row,) = rows_of(tmp_path, "worker")
    # Called at 100 and 140, began at 110 and 150, returned at 120 and 160.
    assert (row["i"], row["n"], row["rank"], row["span_ns"]) == (0, 4, 1, [110, 160])
    assert row["gap_ns"] == 150 - 120
    # The recorder's own: 100 to 110, 120 to 130, 140 to 150 and 160 to 170.
    assert row["cost_ns"] == 40


def test_a_worker_that_returns_a_result_is_closed_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = iter(range(100, 300, 10))
    monkeypatch.setattr(spans, "_now", lambda: next(now))

    class Worker:
        rank = 0

        def execute_model(self, output: Output) -> str | None:
            """Sample at once where there is nothing to compute, as vLLM's worker does."""
            return None if output.num_scheduled_tokens else "nothing to compute"

        def sample_tokens(self, grammar: object) -> str:
            """Sample."""
            return "tokens"

    recorder = Recorder(tmp_path, "0.32.0")
    hooks.wrap_worker(recorder, Worker)
    worker = Worker()
    assert worker.execute_model(Output({})) == "nothing to compute"
    assert worker.execute_model(Output({"a": 2})) is None
    assert worker.sample_tokens(None) == "tokens"
    recorder.writer("worker").flush()
    rows = rows_of(tmp_path, "worker")
    found = [(r["i"], r["n"], r["span_ns"], "gap_ns" in r) for r in rows]
    assert found == [(0, 0, [110, 120], False), (1, 2, [150, 200], True)]


@pytest.mark.parametrize("asked", ["1", "0", None])
def test_the_speed_probe_runs_when_asked_for(
    asked: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KERNELFIT_SPEED_PROBE", raising=False)
    if asked is not None:
        monkeypatch.setenv("KERNELFIT_SPEED_PROBE", asked)
    recorder, _, executor_cls, _ = wrapped(tmp_path, outputs())
    executor_cls().execute_model(Output({"a": 4}))
    recorder.writer("worker").flush()
    (row,) = rows_of(tmp_path, "worker")
    assert ("probe_ns" in row) is (asked == "1")
    if asked == "1":
        assert row["probe_ns"] > 0


def test_the_probe_takes_measurable_time() -> None:
    # 1,500 additions take a microsecond at the very least, and far less than a second.
    assert 1_000 < speed_probe_ns() < 1_000_000_000
