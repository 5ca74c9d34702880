"""Writing a run into the store: a whole folder, or nothing."""

from __future__ import annotations

import json
import secrets
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from kernelfit.documents.canonical import write_atomic
from kernelfit.logs.columns import ParsedRun, Reject, Steps, mark_names
from kernelfit.logs.hostwork import EVENT_KINDS, OBSERVERS
from kernelfit.store.schema import EVENTS, OBSERVED, REQUESTS, RUNS, SCHEMAS, SERVED, STEPS

REJECTS_SUFFIX = ".rejects.jsonl"

ROW_GROUP_ROWS = 1 << 16
"""Rows per row group: what a reader that needs stretches of a long run can skip."""


def _nullable(values: NDArray[np.generic], kind: pa.DataType) -> pa.Array:
    """Return a column in which NaN and negative counts are null."""
    unknown = np.isnan(values) if pa.types.is_floating(kind) else values < 0  # type: ignore[operator]
    mask = unknown if unknown.any() else None
    # A narrower type is checked, so that a count never wraps around.
    return pa.array(values, mask=mask).cast(kind)


def _constant(value: str, count: int) -> pa.Array:
    return pa.DictionaryArray.from_arrays(
        pa.array(np.zeros(count, dtype=np.int32)), pa.array([value])
    ).cast(pa.string())


def _marks(bits: NDArray[np.int64]) -> pa.Array:
    kinds, which = np.unique(bits, return_inverse=True)
    names = [list(mark_names(int(b))) for b in kinds]
    values = pa.array(names, type=STEPS.field("marks").type)
    return values.take(pa.array(which.reshape(-1)))


def steps_table(run_id: str, run: ParsedRun) -> pa.Table:
    """Return a run's steps as a table of the store.

    Parameters
    ----------
    run_id : str
        The run's name.
    run : ParsedRun
        The run.

    Returns
    -------
    pyarrow.Table
        With the schema ``STEPS``.
    """
    steps: Steps = run.steps
    count = steps.count
    columns: list[pa.Array] = []
    for spec in STEPS:
        if spec.name == "run_id":
            columns.append(_constant(run_id, count))
        elif spec.name == "timing":
            columns.append(_constant(run.timing, count))
        elif spec.name == "composition":
            columns.append(_constant(run.composition, count))
        elif spec.name == "phase":
            columns.append(pa.array(steps.phases(), type=pa.string()))
        elif spec.name == "marks":
            columns.append(_marks(steps.marks))
        elif spec.name == "segment":
            names = pa.array([*run.segments, None], type=pa.string())
            place = np.where(steps.segment < 0, len(run.segments), steps.segment)
            columns.append(names.take(pa.array(place)))
        else:
            columns.append(_nullable(getattr(steps, spec.name), spec.type))
    return pa.Table.from_arrays(columns, schema=STEPS)


def requests_table(run_id: str, run: ParsedRun) -> pa.Table:
    """Return a run's requests as a table of the store.

    Parameters
    ----------
    run_id : str
        The run's name.
    run : ParsedRun
        The run.

    Returns
    -------
    pyarrow.Table
        With the schema ``REQUESTS``; empty for aggregated logs.
    """
    requests = run.requests
    columns = [
        _constant(run_id, requests.step.size)
        if spec.name == "run_id"
        else _nullable(getattr(requests, spec.name), spec.type)
        for spec in REQUESTS
    ]
    return pa.Table.from_arrays(columns, schema=REQUESTS)


def _named(codes: NDArray[np.int64], names: Sequence[str]) -> pa.Array:
    return pa.array(names, type=pa.string()).take(pa.array(codes))


def host_tables(run_id: str, run: ParsedRun) -> dict[str, pa.Table]:
    """Return what a run holds beside its steps as tables of the store.

    Parameters
    ----------
    run_id : str
        The run's name.
    run : ParsedRun
        The run.

    Returns
    -------
    dict of str to pyarrow.Table
        ``events``, ``served`` and ``observed``, with their schemas; empty where the log
        holds steps alone.
    """
    events, served, observed = run.events, run.served, run.observed
    named = {
        "kind": lambda: _named(events.kind, EVENT_KINDS),
        "observer": lambda: _named(served.observer, OBSERVERS),
        "quantity": lambda: pa.array(observed.quantity, type=pa.string()),
        "statistic": lambda: pa.array(observed.statistic, type=pa.string()),
    }
    out = {}
    for name, schema, rows, count in (
        ("events", EVENTS, events, events.kind.size),
        ("served", SERVED, served, served.request.size),
        ("observed", OBSERVED, observed, observed.value.size),
    ):
        columns = [
            _constant(run_id, count)
            if spec.name == "run_id"
            else named[spec.name]()
            if spec.name in named
            else _nullable(getattr(rows, spec.name), spec.type)
            for spec in schema
        ]
        out[name] = pa.Table.from_arrays(columns, schema=schema)
    return out


def rejects_text(rejects: Sequence[Reject]) -> str:
    """Return the rejects file of a run.

    Parameters
    ----------
    rejects : sequence of Reject
        The rejects.

    Returns
    -------
    str
        One JSON object per line: file, line, reason, text.
    """
    return "".join(
        json.dumps({"file": r.file, "line": r.line, "reason": r.reason, "text": r.text}) + "\n"
        for r in rejects
    )


def read_rejects(out: Path, run_id: str) -> tuple[Reject, ...]:
    """Read a run's rejects back.

    Parameters
    ----------
    out : pathlib.Path
        The store.
    run_id : str
        The run's name.

    Returns
    -------
    tuple of Reject
        In the order of the file; none when it was removed.
    """
    path = out / f"{run_id}{REJECTS_SUFFIX}"
    if not path.is_file():
        return ()
    lines = path.read_text(encoding="utf-8").splitlines()
    return tuple(Reject(**json.loads(line)) for line in lines)


def write_run(out: Path, row: Mapping[str, object], run: ParsedRun) -> None:
    """Write one run: its folder with a file per table, and its rejects beside it.

    The folder is written under another name and renamed, so that a reader sees the
    old run, or the new one, or for a moment none, but never a part.

    Parameters
    ----------
    out : pathlib.Path
        The store.
    row : mapping of str to object
        The run's row, with every column of ``RUNS``.
    run : ParsedRun
        The run.

    Raises
    ------
    OSError
        When the store cannot be written.
    """
    run_id = str(row["run_id"])
    tables = {
        "runs": pa.Table.from_pylist([dict(row)], schema=RUNS),
        "steps": steps_table(run_id, run),
        "requests": requests_table(run_id, run),
        **host_tables(run_id, run),
    }
    out.mkdir(parents=True, exist_ok=True)
    token = secrets.token_hex(4)
    part = out / f".{run_id}.{token}.part"
    target = out / run_id
    try:
        part.mkdir()
        for name in SCHEMAS:
            pq.write_table(
                tables[name],
                part / f"{name}.parquet",
                compression="zstd",
                row_group_size=ROW_GROUP_ROWS,
            )
        write_atomic(out / f"{run_id}{REJECTS_SUFFIX}", rejects_text(run.rejects))
        if target.exists():
            old = out / f".{run_id}.{token}.old"
            target.rename(old)
            part.rename(target)
            shutil.rmtree(old)
        else:
            part.rename(target)
    finally:
        shutil.rmtree(part, ignore_errors=True)
