"""The driver feeds the planned workload to an engine, at the planned moments."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from kernelfit.record import drive
from kernelfit.record.workload import Limits, PlannedRequest, plan


class Engine:
    """An engine that gives every request one token per step."""

    def __init__(self) -> None:
        self.steps = 0
        self.left: dict[str, int] = {}
        self.added: list[tuple[int, str, list[int], int]] = []

    def add_request(self, name: str, prompt: dict[str, list[int]], params: Any) -> None:
        """Take a request."""
        assert name not in self.left
        self.left[name] = params.max_tokens
        self.added.append((self.steps, name, prompt["prompt_token_ids"], params.max_tokens))

    def has_unfinished_requests(self) -> bool:
        """Say whether a request is left."""
        return bool(self.left)

    def step(self) -> None:
        """Give every request one token."""
        assert self.left
        self.steps += 1
        self.left = {name: n - 1 for name, n in self.left.items() if n > 1}


def test_the_options_have_the_defaults_of_a_whole_recording() -> None:
    options = drive.parse(["--model", "models/tiny"])
    assert vars(options) == {
        "model": "models/tiny",
        "tp": 1,
        "dtype": "float32",
        "seed": 0,
        "steps": Limits().steps,
        "episode_tokens": Limits().episode_tokens,
        "longest": Limits().longest_tokens,
        "max_num_seqs": 64,
        "max_num_batched_tokens": 1024,
    }
    changed = drive.parse(["--model", "m", "--steps", "60", "--longest", "600", "--tp", "2"])
    assert (changed.steps, changed.longest, changed.tp) == (60, 600, 2)


def test_a_model_must_be_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        drive.parse([])
    assert "--model" in capsys.readouterr().err


def test_requests_arrive_while_others_decode() -> None:
    episode = (
        PlannedRequest((1, 2, 3), 4, 0),
        PlannedRequest((4,), 2, 2),
        # Nothing is left by then: the engine is not stepped while it waits.
        PlannedRequest((5, 6), 1, 9),
    )
    engine = Engine()
    steps = drive.run_episode(
        engine, "e", episode, lambda tokens: SimpleNamespace(max_tokens=tokens)
    )
    assert engine.added == [(0, "e-0", [1, 2, 3], 4), (2, "e-1", [4], 2), (4, "e-2", [5, 6], 1)]
    assert (steps, engine.steps) == (10, 5)


def test_the_whole_plan_goes_through_an_engine_without_weights(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    engine = Engine()
    asked: dict[str, Any] = {}

    def llm(**settings: Any) -> SimpleNamespace:
        asked.update(settings)
        return SimpleNamespace(llm_engine=engine)

    vllm = ModuleType("vllm")
    vllm.LLM = llm  # type: ignore[attr-defined]
    vllm.SamplingParams = SimpleNamespace  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "vllm", vllm)
    words = "--model models/tiny --steps 120 --longest 300 --episode-tokens 900 --seed 5"
    assert drive.main(words.split()) == 0
    # Random weights, no tokenizer, one step in flight, and the engine's own account of it.
    assert asked["load_format"] == "dummy"
    assert asked["skip_tokenizer_init"] is True
    assert asked["async_scheduling"] is False
    assert asked["enable_logging_iteration_details"] is True
    assert asked["enable_prefix_caching"] is True
    limits = Limits(longest_tokens=300, episode_tokens=900, steps=120)
    planned = [request for episode in plan(5, limits) for request in episode]
    sent = sorted((prompt, tokens) for _, _, prompt, tokens in engine.added)
    assert sent == sorted((list(r.prompt), r.output_tokens) for r in planned)
    # A request longer than the engine's limit would be refused there.
    assert all(len(r.prompt) + r.output_tokens <= asked["max_model_len"] for r in planned)
    assert "kernelfit: " in capsys.readouterr().err
