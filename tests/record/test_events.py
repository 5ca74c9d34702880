"""GPU times come from events that are asked for and never waited for."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from kernelfit.record import gpu as gpu_module
from kernelfit.record.hooks import Recorder, wrap_worker
from tests.record.fakes import Output, engine, rows_of


class Gpu:
    """A fake CUDA: one stream, whose time and progress a test sets."""

    def __init__(self, available: bool = True) -> None:
        self.made: list[Event] = []
        self.recorded = 0
        self.now_ms = 0.0
        self.passed = 0
        gpu = self

        def event(enable_timing: bool = False) -> Event:
            assert enable_timing
            self.made.append(Event(gpu))
            return self.made[-1]

        self.module = ModuleType("torch")
        self.module.cuda = SimpleNamespace(  # type: ignore[attr-defined]
            is_available=lambda: available, Event=event, synchronize=self.waited
        )

    def waited(self, *_: object) -> None:
        """Fail: a wait would change what is measured."""
        raise AssertionError("the recorder waited for the device")


class Event:
    """An event; its time is that of the stream when it was put there last."""

    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu
        self.number = -1
        self.at_ms = float("nan")
        self.synchronize = self.wait = gpu.waited

    def record(self) -> None:
        """Put the event on the stream; one that is still under way must not be put again."""
        assert self.number == -1 or self.query()
        self.number = self.gpu.recorded
        self.at_ms = self.gpu.now_ms
        self.gpu.recorded += 1

    def query(self) -> bool:
        """Say whether the device has passed it."""
        return 0 <= self.number < self.gpu.passed

    def elapsed_time(self, end: Event) -> float:
        """Return the time to a later event [ms]."""
        assert self.query()
        assert end.query()
        return end.at_ms - self.at_ms


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    """Return a fake GPU in torch's place."""
    fake = Gpu()
    monkeypatch.setitem(sys.modules, "torch", fake.module)
    return fake


class Rig:
    """A worker on the fake GPU: every call moves the stream's time on."""

    def __init__(self, gpu: Gpu, folder: Path) -> None:
        self.gpu, self.folder = gpu, folder
        rig = self

        class Worker:
            rank = 0
            device = SimpleNamespace(type="cuda")

            def execute_model(self, output: Output) -> None:
                """Take 7 ms of the GPU's time."""
                rig.gpu.now_ms += 7.0

            def sample_tokens(self, grammar: object = None) -> str:
                """Take 2 ms of the GPU's time."""
                rig.gpu.now_ms += 2.0
                return "tokens"

        self.recorder = Recorder(folder, "0.32.0")
        wrap_worker(self.recorder, Worker)
        self.worker = Worker()

    def step(self, tokens: int, gap_ms: float = 0.0) -> list[int]:
        """Run a pass and return the ordinals that are written by now."""
        self.worker.execute_model(Output({"a": tokens}))
        self.gpu.now_ms += gap_ms
        assert self.worker.sample_tokens() == "tokens"
        return self.written()

    def written(self) -> list[int]:
        """Return the ordinals that are written by now."""
        self.recorder.writer("worker").flush()
        return [row["i"] for row in rows_of(self.folder, "worker")]


def test_rows_are_written_in_order_once_their_events_are_over(gpu: Gpu, tmp_path: Path) -> None:
    rig = Rig(gpu, tmp_path)
    assert rig.step(8) == []
    gpu.passed = 3  # the first pass has begun on the device, and not ended
    assert rig.step(1) == []
    gpu.passed = 8  # the first two have ended
    assert rig.step(2) == [0, 1]
    gpu.passed = 16
    assert rig.step(3) == [0, 1, 2, 3]
    rows = rows_of(tmp_path, "worker")
    assert [row["n"] for row in rows] == [8, 1, 2, 3]
    assert [row["gpu_ms"] for row in rows] == [9.0] * 4
    assert [row["gpu_gap_ms"] for row in rows] == [0.0] * 4
    assert all(row["span_ns"][0] <= row["span_ns"][1] for row in rows)
    assert rig.recorder.alive


def test_time_that_the_gpu_waits_between_the_calls_is_not_the_pass(
    gpu: Gpu, tmp_path: Path
) -> None:
    rig = Rig(gpu, tmp_path)
    gpu.passed = 1 << 30
    rig.step(1)
    rig.step(1, gap_ms=40.0)
    rows = rows_of(tmp_path, "worker")
    assert [(row["gpu_ms"], row["gpu_gap_ms"]) for row in rows] == [(9.0, 0.0), (9.0, 40.0)]


def test_events_are_pooled(gpu: Gpu, tmp_path: Path) -> None:
    rig = Rig(gpu, tmp_path)
    for _ in range(50):
        # The device is a whole pass behind, as with two steps in flight.
        gpu.passed = max(0, gpu.recorded - 4)
        rig.step(1)
    assert gpu.recorded == 200
    assert len(gpu.made) <= 12


def test_a_pass_that_samples_at_once_has_two_events(gpu: Gpu, tmp_path: Path) -> None:
    class Worker:
        rank = 0

        def execute_model(self, output: Output) -> str:
            """Compute and sample, as up to vLLM 0.11."""
            gpu.now_ms += 5.0
            return "tokens"

    recorder = Recorder(tmp_path, "0.10.0")
    wrap_worker(recorder, Worker)
    gpu.passed = 1 << 30
    assert Worker().execute_model(Output({"a": 3})) == "tokens"
    recorder.writer("worker").flush()
    (row,) = rows_of(tmp_path, "worker")
    assert row["gpu_ms"] == 5.0
    assert "gpu_gap_ms" not in row
    assert gpu.recorded == 2


def test_a_later_event_never_overtakes_an_earlier_one(
    gpu: Gpu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig(gpu, tmp_path)
    late = 3
    monkeypatch.setattr(Event, "query", lambda self: self.number != late)
    assert rig.step(1) == []
    assert rig.step(1) == []
    monkeypatch.setattr(Event, "query", lambda self: True)
    assert rig.step(1) == [0, 1, 2]


def test_events_that_never_come_end_the_recording_and_not_the_memory(
    gpu: Gpu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gpu_module, "MAX_WAITING", 5)
    rig = Rig(gpu, tmp_path)
    for _ in range(7):
        assert rig.step(1) == []
    assert not rig.recorder.alive
    assert "the events of 5 passes are still open" in capfd.readouterr().err


def test_a_worker_of_another_device_has_no_events(gpu: Gpu, tmp_path: Path) -> None:
    rig = Rig(gpu, tmp_path)
    rig.worker.device = SimpleNamespace(type="cpu")  # type: ignore[misc]
    assert rig.step(1) == [0]
    assert gpu.made == []


@pytest.mark.parametrize("torch", [None, Gpu(available=False).module])
def test_without_a_gpu_the_span_alone_is_written(
    torch: ModuleType | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if torch is None:
        monkeypatch.delitem(sys.modules, "torch", raising=False)
    else:
        monkeypatch.setitem(sys.modules, "torch", torch)
    _, _, worker_cls = engine([])
    recorder = Recorder(tmp_path, "0.32.0")
    wrap_worker(recorder, worker_cls)
    worker = worker_cls()
    worker.execute_model(Output({"a": 1}))
    worker.sample_tokens()
    recorder.writer("worker").flush()
    (row,) = rows_of(tmp_path, "worker")
    assert "gpu_ms" not in row


def test_a_device_that_fails_switches_recording_off(
    gpu: Gpu,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    _, _, worker_cls = engine([])
    recorder = Recorder(tmp_path, "0.32.0")
    wrap_worker(recorder, worker_cls)

    def lost(self: Event) -> bool:
        raise RuntimeError("CUDA error: device lost")

    monkeypatch.setattr(Event, "query", lost)
    worker = worker_cls()
    for _ in range(2):
        worker.execute_model(Output({"a": 1}))
        assert worker.sample_tokens().sampled_token_ids == [[7], [8]]
    assert not recorder.alive
    assert capfd.readouterr().err.count("recording switched off") == 1
