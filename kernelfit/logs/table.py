"""The ``table`` reader: any CSV or Parquet file through the run document's mapping.

Three kinds of table are read. With the list column ``scheduled`` (and ``computed``,
``prompt_len``, ``cached`` where there are any) every row holds its requests, and the
totals are exact. Otherwise the rows are aggregates:

* ``decode_requests`` are requests past their prompt that schedule one token each;
  ``decode_context_tokens`` are the tokens in their KV *before* the step, so that
  their own new tokens are added to what attention reads.
* ``prefill_tokens`` are scheduled by ``prefill_requests`` in their prompt, whose
  ``prefill_computed_tokens`` are in the KV before the step. Query-key pairs are exact
  for one such request, ``s*c + s*(s + 1)/2``; for more, the tokens are taken as split
  equally and the row is marked ``pairs_approximated``.
* With ``uniform`` a row is a batch of equal requests, whose counts are sums of columns
  and constants; the totals are exact. ``where`` chooses rows by their cells, and the
  rows that are left out count as recognised.
* Of requests and tokens, two of total, decode and prefill give the third.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kernelfit.documents.problems import InputError, Problem
from kernelfit.documents.runs import RunFacts
from kernelfit.logs.columns import ParsedRun, Requests
from kernelfit.logs.source import RunSource
from kernelfit.logs.table_files import read_table
from kernelfit.logs.table_rows import Bools, TableRows, aggregated_columns, per_request_columns
from kernelfit.logs.table_run import assembled
from kernelfit.logs.table_uniform import columns_of, not_chosen, uniform_columns


class TableReader:
    """Reader of tables; what a duration means is what the run document states."""

    name = "table"
    version = 1
    needs_facts = True

    def files(self, source: RunSource) -> tuple[Path, ...]:
        """Return the table; parameters as ``Reader.files``."""
        return (source.path,)

    def read(self, source: RunSource, facts: RunFacts | None) -> tuple[ParsedRun, ...]:
        """Read a table; parameters and errors as ``Reader.read``."""
        assert facts is not None
        mapping = facts.columns
        if not mapping or facts.timing is None:
            message = "the table reader needs a run.yaml with columns and timing"
            raise InputError([Problem(str(source.path), None, None, message)])
        named = [spec.column for spec in mapping.values()]
        more = columns_of(facts.uniform, facts.where)
        raw = read_table(source.path, tuple(dict.fromkeys([*named, *more])))
        if raw.columns.num_rows == 0 and not raw.rejects:
            raise InputError([Problem(str(source.path), None, None, "the table holds no row")])
        rows = TableRows(raw, mapping)
        left_out = not_chosen(rows, facts.where)
        requests: Requests | None = None
        if facts.uniform:
            columns, requests = uniform_columns(rows, facts.uniform, left_out)
        elif "scheduled" in mapping:
            columns, requests = per_request_columns(rows)
        else:
            columns = aggregated_columns(rows, str(source.path))
        return (_run(source, rows, columns, requests, left_out, facts.timing),)


def _run(
    source: RunSource,
    rows: TableRows,
    columns: dict[str, NDArray[np.generic]],
    requests: Requests | None,
    left_out: Bools,
    timing: str,
) -> ParsedRun:
    duration_s = rows.floats("duration_s")
    rows.blame(duration_s < 0, "duration_s is negative")
    columns["step"] = np.arange(rows.count)
    if "step" in rows.mapping:
        step = rows.counts("step")
        again = np.ones(rows.count, dtype=bool)
        asked = np.flatnonzero(~left_out)
        again[asked[np.unique(step[asked], return_index=True)[1]]] = False
        rows.blame(again, "step is repeated")
        columns["step"] = step
    for name in ("start_s", "kv_usage"):
        if name in rows.mapping:
            columns[name] = rows.floats(name, optional=True)
    if "kv_usage" in columns:
        usage = np.asarray(columns["kv_usage"], dtype=np.float64)
        rows.blame((usage < 0) | (usage > 1), "kv_usage is not a share")
    return assembled(
        source.path.name,
        rows,
        columns,
        duration_s,
        timing=timing,
        clock="start_s of the table" if "start_s" in columns else "none",
        composition="aggregated" if requests is None else "per_request",
        stated={"reader": TableReader.name},
        requests=requests,
        passed=left_out,
        others=rows.raw.rejects,
        headers=rows.raw.headers,
    )
