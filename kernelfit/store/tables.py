"""What a reader found as tables of the store."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kernelfit.logs.columns import PHASES, ParsedRun, Requests, Steps
from kernelfit.logs.hostwork import EVENT_KINDS, OBSERVERS
from kernelfit.logs.marks import mark_names
from kernelfit.store.schema import EVENTS, INTERVALS, OBSERVED, REQUESTS, SERVED, STEPS


def _nullable(values: NDArray[np.generic], kind: pa.DataType) -> pa.Array:
    """Return a column in which NaN and negative counts are null."""
    unknown = np.isnan(values) if pa.types.is_floating(kind) else values < 0  # type: ignore[operator]
    mask = unknown if unknown.any() else None
    # A narrower type is checked, so that a count never wraps around.
    return pa.array(values, mask=mask).cast(kind)


def _named(codes: NDArray[np.int64], names: Sequence[str]) -> pa.Array:
    """Return names by their codes; null for a negative one.

    As a dictionary, which Parquet holds as the plain type: no text is made per row.
    """
    unknown = codes < 0
    places = pa.array(codes.astype(np.int32), mask=unknown if unknown.any() else None)
    return pa.DictionaryArray.from_arrays(places, pa.array(names, type=pa.string()))


def _constant(value: str, count: int) -> pa.Array:
    return _named(np.zeros(count, dtype=np.int64), [value])


def _marks(bits: NDArray[np.int64]) -> pa.Array:
    kinds, which = np.unique(bits, return_inverse=True)
    names = [list(mark_names(int(b))) for b in kinds]
    values = pa.array(names, type=STEPS.field("marks").type)
    return values.take(pa.array(which.reshape(-1)))


def packed(schema: pa.Schema) -> pa.Schema:
    """Return a schema whose texts are dictionaries, as tables have on their way to a file.

    Parameters
    ----------
    schema : pyarrow.Schema
        A schema of the store.

    Returns
    -------
    pyarrow.Schema
        The same names, order and metadata.
    """
    dictionary = pa.dictionary(pa.int32(), pa.string())
    fields = [f.with_type(dictionary) if f.type == pa.string() else f for f in schema]
    return pa.schema(fields, metadata=schema.metadata)


def steps_table(run_id: str, run: ParsedRun, steps: Steps) -> pa.Table:
    """Return steps as a table of the store.

    Parameters
    ----------
    run_id : str
        The run's name.
    run : ParsedRun
        What is known of the whole run: timing, composition, segments.
    steps : Steps
        Steps of it.

    Returns
    -------
    pyarrow.Table
        With the schema ``packed(STEPS)``.
    """
    texts = {
        "run_id": lambda: _constant(run_id, steps.count),
        "timing": lambda: _constant(run.timing, steps.count),
        "composition": lambda: _constant(run.composition, steps.count),
        "phase": lambda: _named(steps.phase_codes(), PHASES),
        "segment": lambda: _named(steps.segment, run.segments),
        "marks": lambda: _marks(steps.marks),
    }
    columns = [
        texts[spec.name]()
        if spec.name in texts
        else _nullable(getattr(steps, spec.name), spec.type)
        for spec in STEPS
    ]
    return pa.Table.from_arrays(columns, schema=packed(STEPS))


def requests_table(run_id: str, requests: Requests) -> pa.Table:
    """Return requests as a table of the store.

    Parameters
    ----------
    run_id : str
        The run's name.
    requests : Requests
        The requests of its steps.

    Returns
    -------
    pyarrow.Table
        With the schema ``packed(REQUESTS)``; empty for aggregated logs.
    """
    columns = [
        _constant(run_id, requests.step.size)
        if spec.name == "run_id"
        else _nullable(getattr(requests, spec.name), spec.type)
        for spec in REQUESTS
    ]
    return pa.Table.from_arrays(columns, schema=packed(REQUESTS))


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
    texts = {
        "kind": lambda: _named(events.kind, EVENT_KINDS),
        "observer": lambda: _named(served.observer, OBSERVERS),
        "quantity": lambda: pa.array(observed.quantity, type=pa.string()).dictionary_encode(),
        "statistic": lambda: pa.array(observed.statistic, type=pa.string()).dictionary_encode(),
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
            else texts[spec.name]()
            if spec.name in texts
            else _nullable(getattr(rows, spec.name), spec.type)
            for spec in schema
        ]
        out[name] = pa.Table.from_arrays(columns, schema=packed(schema)).cast(schema)
    return out


def intervals_table(run_id: str, run: ParsedRun) -> pa.Table:
    """Return a run's interval lines as a table of the store.

    Parameters
    ----------
    run_id : str
        The run's name.
    run : ParsedRun
        The run.

    Returns
    -------
    pyarrow.Table
        With the schema ``INTERVALS``.
    """
    columns = [
        pa.array(
            [run_id] * len(run.intervals)
            if spec.name == "run_id"
            else [getattr(item, spec.name) for item in run.intervals],
            type=spec.type,
        )
        for spec in INTERVALS
    ]
    return pa.Table.from_arrays(columns, schema=INTERVALS)
