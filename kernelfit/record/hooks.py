"""The wrappers around the engine's class attributes.

Subclasses such as the asynchronous scheduler inherit wrapped attributes, which is
why ``--scheduler-cls`` is not used (it switches asynchronous scheduling off).
Nothing is ever put on the engine's own objects: a scheduler output is pickled to
every worker. Rows live in a side table keyed by the output's identity.

Any exception in a hook switches recording off in this process with one warning.
"""

from __future__ import annotations

import functools
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kernelfit.record.facts import FORMAT_VERSION, write_facts
from kernelfit.record.writer import RowWriter

_now = time.monotonic_ns


class Recorder:
    """What is recorded in one process.

    Parameters
    ----------
    folder : pathlib.Path
        The recording's folder; made when missing.
    engine_version : str
        The version string of the engine.
    """

    def __init__(self, folder: Path, engine_version: str) -> None:
        self.folder = folder
        self.engine_version = engine_version
        self.alive = True
        self.probing = os.environ.get("KERNELFIT_SPEED_PROBE") == "1"
        self.in_flight: dict[int, tuple[Any, dict[str, Any]]] = {}
        self.prompt_len: dict[str, int | None] = {}
        self.cached: dict[str, int] = {}
        self.ordinal = 0
        self.worker_ordinal = 0
        self.worker_open: tuple[int, int, Any] | None = None
        self.pending_events: list[tuple[dict[str, Any], Any, Any]] = []
        self._writers: dict[str, RowWriter] = {}

    def fail(self, where: str, error: BaseException) -> None:
        """Switch recording off in this process and say so once.

        Parameters
        ----------
        where : str
            The hook that failed.
        error : BaseException
            What it raised.
        """
        if self.alive:
            self.alive = False
            self.in_flight.clear()
            print(
                f"kernelfit: recording switched off in this process ({where}: {error!r})",
                file=sys.stderr,
                flush=True,
            )

    def writer(self, role: str) -> RowWriter:
        """Return the writer of a role, made on first use.

        Parameters
        ----------
        role : str
            ``engine`` or ``worker``.

        Returns
        -------
        RowWriter
            The writer of this process's file for the role.
        """
        if role not in self._writers:
            self.folder.mkdir(parents=True, exist_ok=True)
            header = {
                "t": "header",
                "format": "kernelfit",
                "version": FORMAT_VERSION,
                "role": role,
                "pid": os.getpid(),
                "engine": "vllm",
                "engine_version": self.engine_version,
            }
            path = self.folder / f"{role}-{os.getpid()}.jsonl"
            self._writers[role] = RowWriter(
                path, header, lambda error: self.fail("writing rows", error)
            )
        return self._writers[role]

    # -- engine process -------------------------------------------------------

    def scheduled(self, scheduler: Any, output: Any, start_ns: int, end_ns: int) -> None:
        """Note the four counts of every request of one scheduler output.

        Parameters
        ----------
        scheduler : object
            The engine's scheduler.
        output : object
            What ``schedule`` returned.
        start_ns, end_ns : int
            Monotonic clock around the call [ns].
        """
        if self.ordinal == 0:
            self.folder.mkdir(parents=True, exist_ok=True)
            config = getattr(scheduler, "vllm_config", None)
            if config is not None:
                write_facts(self.folder, config, self.engine_version)
        # First, because an id may end and come back as another request in the same step.
        for req_id in output.finished_req_ids:
            self.prompt_len.pop(req_id, None)
            self.cached.pop(req_id, None)
        counts = output.num_scheduled_tokens
        computed: dict[str, int] = {}
        again = output.scheduled_cached_reqs
        resumed = getattr(again, "resumed_req_ids", None)
        if resumed is None:  # up to vLLM 0.11: a list of flags
            flags = getattr(again, "resumed_from_preemption", [])
            resumed = [r for r, flag in zip(again.req_ids, flags, strict=True) if flag]
        resumed = set(resumed)
        for new in output.scheduled_new_reqs:
            # The second model runner is given resumed requests as new ones.
            if new.req_id in self.prompt_len:
                resumed.add(new.req_id)
            self.prompt_len[new.req_id] = _prompt_length(new)
            self.cached[new.req_id] = computed[new.req_id] = int(new.num_computed_tokens)
        for req_id, done in zip(again.req_ids, again.num_computed_tokens, strict=True):
            computed[req_id] = int(done)
            if req_id in resumed:
                self.cached[req_id] = int(done)
        row = {
            "t": "step",
            "i": self.ordinal,
            "n": int(output.total_num_scheduled_tokens),
            "sched_ns": [start_ns, end_ns],
            "scheduled": list(counts.values()),
            "computed": [computed.get(r) for r in counts],
            "prompt_len": [self.prompt_len.get(r) for r in counts],
            "cached": [self.cached.get(r) for r in counts],
            "resumed": len(resumed),
            "preempted": len(getattr(output, "preempted_req_ids", None) or ()),
            "drafts": sum(len(d) for d in output.scheduled_spec_decode_tokens.values()),
            "running": len(scheduler.running),
            "waiting": len(scheduler.waiting),
        }
        self.ordinal += 1
        row["cost_ns"] = _now() - end_ns
        # The output is kept beside its row so that its identity is not reused.
        self.in_flight[id(output)] = (output, row)

    def submitted(self, output: Any, start_ns: int, end_ns: int) -> None:
        """Note when a scheduler output was handed to the executor.

        Parameters
        ----------
        output : object
            What ``schedule`` returned.
        start_ns, end_ns : int
            Monotonic clock around ``execute_model`` [ns].
        """
        held = self.in_flight.get(id(output))
        if held is not None:
            held[1]["submit_ns"] = [start_ns, end_ns]
            held[1]["in_flight"] = len(self.in_flight)
            held[1]["cost_ns"] += _now() - end_ns

    def updated(self, scheduler: Any, output: Any, result: Any, start_ns: int, end_ns: int) -> None:
        """Complete a row when its output came back, and queue it for writing.

        Parameters
        ----------
        scheduler : object
            The engine's scheduler.
        output : object
            What ``schedule`` returned.
        result : object
            The model runner's output.
        start_ns, end_ns : int
            Monotonic clock around ``update_from_output`` [ns].
        """
        held = self.in_flight.pop(id(output), None)
        if held is None:
            return
        row = held[1]
        row["update_ns"] = [start_ns, end_ns]
        sampled = getattr(result, "sampled_token_ids", None)
        row["sampled"] = None if sampled is None else sum(len(s) for s in sampled)
        usage = getattr(getattr(scheduler, "kv_cache_manager", None), "usage", None)
        row["kv_usage"] = None if usage is None else round(float(usage), 6)
        row["cost_ns"] += _now() - end_ns
        self.writer("engine").put(row)

    # -- worker process -------------------------------------------------------

    def worker_started(self, output: Any) -> None:
        """Open the worker's span of one forward pass.

        Parameters
        ----------
        output : object
            The scheduler output that the worker received.
        """
        self.worker_open = (
            _now(),
            int(output.total_num_scheduled_tokens),
            _record_event(),
        )

    def worker_ended(self, rank: int) -> None:
        """Close the worker's span; GPU time follows when its events are ready.

        Parameters
        ----------
        rank : int
            The worker's rank.
        """
        if self.worker_open is None:
            return
        start_ns, tokens, first = self.worker_open
        self.worker_open = None
        row: dict[str, Any] = {
            "t": "worker",
            "i": self.worker_ordinal,
            "rank": rank,
            "n": tokens,
            "span_ns": [start_ns, _now()],
        }
        self.worker_ordinal += 1
        if self.probing:
            row["probe_ns"] = speed_probe_ns()
        if first is None:
            self.writer("worker").put(row)
            return
        self.pending_events.append((row, first, _record_event()))
        while self.pending_events and self.pending_events[0][2].query():
            ready, begin, end = self.pending_events.pop(0)
            ready["gpu_ms"] = begin.elapsed_time(end)
            self.writer("worker").put(ready)


def speed_probe_ns() -> int:
    """Time a fixed piece of integer work on the worker's own core.

    Returns
    -------
    int
        The fastest of three tries [ns]. On a shared host the clock and the neighbours
        change the speed of a core by tens of percent; a step recorded beside a slow
        probe was slowed by the machine, whatever the batch.
    """
    best = 1 << 62
    for _ in range(3):
        start_ns = _now()
        sum(range(1500))
        best = min(best, _now() - start_ns)
    return best


def _prompt_length(new: Any) -> int | None:
    """Return the length of a prompt of ids or of embeddings; None where neither is there."""
    for prompt in (new.prompt_token_ids, getattr(new, "prompt_embeds", None)):
        if prompt is not None:
            return len(prompt)
    return None


def _record_event() -> Any:
    """Record a timing event on the current CUDA stream; None without CUDA."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return None
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def _guard(recorder: Recorder, where: str, action: Callable[[], None]) -> None:
    try:
        action()
    except Exception as error:  # noqa: BLE001 - a hook must never break the engine
        recorder.fail(where, error)


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
            _guard(
                recorder,
                "schedule",
                lambda: recorder.scheduled(self, output, start_ns, end_ns),
            )
        return output

    @functools.wraps(update)
    def recorded_update(self: Any, output: Any, result: Any, *args: Any, **kwargs: Any) -> Any:
        start_ns = _now()
        back = update(self, output, result, *args, **kwargs)
        if recorder.alive:
            end_ns = _now()
            _guard(
                recorder,
                "update_from_output",
                lambda: recorder.updated(self, output, result, start_ns, end_ns),
            )
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
            _guard(recorder, "execute_model", lambda: recorder.submitted(output, start_ns, end_ns))
        return back

    executor_cls.execute_model = recorded_execute


def wrap_worker(recorder: Recorder, worker_cls: Any) -> None:
    """Wrap the worker's span, from ``execute_model`` to ``sample_tokens``.

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
            _guard(recorder, "worker", lambda: recorder.worker_started(output))
        back = execute(self, output, *args, **kwargs)
        # None means that sampling is a call of its own and closes the span.
        if recorder.alive and (back is not None or sample is None):
            rank = int(getattr(self, "rank", 0))
            _guard(recorder, "worker", lambda: recorder.worker_ended(rank))
        return back

    worker_cls.execute_model = recorded_execute
    if sample is None:
        return

    @functools.wraps(sample)
    def recorded_sample(self: Any, *args: Any, **kwargs: Any) -> Any:
        back = sample(self, *args, **kwargs)
        if recorder.alive:
            rank = int(getattr(self, "rank", 0))
            _guard(recorder, "worker", lambda: recorder.worker_ended(rank))
        return back

    worker_cls.sample_tokens = recorded_sample
