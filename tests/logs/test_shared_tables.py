"""A real table of another tool, read through a mapping and nothing else."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from kernelfit.documents.runs import load_run
from kernelfit.logs.source import RunSource
from kernelfit.logs.table import TableReader
from tests.logs.recording import adds_up

TABLE = (
    Path(__file__).resolve().parents[2].parent
    / "shared"
    / "data"
    / "inference_sim_stepml"
    / "enriched_steps.parquet"
)

RUN = """\
kind: Run
schema_version: 1
gpu: h100-sxm
model: llama-3.1-70b
engine: vllm
reader: table
timing: dispatch
columns:
  duration_s: {column: step.duration_us, unit: us}
  start_s: {column: step.ts_start_ns, unit: ns}
  decode_requests: {column: batch.num_decode_reqs, unit: count}
  prefill_requests: {column: batch.num_prefill_reqs, unit: count}
  prefill_tokens: {column: batch.prefill_tokens, unit: tokens}
  scheduled_tokens: {column: batch.scheduled_tokens, unit: tokens}
  kv_usage: {column: kv.usage_gpu_ratio, unit: fraction}
"""


@pytest.mark.skipif(
    not TABLE.is_file(), reason="the folder shared/data beside the repository is absent"
)
def test_every_row_of_a_real_table_is_accounted_for(tmp_path: Path) -> None:
    shutil.copy(TABLE, tmp_path / TABLE.name)
    where = tmp_path / "run.yaml"
    where.write_text(RUN)
    source = RunSource(tmp_path / TABLE.name, where, "table", TABLE.name, "t")
    (run,) = TableReader().read(source, load_run(where))
    assert adds_up(run)
    raw = pq.read_table(TABLE)
    assert run.counts.lines == raw.num_rows
    assert run.counts.rejected == 0
    busy = raw.column("batch.scheduled_tokens").to_numpy() > 0
    assert run.steps.count == np.count_nonzero(busy)
    assert int(run.steps.scheduled_tokens.sum()) == sum(
        raw.column("batch.scheduled_tokens").to_pylist()
    )
    # These durations are the dispatch: models that need 10 ms only to read weights.
    assert float(np.median(run.steps.duration_s)) < 2e-3
    assert "dispatch" in str(run.fit_refused_reason)
