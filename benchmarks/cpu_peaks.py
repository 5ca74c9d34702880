"""The peaks of one CPU core, for a chip document of kind ``cpu``.

    python benchmarks/cpu_peaks.py [--seconds 5]

Prints, in SI units, the best of many repeats of

* ``sgemm``: fp32 matrix multiplication of large square matrices [FLOP/s],
* ``read``: reading an array far larger than the caches, once per pass [byte/s],
* ``read_cached``: the same for an array that stays in the last-level cache [byte/s],
* ``copy``: copying memory to memory within a process, bytes written [byte/s],
* ``exchange``: reading what another process, on another core, has just written to shared
  memory [byte/s],

and what the machine says of itself. The best, not the mean: these figures are upper bounds, and
whatever else runs on the machine only ever makes them smaller. One thread, pinned to one core, so
run it on an idle machine.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import time
from collections.abc import Callable
from multiprocessing import shared_memory
from multiprocessing.synchronize import Barrier
from pathlib import Path

for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    # Read when numpy loads its BLAS, hence before the import.
    os.environ[_name] = "1"

import numpy as np  # noqa: E402
import numpy.typing as npt  # noqa: E402

LARGE_BYTES = 512 * 2**20
CACHED_BYTES = 8 * 2**20
MESSAGE_BYTES = tuple(2**k for k in range(16, 25))
GEMM_SIZES = (1024, 2048, 3072)

Floats = npt.NDArray[np.float32]


def best_rate(work: Callable[[], object], amount: float, seconds: float) -> float:
    """Return the best ``amount`` per second of repeated calls that last ``seconds`` together."""
    work()
    best = 0.0
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        work()
        best = max(best, amount / (time.perf_counter() - start))
    return best


def sgemm(seconds: float) -> float:
    """Return the best rate of fp32 matrix multiplication [FLOP/s]."""
    generator = np.random.default_rng(0)
    best = 0.0
    for size in GEMM_SIZES:
        a = generator.standard_normal((size, size), dtype=np.float32)
        b = generator.standard_normal((size, size), dtype=np.float32)
        out = np.empty_like(a)

        def multiply(a: Floats = a, b: Floats = b, out: Floats = out) -> None:
            np.matmul(a, b, out=out)

        best = max(best, best_rate(multiply, 2.0 * size**3, seconds / len(GEMM_SIZES)))
    return best


def read(nbytes: int, seconds: float) -> float:
    """Return the best rate of reading an array once per pass [byte/s].

    Three ways to read, since each is limited by something else as well: a dot product with
    itself, a matrix-vector product as a decode step does it, and a largest element.
    """
    array = np.ones(nbytes // 4, dtype=np.float32)
    matrix = array.reshape(-1, 2048)
    vector = np.ones(2048, dtype=np.float32)
    ways: tuple[Callable[[], object], ...] = (
        lambda: np.dot(array, array),
        lambda: matrix @ vector,
        array.max,
    )
    return max(best_rate(way, nbytes, seconds / len(ways)) for way in ways)


def copy(seconds: float) -> float:
    """Return the best rate of a copy within a process, bytes written [byte/s]."""
    source = np.ones(LARGE_BYTES // 8, dtype=np.float32)
    target = np.zeros_like(source)
    return best_rate(lambda: np.copyto(target, source), source.nbytes, seconds)


def _pin(core: int) -> None:
    os.sched_setaffinity(0, {core})


def _writer(name: str, nbytes: int, rounds: int, core: int, turn: Barrier) -> None:
    """Fill the shared block before each round, from another core."""
    _pin(core)
    block = shared_memory.SharedMemory(name=name)
    try:
        shared: Floats = np.ndarray(nbytes // 4, dtype=np.float32, buffer=block.buf)
        for number in range(rounds):
            shared[:] = number
            turn.wait()
            turn.wait()
        del shared
    finally:
        block.close()


def _exchange(nbytes: int, rounds: int, cores: tuple[int, int]) -> float:
    context = multiprocessing.get_context("spawn")
    turn = context.Barrier(2)
    block = shared_memory.SharedMemory(create=True, size=nbytes)
    child = context.Process(target=_writer, args=(block.name, nbytes, rounds, cores[1], turn))
    child.start()
    best = 0.0
    try:
        shared: Floats = np.ndarray(nbytes // 4, dtype=np.float32, buffer=block.buf)
        target = np.zeros_like(shared)
        for number in range(rounds):
            turn.wait()
            start = time.perf_counter()
            np.copyto(target, shared)
            best = max(best, nbytes / (time.perf_counter() - start))
            if target[0] != number:
                raise RuntimeError("the other process's data did not arrive")
            turn.wait()
        del shared
    finally:
        child.join()
        block.close()
        block.unlink()
    return best


def exchange(cores: tuple[int, int], rounds: int = 200) -> tuple[float, int]:
    """Return the best rate of reading another process's data, and the size it was seen at."""
    rates = [(_exchange(nbytes, rounds, cores), nbytes) for nbytes in MESSAGE_BYTES]
    return max(rates)


def machine() -> dict[str, str]:
    """Return what the machine says of its processor."""
    wanted = ("model name", "cpu family", "model", "stepping", "cpu MHz", "bogomips", "cache size")
    facts: dict[str, str] = {}
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        key, _, value = line.partition(":")
        if key.strip() in wanted:
            facts.setdefault(key.strip(), value.strip())
    return facts


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Peaks of one CPU core, in SI units.")
    parser.add_argument("--seconds", type=float, default=5.0, help="time per figure [s]")
    seconds = parser.parse_args().seconds
    cores = sorted(os.sched_getaffinity(0))
    _pin(cores[0])
    figures: dict[str, object] = {
        "sgemm_flop_per_s": sgemm(seconds),
        "read_bytes_per_s": read(LARGE_BYTES, seconds),
        "read_cached_bytes_per_s": read(CACHED_BYTES, seconds),
        "copy_bytes_per_s": copy(seconds),
    }
    if len(cores) > 1:
        rate, nbytes = exchange((cores[0], cores[1]))
        figures |= {"exchange_bytes_per_s": rate, "exchange_message_bytes": nbytes}
    print(json.dumps({"machine": machine(), "figures": figures}, indent=1))


if __name__ == "__main__":
    main()
