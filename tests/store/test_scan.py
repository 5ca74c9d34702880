from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kernelfit.documents.problems import InputError
from kernelfit.kernel.pool import Pool
from kernelfit.store.ingest import ingest_paths
from kernelfit.store.scan import load_store
from kernelfit.store.schema import RUNS, VERSION_KEY
from tests.logs.recording import small


@pytest.fixture
def store(tmp_path: Path, calib: Path) -> Path:
    ingest_paths([small().write(tmp_path / "run")], tmp_path / "store", calib=calib)
    return tmp_path / "store"


def test_an_absent_store_holds_no_run(tmp_path: Path) -> None:
    assert load_store(tmp_path / "nowhere").runs == ()


def test_runs_are_found_by_name(store: Path) -> None:
    held = load_store(store)
    assert held.run("run").pool == Pool(tp=1, block_size=16)
    assert held.run("run").timing == "device"
    with pytest.raises(KeyError):
        held.run("other")


def test_unfinished_folders_are_not_runs(store: Path) -> None:
    (store / "run").rename(store / ".run.abcd.part")
    assert load_store(store).runs == ()


def test_another_version_is_refused(store: Path) -> None:
    path = store / "run" / "runs.parquet"
    table = pq.read_table(path)
    later = table.replace_schema_metadata({**RUNS.metadata, VERSION_KEY: b"2"})
    pq.write_table(later, path)
    with pytest.raises(InputError, match=r"another version \(got 2\); allowed 1"):
        load_store(store)
    pq.write_table(table.replace_schema_metadata(RUNS.metadata), path)
    assert len(load_store(store).runs) == 1


def test_damage_is_said_with_its_place(store: Path) -> None:
    (store / "run" / "steps.parquet").unlink()
    with pytest.raises(InputError, match="not complete: steps"):
        load_store(store)
    (store / "run" / "runs.parquet").write_bytes(b"PAR1")
    with pytest.raises(InputError, match=r"runs\.parquet: cannot be read"):
        load_store(store)
    pq.write_table(pa.table({"a": [1]}), store / "run" / "runs.parquet")
    with pytest.raises(InputError, match="got no version"):
        load_store(store)
