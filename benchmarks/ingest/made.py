"""Recordings of any length in the recorder's own form."""

from __future__ import annotations

import json
import random
from pathlib import Path

RUN = """\
kind: Run
schema_version: 1
gpu: h100-sxm
model: qwen3-8b
engine: vllm
engine_version: "0.32.0"
reader: kernelfit
pool: {tp: 1, block_size: 16}
"""
DISTINCT_STEPS = 20_000
MEAN_REQUESTS = 32


def _line(row: dict[str, object]) -> str:
    return json.dumps(row, separators=(",", ":")) + "\n"


def _header(role: str) -> str:
    head = {"t": "header", "format": "kernelfit", "version": 1, "role": role, "pid": 1}
    clock = {"t": "clock", "wall_ns": 1_796_048_636_682_936_004, "mono_ns": 3_440_669_211_906}
    return _line({**head, "engine": "vllm", "engine_version": "0.32.0"}) + _line(clock)


def make_recording(folder: Path, size_bytes: float, seed: int = 0) -> int:
    """Write a recording of about a size, and return its bytes.

    Steps hold 1 to 63 requests; one in ten schedules a chunk of a prompt. The lists of
    requests repeat after 20,000 steps, times and ordinals do not.
    """
    rng = random.Random(seed)
    folder.mkdir(parents=True)
    (folder / "run.yaml").write_text(RUN)
    bodies: list[tuple[int, int, str]] = []
    written = ordinal = 0
    now = 3_440_616_539_823
    engine_file, worker_file = folder / "engine-1.jsonl", folder / "worker-2.jsonl"
    with engine_file.open("w") as engine, worker_file.open("w") as worker:
        engine.write(_header("engine"))
        worker.write(_header("worker"))
        while written < size_bytes:
            if ordinal < DISTINCT_STEPS:
                bodies.append(_body(rng))
            requests, tokens, body = bodies[ordinal % DISTINCT_STEPS]
            begin, took = now, rng.randint(8_000_000, 19_000_000)
            step = (
                f'{{"t":"step","i":{ordinal},"n":{tokens},"sched_ns":[{begin},{begin + 272_267}],'
                f'{body},"resumed":0,"preempted":0,"drafts":0,"running":{requests},"waiting":0,'
                f'"cost_ns":40816,"submit_ns":[{begin + 300_000},{begin + 400_000}],"in_flight":1,'
                f'"update_ns":[{begin + took + 700_000},{begin + took + 900_000}],'
                f'"sampled":{requests},"kv_usage":{rng.random():.6f}}}\n'
            )
            span = (
                f'{{"t":"worker","i":{ordinal},"rank":0,"n":{tokens},'
                f'"span_ns":[{begin + 500_000},{begin + 500_000 + took}],"probe_ns":21640}}\n'
            )
            engine.write(step)
            worker.write(span)
            written += len(step) + len(span)
            now += took + 1_000_000
            ordinal += 1
    return written


def _body(rng: random.Random) -> tuple[int, int, str]:
    count = rng.randint(1, 2 * MEAN_REQUESTS - 1)
    scheduled = [1] * count
    if rng.random() < 0.1:
        scheduled[-1] = rng.randint(10, 2000)
    lists = {
        "scheduled": scheduled,
        "computed": [rng.randint(16, 8000) for _ in range(count)],
        "prompt_len": [rng.randint(10, 4000) for _ in range(count)],
        "cached": [rng.choice((0, 0, 0, 16)) for _ in range(count)],
    }
    text = json.dumps(lists, separators=(",", ":"))[1:-1]
    return count, sum(scheduled), text
