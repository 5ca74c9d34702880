"""``kernelfit fit`` on runs whose front end was recorded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kernelfit.fit.front_end_runs import KINDS
from kernelfit.kernel import FittedKernel
from kernelfit.store.schema import EVENTS, RUNS
from tests.cli.run import kernelfit
from tests.cli.runs import CALIB, write_run
from tests.fit.front_ends import TRUTH, simulate

GIVEN = ("--calib", CALIB)


def record_front_end(store: Path, run: str) -> None:
    """Put simulated host work beside a stored run's steps."""
    made = simulate(1, requests=300, calls=800)
    columns = {
        "run_id": [run] * made.kind.size,
        "kind": [KINDS[k] for k in made.kind],
        "start_s": made.start_s,
        "duration_s": made.duration_s,
        "tokens": made.tokens.astype(np.int64),
        "requests": made.requests.astype(np.int32),
        "process": made.process.astype(np.int32),
        "request": pa.nulls(made.kind.size, pa.int64()),
    }
    pq.write_table(pa.table(columns).cast(EVENTS), store / run / "events.parquet")
    (row,) = pq.read_table(store / run / "runs.parquet").to_pylist()
    row |= {"host_cpu": "EPYC-Milan", "tokenizer": "BPE of 32,000 words"}
    pq.write_table(pa.Table.from_pylist([row], schema=RUNS), store / run / "runs.parquet")


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("front-end")
    write_run(folder / "traces" / "a", seed=1)
    out = folder / "out"
    assert kernelfit("ingest", folder / "traces", "--out", out, *GIVEN).code == 0
    record_front_end(out / ".kernelfit" / "store", "a")
    outcome = kernelfit("fit", folder / "traces", "--out", out, "--json", "--draws", "20", *GIVEN)
    assert outcome.code == 0
    return out, outcome.json()


def test_the_result_holds_the_front_end(done: tuple[Path, dict[str, Any]]) -> None:
    (calibration,) = done[1]["calibrations"]
    known = {entry["name"]: entry for entry in calibration["coefficients"]}
    for name, value in TRUTH.items():
        entry = known[name]
        assert entry["unit"] == "s"
        assert entry["value"] == pytest.approx(value, rel=0.2)
        assert entry["scope"] == "EPYC-Milan; vllm 0.32.0; BPE of 32,000 words"
        assert entry["prior"]["source"]
    assert calibration["front_end"]["scope"] == known["completion_s"]["scope"]
    kinds = [part["kind"] for part in calibration["front_end"]["parts"]]
    assert kinds == ["admission", "output", "completion"]
    assert {gate["id"] for gate in calibration["front_end"]["gates"]} == {"events_warm_up"}
    assert any("Launching" in text for text in calibration["inside_step"])


def test_the_frozen_kernel_charges_it_with_its_draws(done: tuple[Path, dict[str, Any]]) -> None:
    out, said = done
    (entry,) = said["kernels"]
    kernel = FittedKernel.load(out / entry["file"])
    assert json.loads((out / entry["file"]).read_text("utf-8"))["schema_version"] == 3
    expected = TRUTH["admission_request_s"] + 1000 * TRUTH["admission_token_s"]
    assert kernel.admission_overhead(1000) == pytest.approx(expected, rel=0.15)
    assert kernel.completion_overhead() == pytest.approx(TRUTH["completion_s"], rel=0.15)
    drawn = {kernel.with_draw(i).admission_overhead(1000) for i in range(20)}
    assert len(drawn) == 20
    methods = {origin.name: origin.method for origin in kernel.provenance()}
    assert methods["admission_token_s"] == "measured"


def test_the_calibration_reads_back_and_compares(done: tuple[Path, dict[str, Any]]) -> None:
    out, _ = done
    path = out / "calib" / "calibrations" / "h100-sxm.json"
    same = kernelfit("diff", path, path, "--json")
    assert same.code == 0
    verdicts = {entry["name"]: entry["verdict"] for entry in same.json()["coefficients"]}
    assert verdicts["admission_token_s"] == "same"
    page = (out / "reports" / "h100-sxm" / "index.html").read_text("utf8")
    assert "What the host takes" in page
