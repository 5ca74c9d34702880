"""Running a real vLLM for a test: a tiny random model, in the engine's own Python."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from kernelfit.record.workload import VOCABULARY

PYTHON = os.environ.get("KERNELFIT_ENGINE_PYTHON")
HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
DENSE = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-6,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "torch_dtype": "float32",
    "vocab_size": VOCABULARY,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def engine_python() -> str:
    """Return the interpreter that holds vLLM; skip the test where there is none."""
    if not PYTHON:
        pytest.skip("KERNELFIT_ENGINE_PYTHON names no interpreter with vLLM; see make test-engine")
    return PYTHON


def model(folder: Path, config: dict[str, Any] = DENSE) -> Path:
    """Write a model's folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


def environment(**more: str) -> dict[str, str]:
    """Return the environment of an engine on two cores that needs no network."""
    return {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_LOGGING_COLOR": "0",
        "HF_HUB_OFFLINE": "1",
        **more,
    }


def run_mode(mode: str, folder: Path) -> tuple[Path, str]:
    """Run one mode of ``engine_script.py``; return the recording and what was said."""
    run = folder / mode
    run.mkdir()
    more = {"KERNELFIT_TRACE_DIR": str(run)}
    if mode.startswith(("tp2", "pp2")):
        more["VLLM_CPU_OMP_THREADS_BIND"] = "0|1"
    words = [engine_python(), str(HERE / "engine_script.py"), mode, str(model(folder / "tiny"))]
    with (run / "engine.log").open("w", encoding="utf-8") as log:
        done = subprocess.run(
            words, cwd=folder, env=environment(**more), stdout=log, stderr=log, timeout=600
        )
    said = (run / "engine.log").read_text(encoding="utf-8", errors="replace")
    assert done.returncode == 0, said[-4000:]
    assert "kernelfit: recording" not in said
    return run, said


def steps_of(run: Path) -> list[dict[str, Any]]:
    """Return the rows of the only engine's steps."""
    (path,) = run.glob("engine-*.jsonl")
    rows = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return [row for row in rows if row["t"] == "step"]
