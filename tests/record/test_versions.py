"""One code path for the engine's versions: signatures and fields as each of them has them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kernelfit.record.hooks import (
    Recorder,
    wrap_core,
    wrap_executor,
    wrap_scheduler,
    wrap_worker,
)
from tests.record.fakes import rows_of

RESULT = SimpleNamespace(sampled_token_ids=[[5], [6]], req_id_to_index={"a": 0, "b": 1})


@dataclass
class Again10:
    """Requests scheduled before, as of 0.9 to 0.11: a list of flags."""

    req_ids: list[str]
    num_computed_tokens: list[int]
    resumed_from_preemption: list[bool]
    new_token_ids: list[list[int]] = field(default_factory=list)


@dataclass
class Again12:
    """The same from 0.12 on: a set of ids, and the outputs' count."""

    req_ids: list[str]
    num_computed_tokens: list[int]
    resumed_req_ids: set[str]
    num_output_tokens: list[int] = field(default_factory=list)


def output(again: Any, counts: dict[str, int], new: list[Any], **more: Any) -> SimpleNamespace:
    """Return a scheduler output with the fields that every version has, and some more."""
    return SimpleNamespace(
        scheduled_new_reqs=new,
        scheduled_cached_reqs=again,
        num_scheduled_tokens=counts,
        total_num_scheduled_tokens=sum(counts.values()),
        scheduled_spec_decode_tokens={},
        scheduled_encoder_inputs={},
        num_common_prefix_blocks=[0],
        finished_req_ids=set(),
        **more,
    )


def outputs(version: tuple[int, int]) -> list[SimpleNamespace]:
    """Return a prefill with a prefix hit, a mixed step, and one in which a request resumes."""
    more: dict[str, Any] = {}
    if version >= (0, 12):
        more |= {"preempted_req_ids": None, "pending_structured_output_tokens": False}
    if version >= (0, 24):
        more |= {"num_spec_tokens_to_schedule": 0, "has_structured_output_requests": False}

    def again(ids: list[str], computed: list[int], resumed: set[str]) -> Any:
        if version < (0, 12):
            return Again10(ids, computed, [r in resumed for r in ids])
        return Again12(ids, computed, resumed)

    def new(name: str, prompt: int, hit: int) -> SimpleNamespace:
        fields = {"req_id": name, "prompt_token_ids": [9] * prompt, "num_computed_tokens": hit}
        if version >= (0, 11):
            fields["prompt_embeds"] = None
        if version >= (0, 12):
            fields["prefill_token_ids"] = None
        return SimpleNamespace(**fields)

    return [
        output(again([], [], set()), {"a": 40}, [new("a", 60, 16)], **more),
        output(again(["a"], [56], set()), {"a": 4, "b": 8}, [new("b", 8, 0)], **more),
        output(again(["a", "b"], [60, 0], {"b"}), {"a": 1, "b": 9}, [], **more),
    ]


Version = tuple[int, int]


def scheduler_of(version: Version) -> type:
    """Return a version's scheduler, with three steps to go."""
    steps = outputs(version)

    class Scheduler:
        running = ("a", "b")
        waiting: tuple[str, ...] = ()
        kv_cache_manager = SimpleNamespace(usage=0.5)

        def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> str:
            return "updated"

    def schedule(self: Any) -> Any:
        return steps.pop(0)

    def throttled(self: Any, throttle_prefills: bool = False) -> Any:
        return steps.pop(0)

    Scheduler.schedule = throttled if version >= (0, 24) else schedule  # type: ignore[attr-defined]
    return Scheduler


def worker_of(version: Version, *, split: bool) -> type:
    """Return a version's worker; ``split`` where sampling is a call of its own."""

    class Worker:
        rank = 0

        def execute_model(self, scheduler_output: Any, *intermediate: Any) -> Any:
            return None if split else RESULT

        def execute_dummy_batch(self) -> None:
            pass

        def compile_or_warm_up_model(self) -> str:
            if version >= (0, 26):
                # The second model runner warms up through the worker's own methods.
                for warm in outputs(version):
                    self.execute_model(warm)
                    self.sample_tokens(None)  # type: ignore[attr-defined]
            return "warm"

    def sample_tokens(self: Any, grammar_output: Any) -> Any:
        return RESULT

    if split:
        Worker.sample_tokens = sample_tokens  # type: ignore[attr-defined]
    return Worker


def executors_of(worker_cls: type, *, non_block: bool) -> tuple[type, type]:
    """Return a version's base executor and the one of a single process.

    Up to 0.10 the base class runs the model, without the word for not waiting.
    """

    class Executor:
        def __init__(self) -> None:
            self.worker = worker_cls()
            self.worker.compile_or_warm_up_model()

        def sample_tokens(self, grammar_output: Any, non_block: bool = False) -> Any:
            return self.worker.sample_tokens(grammar_output)

    class UniProcExecutor(Executor):
        pass

    def blocking(self: Any, scheduler_output: Any) -> Any:
        return self.worker.execute_model(scheduler_output)

    def either(self: Any, scheduler_output: Any, non_block: bool = False) -> Any:
        back = self.worker.execute_model(scheduler_output)
        return SimpleNamespace(result=lambda: back) if non_block else back

    if non_block:
        UniProcExecutor.execute_model = either  # type: ignore[attr-defined]
    else:
        Executor.execute_model = blocking  # type: ignore[attr-defined]
    return Executor, UniProcExecutor


class Engine:
    """An engine of one version: the same work through that version's calls."""

    def __init__(self, version: Version, *, non_block: bool, split: bool) -> None:
        scheduler_cls = scheduler_of(version)
        worker_cls = worker_of(version, split=split)
        base_cls, executor_cls = executors_of(worker_cls, non_block=non_block)
        throttle = (False,) if version >= (0, 24) else ()

        class EngineCore:
            def __init__(self) -> None:
                self.scheduler, self.executor = scheduler_cls(), executor_cls()
                self.step_fn = self.step

            def step(self) -> str:
                step = self.scheduler.schedule(*throttle)
                if non_block:
                    result = self.executor.execute_model(step, non_block=True).result()
                else:
                    result = self.executor.execute_model(step)
                if result is None:
                    result = self.executor.sample_tokens(None)
                assert result is RESULT
                return str(self.scheduler.update_from_output(step, result))

            def execute_dummy_batch(self) -> None:
                self.executor.worker.execute_dummy_batch()

        self.classes = (scheduler_cls, base_cls, executor_cls, EngineCore, worker_cls)

    def record(self, recorder: Recorder) -> None:
        """Install the hooks as the plug-in does, and run."""
        scheduler, base, executor, core, worker = self.classes
        wrap_scheduler(recorder, scheduler)
        for found in (base, executor):
            if "execute_model" in vars(found):
                wrap_executor(recorder, found)
        wrap_core(recorder, core)
        wrap_worker(recorder, worker)
        engine = core()
        for _ in range(3):
            assert engine.step_fn() == "updated"
        engine.execute_dummy_batch()


@pytest.mark.parametrize(
    ("version", "non_block", "split"),
    [
        ((0, 10), False, False),
        ((0, 11), True, False),
        ((0, 12), True, True),
        ((0, 14), True, True),
        ((0, 20), True, True),
        ((0, 24), True, True),
        ((0, 32), True, True),
        ((0, 33), True, True),
    ],
)
def test_every_version_gives_the_same_rows(
    version: tuple[int, int], non_block: bool, split: bool, tmp_path: Path
) -> None:
    recorder = Recorder(tmp_path, ".".join(map(str, version)))
    Engine(version, non_block=non_block, split=split).record(recorder)
    assert recorder.alive
    recorder.writer("engine").flush()
    recorder.writer("worker").flush()
    steps, workers = rows_of(tmp_path, "step"), rows_of(tmp_path, "worker")
    keys = ("i", "scheduled", "computed", "prompt_len", "cached", "resumed")
    assert [tuple(row[key] for key in keys) for row in steps] == [
        (0, [40], [16], [60], [16], 0),
        (1, [4, 8], [56, 0], [60, 8], [16, 0], 0),
        (2, [1, 9], [60, 0], [60, 8], [16, 0], 1),
    ]
    assert [(row["i"], row["n"], row["requests"]) for row in workers] == [
        (0, 40, 1),
        (1, 12, 2),
        (2, 10, 2),
    ]
    assert all("submit_ns" in row and row["in_flight"] == 1 for row in steps)
    assert all(("gap_ns" in row) is split for row in workers)
    assert len(rows_of(tmp_path, "dummy")) == 2


def test_a_step_that_an_older_batch_queue_does_not_execute_is_no_step(tmp_path: Path) -> None:
    # Up to 0.13 an empty schedule is not handed to the executor where steps queue up.
    recorder = Recorder(tmp_path, "0.11.0")
    scheduler_cls, base, executor_cls, core, worker_cls = Engine(
        (0, 11), non_block=True, split=False
    ).classes
    del base, core
    steps = outputs((0, 11))
    empty = output(Again10([], [], []), {}, [])
    queue = [steps[0], empty, steps[1]]
    scheduler_cls.schedule = lambda self: queue.pop(0)  # type: ignore[attr-defined]
    wrap_scheduler(recorder, scheduler_cls)
    wrap_executor(recorder, executor_cls)
    wrap_worker(recorder, worker_cls)
    scheduler, executor = scheduler_cls(), executor_cls()
    for _ in range(3):
        step = scheduler.schedule()
        if step.total_num_scheduled_tokens:
            executor.execute_model(step, non_block=True)
            scheduler.update_from_output(step, RESULT)
    recorder.writer("engine").flush()
    recorder.writer("worker").flush()
    for kind in ("step", "worker"):
        assert [(r["i"], r["n"]) for r in rows_of(tmp_path, kind)] == [(0, 40), (1, 12)]
    assert recorder.engine.in_flight == {}


def test_steps_of_an_executor_without_a_hook_are_counted_in_their_order(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, "0.20.0")
    scheduler_cls, _, _, _, worker_cls = Engine((0, 20), non_block=True, split=True).classes
    wrap_scheduler(recorder, scheduler_cls)
    wrap_worker(recorder, worker_cls)
    scheduler, worker = scheduler_cls(), worker_cls()
    flying = []
    for _ in range(3):  # two in flight: the older is settled when the next was scheduled
        step = scheduler.schedule()
        worker.execute_model(step)
        worker.sample_tokens(None)
        flying.append(step)
        if len(flying) == 2:
            scheduler.update_from_output(flying.pop(0), RESULT)
    scheduler.update_from_output(flying.pop(0), RESULT)
    recorder.writer("engine").flush()
    recorder.writer("worker").flush()
    for kind in ("step", "worker"):
        assert [(r["i"], r["n"]) for r in rows_of(tmp_path, kind)] == [(0, 40), (1, 12), (2, 10)]
    assert all("submit_ns" not in row for row in rows_of(tmp_path, "step"))
