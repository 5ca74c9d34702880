"""Small recordings in the recorder's format, built for the tests."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kernelfit.logs.columns import ParsedRun
from kernelfit.logs.recorder import KernelfitReader
from kernelfit.logs.source import RunSource

RUN_YAML = """\
kind: Run
schema_version: 1
gpu: h100-sxm
model: qwen3-8b
dtype: bfloat16
engine: vllm
engine_version: "0.32.0"
reader: kernelfit
timing: device
pool:
  tp: 1
  block_size: 16
"""

MS = 1_000_000

Request = tuple[int, int | None, int | None, int | None]
"""scheduled, computed, prompt_len, cached."""


@dataclass
class Recording:
    """Rows of one engine and its workers; every step takes 12 ms, the worker 10 ms."""

    steps: list[dict[str, Any]] = field(default_factory=list)
    workers: list[list[dict[str, Any]]] = field(default_factory=lambda: [[]])
    ranks: int = 1
    start_ns: int = 1_000 * MS

    def __post_init__(self) -> None:
        self.workers = [[] for _ in range(self.ranks)]

    def step(self, requests: Sequence[Request], span_ms: float = 10.0, **more: Any) -> None:
        ordinal = len(self.steps)
        begin = self.start_ns + ordinal * 20 * MS
        tokens = sum(r[0] for r in requests)
        row: dict[str, Any] = {
            "t": "step",
            "i": ordinal,
            "n": tokens,
            "sched_ns": [begin, begin + MS],
            "scheduled": [r[0] for r in requests],
            "computed": [r[1] for r in requests],
            "prompt_len": [r[2] for r in requests],
            "cached": [r[3] for r in requests],
            "resumed": 0,
            "preempted": 0,
            "drafts": 0,
            "running": len(requests),
            "waiting": 0,
            "submit_ns": [begin + MS, begin + MS + 1000],
            "in_flight": 1,
            "update_ns": [begin + 13 * MS, begin + 14 * MS],
            "sampled": len(requests),
            "kv_usage": 0.25,
            "cost_ns": 10_000,
        }
        row.update(more)
        self.steps.append(row)
        for rank, rows in enumerate(self.workers):
            start = begin + 2 * MS
            # Later ranks end later, by 0.5 ms each.
            end = start + int((span_ms + 0.5 * rank) * MS)
            rows.append(
                {"t": "worker", "i": ordinal, "rank": rank, "n": tokens, "span_ns": [start, end]}
            )

    def write(self, folder: Path, pid: int = 10, run_yaml: str | None = RUN_YAML) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        if run_yaml is not None:
            (folder / "run.yaml").write_text(run_yaml)
        write_rows(folder / f"engine-{pid}.jsonl", "engine", self.steps)
        for rank, rows in enumerate(self.workers):
            write_rows(folder / f"worker-{pid + 1 + rank}.jsonl", "worker", rows)
        return folder


def header(role: str) -> dict[str, Any]:
    return {
        "t": "header",
        "format": "kernelfit",
        "version": 1,
        "role": role,
        "pid": 1,
        "engine": "vllm",
        "engine_version": "0.32.0",
    }


def write_rows(path: Path, role: str, rows: Sequence[dict[str, Any]]) -> None:
    clock = {"t": "clock", "wall_ns": 5, "mono_ns": 3}
    path.write_text("".join(json.dumps(r) + "\n" for r in (header(role), clock, *rows)))


def small(ranks: int = 1) -> Recording:
    """A prefill of 100 tokens in two chunks, a decode, and a mixed step."""
    recording = Recording(ranks=ranks)
    recording.step([(64, 0, 100, 0)])
    recording.step([(36, 64, 100, 0)])
    recording.step([(1, 100, 100, 0)])
    recording.step([(1, 101, 100, 0), (40, 32, 72, 32)])
    return recording


def read(folder: Path) -> tuple[ParsedRun, ...]:
    source = RunSource(folder, folder / "run.yaml", "kernelfit", folder.name, folder.name)
    return KernelfitReader().read(source, None)


def adds_up(run: ParsedRun) -> bool:
    c = run.counts
    kept = run.steps.count == c.steps and len(run.rejects) == c.rejected
    return kept and c.lines == c.steps + c.recognised + c.rejected
