"""The public GPU step data from their files to the store, through the benchmark's folders."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from kernelfit.store.ingest import ingest_paths
from kernelfit.store.scan import Store, load_store

ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared"
TABLE = SHARED / "data" / "splitwise_sim" / "perf_model.csv"

pytestmark = pytest.mark.skipif(
    not TABLE.is_file(), reason="the folder shared/data beside the repository is absent"
)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    spec = importlib.util.spec_from_file_location(
        "accuracy_data", ROOT / "benchmarks" / "accuracy" / "data.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    folder = tmp_path_factory.mktemp("public")
    runs = module.prepare(SHARED, folder / "runs")
    report = ingest_paths([runs], folder / "store", calib=ROOT / "calib", max_rejected=0)
    assert sum(file.rejected for file in report.files) == 0
    return load_store(folder / "store")


def test_every_run_is_there_and_can_be_fitted(store: Store) -> None:
    assert len(store.runs) == 6 + 2 + 2 * (3 + 2)
    assert all(run.fit_refused_reason is None for run in store.runs)
    gpus = {"a100": "A100-SXM-80GB", "h100": "H100-SXM", "b300": "B300"}
    assert all(run.gpu == gpus[run.run_id[:4]] for run in store.runs)


def test_metadata_fill_the_pool(store: Store) -> None:
    run = store.run("b300-qwen3.6-35b-a3b-tp4-ep4")
    assert (run.pool.tp, run.pool.enable_expert_parallel) == (4, True)
    assert (run.pool.block_size, run.pool.max_num_seqs) == (16, 128)
    assert run.pool.cudagraph_mode == "FULL_AND_PIECEWISE"
    assert run.pool.enable_prefix_caching is False
    assert (run.row["engine_version"], run.row["dtype"]) == ("0.20.1", "bf16")
    segments = run.steps.column("segment").to_pylist()
    assert set(segments) == {"sweep", "real"}


def test_cells_of_a_measurement_table_are_runs(store: Store) -> None:
    table = pd.read_csv(TABLE)
    for run in store.runs:
        _, _, table_name = run.run_id.rpartition("-")
        if table_name not in ("prompt", "token"):
            continue
        hardware = {"a": "a100-80gb", "h": "h100-80gb"}[run.run_id[0]]
        rows = table[(table.hardware == hardware) & (table.tensor_parallel == run.pool.tp)]
        steps = run.steps.to_pandas()
        took = rows.prompt_time if table_name == "prompt" else rows.token_time
        np.testing.assert_allclose(steps.duration_s, took * 1e-3, rtol=1e-12)
        np.testing.assert_array_equal(steps.requests, rows.batch_size)
        n, p = rows.batch_size, rows.prompt_size
        if table_name == "prompt":
            np.testing.assert_array_equal(steps.prefill_pairs, n * p * (p + 1) // 2)
            assert set(steps.phase) == {"prefill"}
        else:
            context = n * (p + rows.token_size // 2 + 1)
            np.testing.assert_array_equal(steps.decode_context_tokens, context)
            assert set(steps.phase) == {"decode"}
