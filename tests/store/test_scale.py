"""Many files and long ones: the same rows whoever reads them, however they are cut up."""

from __future__ import annotations

import gzip
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from kernelfit.documents.problems import InputError
from kernelfit.logs import recorder
from kernelfit.store import parallel
from kernelfit.store.ingest import ingest_paths
from kernelfit.store.scan import load_store
from tests.logs.recording import RUN_YAML, Recording, adds_up, read, write_rows
from tests.store.test_ingest import Ingest, snapshot


def busy(steps: int, seed: int = 0) -> Recording:
    recording = Recording()
    for step in range(steps):
        requests = [(1, 100 + step + r, 100, 0) for r in range((step * 7 + seed) % 5 + 1)]
        recording.step([*requests, (1 + step % 9, 0, 64, 0)])
    return recording


def fleet(folder: Path, runs: int = 4, steps: int = 120) -> Path:
    for number in range(runs):
        busy(steps + number, number).write(folder / f"run-{number}")
    return folder


@pytest.mark.parametrize("block_bytes", [200, 1500, 20_000])
def test_rows_do_not_depend_on_how_the_files_are_cut_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block_bytes: int
) -> None:
    recording = busy(150)
    recording.steps[40]["computed"] = [-1]
    recording.steps[90]["n"] = 1
    del recording.workers[0][60]
    folder = recording.write(tmp_path / "run")
    (whole,) = read(folder)
    original = recorder.Feed.__init__

    def small_blocks(self: object, path: Path, role: str, blocks: object = None, **more: object):  # type: ignore[no-untyped-def]
        from kernelfit.logs.lines import read_blocks

        original(self, path, role, read_blocks(path, block_bytes), **more)  # type: ignore[arg-type]

    monkeypatch.setattr(recorder.Feed, "__init__", small_blocks)
    monkeypatch.setattr(recorder, "CHUNK_STEPS", 16)
    monkeypatch.setattr(recorder, "REORDER_STEPS", 4)
    (cut,) = read(folder)
    assert adds_up(cut)
    assert cut.counts == whole.counts
    assert cut.rejects == whole.rejects
    for name in ("step", "duration_s", "decode_pairs", "marks", "dispatch_s"):
        assert getattr(cut.steps, name).tobytes() == getattr(whole.steps, name).tobytes(), name
    assert cut.requests.computed.tobytes() == whole.requests.computed.tobytes()


def test_rows_far_out_of_order_are_put_in_order_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recording = busy(120)
    straight = read(recording.write(tmp_path / "straight"))[0]
    recording.steps.append(recording.steps.pop(3))
    folder = recording.write(tmp_path / "late")
    monkeypatch.setattr(recorder, "CHUNK_STEPS", 16)
    monkeypatch.setattr(recorder, "REORDER_STEPS", 4)
    original = recorder.read_blocks if hasattr(recorder, "read_blocks") else None
    assert original is None
    from kernelfit.logs import feed, lines

    monkeypatch.setattr(feed, "read_blocks", lambda path: lines.read_blocks(path, 1000))
    (late,) = read(folder)
    assert late.steps.step.tolist() == straight.steps.step.tolist()
    assert late.counts == straight.counts


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_a_compressed_recording_is_the_same(ingest: Ingest, tmp_path: Path, suffix: str) -> None:
    plain, packed = busy(300).write(tmp_path / "a" / "run"), tmp_path / "b" / "run"
    packed.mkdir(parents=True)
    for path in plain.iterdir():
        data = path.read_bytes()
        if path.suffix == ".jsonl":
            squeeze = gzip.compress if suffix == ".gz" else _zstandard
            (packed / f"{path.name}{suffix}").write_bytes(squeeze(data))
        else:
            (packed / path.name).write_bytes(data)
    ingest(plain, out=tmp_path / "one")
    ingest(packed, out=tmp_path / "two")
    one, two = (load_store(tmp_path / name).runs[0] for name in ("one", "two"))
    assert one.steps.equals(two.steps)
    assert one.requests.equals(two.requests)


def _zstandard(data: bytes) -> bytes:
    return bytes(pa.compress(data, codec="zstd", asbytes=True))


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
@pytest.mark.parametrize("role", ["engine-10", "worker-11"])
def test_a_truncated_file_is_one_reject_and_not_hundreds(
    tmp_path: Path, suffix: str, role: str
) -> None:
    recording = Recording()
    for step in range(4000):
        recording.step([(1, (step * 7919) % 4000 + 5, 5, 0)])
    folder = recording.write(tmp_path / "run")
    path = folder / f"{role}.jsonl"
    data = gzip.compress(path.read_bytes()) if suffix == ".gz" else _zstandard(path.read_bytes())
    (folder / f"{role}.jsonl{suffix}").write_bytes(data[: len(data) // 2])
    path.unlink()
    (run,) = read(folder)
    assert adds_up(run)
    assert 500 < run.steps.count < 4000
    (reject,) = run.rejects
    assert reject.file == f"{role}.jsonl{suffix}"
    assert "ends early" in reject.reason
    assert f"{4000 - run.steps.count} later rows of the other files" in reject.reason


def test_the_store_is_the_same_bytes_whatever_the_number_of_jobs(
    ingest: Ingest, tmp_path: Path
) -> None:
    logs = fleet(tmp_path / "logs")
    one = ingest(logs, out=tmp_path / "one", jobs=1)
    two = ingest(logs, out=tmp_path / "two", jobs=2)
    assert one == two
    assert len(one.run_ids) == 4
    assert snapshot(tmp_path / "one") == snapshot(tmp_path / "two")


def test_one_bad_log_among_many_leaves_the_store(ingest: Ingest, tmp_path: Path) -> None:
    logs = fleet(tmp_path / "logs")
    bad = RUN_YAML.replace("h100-sxm", "h1000")
    (logs / "run-2" / "run.yaml").write_text(bad)
    with pytest.raises(InputError, match="unknown GPU") as caught:
        ingest(logs, out=tmp_path / "store", jobs=2)
    assert len(caught.value.problems) == 1
    assert not (tmp_path / "store").exists()


def test_a_pattern_names_logs(ingest: Ingest, tmp_path: Path) -> None:
    fleet(tmp_path / "logs", steps=10)
    report = ingest(tmp_path / "logs" / "run-[13]", out=tmp_path / "store")
    assert report.run_ids == ("run-1", "run-3")


def test_a_process_per_core_only_where_it_pays() -> None:
    assert parallel.usual_jobs(8, 1000) == 1
    cores = len(os.sched_getaffinity(0))
    assert parallel.usual_jobs(1, 10**12) == 1
    assert parallel.usual_jobs(1000, 10**12) == cores


# -- killed in the middle -----------------------------------------------------------

KILLED = """
import os, sys
from pathlib import Path
from kernelfit.store import {module}
from kernelfit.store.ingest import ingest_paths
calls = 0
real = {module}.{function}
def dies(*given):
    global calls
    calls += 1
    if calls == {call}:
        {before}
        os.kill(os.getpid(), 9)
    return real(*given)
{module}.{function} = dies
ingest_paths([Path(sys.argv[1])], Path(sys.argv[2]), calib=Path(sys.argv[3]))
"""
PLACES = {
    "while it is read": ("stage", "write_row", 1, "pass"),
    "between two runs": ("ingest", "put_in_place", 2, "pass"),
    "after the exchange": ("ingest", "put_in_place", 2, "real(*given)"),
    "before the old run is removed": ("commit", "_exchange", 2, "real(*given)"),
}


@pytest.mark.parametrize("place", PLACES)
def test_a_killed_ingestion_leaves_each_run_old_or_new(
    ingest: Ingest, tmp_path: Path, calib: Path, place: str
) -> None:
    logs, out = fleet(tmp_path / "logs", runs=2, steps=30), tmp_path / "store"
    ingest(logs, out=out)
    old = snapshot(out)
    for number in range(2):
        busy(50, number).write(logs / f"run-{number}")
    ingest(logs, out=tmp_path / "fresh")
    new = snapshot(tmp_path / "fresh")
    module, function, call, before = PLACES[place]
    script = KILLED.format(module=module, function=function, call=call, before=before)
    words = [sys.executable, "-c", script, str(logs), str(out), str(calib)]
    assert subprocess.run(words, capture_output=True).returncode == -signal.SIGKILL
    for name in ("run-0", "run-1"):
        part = {n: d for n, d in snapshot(out).items() if n.startswith(f"{name}/")}
        assert part in (
            {n: d for n, d in old.items() if n.startswith(f"{name}/")},
            {n: d for n, d in new.items() if n.startswith(f"{name}/")},
        )
    assert len(load_store(out).runs) == 2
    ingest(logs, out=out)
    assert snapshot(out) == new


def test_a_run_that_was_set_aside_is_found_and_put_back(ingest: Ingest, tmp_path: Path) -> None:
    logs, out = fleet(tmp_path / "logs", runs=2, steps=30), tmp_path / "store"
    ingest(logs, out=out)
    before = snapshot(out)
    # A file system that cannot exchange folders, and a kill between its two renames.
    (out / "run-1").rename(out / ".run-1.0123abcd.old")
    assert [r.run_id for r in load_store(out).runs] == ["run-0", "run-1"]
    busy(20).write(tmp_path / "other")
    ingest(tmp_path / "other", out=out)
    assert {n: d for n, d in snapshot(out).items() if not n.startswith("other/")} == before


def test_half_a_log_of_two_lives_is_read_again(ingest: Ingest, tmp_path: Path) -> None:
    folder = busy(20).write(tmp_path / "run")
    later = Recording(start_ns=10**15)
    later.step([(3, 7, 20, 0)])
    later.write(folder, pid=30)
    out = tmp_path / "store"
    assert ingest(folder, out=out).run_ids == ("run", "run.2")
    before = snapshot(out)
    for path in (out / "run.2").iterdir():
        path.unlink()
    (out / "run.2").rmdir()
    assert not ingest(folder, out=out).files[0].skipped
    assert snapshot(out) == before


# -- a cluster ----------------------------------------------------------------------


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Callable[[], tuple[str, list[subprocess.Popen[bytes]]]]]:
    """Start a real scheduler and two workers on loopback."""
    started: list[subprocess.Popen[bytes]] = []
    environment = {**os.environ, "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "5"}

    def run(*words: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-m", *words],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=tmp_path,
        )
        started.append(process)
        return process

    def start() -> tuple[str, list[subprocess.Popen[bytes]]]:
        file = tmp_path / "scheduler.json"
        run(
            "distributed.cli.dask_scheduler",
            *("--host", "127.0.0.1", "--port", "0", "--no-dashboard"),
            *("--scheduler-file", str(file)),
        )
        workers = [
            run(
                "distributed.cli.dask_worker",
                *("--scheduler-file", str(file), "--nthreads", "1", "--no-nanny"),
                *("--host", "127.0.0.1", "--no-dashboard"),
                *("--local-directory", str(tmp_path / "dask")),
            )
            for _ in range(2)
        ]
        import json

        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            if file.is_file() and file.read_text().strip():
                return str(json.loads(file.read_text())["address"]), workers
            time.sleep(0.1)
        raise AssertionError("the scheduler did not start")

    yield start
    for process in started:
        process.kill()
        process.wait()


@pytest.mark.slow
def test_two_dask_workers_give_what_one_process_gives_and_losing_one_loses_nothing(
    cluster: Callable[[], tuple[str, list[subprocess.Popen[bytes]]]],
    ingest: Ingest,
    tmp_path: Path,
    calib: Path,
) -> None:
    logs = fleet(tmp_path / "logs", runs=12, steps=2500)
    serial = ingest(logs, out=tmp_path / "serial", jobs=1)
    address, workers = cluster()
    from distributed import Client

    with Client(address, timeout=30) as client:
        client.wait_for_workers(2, timeout=60)
    together = ingest(logs, out=tmp_path / "together", scheduler=address)
    assert together == serial
    assert snapshot(tmp_path / "together") == snapshot(tmp_path / "serial")

    def lose_one(done: int, total: int, name: str) -> None:
        if done == 2:
            workers[0].kill()

    lost = ingest_paths(
        [logs], tmp_path / "lost", calib=calib, scheduler=address, progress=lose_one
    )
    assert workers[0].wait(timeout=10) == -signal.SIGKILL
    assert lost == serial
    assert snapshot(tmp_path / "lost") == snapshot(tmp_path / "serial")


def test_a_scheduler_that_is_not_there_is_said(ingest: Ingest, tmp_path: Path) -> None:
    logs = fleet(tmp_path / "logs", runs=1, steps=5)
    with pytest.raises(InputError, match=r"--scheduler tcp://127.0.0.1:1: cannot be reached"):
        ingest(logs, out=tmp_path / "store", scheduler="tcp://127.0.0.1:1")


def test_rows_in_the_wrong_file_are_rejected(tmp_path: Path) -> None:
    recording = busy(5)
    folder = recording.write(tmp_path / "run")
    write_rows(folder / "engine-10.jsonl", "engine", [*recording.steps, recording.workers[0][0]])
    (run,) = read(folder)
    assert [r.reason for r in run.rejects] == ["a worker row in an engine file"]
    assert adds_up(run)
