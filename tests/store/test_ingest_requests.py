"""Request-level files in the store."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from kernelfit.store.ingest import IngestReport
from kernelfit.store.scan import load_store
from tests.logs.request_files import BENCH, SECRET, write

Ingest = Callable[..., IngestReport]


def test_a_file_of_requests_is_stored_without_a_step(ingest: Ingest, tmp_path: Path) -> None:
    path = write(tmp_path, "result.json", BENCH, BENCH)
    out = tmp_path / "store"
    report = ingest(path, out=out, overrides={"reader": "vllm-bench-serve", "engine": "vllm"})
    (counts,) = report.files
    assert (counts.steps, counts.rejected, counts.lines) == (0, 2, 8)
    assert counts.run_ids == ("result", "result.2")
    assert "requests, not steps" in str(counts.fit_refused_reason)
    record = load_store(out).run("result")
    assert record.served.column("chunks").to_pylist() == [3, 4, 3]
    assert record.served.column("observer").to_pylist() == ["client"] * 3
    assert record.steps.num_rows == record.events.num_rows == 0
    assert "time_to_first_token" in record.observed.column("quantity").to_pylist()
    # Neither the store nor its rejects hold what was asked or answered.
    for file in out.rglob("*"):
        assert not file.is_file() or SECRET.encode() not in file.read_bytes()
