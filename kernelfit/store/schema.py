"""The tables of the trace store: explicit schemas, versioned in their metadata."""

from __future__ import annotations

from dataclasses import Field, fields

import pyarrow as pa

from kernelfit.logs.intervals import Interval

STORE_VERSION = 1
"""Raised when a column changes its meaning; a store of a later version is refused. A
column that was added later is null in what was written before."""

VERSION_KEY = b"kernelfit.store.version"
TABLE_KEY = b"kernelfit.store.table"

TABLES: tuple[str, ...] = (
    "runs",
    "steps",
    "requests",
    "events",
    "served",
    "observed",
    "intervals",
)


def _schema(table: str, *columns: tuple[str, pa.DataType, bool]) -> pa.Schema:
    """Columns as (name, type, may be null)."""
    return pa.schema(
        [pa.field(name, kind, nullable=empty) for name, kind, empty in columns],
        metadata={TABLE_KEY: table.encode(), VERSION_KEY: str(STORE_VERSION).encode()},
    )


_TEXT, _INT, _SMALL, _REAL = pa.string(), pa.int64(), pa.int32(), pa.float64()

RUNS = _schema(
    "runs",
    ("run_id", _TEXT, False),
    ("engine", _TEXT, False),
    ("engine_version", _TEXT, True),
    ("gpu", _TEXT, True),
    ("model_name", _TEXT, True),
    ("model_json", _TEXT, True),
    ("pool_json", _TEXT, False),
    ("dtype", _TEXT, True),
    ("source", _TEXT, False),
    ("source_digest", _TEXT, False),
    ("reader", _TEXT, False),
    ("reader_version", _SMALL, False),
    ("timing", _TEXT, False),
    ("clock", _TEXT, False),
    ("lines_read", _INT, False),
    ("steps_kept", _INT, False),
    ("lines_recognised", _INT, False),
    ("rejected", _INT, False),
    ("recorder_cost_share", _REAL, True),
    ("fit_refused_reason", _TEXT, True),
    ("startup_json", _TEXT, True),
    ("host_cpu", _TEXT, True),
    ("tokenizer", _TEXT, True),
    ("fit", _TEXT, True),
    ("source_key", _TEXT, True),
    ("life", _SMALL, True),
    ("lives", _SMALL, True),
    ("parts", _SMALL, True),
)
"""One row per run. ``source_digest`` covers the log and the documents that describe it;
``lines_read`` is the sum of the three counts after it; ``startup_json`` holds what the
engine printed of its start that the pool has no word for. ``fit`` says what a fit uses of the
run: ``host`` where its steps are kept for checking. ``source_key`` tells sources of
one name apart (a digest of the place, which cannot be read back); a log of an engine that was
started anew holds several ``lives``, each a run; ``parts`` counts the files of each table."""

STEPS = _schema(
    "steps",
    ("run_id", _TEXT, False),
    ("step", _INT, False),
    ("engine", _SMALL, False),
    ("start_s", _REAL, True),
    ("duration_s", _REAL, True),
    ("timing", _TEXT, False),
    ("schedule_s", _REAL, True),
    ("dispatch_s", _REAL, True),
    ("wait_s", _REAL, True),
    ("update_s", _REAL, True),
    ("probe_s", _REAL, True),
    ("requests", _SMALL, True),
    ("scheduled_tokens", _INT, False),
    ("context_tokens", _INT, True),
    ("decode_requests", _SMALL, True),
    ("decode_context_tokens", _INT, True),
    ("decode_pairs", _INT, True),
    ("prefill_context_tokens", _INT, True),
    ("prefill_pairs", _INT, True),
    ("past_prompt_requests", _SMALL, True),
    ("past_prompt_tokens", _INT, True),
    ("in_prompt_requests", _SMALL, True),
    ("in_prompt_tokens", _INT, True),
    ("phase", _TEXT, True),
    ("kv_usage", _REAL, True),
    ("composition", _TEXT, False),
    # Parquet's own name of a list's items, so that the schema reads back the same.
    ("marks", pa.list_(pa.field("element", _TEXT)), False),
    ("segment", _TEXT, True),
)
"""One row per step; the totals mean what ``kernelfit.kernel.batch.BatchTotals`` says."""

REQUESTS = _schema(
    "requests",
    ("run_id", _TEXT, False),
    ("step", _INT, False),
    ("scheduled", _SMALL, False),
    ("computed", _SMALL, True),
    ("prompt_len", _SMALL, True),
    ("cached", _SMALL, True),
    ("engine", _SMALL, False),
)
"""One row per request in a step; steps are numbered within their engine."""

EVENTS = _schema(
    "events",
    ("run_id", _TEXT, False),
    ("kind", _TEXT, False),
    ("start_s", _REAL, True),
    ("duration_s", _REAL, False),
    ("tokens", _INT, True),
    ("requests", _SMALL, True),
    ("process", _SMALL, True),
    ("request", _INT, True),
)
"""One row per piece of host work outside steps, of the kinds ``admission`` (tokens of the
prompt), ``output`` (new tokens and request outputs of one call) and ``completion`` (output
tokens of the request)."""

SERVED = _schema(
    "served",
    ("run_id", _TEXT, False),
    ("request", _INT, False),
    ("arrival_s", _REAL, True),
    ("first_token_s", _REAL, True),
    ("finish_s", _REAL, True),
    ("prompt_tokens", _INT, True),
    ("output_tokens", _INT, True),
    ("cached_tokens", _INT, True),
    ("chunks", _INT, True),
    ("queue_s", _REAL, True),
    ("prefill_s", _REAL, True),
    ("decode_s", _REAL, True),
    ("observer", _TEXT, False),
)
"""One row per request served, as the ``client`` or the ``engine`` saw it."""

OBSERVED = _schema(
    "observed",
    ("run_id", _TEXT, False),
    ("quantity", _TEXT, False),
    ("statistic", _TEXT, False),
    ("value", _REAL, False),
    ("count", _INT, True),
    ("window", _INT, True),
)
"""One row per statistic that a source publishes in place of single requests."""

_INTERVAL_TEXT = ("graph_mode",)
_INTERVAL_LIST = ("acceptance_by_position",)
_INTERVAL_FIRST = ("kind", "line", "engine", "engines")


def _interval_column(spec: Field[object]) -> tuple[str, pa.DataType, bool]:
    if spec.name in _INTERVAL_LIST:
        return spec.name, pa.list_(pa.field("element", _REAL)), True
    if spec.name in _INTERVAL_TEXT:
        return spec.name, _TEXT, True
    return spec.name, _REAL if "float" in str(spec.type) else _INT, True


INTERVALS = _schema(
    "intervals",
    ("run_id", _TEXT, False),
    ("kind", _TEXT, False),
    ("line", _INT, False),
    ("engine", _SMALL, True),
    ("engines", _SMALL, False),
    *(_interval_column(f) for f in fields(Interval) if f.name not in _INTERVAL_FIRST),
)
"""One row per line about a stretch of time (or per entry of a line that holds several)."""

SCHEMAS: dict[str, pa.Schema] = {
    "runs": RUNS,
    "steps": STEPS,
    "requests": REQUESTS,
    "events": EVENTS,
    "served": SERVED,
    "observed": OBSERVED,
    "intervals": INTERVALS,
}

ADDED_TABLES: frozenset[str] = frozenset(("served", "observed", "intervals"))
"""Tables that a run written earlier may lack; they are then empty."""
