"""What the recorder writes, the reader reads; and what must stay in the engine, stays."""

from __future__ import annotations

import platform
import socket
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kernelfit.record.hooks import Recorder, wrap_executor, wrap_scheduler, wrap_worker
from kernelfit.store.ingest import ingest_paths
from kernelfit.store.scan import load_store
from tests.record.fakes import Again, New, Output, config, drive, engine

CALIB = Path(__file__).resolve().parents[2] / "calib"
HOST = "machine-of-zenobia-4711"
SECRET_TOKEN = 987_654_321
ALICE, BOB = "request-of-alice-8821", "request-of-bob-8822"

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "_name_or_path": f"/data/{HOST}/tiny",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 1000,
    "tie_word_embeddings": False,
    "torch_dtype": "float32",
    "text_config": {"_name_or_path": f"/data/{HOST}/tiny/text"},
}

STEPS = [
    Output({ALICE: 512}, [New(ALICE, [SECRET_TOKEN] * 700)]),
    Output({ALICE: 188, BOB: 40}, [New(BOB, [SECRET_TOKEN] * 100, 60)], Again([ALICE], [512])),
    Output({}, []),
    Output(
        {ALICE: 1, BOB: 1},
        [],
        Again([ALICE, BOB], [700, 100]),
        {ALICE: [SECRET_TOKEN]},
    ),
    Output({BOB: 30}, [], Again([BOB], [71], {BOB}), finished_req_ids={ALICE}),
]
COUNTS = [
    [(512, 0, 700, 0)],
    [(188, 512, 700, 0), (40, 60, 100, 60)],
    [(1, 700, 700, 0), (1, 100, 100, 60)],
    [(30, 71, 100, 71)],
]


def record(folder: Path, span_s: float) -> None:
    """Record the steps with a worker that takes some time for each."""
    scheduler, executor, worker = engine(STEPS)

    def sample(self: object, grammar: Any = None) -> Any:
        time.sleep(span_s)
        return SimpleNamespace(sampled_token_ids=[[SECRET_TOKEN], [SECRET_TOKEN]])

    worker.sample_tokens = sample  # type: ignore[attr-defined]
    begin = scheduler.__init__

    def configured(self: Any) -> None:
        begin(self)
        model = config().model_config
        model.model = f"/data/{HOST}/tiny"
        model.hf_config = SimpleNamespace(to_dict=lambda: dict(LLAMA))
        self.vllm_config = config(
            model_config=model, parallel_config=SimpleNamespace(tensor_parallel_size=1)
        )

    scheduler.__init__ = configured  # type: ignore[misc]
    recorder = Recorder(folder, "0.32.0")
    wrap_scheduler(recorder, scheduler)
    wrap_executor(recorder, executor)
    wrap_worker(recorder, worker)
    drive(scheduler, executor, len(STEPS))
    assert recorder.alive
    recorder.writer("engine").flush()
    recorder.writer("worker").flush()


def test_the_reader_returns_the_counts_that_the_engine_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNELFIT_GPU", "H100-SXM")
    record(tmp_path / "run", span_s=0.03)
    report = ingest_paths([tmp_path / "run"], tmp_path / "store", calib=CALIB)
    (counts,) = report.files
    assert (counts.steps, counts.rejected, counts.reader, counts.timing) == (
        4,
        0,
        "kernelfit",
        "device",
    )
    # Two headers, two clocks, the worker's four rows that were joined, and both rows of the
    # step without tokens.
    assert (counts.lines, counts.recognised) == (14, 10)
    (stored,) = load_store(tmp_path / "store").runs
    assert (stored.gpu, stored.model_name, stored.pool.block_size) == ("H100-SXM", "tiny", 16)
    rows = stored.requests.to_pylist()
    found = [
        [
            (r["scheduled"], r["computed"], r["prompt_len"], r["cached"])
            for r in rows
            if r["step"] == step
        ]
        for step in (0, 1, 3, 4)
    ]
    assert found == COUNTS
    steps = stored.steps.to_pydict()
    assert steps["phase"] == ["prefill", "prefill", "decode", "prefill"]
    assert steps["marks"] == [[], [], ["spec"], ["resumed"]]
    assert steps["scheduled_tokens"] == [512, 228, 2, 30]
    assert all(0.03 <= value < 3 for value in steps["duration_s"])
    assert all(value >= 0 for value in steps["schedule_s"])
    assert all(value is not None for value in steps["wait_s"])


def test_no_name_no_token_and_no_machine_is_in_any_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KERNELFIT_GPU", raising=False)
    monkeypatch.setattr(platform, "node", lambda: HOST)
    monkeypatch.setattr(socket, "gethostname", lambda: HOST)
    monkeypatch.setenv("HOSTNAME", HOST)
    record(tmp_path, span_s=0)
    files = sorted(tmp_path.iterdir())
    assert [path.name.split("-")[0] for path in files] == [
        "engine",
        "model.config.json",
        "run.yaml",
        "worker",
    ]
    for path in files:
        text = path.read_text(encoding="utf-8")
        assert text
        for secret in (ALICE, BOB, "alice", str(SECRET_TOKEN), HOST, "zenobia"):
            assert secret not in text, path.name
    assert '"_name_or_path": "tiny"' in (tmp_path / "model.config.json").read_text("utf-8")
