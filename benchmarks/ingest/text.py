"""vLLM's text logs: reading and ingesting one, against ``grep -c`` on the same file.

``python -m benchmarks.ingest.text [--megabytes N]`` prints what ``measure`` returns.
"""

from __future__ import annotations

import argparse
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from kernelfit.logs.source import RunSource
from kernelfit.logs.vllm_log import VllmLogReader
from kernelfit.store.ingest import ingest_paths

MEGABYTES = 300
TIMES = 3
BAR = 5.0
"""Most times the time of ``grep -c`` that reading may take [1]."""

CALIB = Path(__file__).resolve().parents[2] / "calib"
_HEAD = "(APIServer pid=4725) INFO 11-{:02d} {:02d}:{:02d}:{:02d} "


def write_log(path: Path, size_bytes: int, seed: int = 1) -> int:
    """Write a log as a busy server prints it: steps, access lines, requests, averages.

    Parameters
    ----------
    path : pathlib.Path
        The file.
    size_bytes : int
        Its size, to within a line [bytes].
    seed : int
        Seed of the numbers.

    Returns
    -------
    int
        Steps that it holds.
    """
    rng = random.Random(seed)
    steps, written, now_s = 0, 0, 0.0
    with path.open("w", encoding="ascii") as file:
        while written < size_bytes:
            now_s += 0.011
            whole = int(now_s)
            head = _HEAD.format(
                1 + whole // 86400 % 30, whole // 3600 % 24, whole // 60 % 60, whole % 60
            )
            kind, decode = rng.random(), rng.randint(1, 256)
            context = rng.randint(1, 4) if kind < 0.2 else 0
            tokens = rng.randint(context, 8192) if context else 0
            text = (
                f"{head}[loggers.py:199] Engine 000: Iteration({steps}): {context} context requests, "
                f"{tokens} context tokens, {decode} generation requests, {decode} generation tokens, "
                f"iteration elapsed time: {rng.uniform(5, 40):.2f} ms, "
                f"GPU KV cache usage: {rng.uniform(0, 100):.1f}%\n"
            )
            if kind < 0.2:
                port = rng.randint(1024, 65535)
                text += f'(APIServer pid=4725) INFO:     10.0.0.7:{port} - "POST /v1/completions HTTP/1.1" 200 OK\n'
            if kind < 0.1:
                text += (
                    f"{head}[async_llm.py:400] Added request cmpl-{rng.getrandbits(128):032x}-0.\n"
                )
            if steps % 900 == 0:
                text += (
                    f"{head}[loggers.py:271] Engine 000: Avg prompt throughput: {rng.uniform(0, 9000):.1f} "
                    f"tokens/s, Avg generation throughput: {rng.uniform(0, 9000):.1f} tokens/s, Running: {decode} "
                    f"reqs, Waiting: 0 reqs, GPU KV cache usage: 12.5%, Prefix cache hit rate: 0.0%\n"
                )
            file.write(text)
            written += len(text)
            steps += 1
    return steps


def read(path: Path) -> int:
    """Read a log into columns, a piece at a time; return the steps."""
    steps = 0
    for run in VllmLogReader().open(RunSource(path, None, "vllm-log", "log", "log"), None):
        steps += sum(piece.steps.count for piece in run.pieces())
    return steps


def ingest(path: Path) -> int:
    """Read a log into a store; return the steps."""
    out = path.parent / "store"
    shutil.rmtree(out, ignore_errors=True)
    report = ingest_paths([path], out, calib=CALIB, jobs=1)
    return sum(file.steps for file in report.files)


def count(path: Path) -> int:
    """Count the step lines with grep."""
    done = subprocess.run(
        ["grep", "-c", "Iteration", str(path)], capture_output=True, text=True, check=True
    )
    return int(done.stdout)


def best_s(work: Callable[[Path], int], path: Path, expected: int) -> float:
    """Return the shortest of several times [s]."""
    took: list[float] = []
    for _ in range(TIMES):
        begin = time.perf_counter()
        found = work(path)
        took.append(time.perf_counter() - begin)
        if found != expected:
            raise SystemExit(f"{work.__name__} found {found} steps, not {expected}")
    return min(took)


def peak_mib(path: Path) -> float:
    """Return the peak memory of a process that reads a log [MiB]."""
    code = (
        "import resource, sys; from pathlib import Path; from benchmarks.ingest.text import read; "
        "read(Path(sys.argv[1])); print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True
    )
    return float(done.stdout)


def measure(megabytes: int = MEGABYTES) -> list[str]:
    """Measure on a log of a given size, on one core.

    Parameters
    ----------
    megabytes : int
        Size of the log [MB].

    Returns
    -------
    list of str
        Lines to print.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "engine.log"
        steps = write_log(path, megabytes * 10**6)
        small = Path(folder) / "small.log"
        write_log(small, max(1, megabytes // 10) * 10**6)
        grep_s = best_s(count, path, steps)
        read_s = best_s(read, path, steps)
        ingest_s = best_s(ingest, path, steps)
        ratio = read_s / grep_s
        said = "within" if ratio <= BAR else "misses"
        return [
            f"vLLM text log, {megabytes} MB, {steps} steps, one core, best of {TIMES}",
            f"  grep -c Iteration   {grep_s:7.3f} s  {megabytes / grep_s:7.0f} MB/s",
            f"  read into columns   {read_s:7.3f} s  {megabytes / read_s:7.0f} MB/s  "
            f"{ratio:.1f} x grep: {said} the bar of {BAR:g} x",
            f"  ingest into a store {ingest_s:7.3f} s  {megabytes / ingest_s:7.0f} MB/s  "
            f"{ingest_s / grep_s:.1f} x grep",
            f"  peak memory of reading: {peak_mib(path):.0f} MiB, of a tenth of it "
            f"{peak_mib(small):.0f} MiB",
        ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ingest.text", description=__doc__)
    parser.add_argument("--megabytes", type=int, default=MEGABYTES)
    print("\n".join(measure(parser.parse_args().megabytes)))
