"""Replay a recorded load: python examples/closed_loop.py KERNEL REQUESTS.CSV.

Each line of the file is one request as it was served, in seconds and tokens:
arrival,first_token,finish,prompt,output,cached. The kernel is the frozen kernel of the pool.
``kernelfit validate --closed-loop RUN`` does the same for a recording, with figures.
"""
# ruff: noqa: INP001, T201

import csv
import sys
from pathlib import Path

from kernelfit.kernel import FittedKernel
from kernelfit.validate.closed_loop.compare import loop_errors
from kernelfit.validate.closed_loop.replay import HOST_TERMS, kernel_prices, replay
from kernelfit.validate.closed_loop.requests import Arrival, latencies
from kernelfit.validate.closed_loop.served import limits_of


def read(path):
    """Return the arrival trace of a file and the latencies that were measured."""
    with Path(path).open(encoding="utf-8") as file:
        rows = sorted(csv.DictReader(file), key=lambda row: float(row["arrival"]))
    moments = [[float(row[name]) for row in rows] for name in ("arrival", "first_token", "finish")]
    counts = [[int(row[name]) for row in rows] for name in ("prompt", "output", "cached")]
    trace = [
        Arrival(at - moments[0][0], *lengths)
        for at, *lengths in zip(moments[0], *counts, strict=True)
    ]
    return trace, latencies(*moments, counts[1])


if __name__ == "__main__":
    kernel = FittedKernel.load(sys.argv[1])
    trace, measured = read(sys.argv[2])
    replayed = {
        host: replay(trace, kernel_prices(kernel, host), limits_of(kernel)).latencies
        for host in HOST_TERMS
    }
    for row in loop_errors(measured, replayed):
        print(
            f"{row.latency:7} {row.statistic:4} host terms: {row.host:4} "
            f"measured {row.measured_s:8.4f} s  replayed {row.replayed_s:8.4f} s  "
            f"error {row.error:+.1%}"
        )
