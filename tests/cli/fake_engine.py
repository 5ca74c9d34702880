"""A program in an engine's place: it records a few steps, or waits for a signal."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from types import SimpleNamespace

from kernelfit.record.hooks import Recorder, wrap_executor, wrap_scheduler, wrap_worker
from tests.record.fakes import Again, New, Output, config, drive, engine


def record(folder: Path, steps: int) -> Recorder:
    """Record a request of some steps."""
    outputs = [Output({"a": 40}, [New("a", [1] * 40)])]
    outputs += [Output({"a": 1}, [], Again(["a"], [40 + n])) for n in range(steps - 1)]
    scheduler, executor, worker = engine(outputs)
    begin = scheduler.__init__

    def alone(self: object) -> None:
        begin(self)
        parallel = SimpleNamespace(tensor_parallel_size=1, pipeline_parallel_size=1)
        self.vllm_config = config(parallel_config=parallel)  # type: ignore[attr-defined]

    def sample(self: object, grammar: object = None) -> SimpleNamespace:
        time.sleep(0.01)
        return SimpleNamespace(sampled_token_ids=[[1]])

    scheduler.__init__ = alone  # type: ignore[misc]
    worker.rank = 0  # type: ignore[attr-defined]
    worker.sample_tokens = sample  # type: ignore[attr-defined]
    recorder = Recorder(folder, "0.32.0")
    wrap_scheduler(recorder, scheduler)
    wrap_executor(recorder, executor)
    wrap_worker(recorder, worker)
    drive(scheduler, executor, steps)
    return recorder


def main(what: str) -> int:
    """Do what is asked for."""
    print("engine says hello", flush=True)
    if what == "nothing":
        return 0
    if what == "environment":
        names = ("KERNELFIT_TRACE_DIR", "KERNELFIT_GPU", "KERNELFIT_SPEED_PROBE", "VLLM_PLUGINS")
        print({name: os.environ.get(name) for name in names}, flush=True)
    record(Path(os.environ["KERNELFIT_TRACE_DIR"]), steps=6)
    if what == "wait":
        stop: list[int] = []
        signal.signal(signal.SIGTERM, lambda number, frame: stop.append(number))
        print("ready", flush=True)
        deadline = time.monotonic() + 30
        while not stop and time.monotonic() < deadline:
            time.sleep(0.02)
        time.sleep(0.3)
        return 0 if stop == [signal.SIGTERM] else 9
    time.sleep(0.3)
    return 3 if what == "fail" else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1]))
