"""Ranks: who recorded a file, and the steps that data-parallel ranks take together."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kernelfit.record.hooks import Recorder, wrap_core, wrap_executor, wrap_scheduler, wrap_worker
from kernelfit.record.recorder import boot_hash
from kernelfit.record.spans import place_of
from tests.record.fakes import New, Output, drive, engine, rows_of


class Core:
    """The loop of a data-parallel engine: a dummy step whenever it has nothing of its own."""

    current_wave = 3
    step_counter = 0

    def __init__(self, scheduler: Any, executor: Any, work: list[bool]) -> None:
        self.scheduler, self.executor, self.work = scheduler, executor, work

    def step(self) -> bool:
        """Take a step if there is work."""
        if not self.work.pop(0):
            return False
        output = self.scheduler.schedule()
        result = self.executor.execute_model(output)
        self.scheduler.update_from_output(output, result)
        return True

    def execute_dummy_batch(self) -> str:
        """Take part in the others' step."""
        self.executor.worker.execute_dummy_batch()
        return "dummy"

    def run(self) -> None:
        """Go on until nobody has work."""
        for _ in range(len(self.work)):
            if not self.step():
                assert self.execute_dummy_batch() == "dummy"
            self.step_counter += 1


def test_every_step_and_every_dummy_has_the_wave_and_counter(tmp_path: Path) -> None:
    outputs = [Output({"a": 3}, [New("a", [1] * 3)]), Output({"b": 2}, [New("b", [1] * 2)])]
    scheduler_cls, executor_cls, worker_cls = engine(outputs)
    worker_cls.execute_dummy_batch = lambda self: None  # type: ignore[attr-defined]
    core_cls = type("Core", (), dict(vars(Core)))
    recorder = Recorder(tmp_path, "0.32.0")
    wrap_scheduler(recorder, scheduler_cls)
    wrap_executor(recorder, executor_cls)
    wrap_core(recorder, core_cls)
    wrap_worker(recorder, worker_cls)
    core_cls(scheduler_cls(), executor_cls(), [False, True, False, False, True]).run()
    assert recorder.alive
    for role in ("engine", "worker"):
        recorder.writer(role).flush()
    steps = rows_of(tmp_path, "step")
    assert [(r["i"], r["wave"], r["counter"]) for r in steps] == [(0, 3, 1), (1, 3, 4)]
    dummies = rows_of(tmp_path, "dummy")
    counted = [(r["i"], r["wave"], r["counter"]) for r in dummies if "counter" in r]
    assert counted == [(0, 3, 0), (1, 3, 2), (2, 3, 3)]
    own = [r["i"] for r in dummies if "rank" in r]
    assert own == [0, 1, 2]
    assert all(r["run_ns"][0] <= r["run_ns"][1] for r in dummies)
    # A dummy is no call of execute_model: both sides count steps alike.
    assert [r["i"] for r in rows_of(tmp_path, "worker")] == [0, 1]


def test_an_engine_that_counts_no_waves_marks_none(tmp_path: Path) -> None:
    scheduler_cls, executor_cls, worker_cls = engine([Output({"a": 3}, [New("a", [1] * 3)])])
    recorder = Recorder(tmp_path, "0.32.0")
    wrap_scheduler(recorder, scheduler_cls)
    wrap_executor(recorder, executor_cls)
    wrap_worker(recorder, worker_cls)
    drive(scheduler_cls, executor_cls, 1)
    recorder.writer("engine").flush()
    (row,) = rows_of(tmp_path, "step")
    assert not {"wave", "counter"} & set(row)


def test_a_core_without_dummy_steps_is_left_as_it_is(tmp_path: Path) -> None:
    class Plain:
        def add_request(self) -> str:
            return "added"

    before = dict(vars(Plain))
    wrap_core(Recorder(tmp_path, "0.10.0"), Plain)
    assert dict(vars(Plain)) == before


@pytest.mark.parametrize(
    ("rank", "parallel", "place"),
    [
        (0, {"tensor_parallel_size": 2}, (0, 0, None)),
        (3, {"tensor_parallel_size": 2, "data_parallel_rank": 1}, (1, 1, 1)),
        # A dense model's engines are told that they are alone; the index stays.
        (
            1,
            {"tensor_parallel_size": 4, "data_parallel_rank": 0, "data_parallel_index": 5},
            (1, 0, 5),
        ),
        (2, None, (None, None, None)),
    ],
)
def test_a_workers_place(
    rank: int, parallel: dict[str, int] | None, place: tuple[int | None, ...]
) -> None:
    config = None if parallel is None else SimpleNamespace(**parallel)
    worker = SimpleNamespace(rank=rank, vllm_config=SimpleNamespace(parallel_config=config))
    found = place_of(worker)
    assert (found["tp"], found["pp"], found["dp"]) == place
    assert found["rank"] == rank


def test_a_header_says_which_process_of_which_boot(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, "0.32.0")
    path = recorder.writer("engine", dp=1, tp=None).path
    recorder.writer("engine").flush()
    header = json.loads(path.read_text(encoding="utf-8").splitlines()[0])
    assert (header["pid"], header["ppid"], header["dp"]) == (os.getpid(), os.getppid(), 1)
    assert "tp" not in header
    boot = boot_hash()
    assert header.get("boot") == boot
    if boot is not None:
        raw = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")
        assert boot not in raw
        assert len(boot) == 12


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_process_writes_its_own_file(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, "0.32.0")
    recorder.writer("engine").put({"t": "step", "i": 0})
    recorder.writer("engine").flush()
    recorder.fail("a hook", ValueError("in the parent"))
    child = os.fork()
    if child == 0:  # the engine core, forked from the server's process
        code = 1
        try:
            # What was switched off in the parent is on here, and nothing of its is inherited.
            if recorder.alive:
                recorder.writer("engine").put({"t": "step", "i": 7})
                recorder.writer("engine").flush()
                code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    recorder.writer("engine").flush()
    files = {path.name for path in tmp_path.glob("*.jsonl")}
    assert files == {f"engine-{os.getpid()}.jsonl", f"engine-{child}.jsonl"}
    for pid, ordinal in ((os.getpid(), 0), (child, 7)):
        lines = (tmp_path / f"engine-{pid}.jsonl").read_text(encoding="utf-8").splitlines()
        assert [r["i"] for r in map(json.loads, lines) if r["t"] == "step"] == [ordinal]
