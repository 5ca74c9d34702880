from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from kernelfit.logs.columns import Counts, ParsedRun, Requests, make_steps
from kernelfit.logs.hostwork import (
    EVENT_KINDS,
    OBSERVERS,
    SERVED_TIMING,
    Observed,
    make_events,
    make_served,
)
from kernelfit.store.ingest import ingest_paths
from kernelfit.store.scan import load_store
from kernelfit.store.schema import ADDED_TABLES, EVENTS, OBSERVED, SCHEMAS, SERVED
from kernelfit.store.write import host_tables
from tests.logs.recording import small


def parsed() -> ParsedRun:
    events = make_events(
        3,
        {
            "kind": np.array([0, 1, 2]),
            "start_s": np.array([0.5, np.nan, 2.0]),
            "duration_s": np.array([1e-3, 2e-4, 3e-5]),
            "tokens": np.array([1000, 8, 64]),
            "requests": np.array([1, 8, 1]),
            "request": np.array([0, -1, 0]),
        },
    )
    served = make_served(
        2,
        {
            "arrival_s": np.array([0.0, 1.0]),
            "finish_s": np.array([3.0, np.nan]),
            "prompt_tokens": np.array([1000, 20]),
            "observer": np.array([1, 0]),
        },
    )
    window = np.array([0, 0])
    observed = Observed(
        ("latency", "latency"), ("each", "mean"), np.array([1.5, 2.0]), window, window
    )
    return ParsedRun(
        make_steps(0, {}),
        Requests.none(),
        (),
        Counts(0, 0, 0, 0),
        SERVED_TIMING,
        "monotonic",
        "per_request",
        events=events,
        served=served,
        observed=observed,
    )


def test_unknown_host_columns_are_null_and_codes_become_words() -> None:
    tables = host_tables("r", parsed())
    assert [tables[name].schema for name in ("events", "served", "observed")] == [
        EVENTS,
        SERVED,
        OBSERVED,
    ]
    events = tables["events"].to_pydict()
    assert events["kind"] == list(EVENT_KINDS)
    assert events["start_s"] == [0.5, None, 2.0]
    assert events["request"] == [0, None, 0]
    assert events["process"] == [0, 0, 0]
    served = tables["served"].to_pydict()
    assert served["request"] == [0, 1]
    assert served["observer"] == [OBSERVERS[1], OBSERVERS[0]]
    assert served["finish_s"] == [3.0, None]
    assert served["output_tokens"] == served["chunks"] == [None, None]
    assert tables["observed"].to_pydict()["statistic"] == ["each", "mean"]


def test_a_store_from_before_the_tables_still_reads(tmp_path: Path, calib: Path) -> None:
    ingest_paths([small().write(tmp_path / "run")], tmp_path / "store", calib=calib)
    folder = tmp_path / "store" / "run"
    for name in ADDED_TABLES:
        (folder / f"{name}.parquet").unlink()
    # Before front ends were recorded, the table of events had five columns and no row.
    first = ["run_id", "kind", "start_s", "duration_s", "tokens"]
    pq.write_table(EVENTS.empty_table().select(first), folder / "events.parquet")
    (record,) = load_store(tmp_path / "store").runs
    assert record.served.schema == SERVED
    assert record.observed.num_rows == record.rows("served") == 0
    assert record.events.schema.names == SCHEMAS["events"].names
    assert record.steps.num_rows == 4
