"""A recording of an engine of known laws that was served from both sides."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from kernelfit.kernel.batch import Batch, RequestShape
from kernelfit.kernel.fitted import FittedKernel
from kernelfit.validate.closed_loop.replay import kernel_prices, replay
from kernelfit.validate.closed_loop.requests import Arrival
from kernelfit.validate.closed_loop.served import limits_of

RUN = """\
kind: Run
schema_version: 1
gpu: {gpu}
model: llama-3.1-8b
engine: vllm
engine_version: "0.32.0"
reader: kernelfit
timing: device
pool:
  tp: 1
  max_num_seqs: 256
  max_num_batched_tokens: 8192
  block_size: 16
"""
START_NS = 50_000_000_000

TRACE = tuple(
    Arrival(0.01 * n + 0.003 * (n % 3), 200 + 37 * (n % 7), 4 + n % 9, 16 * (n % 4))
    for n in range(40)
)


def header(role: str) -> dict[str, Any]:
    return {"t": "header", "format": "kernelfit", "version": 1, "role": role, "pid": 1}


def write(path: Path, role: str, rows: list[dict[str, Any]]) -> None:
    lines = [json.dumps(row) for row in (header(role), *rows)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def write_served(
    folder: Path,
    kernel: FittedKernel,
    slower: float = 1.0,
    gpu: str = "H100-SXM",
    pace: float = 1.0,
    cached_more: int = 0,
) -> Path:
    """Write what a client saw of the trace, served by that kernel.

    Latencies are stretched by ``slower``, and steps take ``pace`` times their price.
    """
    prices = replace(kernel_prices(kernel), pace=lambda _moment: pace)
    found = replay(TRACE, prices, limits_of(kernel)).latencies
    folder.mkdir(parents=True)
    (folder / "run.yaml").write_text(RUN.format(gpu=gpu), encoding="utf-8")
    rows = []
    for n, arrival in enumerate(TRACE):
        at = START_NS + round(arrival.arrival_s * 1e9)
        first = at + round(slower * found.ttft_s[n] * 1e9)
        last = at + round(slower * found.e2e_s[n] * 1e9)
        row = {"t": "served", "i": n, "req": f"{n:012x}", "status": 200, "arrival_ns": at}
        row |= {"first_ns": first, "last_ns": last, "end_ns": last + 1000}
        row |= {"prompt": arrival.prompt_tokens, "output": arrival.output_tokens}
        cached = arrival.cached_tokens + cached_more
        rows.append({**row, "cached": cached, "chunks": arrival.output_tokens})
    write(folder / "client-9.jsonl", "client", rows)
    steps, workers = [], []
    batch = Batch((RequestShape(1, 100, 90),))
    step_ns = round(pace * kernel.mean_step_time(kernel.totals(batch)) * 1e9)
    for n in range(5):
        begin = START_NS + n * 50_000_000
        counts = {"scheduled": [1], "computed": [100], "prompt_len": [90], "cached": [0]}
        times = {"sched_ns": [begin, begin + 10_000], "submit_ns": [begin + 10_000, begin + 20_000]}
        times["update_ns"] = [begin + step_ns - 10_000, begin + step_ns]
        steps.append({"t": "step", "i": n, "n": 1, **counts, **times})
        span = [begin + 100_000, begin + step_ns - 50_000]
        workers.append({"t": "worker", "i": n, "rank": 0, "n": 1, "span_ns": span})
    write(folder / "engine-1.jsonl", "engine", steps)
    write(folder / "worker-2.jsonl", "worker", workers)
    return folder
