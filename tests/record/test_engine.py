"""The recorder in a real vLLM: its token totals are those that the engine itself prints.

Needs an environment that holds vLLM (its CPU build is enough) and this package; `make test-engine`
makes one. ``KERNELFIT_ENGINE_PYTHON`` names its interpreter.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from kernelfit.documents.runs import load_run
from kernelfit.logs.compare import iteration_mismatches

ROOT = Path(__file__).resolve().parents[2]
PYTHON = os.environ.get("KERNELFIT_ENGINE_PYTHON")

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a short recording of a small dense model, with the engine's own log."""
    if not PYTHON:
        pytest.skip("KERNELFIT_ENGINE_PYTHON names no interpreter with vLLM; see make test-engine")
    folder = tmp_path_factory.mktemp("recording")
    words = [
        PYTHON,
        "-m",
        "kernelfit.record.drive",
        "--model",
        str(ROOT / "traces/models/kf-gqa"),
        "--steps",
        "150",
        "--longest",
        "600",
        "--episode-tokens",
        "2000",
        "--seed",
        "3",
    ]
    environment = {
        **os.environ,
        "KERNELFIT_TRACE_DIR": str(folder),
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_LOGGING_COLOR": "0",
    }
    with (folder / "engine.log").open("w", encoding="utf-8") as log:
        subprocess.run(words, env=environment, stdout=log, stderr=log, timeout=900, check=True)
    return folder


def test_token_totals_are_the_engines_own_at_every_step(recording: Path) -> None:
    assert iteration_mismatches(recording) == ()


def test_every_step_has_its_span_and_the_run_its_document(recording: Path) -> None:
    rows = {"step": [], "worker": []}  # type: dict[str, list[dict[str, object]]]
    for path in sorted(recording.glob("*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            rows.setdefault(row["t"], []).append(row)
    steps = {row["i"]: row["n"] for row in rows["step"] if row["n"]}
    assert len(steps) >= 100
    assert steps == {row["i"]: row["n"] for row in rows["worker"] if row["n"]}
    run = load_run(recording / "run.yaml")
    assert (run.engine, run.model_name, run.pool.tp) == ("vllm", "kf-gqa", 1)
