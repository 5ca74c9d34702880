"""A log that grows while it is stored."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from kernelfit.documents.problems import InputError
from kernelfit.logs.discover import discover
from kernelfit.logs.growing import MARGIN_STEPS
from kernelfit.store.commit import staging
from kernelfit.store.follow import Follower
from kernelfit.store.ingest import ingest_paths
from kernelfit.store.scan import RunRecord, load_store
from tests.logs.recording import RUN_YAML, Recording, small
from tests.logs.test_vllm_log import HEAD, body
from tests.store.test_ingest import INIT, LOG_YAML


def long(steps: int) -> Recording:
    recording = Recording()
    for step in range(steps):
        recording.step([(1, 100 + step, 100, 0), (1 + step % 7, 0, 40, 0)])
    return recording


def grow(whole: Path, folder: Path, share: float) -> None:
    """Copy the beginning of every file of a finished recording, cut anywhere."""
    folder.mkdir(exist_ok=True)
    for path in whole.iterdir():
        data = path.read_bytes()
        if path.suffix == ".jsonl":
            data = data[: int(len(data) * share)]
        with (folder / path.name).open("r+b" if (folder / path.name).exists() else "wb") as out:
            out.seek(0, os.SEEK_END)
            out.write(data[out.tell() :])


def follower(path: Path, out: Path, staged: Path, calib: Path) -> Follower:
    (source,) = discover(path)
    return Follower(source, out, staged, {}, calib)


def same_rows(one: RunRecord, other: RunRecord) -> None:
    for name in ("steps", "requests"):
        left, right = one.table(name), other.table(name)
        assert left.drop_columns("run_id").equals(right.drop_columns("run_id")), name


def test_a_growing_recording_becomes_what_ingesting_it_gives(tmp_path: Path, calib: Path) -> None:
    whole = long(400).write(tmp_path / "whole" / "run")
    growing, out = tmp_path / "growing" / "run", tmp_path / "store"
    growing.parent.mkdir()
    grow(whole, growing, 0.3)
    out.mkdir()
    with staging(out) as staged:
        following = follower(growing, out, staged, calib)
        seen = []
        for share in (0.5, 0.7, 0.71, 1.0):
            while following.poll():
                pass
            following.commit()
            (record,) = load_store(out).runs
            seen.append(record.steps.num_rows)
            assert record.row["steps_kept"] == record.steps.num_rows
            assert record.row["lines_read"] == (
                record.row["steps_kept"] + record.row["lines_recognised"] + record.row["rejected"]
            )
            grow(whole, growing, share)
        assert seen == sorted(seen)
        assert 0 < seen[0] <= 0.3 * 400 - MARGIN_STEPS + 2
        assert record.row["parts"] == 4
        following.finish()
    (record,) = load_store(out).runs
    assert record.row["parts"] == 1
    ingest_paths([whole], tmp_path / "plain", calib=calib)
    (plain,) = load_store(tmp_path / "plain").runs
    same_rows(record, plain)
    assert following.totals() == (plain.row["lines_read"], 400, 0)
    assert record.row["recorder_cost_share"] == pytest.approx(plain.row["recorder_cost_share"])
    # Ingesting it when it has ended replaces it, and says so.
    report = ingest_paths([growing], out, calib=calib)
    assert report.files[0].replaced == ("run",)


def test_an_engine_that_starts_anew_is_a_new_run(tmp_path: Path, calib: Path) -> None:
    folder, out = long(100).write(tmp_path / "run"), tmp_path / "store"
    out.mkdir()
    with staging(out) as staged:
        following = follower(folder, out, staged, calib)
        while following.poll():
            pass
        later = Recording(start_ns=10**15)
        for _ in range(80):
            later.step([(3, 7, 20, 0)])
        later.write(folder, pid=50)
        while following.poll():
            pass
        following.finish()
    assert following.rotations == 1
    runs = load_store(out).runs
    assert [(r.run_id, r.steps.num_rows) for r in runs] == [("run", 100), ("run.2", 80)]


def test_a_text_log_that_is_cut_is_a_new_run(tmp_path: Path, calib: Path) -> None:
    out = tmp_path / "store"
    out.mkdir()
    (tmp_path / "run.yaml").write_text(LOG_YAML)
    log = tmp_path / "engine.log"
    log.write_text("".join(f"{line}\n" for line in (INIT, *(HEAD + body(n) for n in range(5)))))
    with staging(out) as staged:
        following = follower(log, out, staged, calib)
        while following.poll():
            pass
        following.commit()
        with log.open("a") as stream:
            stream.write(f"{HEAD}{body(5)}\n{HEAD}Iteration(6): broken\n{HEAD}half a li")
        while following.poll():
            pass
        following.commit()
        assert [r.steps.num_rows for r in load_store(out).runs] == [6]
        log.write_text(f"{INIT}\n{HEAD}{body(0)}\n")
        while following.poll():
            pass
        following.finish()
    one, two = load_store(out).runs
    assert (one.steps.num_rows, two.steps.num_rows) == (6, 1)
    assert (one.row["rejected"], one.row["lines_read"]) == (1, 8)
    # Line numbers are those of the file, not of the stretch that was read at a time.
    assert '"line": 8' in (one.folder / "engine.rejects.jsonl").read_text()


def test_what_cannot_be_followed_is_said(tmp_path: Path, calib: Path) -> None:
    out = tmp_path / "store"
    folder = small().write(tmp_path / "twins")
    small().write(folder, pid=20)
    table = tmp_path / "t"
    table.mkdir()
    (table / "run.yaml").write_text(
        RUN_YAML.replace("reader: kernelfit", "reader: table").replace(
            "pool:", "columns: {}\npool:"
        )
    )
    (table / "a.csv").write_text("a\n1\n")
    out.mkdir()
    with staging(out) as staged:
        with pytest.raises(InputError, match=r"cannot be followed.*allowed kernelfit, vllm-log"):
            follower(table, out, staged, calib)
        with pytest.raises(InputError, match=r"several engines.*got 2"):
            follower(folder, out, staged, calib).poll()


def command(*words: str | Path) -> list[str]:
    return [sys.executable, "-m", "kernelfit.cli.main", *map(str, words)]


def wait_for(out: Path, steps: int, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        runs = load_store(out / ".kernelfit" / "store").runs
        if runs and runs[0].steps.num_rows >= steps:
            return
        time.sleep(0.1)
    raise AssertionError(process.communicate()[1])


@pytest.mark.slow
def test_kill_9_keeps_what_was_committed_and_sigterm_ends_with_a_summary(
    tmp_path: Path, calib: Path
) -> None:
    whole = long(2000).write(tmp_path / "whole" / "run")
    growing, out = tmp_path / "run", tmp_path / "out"
    grow(whole, growing, 0.5)
    words = command("ingest", growing, "--follow", "--out", out, "--calib", calib)
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as one:
        wait_for(out, 900, one)
        one.kill()
    held = load_store(out / ".kernelfit" / "store").runs[0]
    assert np.isfinite(held.steps.column("duration_s").to_numpy()).all()
    before = held.steps.num_rows
    grow(whole, growing, 1.0)
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as two:
        wait_for(out, before + 500, two)
        two.send_signal(signal.SIGTERM)
        said, notes = two.communicate(timeout=60)
    assert two.returncode == 0
    assert said == "stopped: 2,000 steps, 0 lines rejected; stored run\n"
    assert "steps" in notes
    (record,) = load_store(out / ".kernelfit" / "store").runs
    ingest_paths([whole], tmp_path / "plain", calib=calib)
    same_rows(record, load_store(tmp_path / "plain").runs[0])
    assert not list((out / ".kernelfit" / "store").glob(".*"))
    shutil.rmtree(out)
