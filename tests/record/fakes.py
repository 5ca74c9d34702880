"""An engine small enough to see through: a scheduler, an executor and a worker like vLLM's."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any


@dataclass
class New:
    """A request that is scheduled for the first time."""

    req_id: str
    prompt_token_ids: list[int] | None
    num_computed_tokens: int = 0
    prompt_embeds: list[list[float]] | None = None


@dataclass
class Again:
    """Requests that were scheduled before."""

    req_ids: list[str] = field(default_factory=list)
    num_computed_tokens: list[int] = field(default_factory=list)
    resumed_req_ids: set[str] = field(default_factory=set)


@dataclass
class Output:
    """What a scheduler hands to the executor."""

    num_scheduled_tokens: dict[str, int]
    scheduled_new_reqs: list[New] = field(default_factory=list)
    scheduled_cached_reqs: Again = field(default_factory=Again)
    scheduled_spec_decode_tokens: dict[str, list[int]] = field(default_factory=dict)
    finished_req_ids: set[str] = field(default_factory=set)
    preempted_req_ids: set[str] | None = None

    @property
    def total_num_scheduled_tokens(self) -> int:
        """Return the tokens of the step."""
        return sum(self.num_scheduled_tokens.values())


def config(**changes: Any) -> SimpleNamespace:
    """Return a configuration with the attributes that the recorder looks for."""
    facts: dict[str, Any] = {
        "device_config": SimpleNamespace(device_type="cpu"),
        "model_config": SimpleNamespace(
            model="models/tiny/",
            dtype="torch.float32",
            max_model_len=4128,
            enforce_eager=True,
            quantization=None,
            hf_config=SimpleNamespace(to_dict=lambda: {"model_type": "llama", "hidden_size": 64}),
        ),
        "parallel_config": SimpleNamespace(tensor_parallel_size=2, pipeline_parallel_size=1),
        "cache_config": SimpleNamespace(
            block_size=16, cache_dtype="auto", enable_prefix_caching=True
        ),
        "scheduler_config": SimpleNamespace(
            max_num_seqs=64, max_num_batched_tokens=1024, async_scheduling=False
        ),
        "compilation_config": SimpleNamespace(
            cudagraph_mode=SimpleNamespace(name="NONE"), cudagraph_capture_sizes=[]
        ),
        "speculative_config": None,
    }
    return SimpleNamespace(**{**facts, **changes})


def engine(outputs: list[Output]) -> tuple[type, type, type]:
    """Return fresh scheduler, executor and worker classes that go through some outputs."""

    class Scheduler:
        def __init__(self) -> None:
            self.vllm_config = config()
            self.running = ["a", "b"]
            self.waiting = ["c"]
            self.kv_cache_manager = SimpleNamespace(usage=0.25)
            self.left = list(outputs)

        def schedule(self, throttle_prefills: bool = False) -> Output:
            """Return the next output."""
            return self.left.pop(0)

        def update_from_output(self, output: Output, result: Any) -> str:
            """Take a result."""
            return "updated"

    class Worker:
        rank = 1

        def execute_model(self, output: Output) -> None:
            """Run the forward pass; sampling is a call of its own."""

        def sample_tokens(self, grammar: Any = None) -> Any:
            """Sample."""
            return SimpleNamespace(sampled_token_ids=[[7], [8]])

    class Executor:
        def __init__(self) -> None:
            self.worker = Worker()

        def execute_model(self, output: Output, non_block: bool = False) -> Any:
            """Run the worker."""
            self.worker.execute_model(output)
            return self.worker.sample_tokens()

    return Scheduler, Executor, Worker


def rows_of(folder: Path, kind: str) -> list[dict[str, Any]]:
    """Return the rows of one kind that a recording holds by now."""
    lines = [
        line
        for path in sorted(folder.glob("*.jsonl"))
        for line in path.read_text(encoding="utf-8").splitlines()
    ]
    return [row for row in map(json.loads, lines) if row["t"] == kind]


def drive(scheduler_cls: type, executor_cls: type, steps: int) -> None:
    """Run a synchronous engine loop."""
    scheduler, executor = scheduler_cls(), executor_cls()
    for _ in range(steps):
        output = scheduler.schedule()
        result = executor.execute_model(output)
        assert scheduler.update_from_output(output, result) == "updated"
