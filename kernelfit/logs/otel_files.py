"""Files of step summaries, Parquet or OpenTelemetry JSON lines, as one table."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from kernelfit.documents.columns import ColumnSpec
from kernelfit.documents.problems import InputError, Problem
from kernelfit.logs.columns import Reject
from kernelfit.logs.lines import TruncatedFile, read_lines
from kernelfit.logs.table_files import PARQUET_SUFFIXES, RawTable, column_names, read_table

JSON_SUFFIXES = (".jsonl", ".jsonl.gz", ".ndjson", ".ndjson.gz")
SUMMARY = "step.BATCH_SUMMARY"

SPECS: dict[str, ColumnSpec] = {
    "step": ColumnSpec("step.id", "count"),
    "start_s": ColumnSpec("step.ts_start_ns", "ns"),
    "duration_s": ColumnSpec("step.duration_us", "us"),
    "running": ColumnSpec("queue.running_depth", "count"),
    "prefill_requests": ColumnSpec("batch.num_prefill_reqs", "count"),
    "prefill_tokens": ColumnSpec("batch.prefill_tokens", "tokens"),
    "decode_requests": ColumnSpec("batch.num_decode_reqs", "count"),
    "decode_tokens": ColumnSpec("batch.decode_tokens", "tokens"),
    "preempted": ColumnSpec("batch.num_preempted", "count"),
    "blocks": ColumnSpec("kv.blocks_total_gpu", "count"),
    "free_blocks": ColumnSpec("kv.blocks_free_gpu", "count"),
}
"""What a summary states, by the names of its attributes."""

EXPERIMENT, MODEL, TP = "experiment_id", "model", "tp"
_LABELS = (EXPERIMENT, MODEL, TP)


def is_otel_file(path: Path) -> bool:
    """Whether a file can hold step summaries.

    Parameters
    ----------
    path : pathlib.Path
        The file; the schema of a Parquet file is read.

    Returns
    -------
    bool
        True for JSON lines, and for Parquet with the summaries' attributes as columns.
    """
    name = path.name.lower()
    if name.endswith(JSON_SUFFIXES):
        return True
    needed = {spec.column for spec in SPECS.values()}
    return name.endswith(PARQUET_SUFFIXES) and needed <= set(column_names(path))


def read_otel(path: Path) -> RawTable:
    """Read a file of step summaries.

    Parameters
    ----------
    path : pathlib.Path
        Parquet, or JSON lines (plain or gzip).

    Returns
    -------
    RawTable
        The attributes of every summary. A line of JSON may hold several, each of which
        counts as a line; a line that holds none counts as one that is known.

    Raises
    ------
    InputError
        When the file is empty or damaged, or lacks a column.
    """
    if not path.name.lower().endswith(JSON_SUFFIXES):
        known = column_names(path)
        wanted = [spec.column for spec in SPECS.values()]
        return read_table(path, wanted + [name for name in _LABELS if name in known])
    if path.stat().st_size == 0:
        raise InputError([Problem(str(path), None, None, "the file is empty")])
    return _json(path)


def _json(path: Path) -> RawTable:
    names = [spec.column for spec in SPECS.values()]
    columns: list[list[float | None]] = [[] for _ in names]
    lines: list[int] = []
    rejects: list[Reject] = []
    others = number = 0
    try:
        for number, line in read_lines(path):
            try:
                found = list(_summaries(msgspec.json.decode(line))) if line.strip() else []
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                # The text is left out: spans of another kind may hold anything.
                rejects.append(Reject(path.name, number, "not a line of JSON", ""))
                continue
            others += not found
            for attributes in found:
                lines.append(number)
                for name, column in zip(names, columns, strict=True):
                    column.append(attributes.get(name))
    except TruncatedFile:
        rejects.append(Reject(path.name, number + 1, "the compressed file ends early", ""))
    table = pa.table(
        {
            name: pa.chunked_array([pa.array(column, type=pa.float64())])
            for name, column in zip(names, columns, strict=True)
        }
    )
    return RawTable(table, tuple(lines), tuple(rejects), others)


def _items(value: Any, key: str) -> Iterator[dict[str, Any]]:
    inner = value.get(key) if isinstance(value, dict) else None
    for item in inner if isinstance(inner, list) else ():
        if isinstance(item, dict):
            yield item


def _summaries(data: Any) -> Iterator[dict[str, float | None]]:
    """Yield the numbers of every step summary of an export of traces."""
    for resource in _items(data, "resourceSpans"):
        for scope in _items(resource, "scopeSpans"):
            for span in _items(scope, "spans"):
                for event in _items(span, "events"):
                    if event.get("name") == SUMMARY:
                        yield {
                            str(item.get("key")): _number(item.get("value"))
                            for item in _items(event, "attributes")
                        }


def _number(value: Any) -> float | None:
    """Return a number of the wire form, in which a 64-bit integer is text."""
    if not isinstance(value, dict):
        return None
    stated = value.get("intValue", value.get("doubleValue"))
    try:
        return float(stated) if isinstance(stated, str | int | float) else None
    except (ValueError, OverflowError):
        return None
