"""GPU times come from events that are asked for and never waited for."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from kernelfit.record.hooks import Recorder, wrap_worker
from tests.record.fakes import Output, engine, rows_of


class Gpu:
    """A fake CUDA: events are complete when a test says so."""

    def __init__(self, available: bool = True) -> None:
        self.events: list[Event] = []
        self.complete = 0
        gpu = self

        def event(enable_timing: bool = False) -> Event:
            assert enable_timing
            return Event(gpu)

        self.module = ModuleType("torch")
        self.module.cuda = SimpleNamespace(  # type: ignore[attr-defined]
            is_available=lambda: available, Event=event, synchronize=self.waited
        )

    def waited(self, *_: object) -> None:
        """Fail: a wait would change what is measured."""
        raise AssertionError("the recorder waited for the device")


class Event:
    """An event; its time is its own number times 5 ms."""

    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu
        self.number = -1
        self.synchronize = self.wait = gpu.waited

    def record(self) -> None:
        """Put the event on the stream."""
        assert self.number == -1
        self.number = len(self.gpu.events)
        self.gpu.events.append(self)

    def query(self) -> bool:
        """Say whether the device has passed it."""
        return 0 <= self.number < self.gpu.complete

    def elapsed_time(self, end: Event) -> float:
        """Return the time to a later event [ms]."""
        assert self.query()
        assert end.query()
        return 5.0 * (end.number - self.number)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    """Return a fake GPU in torch's place."""
    fake = Gpu()
    monkeypatch.setitem(sys.modules, "torch", fake.module)
    return fake


def test_rows_are_written_in_order_once_their_event_is_ready(gpu: Gpu, tmp_path: Path) -> None:
    _, _, worker_cls = engine([])
    recorder = Recorder(tmp_path, "0.32.0")
    wrap_worker(recorder, worker_cls)
    worker = worker_cls()

    def step(tokens: int) -> list[int]:
        worker.execute_model(Output({"a": tokens}))
        worker.sample_tokens()
        recorder.writer("worker").flush()
        return [row["i"] for row in rows_of(tmp_path, "worker")]

    assert step(8) == []
    gpu.complete = 1  # the first step has begun on the device, and not ended
    assert step(1) == []
    gpu.complete = 4  # the first two have ended
    assert step(2) == [0, 1]
    gpu.complete = 8
    assert step(3) == [0, 1, 2, 3]
    rows = rows_of(tmp_path, "worker")
    assert [row["n"] for row in rows] == [8, 1, 2, 3]
    assert [row["gpu_ms"] for row in rows] == [5.0] * 4
    assert all(row["span_ns"][0] <= row["span_ns"][1] for row in rows)
    # One event before the forward pass and one after sampling, on every step.
    assert len(gpu.events) == 8
    assert recorder.alive
    assert recorder.pending_events == []


def test_a_later_event_never_overtakes_an_earlier_one(
    gpu: Gpu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, _, worker_cls = engine([])
    recorder = Recorder(tmp_path, "0.32.0")
    wrap_worker(recorder, worker_cls)
    worker = worker_cls()
    late = 1
    monkeypatch.setattr(Event, "query", lambda self: self.number != late)
    for _ in range(2):
        worker.execute_model(Output({"a": 1}))
        worker.sample_tokens()
    recorder.writer("worker").flush()
    assert rows_of(tmp_path, "worker") == []
    assert [row["i"] for row, _, _ in recorder.pending_events] == [0, 1]
    assert recorder.alive


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
