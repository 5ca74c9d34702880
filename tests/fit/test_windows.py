"""Sliding windows in a fit: exact from requests, taken as alike from sums."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelfit.fit.pipeline import window_columns
from kernelfit.kernel import BatchTotals, RequestShape
from kernelfit.kernel.totals import WINDOW_FIELDS, window_column

COUNTS = st.tuples(st.integers(1, 40), st.integers(0, 300))


@given(st.lists(st.lists(COUNTS, min_size=1, max_size=6), min_size=1, max_size=8))
def test_windows_of_logged_requests_are_those_of_the_batches(
    batches: list[list[tuple[int, int]]],
) -> None:
    flat = [(step, s, c) for step, batch in enumerate(batches) for s, c in batch]
    # Steps are numbered from 7 and stand in the table in another order than the requests.
    requests = pa.table(
        {
            "step": pa.array([7 + step for step, _, _ in flat]),
            "engine": pa.array([0] * len(flat)),
            "scheduled": pa.array([s for _, s, _ in flat]),
            "computed": pa.array([c for _, _, c in flat]),
        }
    )
    steps = pa.table(
        {
            "step": pa.array([7 + step for step in reversed(range(len(batches)))]),
            "engine": pa.array([0] * len(batches)),
        }
    )
    record = cast(Any, SimpleNamespace(requests=requests))
    columns = window_columns(record, steps, (128,))
    for place, step in enumerate(reversed(range(len(batches)))):
        shapes = tuple(RequestShape(s, c, 1) for s, c in batches[step])
        (expected,) = BatchTotals.of(shapes, 1, (128,)).windows
        for field in WINDOW_FIELDS:
            found = columns[window_column(128, field)][place]
            assert found == pytest.approx(getattr(expected, field))


def test_logs_of_sums_say_nothing_of_windows(tmp_path: Path) -> None:
    empty = pa.table({"step": pa.array([], pa.int64()), "computed": pa.array([], pa.int64())})
    steps = pa.table({"step": pa.array(np.arange(3)), "engine": pa.array([0, 0, 0])})
    record = cast(Any, SimpleNamespace(requests=empty))
    assert window_columns(record, steps, (128,)) == {}
