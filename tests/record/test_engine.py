"""The recorder in a real vLLM: its token totals are those that the engine itself prints.

Needs an environment that holds vLLM (its CPU build is enough) and this package; `make test-engine`
makes one. ``KERNELFIT_ENGINE_PYTHON`` names its interpreter. The tests themselves run with the
project's own, which reads what was recorded.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from kernelfit.documents.runs import load_run
from kernelfit.logs.compare import iteration_mismatches
from kernelfit.logs.vllm_log import iteration_tokens
from kernelfit.record.workload import VOCABULARY
from kernelfit.store.ingest import ingest_paths
from kernelfit.store.scan import load_store
from tests.record.engines import ROOT, engine_python, environment, model

CALIB = ROOT / "calib"
STEPS = 60

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a short recording of a tiny model, with the engine's own log."""
    python = engine_python()
    folder = tmp_path_factory.mktemp("engine")
    tiny, run = model(folder / "tiny"), folder / "run"
    run.mkdir()
    # Prompts longer than a step's budget, so that they come in chunks.
    options = f"--steps {STEPS} --longest 600 --episode-tokens 2000 --seed 23"
    options += " --max-num-batched-tokens 256 --max-num-seqs 16"
    words = [python, "-m", "kernelfit.record.drive", "--model", str(tiny), *options.split()]
    more = {"KERNELFIT_TRACE_DIR": str(run), "KERNELFIT_SPEED_PROBE": "1"}
    with (run / "engine.log").open("w", encoding="utf-8") as log:
        done = subprocess.run(
            words, cwd=folder, env=environment(**more), stdout=log, stderr=log, timeout=900
        )
    said = (run / "engine.log").read_text(encoding="utf-8", errors="replace")
    assert done.returncode == 0, said[-4000:]
    assert "kernelfit: recording" not in said
    return run


def test_token_totals_are_the_engines_own_at_every_step(recording: Path) -> None:
    assert len(list(iteration_tokens(recording / "engine.log"))) >= STEPS
    assert iteration_mismatches(recording) == ()


def test_every_step_is_joined_and_no_line_is_rejected(recording: Path, tmp_path: Path) -> None:
    gpu = "epyc-milan-core"  # any known name: the chip changes no count
    report = ingest_paths([recording], tmp_path, overrides={"gpu": gpu}, calib=CALIB)
    (counts,) = report.files
    assert (counts.reader, counts.timing, counts.rejected) == ("kernelfit", "device", 0)
    assert counts.steps >= STEPS
    (stored,) = load_store(tmp_path).runs
    steps = stored.steps.to_pydict()
    assert all(value > 0 for value in steps["duration_s"])
    # The workload does what it is for: every phase, chunks, mixed steps and prefix hits.
    assert set(steps["phase"]) == {"prefill", "decode", "mixed"}
    requests = stored.requests.to_pylist()
    assert any(r["cached"] < r["computed"] < r["prompt_len"] for r in requests)
    assert any(r["cached"] > 0 for r in requests)
    assert all(0 <= r["cached"] <= r["computed"] for r in requests)


def test_the_run_document_is_accepted_as_written(recording: Path) -> None:
    run = load_run(recording / "run.yaml")
    assert (run.engine, run.model_name, run.dtype, run.pool.tp) == ("vllm", "tiny", "fp32", 1)
    assert (run.pool.max_num_seqs, run.pool.max_num_batched_tokens) == (16, 256)
    facts = json.loads((recording / "model.config.json").read_text(encoding="utf-8"))
    assert {key: facts[key] for key in ("hidden_size", "num_hidden_layers", "vocab_size")} == {
        "hidden_size": 128,
        "num_hidden_layers": 2,
        "vocab_size": VOCABULARY,
    }
    assert str(recording.parent) not in json.dumps(facts)


def test_the_gpu_clock_uses_torchs_events_as_they_are() -> None:
    # There is no GPU here, but torch's own class is: its calls must take what the clock gives.
    code = (
        "import inspect, torch\n"
        "event = torch.cuda.Event\n"
        "inspect.signature(event.__new__).bind(event, enable_timing=True)\n"
        "inspect.signature(event.record).bind(object())\n"
        "inspect.signature(event.query).bind(object())\n"
        "inspect.signature(event.elapsed_time).bind(object(), object())\n"
        "from types import SimpleNamespace\n"
        "from kernelfit.record.gpu import gpu_clock\n"
        "worker = SimpleNamespace(device=torch.device('cuda'))\n"
        "assert gpu_clock(worker) is None or torch.cuda.is_available()\n"
        "print('bound')\n"
    )
    done = subprocess.run(
        [engine_python(), "-c", code],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.stdout == "bound\n", done.stderr
