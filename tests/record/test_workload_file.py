"""The driver of planned workloads, up to the engine."""

from __future__ import annotations

import json
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from kernelfit.record import workload_file
from kernelfit.record.workload_file import BadWorkload, engine_arguments, episodes, main, read_run
from tests.documents.test_workloads import GOOD


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a workload file."""
    file = tmp_path / "workload.json"
    file.write_text(GOOD)
    return file


def test_every_request_of_every_repeat_is_run(path: Path) -> None:
    planned = episodes(read_run(path, "first"), seed=3)
    sizes = [len(episode) for episode in planned]
    # 4 repeats of 8 together; 3 one by one after the first of them.
    assert sorted(sizes) == [1, 1, 1, 8, 8, 8, 8]
    assert sizes[:4] == [8, 1, 1, 1]
    assert {len(r.prompt) for episode in planned for r in episode} == {1024, 500}
    assert planned == episodes(read_run(path, None), seed=3)
    assert planned != episodes(read_run(path, None), seed=4)


def test_the_engine_is_the_one_that_was_planned(path: Path) -> None:
    settings = engine_arguments(read_run(path, "first"))
    assert settings == {
        "tensor_parallel_size": 2,
        "max_model_len": 2048,
        "compilation_config": {"cudagraph_capture_sizes": [1, 2]},
        "enable_prefix_caching": False,
    }
    odd = {**read_run(path, "first"), "pool": {"tp": 1, "enable_dbo": True}}
    with pytest.raises(BadWorkload, match="first: cannot pass on enable_dbo"):
        engine_arguments(odd)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"kind": "Plan"}, "is no workload"),
        ({"schema_version": 2}, "schema_version (got 2); allowed 1"),
        ({"runs": []}, "--run (got first); allowed"),
    ],
)
def test_other_files_are_refused_in_a_line(
    path: Path, change: dict[str, Any], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path.write_text(json.dumps({**json.loads(GOOD), **change}))
    assert main([str(path), "--run", "first", "--model", "m"]) == 2
    assert words in capsys.readouterr().err


def test_a_run_is_driven_through_the_engine(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    added: list[int] = []

    class Engine:
        left = 0

        def add_request(self, name: str, prompt: dict[str, list[int]], params: Any) -> None:
            added.append(len(prompt["prompt_token_ids"]))
            self.left = max(self.left, params.max_tokens)

        def has_unfinished_requests(self) -> bool:
            return self.left > 0

        def step(self) -> None:
            self.left -= 1

    class LLM:
        def __init__(self, **words: Any) -> None:
            assert words["tensor_parallel_size"] == 2
            self.llm_engine = Engine()

    vllm = types.SimpleNamespace(LLM=LLM, SamplingParams=types.SimpleNamespace)
    monkeypatch.setitem(sys.modules, "vllm", vllm)  # type: ignore[arg-type]
    monkeypatch.setattr(workload_file.time, "sleep", lambda _: None)
    assert main([str(path), "--model", "m"]) == 0
    assert sorted(added) == [500] * 3 + [1024] * 32
    assert "steps in" in capsys.readouterr().err
