"""Files of forward pass metrics, CSV or JSON lines, as one table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
import pyarrow as pa

from kernelfit.documents.columns import ColumnSpec
from kernelfit.documents.problems import InputError, Problem
from kernelfit.logs.columns import Reject
from kernelfit.logs.lines import TruncatedFile, read_lines
from kernelfit.logs.redact import error_shown
from kernelfit.logs.table_files import CSV_SUFFIXES, RawTable, column_names, read_table

JSON_SUFFIXES = (".jsonl", ".jsonl.gz", ".ndjson", ".ndjson.gz")
RECORD_VERSION = 1

COUNTS: dict[str, ColumnSpec] = {
    "step": ColumnSpec("counter_id", "count"),
    "prefill_requests": ColumnSpec("num_prefill_requests", "count"),
    "prefill_tokens": ColumnSpec("sum_prefill_tokens", "tokens"),
    "prefill_computed_tokens": ColumnSpec("sum_prefill_kv_tokens", "tokens"),
    "decode_requests": ColumnSpec("num_decode_requests", "count"),
    "decode_context_tokens": ColumnSpec("sum_decode_kv_tokens", "tokens"),
}
"""Our counts by the names of a record's fields, which both forms share."""

CSV_DURATION = ColumnSpec("latency_ms", "ms")
JSON_DURATION = ColumnSpec("wall_time", "s")

STREAM = ("worker_id", "dp_rank")
VARIANCE = "var_prefill_length"
SEGMENT = "workload_segment"
_OPTIONAL = (*STREAM, VARIANCE, SEGMENT)

_Count = Annotated[int, msgspec.Meta(ge=-(2**62), le=2**62)]


class _Scheduled(msgspec.Struct):
    num_prefill_requests: _Count
    sum_prefill_tokens: _Count
    sum_prefill_kv_tokens: _Count
    num_decode_requests: _Count
    sum_decode_kv_tokens: _Count
    var_prefill_length: float | None = None


class _Record(msgspec.Struct):
    counter_id: _Count
    wall_time: float
    scheduled_requests: _Scheduled
    worker_id: str | int = ""
    dp_rank: _Count = 0
    version: int = RECORD_VERSION


def is_fpm_file(path: Path) -> bool:
    """Whether a file can hold forward pass metrics.

    Parameters
    ----------
    path : pathlib.Path
        The file; the header of a CSV is read.

    Returns
    -------
    bool
        True for JSON lines, and for a CSV with the columns of the metrics.
    """
    name = path.name.lower()
    if name.endswith(JSON_SUFFIXES):
        return True
    needed = {CSV_DURATION.column, *(spec.column for spec in COUNTS.values())}
    return name.endswith(CSV_SUFFIXES) and needed <= set(column_names(path))


def read_fpm(path: Path) -> tuple[RawTable, ColumnSpec]:
    """Read a file of forward pass metrics.

    Parameters
    ----------
    path : pathlib.Path
        CSV or JSON lines, plain or gzip.

    Returns
    -------
    tuple of (RawTable, ColumnSpec)
        The columns by the names of the record's fields, and the one with the duration.

    Raises
    ------
    InputError
        When the file is empty or damaged, or lacks a column.
    """
    if not path.name.lower().endswith(JSON_SUFFIXES):
        known = column_names(path)
        needed = [CSV_DURATION.column, *(spec.column for spec in COUNTS.values())]
        wanted = needed + [name for name in _OPTIONAL if name in known]
        return read_table(path, wanted, quoted=False), CSV_DURATION
    if path.stat().st_size == 0:
        raise InputError([Problem(str(path), None, None, "the file is empty")])
    return _json(path), JSON_DURATION


def _json(path: Path) -> RawTable:
    decoder = msgspec.json.Decoder(_Record)
    records: list[tuple[Any, ...]] = []
    lines: list[int] = []
    rejects: list[Reject] = []
    blank = number = 0
    try:
        for number, line in read_lines(path):
            if not line.strip():
                blank += 1
                continue
            reason = None
            try:
                record = decoder.decode(line)
                if record.version != RECORD_VERSION:
                    reason = f"a record of version {record.version}, not {RECORD_VERSION}"
            except msgspec.ValidationError as error:
                reason = f"not a forward pass record: {error_shown(error)}"
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                reason = "not a line of JSON"
            if reason is not None:
                # The text is left out: a line of another kind may hold anything.
                rejects.append(Reject(path.name, number, reason, ""))
                continue
            lines.append(number)
            done = record.scheduled_requests
            variance = done.var_prefill_length
            records.append(
                (
                    record.counter_id,
                    done.num_prefill_requests,
                    done.sum_prefill_tokens,
                    done.sum_prefill_kv_tokens,
                    done.num_decode_requests,
                    done.sum_decode_kv_tokens,
                    record.dp_rank,
                    record.wall_time,
                    np.nan if variance is None else variance,
                    str(record.worker_id),
                )
            )
    except TruncatedFile:
        rejects.append(Reject(path.name, number + 1, "the compressed file ends early", ""))
    ints = [*(spec.column for spec in COUNTS.values()), "dp_rank"]
    floats = [JSON_DURATION.column, VARIANCE]
    columns = list(zip(*records, strict=True)) if records else [()] * 10
    kinds = [pa.int64()] * len(ints) + [pa.float64()] * len(floats) + [pa.string()]
    table = pa.table(
        {
            name: pa.chunked_array([pa.array(list(values), type=kind)])
            for name, kind, values in zip(
                [*ints, *floats, "worker_id"], kinds, columns, strict=True
            )
        }
    )
    return RawTable(table, tuple(lines), tuple(rejects), blank)
