"""The wrappers around the engine's class attributes.

Subclasses such as the asynchronous scheduler inherit wrapped attributes, which is
why ``--scheduler-cls`` is not used (it switches asynchronous scheduling off).
Every wrapper passes on whatever arguments it is given, because the engine's versions
differ in them.

Any exception in a hook switches recording off in this process with one warning.
"""

from __future__ import annotations

import functools
import time
from typing import Any

from kernelfit.record.recorder import Recorder

__all__ = [
    "Recorder",
    "wrap_core",
    "wrap_executor",
    "wrap_scheduler",
    "wrap_worker",
]

_now = time.monotonic_ns


def wrap_scheduler(recorder: Recorder, scheduler_cls: Any) -> None:
    """Wrap ``schedule`` and ``update_from_output`` of a scheduler class.

    Parameters
    ----------
    recorder : Recorder
        Where rows go.
    scheduler_cls : type
        The engine's scheduler class.
    """
    schedule = scheduler_cls.schedule
    update = scheduler_cls.update_from_output

    @functools.wraps(schedule)
    def recorded_schedule(self: Any, *args: Any, **kwargs: Any) -> Any:
        start_ns = _now()
        output = schedule(self, *args, **kwargs)
        if recorder.alive:
            end_ns = _now()
            try:
                recorder.engine.scheduled(self, output, start_ns, end_ns)
            except Exception as error:  # noqa: BLE001 - a hook must never break the engine
                recorder.fail("schedule", error)
        return output

    @functools.wraps(update)
    def recorded_update(self: Any, output: Any, result: Any, *args: Any, **kwargs: Any) -> Any:
        start_ns = _now()
        back = update(self, output, result, *args, **kwargs)
        if recorder.alive:
            end_ns = _now()
            try:
                recorder.engine.updated(self, output, result, start_ns, end_ns)
            except Exception as error:  # noqa: BLE001 - a hook must never break the engine
                recorder.fail("update_from_output", error)
        return back

    scheduler_cls.schedule = recorded_schedule
    scheduler_cls.update_from_output = recorded_update


def wrap_executor(recorder: Recorder, executor_cls: Any) -> None:
    """Wrap ``execute_model`` of an executor class.

    Parameters
    ----------
    recorder : Recorder
        Where rows go.
    executor_cls : type
        A class that defines ``execute_model`` itself.
    """
    execute = executor_cls.execute_model

    @functools.wraps(execute)
    def recorded_execute(self: Any, output: Any, *args: Any, **kwargs: Any) -> Any:
        start_ns = _now()
        back = execute(self, output, *args, **kwargs)
        if recorder.alive:
            end_ns = _now()
            try:
                recorder.engine.submitted(output, start_ns, end_ns)
            except Exception as error:  # noqa: BLE001 - a hook must never break the engine
                recorder.fail("execute_model", error)
        return back

    executor_cls.execute_model = recorded_execute


def wrap_core(recorder: Recorder, core_cls: Any) -> None:
    """Wrap the engine core's steps, to see its count of them, and its dummy steps.

    Parameters
    ----------
    recorder : Recorder
        Where rows go.
    core_cls : type
        The engine core's class; what it lacks stays as it is.
    """
    for name in ("step", "step_with_batch_queue"):
        if name in vars(core_cls):
            setattr(core_cls, name, _stepping(recorder, vars(core_cls)[name]))
    dummy = vars(core_cls).get("execute_dummy_batch")
    if dummy is None:
        return

    @functools.wraps(dummy)
    def recorded_dummy(self: Any, *args: Any, **kwargs: Any) -> Any:
        start_ns = _now()
        back = dummy(self, *args, **kwargs)
        if recorder.alive:
            end_ns = _now()
            try:
                recorder.engine.core = self
                recorder.engine.dummy(start_ns, end_ns)
            except Exception as error:  # noqa: BLE001 - a hook must never break the engine
                recorder.fail("execute_dummy_batch", error)
        return back

    core_cls.execute_dummy_batch = recorded_dummy


def _stepping(recorder: Recorder, step: Any) -> Any:
    @functools.wraps(step)
    def recorded_step(self: Any, *args: Any, **kwargs: Any) -> Any:
        if recorder.alive:
            recorder.engine.core = self
        return step(self, *args, **kwargs)

    return recorded_step


def wrap_worker(recorder: Recorder, worker_cls: Any) -> None:
    """Wrap the worker's passes: ``execute_model``, ``sample_tokens`` and those over nothing.

    The warm-up (``compile_or_warm_up_model``) calls the same methods with batches that no
    scheduler made; within it nothing is recorded or counted.

    Parameters
    ----------
    recorder : Recorder
        Where rows go.
    worker_cls : type
        The engine's worker class.
    """
    execute = worker_cls.execute_model
    sample = getattr(worker_cls, "sample_tokens", None)

    @functools.wraps(execute)
    def recorded_execute(self: Any, output: Any, *args: Any, **kwargs: Any) -> Any:
        if recorder.alive:
            try:
                recorder.worker.started(self, output)
            except Exception as error:  # noqa: BLE001 - a hook must never break the engine
                recorder.fail("worker", error)
        back = execute(self, output, *args, **kwargs)
        if recorder.alive:
            try:
                # None means that sampling is a call of its own and closes the span.
                recorder.worker.executed(self, back is not None or sample is None)
            except Exception as error:  # noqa: BLE001 - a hook must never break the engine
                recorder.fail("worker", error)
        return back

    worker_cls.execute_model = recorded_execute
    if sample is not None:
        worker_cls.sample_tokens = _sampling(recorder, sample)
    if hasattr(worker_cls, "execute_dummy_batch"):
        worker_cls.execute_dummy_batch = _idling(recorder, worker_cls.execute_dummy_batch)
    if hasattr(worker_cls, "compile_or_warm_up_model"):
        worker_cls.compile_or_warm_up_model = _warming(
            recorder, worker_cls.compile_or_warm_up_model
        )


def _sampling(recorder: Recorder, sample: Any) -> Any:
    @functools.wraps(sample)
    def recorded_sample(self: Any, *args: Any, **kwargs: Any) -> Any:
        if recorder.alive:
            try:
                recorder.worker.sampling()
            except Exception as error:  # noqa: BLE001 - a hook must never break the engine
                recorder.fail("worker", error)
        back = sample(self, *args, **kwargs)
        if recorder.alive:
            try:
                recorder.worker.sampled(self)
            except Exception as error:  # noqa: BLE001 - a hook must never break the engine
                recorder.fail("worker", error)
        return back

    return recorded_sample


def _idling(recorder: Recorder, dummy: Any) -> Any:
    @functools.wraps(dummy)
    def recorded_dummy(self: Any, *args: Any, **kwargs: Any) -> Any:
        start_ns = _now()
        back = dummy(self, *args, **kwargs)
        if recorder.alive:
            end_ns = _now()
            try:
                recorder.worker.dummy(self, start_ns, end_ns)
            except Exception as error:  # noqa: BLE001 - a hook must never break the engine
                recorder.fail("worker", error)
        return back

    return recorded_dummy


def _warming(recorder: Recorder, warm_up: Any) -> Any:
    @functools.wraps(warm_up)
    def recorded_warm_up(self: Any, *args: Any, **kwargs: Any) -> Any:
        recorder.worker.warming(1)
        try:
            return warm_up(self, *args, **kwargs)
        finally:
            recorder.worker.warming(-1)

    return recorded_warm_up
