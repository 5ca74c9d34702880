"""The ``table`` reader: any CSV or Parquet file through the run document's mapping.

Two kinds of table are read. With the list column ``scheduled`` (and ``computed``,
``prompt_len``, ``cached`` where there are any) every row holds its requests, and the
totals are exact. Otherwise the rows are aggregates:

* ``decode_requests`` are requests past their prompt that schedule one token each;
  ``decode_context_tokens`` are the tokens in their KV *before* the step, so that
  their own new tokens are added to what attention reads.
* ``prefill_tokens`` are scheduled by ``prefill_requests`` in their prompt, whose
  ``prefill_computed_tokens`` are in the KV before the step. Query-key pairs are exact
  for one such request, ``s*c + s*(s + 1)/2``; for more, the tokens are taken as split
  equally and the row is marked ``pairs_approximated``.
* Of requests and tokens, two of total, decode and prefill give the third.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kernelfit.documents.problems import InputError, Problem
from kernelfit.documents.runs import RunFacts
from kernelfit.logs.columns import (
    FITTED_TIMINGS,
    Counts,
    ParsedRun,
    Reject,
    Requests,
    make_steps,
    mark_bit,
    warmup_bits,
)
from kernelfit.logs.source import RunSource
from kernelfit.logs.table_files import RawTable, read_table
from kernelfit.logs.table_rows import TableRows, aggregated_columns, per_request_columns


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
        raw = read_table(source.path, tuple(dict.fromkeys(c.column for c in mapping.values())))
        rows = TableRows(raw, mapping)
        if "scheduled" in mapping:
            columns, requests = per_request_columns(rows)
            composition = "per_request"
        else:
            columns, requests = aggregated_columns(rows, str(source.path)), None
            composition = "aggregated"
        return (_run(source, raw, rows, columns, requests, composition, facts.timing),)


def _run(
    source: RunSource,
    raw: RawTable,
    rows: TableRows,
    columns: dict[str, NDArray[np.generic]],
    requests: Requests | None,
    composition: str,
    timing: str,
) -> ParsedRun:
    count = rows.count
    if count == 0 and not raw.rejects:
        raise InputError([Problem(str(source.path), None, None, "the table holds no row")])
    duration_s = rows.floats("duration_s")
    rows.blame(duration_s < 0, "duration_s is negative")
    step = np.arange(count)
    if "step" in rows.mapping:
        step = rows.counts("step")
        again = np.ones(count, dtype=bool)
        again[np.unique(step, return_index=True)[1]] = False
        rows.blame(again, "step is repeated")
    marks = np.asarray(columns.pop("marks"), dtype=np.int64)
    marks |= (duration_s == 0) * mark_bit("zero_duration")
    known = {"duration_s": duration_s, "step": step}
    for name in ("start_s", "kv_usage"):
        if name in rows.mapping:
            known[name] = rows.floats(name, optional=True)
    if "kv_usage" in known:
        usage = known["kv_usage"]
        rows.blame((usage < 0) | (usage > 1), "kv_usage is not a share")
    bad = rows.reasons
    good = np.ones(count, dtype=bool)
    good[list(bad)] = False
    # A row without work is known and is no step.
    idle = good & (np.asarray(columns["scheduled_tokens"], dtype=np.int64) == 0)
    good &= ~idle
    marks[good] |= warmup_bits(step[good], duration_s[good])
    steps = make_steps(count, {**columns, **known, "marks": marks}).take(good)
    rejects = list(raw.rejects) + [
        Reject(source.path.name, raw.lines[place], reason, rows.text(place))
        for place, reason in sorted(bad.items())
    ]
    if requests is None:
        kept = Requests.none()
    else:
        inside = good[requests.step]
        kept = Requests(
            step=step[requests.step[inside]],
            engine=requests.engine[inside],
            scheduled=requests.scheduled[inside],
            computed=requests.computed[inside],
            prompt_len=requests.prompt_len[inside],
            cached=requests.cached[inside],
        )
    recognised = raw.headers + int(np.count_nonzero(idle))
    refused = None
    if timing not in FITTED_TIMINGS:
        refused = f"timing is {timing}: only a part of each step, which a fit must not take for it"
    return ParsedRun(
        steps=steps,
        requests=kept,
        rejects=tuple(sorted(rejects, key=lambda r: r.line)),
        counts=Counts(
            steps.count + recognised + len(rejects), steps.count, recognised, len(rejects)
        ),
        timing=timing,
        clock="start_s of the table" if "start_s" in known else "none",
        composition=composition,
        stated={"reader": TableReader.name},
        fit_refused_reason=refused,
    )
