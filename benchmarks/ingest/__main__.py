"""Print how fast logs become a store: ``python -m benchmarks.ingest``.

Everything is compared with something that is measured in the same run: the recorder's files
with bare msgspec decoding of the same lines, text logs with ``grep -c``, several processes
with one.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.ingest.made import make_recording

ROOT = Path(__file__).resolve().parents[2]
CALIB = ROOT / "calib"


def ingest(source: Path, out: Path, **more: object) -> float:
    """Ingest into a new store and return the seconds that it took."""
    from kernelfit.store.ingest import ingest_paths

    shutil.rmtree(out, ignore_errors=True)
    began = time.perf_counter()
    report = ingest_paths([source], out, calib=CALIB, **more)  # type: ignore[arg-type]
    taken = time.perf_counter() - began
    assert sum(file.rejected for file in report.files) == 0
    return taken


def decode(folder: Path) -> float:
    """Decode every line of a recording into typed rows, and do nothing with them."""
    import msgspec

    from kernelfit.logs.rows import Row

    decoder = msgspec.json.Decoder(Row)
    began = time.perf_counter()
    for path in folder.glob("*.jsonl"):
        with path.open("rb") as stream:
            for line in stream:
                decoder.decode(line)
    return time.perf_counter() - began


def speed(folder: Path, megabytes: float) -> None:
    """Compare with bare decoding, round by round."""
    size = make_recording(folder / "speed", megabytes * 1e6)
    ingest(folder / "speed", folder / "store")
    rounds = []
    for _ in range(3):
        began = time.process_time()
        bare = decode(folder / "speed")
        between = time.process_time()
        taken = ingest(folder / "speed", folder / "store")
        work = (between - began) / (time.process_time() - between)
        rounds.append((bare / taken, bare, taken, work))
    rounds.sort()
    ratio, bare, taken, work = rounds[1]
    print(
        f"own JSONL, {size / 1e6:.0f} MB: msgspec alone {bare:.2f} s ({size / bare / 1e6:.0f} "
        f"MB/s), ingested in {taken:.2f} s ({size / taken / 1e6:.0f} MB/s): {ratio:.2f} of the "
        f"speed (bar 0.5; by processor time {work:.2f}); rounds "
        + ", ".join(f"{r[0]:.2f}" for r in rounds),
        flush=True,
    )


def text() -> None:
    """Compare text logs with grep, where that part is there."""
    if importlib.util.find_spec("benchmarks.ingest.text") is None:
        print("text logs: benchmarks/ingest/text.py is not there")
        return
    module = importlib.import_module("benchmarks.ingest.text")
    for line in module.measure():
        print(line, flush=True)


def memory(folder: Path, gigabytes: float) -> None:
    """Ingest a long recording in a process of its own and print its peak."""
    size = make_recording(folder / "long", gigabytes * 1e9)
    words = [sys.executable, "-m", "benchmarks.ingest", "--child", str(folder)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    said = json.loads(done.stdout)
    print(
        f"{size / 1e9:.2f} GB: {said['steps']:,} steps in {said['taken_s']:.0f} s "
        f"({size / said['taken_s'] / 1e6:.0f} MB/s), peak memory {said['peak_mib']:.0f} MiB, "
        f"of which {said['start_mib']:.0f} MiB before the first line",
        flush=True,
    )
    shutil.rmtree(folder / "long")


def child(folder: Path) -> None:
    """Ingest the long recording here."""
    from kernelfit.store.ingest import ingest_paths
    from kernelfit.store.scan import load_store

    start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.perf_counter()
    ingest_paths([folder / "long"], folder / "store", calib=CALIB)
    taken = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    (record,) = load_store(folder / "store").runs
    print(
        json.dumps(
            {
                "steps": record.rows("steps"),
                "taken_s": taken,
                "peak_mib": peak / 1024,
                "start_mib": start / 1024,
            }
        )
    )


def spread(folder: Path, megabytes: float, files: int) -> None:
    """Compare one process with two, and with two workers of a Dask cluster."""
    for number in range(files):
        make_recording(folder / "many" / f"run-{number}", megabytes * 1e6, seed=number)
    many = folder / "many"
    ingest(many, folder / "store", jobs=2)  # the processes stay
    one = min(ingest(many, folder / "store", jobs=1) for _ in range(2))
    two = min(ingest(many, folder / "store", jobs=2) for _ in range(2))
    cores = len(os.sched_getaffinity(0))
    print(
        f"{files} recordings of {megabytes:.0f} MB, {cores} cores: one process {one:.2f} s, "
        f"two {two:.2f} s: {one / two:.2f} times as fast",
        flush=True,
    )
    address, started = cluster(folder)
    try:
        ingest(many, folder / "store", scheduler=address)  # the workers have imported all
        dask = min(ingest(many, folder / "store", scheduler=address) for _ in range(2))
    finally:
        for process in started:
            process.terminate()
            process.wait()
    print(f"two Dask workers {dask:.2f} s: {one / dask:.2f} times as fast as one process")


def cluster(folder: Path) -> tuple[str, list[subprocess.Popen[bytes]]]:
    """Start a scheduler and two workers on loopback."""
    from distributed import Client

    file = folder / "scheduler.json"
    common = ["--no-dashboard", "--host", "127.0.0.1", "--scheduler-file", str(file)]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    scheduler = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--port", "0"]
    worker = [sys.executable, "-m", "distributed.cli.dask_worker", "--nthreads", "1", "--no-nanny"]
    started = [subprocess.Popen([*scheduler, *common], cwd=folder, **quiet)]  # type: ignore[call-overload]
    started += [subprocess.Popen([*worker, *common], cwd=folder, **quiet) for _ in range(2)]  # type: ignore[call-overload]
    while not (file.is_file() and file.read_text().strip()):
        time.sleep(0.1)
    address = str(json.loads(file.read_text())["address"])
    with Client(address, timeout=60) as client:
        client.wait_for_workers(2, timeout=60)
    return address, started


def main() -> int:
    """Print everything."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=float, default=100.0, help="size of the speed test")
    parser.add_argument("--gigabytes", type=float, default=2.0, help="size of the memory test")
    parser.add_argument("--part", choices=("speed", "text", "memory", "spread"), action="append")
    parser.add_argument("--child", type=Path, help="ingest the recording in this folder, no more")
    options = parser.parse_args()
    if options.child:
        child(options.child)
        return 0
    parts = options.part or ["speed", "text", "memory", "spread"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if "speed" in parts:
            speed(folder, options.megabytes)
        if "text" in parts:
            text()
        if "memory" in parts:
            memory(folder, options.gigabytes)
        if "spread" in parts:
            spread(folder, options.megabytes / 2, 6)
    return 0


if __name__ == "__main__":
    sys.exit(main())
