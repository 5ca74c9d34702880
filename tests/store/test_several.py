"""Stores made on different machines, taken together."""

from __future__ import annotations

import io
import json
import shutil
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from kernelfit.documents.problems import InputError
from kernelfit.store.scan import load_store
from kernelfit.store.several import is_store, merged, runs_of
from tests.cli.run import kernelfit
from tests.cli.runs import CALIB, write_run
from tests.logs.recording import Recording, small
from tests.store.test_ingest import Ingest
from tests.store.test_scale import busy

GIVEN = ("--calib", CALIB)


def test_runs_of_several_stores_are_those_of_one(ingest: Ingest, tmp_path: Path) -> None:
    for number in range(4):
        busy(20, number).write(tmp_path / "logs" / f"run-{number}")
    ingest(tmp_path / "logs", out=tmp_path / "one")
    for name, numbers in (("left", (3, 0)), ("right", (1, 2, 0))):
        paths = [tmp_path / "logs" / f"run-{n}" for n in numbers]
        ingest(*paths, out=tmp_path / name)
    stores = [runs_of(tmp_path / name) for name in ("left", "right")]
    together = merged(stores)
    single = load_store(tmp_path / "one").runs
    assert [r.run_id for r in together] == [r.run_id for r in single]
    for one, other in zip(together, single, strict=True):
        assert {k: v for k, v in one.row.items() if k not in ("source", "source_key")} == {
            k: v for k, v in other.row.items() if k not in ("source", "source_key")
        }
        assert one.steps.equals(other.steps)
    assert [r.run_id for r in merged(stores[::-1])] == [r.run_id for r in single]


def test_two_logs_of_one_name_are_both_there(ingest: Ingest, tmp_path: Path) -> None:
    for name in ("a", "b"):
        other = small()
        if name == "b":
            other.step([(1, 102, 100, 0)])
        ingest(other.write(tmp_path / name / "run"), out=tmp_path / f"store-{name}")
    first, second = (runs_of(tmp_path / f"store-{name}") for name in ("a", "b"))
    names = [r.run_id for r in merged([first, second])]
    digest = str(second[0].row["source_digest"]).removeprefix("sha256:")[:8]
    assert names == ["run", f"run-{digest}"]
    # One store names them the same way.
    for name in ("a", "b"):
        ingest(tmp_path / name / "run", out=tmp_path / "both")
    assert [r.run_id for r in load_store(tmp_path / "both").runs] == names


def test_another_folder_of_the_same_name_does_not_replace_a_run(
    ingest: Ingest, tmp_path: Path
) -> None:
    out = tmp_path / "store"
    ingest(small().write(tmp_path / "a" / "run"), out=out)
    other = small()
    other.step([(1, 102, 100, 0)])
    report = ingest(other.write(tmp_path / "b" / "run"), out=out)
    assert report.files[0].replaced == ()
    assert sorted(r.steps.num_rows for r in load_store(out).runs) == [4, 5]
    other.step([(1, 103, 100, 0)])
    report = ingest(other.write(tmp_path / "b" / "run"), out=out)
    assert report.files[0].replaced == report.run_ids
    assert sorted(r.steps.num_rows for r in load_store(out).runs) == [4, 6]
    # Where a source stands is no part of the store.
    for path in out.rglob("*.parquet"):
        assert str(tmp_path).encode() not in path.read_bytes()


def test_a_store_is_told_from_logs(ingest: Ingest, tmp_path: Path) -> None:
    folder = small().write(tmp_path / "logs" / "run")
    ingest(folder, out=tmp_path / "store")
    assert is_store(tmp_path / "store")
    assert is_store(tmp_path / "store" / "run")
    assert not is_store(tmp_path / "logs")
    assert not is_store(tmp_path / "nowhere")
    assert [r.run_id for r in runs_of(tmp_path / "store" / "run")] == ["run"]


def test_a_part_of_a_log_is_refused(ingest: Ingest, tmp_path: Path) -> None:
    folder = small().write(tmp_path / "run")
    later = Recording(start_ns=10**15)
    later.step([(3, 7, 20, 0)])
    later.write(folder, pid=30)
    ingest(folder, out=tmp_path / "store")
    shutil.rmtree(tmp_path / "store" / "run.2")
    with pytest.raises(InputError, match="only a part of the log run"):
        merged([runs_of(tmp_path / "store")])


def test_fitting_several_stores_gives_the_calibration_of_one(tmp_path: Path) -> None:
    for number, name in enumerate(("a", "b", "c")):
        write_run(tmp_path / "logs" / name, seed=number + 1, steps=150)
    whole = tmp_path / "whole"
    words = ("--draws", "20", "--json", *GIVEN)
    one = kernelfit("fit", tmp_path / "logs", "--out", whole, *words)
    assert one.code == 0, one.err
    for machine, names in (("left", ("c",)), ("right", ("a", "b"))):
        paths = [tmp_path / "logs" / name for name in names]
        assert kernelfit("ingest", *paths, "--out", tmp_path / machine, *GIVEN).code == 0
    several = kernelfit(
        "fit", tmp_path / "left", tmp_path / "right", "--out", tmp_path / "several", *words
    )
    assert several.code == 0, several.err
    digests = [
        [calibration["digest"] for calibration in outcome.json()["calibrations"]]
        for outcome in (one, several)
    ]
    assert digests[0] == digests[1]
    assert len(digests[0]) == 1
    assert [row["steps"] for row in several.json()["ingest"]] == [150, 150, 150]
    # A store and a log.
    shutil.rmtree(tmp_path / "several")
    mixed = kernelfit(
        "fit",
        tmp_path / "left" / ".kernelfit" / "store",
        *(tmp_path / "logs" / name for name in ("a", "b")),
        *("--out", tmp_path / "several"),
        *words,
    )
    assert [c["digest"] for c in mixed.json()["calibrations"]] == digests[0]


def test_a_store_with_rejects_is_fitted_only_when_that_is_said(tmp_path: Path) -> None:
    run = write_run(tmp_path / "a", steps=250, changes={4: {"ms": "nan"}})
    assert kernelfit("ingest", run, "--out", tmp_path / "out", *GIVEN).code == 0
    words = ("fit", tmp_path / "out", "--out", tmp_path / "fit", "--draws", "20", *GIVEN)
    refused = kernelfit(*words)
    assert refused.code == 2
    assert "could not be used than a fit may pass over (got 1); allowed 0" in refused.err
    assert kernelfit(*words, "--max-rejected", "1").code == 0


# -- standard input -----------------------------------------------------------------


def piped(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    class Pipe:
        buffer = io.BytesIO(data)

    monkeypatch.setattr(sys, "stdin", Pipe())


def test_files_of_the_recorder_from_a_pipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = small(ranks=2).write(tmp_path / "run")
    data = b"".join(path.read_bytes() for path in sorted(folder.glob("*.jsonl")))
    facts = ("--reader", "kernelfit", "--gpu", "H100", "--model", "qwen3-8b")
    words = ("ingest", "-", "--out", tmp_path / "out", *facts, *GIVEN, "--json")
    piped(monkeypatch, data)
    outcome = kernelfit(*words)
    assert outcome.code == 0, outcome.err
    (entry,) = outcome.json()["ingest"]
    assert (entry["file"], entry["steps"], entry["runs"]) == ("stdin", 4, ["stdin"])
    (record,) = load_store(tmp_path / "out" / ".kernelfit" / "store").runs
    assert record.steps.column("duration_s").to_pylist() == pytest.approx([10.5e-3] * 4)
    # The same once more is nothing new.
    piped(monkeypatch, data)
    assert kernelfit(*words).json()["ingest"][0]["skipped"]


def test_a_pipe_must_say_its_format(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    piped(monkeypatch, b"")
    outcome = kernelfit("ingest", "-", "--out", tmp_path / "out", *GIVEN)
    assert outcome.code == 2
    assert "standard input: does not say its format; name it with --reader" in outcome.err
    outcome = kernelfit("ingest", "-", "--reader", "vllm-log", "--out", tmp_path / "out", *GIVEN)
    assert "standard input is empty" in outcome.err


# -- pruning ------------------------------------------------------------------------


def test_a_scan_reads_only_the_columns_and_row_groups_that_it_needs(
    ingest: Ingest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kernelfit.store import write

    monkeypatch.setattr(write, "ROW_GROUP_ROWS", 100)
    monkeypatch.setattr(write, "REQUEST_GROUP_ROWS", 300)
    ingest(busy(1000).write(tmp_path / "run"), out=tmp_path / "store")
    (record,) = load_store(tmp_path / "store").runs
    assert pq.ParquetFile(record.files("steps")[0]).num_row_groups == 10
    whole = record.scan("steps")
    assert (whole.rows, whole.rows_read, whole.groups_read) == (1000, 1000, 10)
    assert whole.read_bytes == whole.stored_bytes
    assert whole.table.equals(record.steps)
    narrow = record.scan("steps", ["step", "duration_s"], {"step": (250, 320)})
    assert narrow.table.column_names == ["step", "duration_s"]
    assert narrow.table.column("step").to_pylist() == list(range(250, 321))
    assert (narrow.rows_read, narrow.groups_read, narrow.groups) == (200, 2, 10)
    assert narrow.read_bytes < whole.stored_bytes / 10
    requests = record.scan("requests", ["computed"], {"step": (0, 10)})
    assert requests.groups_read == 1
    assert requests.table.num_rows == sum(record.requests.column("step").to_numpy() <= 10)
    assert record.scan("steps", where={"step": (5000, 6000)}).rows_read == 0
    # A column without any value holds none that is wanted.
    assert record.scan("steps", where={"probe_s": (0, 1)}).rows_read == 0
    with pytest.raises(KeyError):
        record.scan("steps", ["nothing"])


def test_a_long_run_is_sampled_across_its_parts(
    ingest: Ingest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kernelfit.store import write

    monkeypatch.setattr(write, "ROW_GROUP_ROWS", 100)
    ingest(busy(1000).write(tmp_path / "run"), out=tmp_path / "store")
    (record,) = load_store(tmp_path / "store").runs
    sample = record.sample("steps", 300)
    assert sample.column("step").to_pylist() == [
        *range(100),
        *range(300, 400),
        *range(600, 700),
    ]
    assert json.loads(record.row["pool_json"])["tp"] == 1
