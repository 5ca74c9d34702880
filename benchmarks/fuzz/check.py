"""What must hold for any bytes that a reader is given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.fuzz.requests import REQUEST_READERS, check_served, entries
from kernelfit.documents.problems import InputError
from kernelfit.documents.runs import load_run
from kernelfit.logs.columns import ParsedRun
from kernelfit.logs.redact import form_of
from kernelfit.logs.registry import readers
from kernelfit.logs.source import RunSource

TABLE_RUN = """\
kind: Run
schema_version: 1
gpu: h100-sxm
model: qwen3-8b
engine: vllm
reader: table
timing: step
columns:
  duration_s: {column: ms, unit: ms}
  decode_requests: {column: n, unit: count}
  prefill_requests: {column: p, unit: count}
  prefill_tokens: {column: t, unit: tokens}
"""


@dataclass(frozen=True)
class Target:
    """How to hand bytes to one reader.

    ``table`` says that the file is a table, in which quotes and carriage returns may make
    several physical lines one row or one several; without them each is one. ``beside`` are
    lines of other files of the run; ``words`` are those of records of which one physical
    line may hold several.
    """

    reader: str
    file: str
    head: bytes = b""
    table: bool = False
    beside: int = 0
    words: tuple[bytes, ...] = ()
    said: Mapping[str, object] | None = None


TARGETS = (
    Target("vllm-log", "x.log", words=(b"Iteration(",)),
    Target("sglang-log", "x.log", words=(b"ch batch", b"e batch", b"l batch", b"#running-req")),
    Target("trtllm-log", "x.log", words=(b"iter = ",)),
    Target("dynamo-fpm", "x.jsonl"),
    Target("sglang-fpm", "x.jsonl", said={"engine_version": "0.5.23"}),
    Target("otel-steps", "x.jsonl", words=(b"BATCH_SUMMARY",)),
    Target("kernelfit", "engine-1.jsonl"),
    Target(
        "blis-trace", "x.itl.csv", b"request_id,chunk_index,timestamp_us\n", table=True, beside=5
    ),
    Target("table", "x.csv", b"ms,n,p,t\n", table=True),
    Target("vllm-bench-serve", "x.json"),
    Target("vllm-bench-latency", "x.json"),
    Target("guidellm", "x.json"),
    Target("inference-perf", "x.json"),
    Target("prometheus", "x.prom"),
    Target("otel-requests", "x.jsonl"),
)

_REQUESTS = "request_id,input_tokens,output_tokens,send_time_us,status\n" + "".join(
    f"r{k},{10 + k},3,{1000 * k},ok\n" for k in range(4)
)


def prepare(target: Target, folder: Path) -> None:
    """Write what must stand beside the file.

    Parameters
    ----------
    target : Target
        The reader.
    folder : pathlib.Path
        An empty folder.
    """
    if target.reader == "blis-trace":
        (folder / "x.csv").write_text(_REQUESTS, encoding="utf-8")
    elif target.reader == "table":
        (folder / "run.yaml").write_text(TABLE_RUN, encoding="utf-8")


def check(target: Target, folder: Path, data: bytes) -> tuple[ParsedRun, ...]:
    """Read bytes and check the account of them.

    Parameters
    ----------
    target : Target
        The reader.
    folder : pathlib.Path
        A folder that ``prepare`` has seen.
    data : bytes
        What the file holds.

    Returns
    -------
    tuple of ParsedRun
        The runs; none where the file was refused in words.

    Raises
    ------
    AssertionError
        When a line is lost, or a reject says more than its form.
    """
    path = folder / target.file
    whole = target.head + data
    path.write_bytes(whole)
    run_yaml = folder / "run.yaml"
    document = run_yaml if run_yaml.is_file() else None
    source = RunSource(path, document, target.reader, "x", "x", dict(target.said or {}))
    if target.reader == "kernelfit":
        source = RunSource(folder, None, target.reader, "x", "x", {})
    facts = load_run(run_yaml) if document is not None else None
    try:
        runs = readers()[target.reader].read(source, facts)
    except InputError as error:
        if not error.problems:
            raise AssertionError("refused without a reason") from error
        return ()
    for run in runs:
        c = run.counts
        assert c.lines == c.steps + c.recognised + c.rejected
        assert (c.steps, c.rejected) == (run.steps.count, len(run.rejects))
        assert all(form_of(r.text) == r.text and r.line >= 1 for r in run.rejects)
    if target.reader in REQUEST_READERS:
        # An entry is a request, a batch or a span, of which a line may hold any number.
        assert sum(run.counts.lines for run in runs) == entries(target.reader, whole, runs)
        for run in runs:
            check_served(run)
    elif not target.table or not any(mark in whole for mark in (b'"', b"\r", b"\0")):
        physical = whole.count(b"\n") + (not whole.endswith(b"\n")) if whole else 0
        physical += target.beside
        glued = sum(whole.count(word) for word in target.words)
        assert physical <= sum(run.counts.lines for run in runs) <= physical + glued
    return runs
