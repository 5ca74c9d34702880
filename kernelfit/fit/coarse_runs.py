"""Requests as clients and engines saw them, as arrays, and what makes one useless."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import pyarrow as pa

from kernelfit.fit.front_end_evidence import EventGate
from kernelfit.fit.front_end_runs import scope_of
from kernelfit.fit.steps import Bools, Floats
from kernelfit.store.scan import RunRecord

OWN_ARRIVAL = "each request's own arrival"


@dataclass(frozen=True, slots=True, eq=False)
class CoarseRun:
    """What a request-level source says of one run; NaN where it does not.

    Attributes
    ----------
    run, reader, observer, scope : str
        The run, its reader, who saw the times, and what the host was.
    together : bool
        Whether the clock is one for all requests, so that it shows which ones met.
    most_at_once : float
        Requests that the client kept open at most [count]; NaN where not stated.
    arrival_s, first_s, end_s : ndarray, shape (n_requests,)
        Arrival, first token and end [s].
    prompt, output, cached, chunks : ndarray, shape (n_requests,)
        Counts [tokens] and pieces of the output.
    queue_s, prefill_s : ndarray, shape (n_requests,)
        The engine's own times [s].
    windows : tuple of dict
        Sums of statistics per part of the source: quantity to (sum, count).
    """

    run: str
    reader: str
    observer: str
    scope: str
    together: bool
    most_at_once: float
    arrival_s: Floats
    first_s: Floats
    end_s: Floats
    prompt: Floats
    output: Floats
    cached: Floats
    chunks: Floats
    queue_s: Floats
    prefill_s: Floats
    windows: tuple[dict[str, tuple[float, float]], ...]

    def take(self, keep: Bools) -> CoarseRun:
        """Return some of the requests.

        Parameters
        ----------
        keep : ndarray of bool, shape (n_requests,)
            Which.

        Returns
        -------
        CoarseRun
            The same run, fewer requests.
        """
        given = {spec.name: getattr(self, spec.name) for spec in fields(self)}
        columns: dict[str, Any] = {
            k: v[keep] for k, v in given.items() if isinstance(v, np.ndarray)
        }
        return replace(self, **columns)

    def alone(self) -> Bools:
        """Return which requests had the server to themselves.

        Returns
        -------
        ndarray of bool, shape (n_requests,)
            Known only where one clock shows all requests, or one was open at a time.
        """
        if self.most_at_once == 1.0:
            return np.ones(self.prompt.size, dtype=bool)
        if not self.together:
            return np.zeros(self.prompt.size, dtype=bool)
        order = np.argsort(self.arrival_s, kind="stable")
        begin, end = self.arrival_s[order], self.end_s[order]
        latest = np.maximum.accumulate(end)
        free = np.ones(begin.size, dtype=bool)
        free[1:] &= begin[1:] >= latest[:-1]
        free[:-1] &= begin[1:] >= end[:-1]
        out = np.empty_like(free)
        out[order] = free
        return out & np.isfinite(self.arrival_s) & np.isfinite(self.end_s)


def collect_coarse(records: Sequence[RunRecord]) -> tuple[CoarseRun, ...]:
    """Return what request-level sources say.

    Parameters
    ----------
    records : sequence of RunRecord
        Stored runs.

    Returns
    -------
    tuple of CoarseRun
        One per run and observer with requests or statistics.
    """
    found: list[CoarseRun] = []
    for record in records:
        if not record.rows("served") and not record.rows("observed"):
            continue
        table = record.served
        seen = table.column("observer").to_pylist()
        windows, limit = _windows(record.observed)
        for observer in dict.fromkeys(seen) if seen else ("engine",):
            mine = np.asarray([each == observer for each in seen], dtype=bool)
            found.append(_coarse(record, table.filter(pa.array(mine)), observer, windows, limit))
    return tuple(found)


def _coarse(
    record: RunRecord,
    table: pa.Table,
    observer: str,
    windows: tuple[dict[str, tuple[float, float]], ...],
    limit: float,
) -> CoarseRun:
    def column(name: str) -> Floats:
        values = table.column(name).cast(pa.float64()).to_numpy(zero_copy_only=False)
        return np.asarray(values, dtype=np.float64)

    return CoarseRun(
        run=record.run_id,
        reader=str(record.row["reader"]),
        observer=observer,
        scope=scope_of(record),
        together=str(record.row["clock"]) != OWN_ARRIVAL,
        most_at_once=limit,
        arrival_s=column("arrival_s"),
        first_s=column("first_token_s"),
        end_s=column("finish_s"),
        prompt=column("prompt_tokens"),
        output=column("output_tokens"),
        cached=column("cached_tokens"),
        chunks=column("chunks"),
        queue_s=column("queue_s"),
        prefill_s=column("prefill_s"),
        windows=windows,
    )


def _windows(table: pa.Table) -> tuple[tuple[dict[str, tuple[float, float]], ...], float]:
    """Return the sums of every part of a source, and the client's limit."""
    limit = float("nan")
    held: dict[int, dict[str, tuple[float, float]]] = {}
    for row in table.to_pylist():
        if row["quantity"] == "max_concurrency":
            limit = float(row["value"])
            continue
        value, count = float(row["value"]), float(row["count"] or 0)
        if row["statistic"] == "mean":
            value *= count
        elif row["statistic"] != "sum":
            continue
        held.setdefault(int(row["window"] or 0), {})[row["quantity"]] = (value, count)
    return tuple(held[key] for key in sorted(held)), limit


def gate_coarse(run: CoarseRun) -> tuple[CoarseRun, Bools, tuple[EventGate, ...]]:
    """Drop requests whose first token says nothing of a whole prompt.

    Parameters
    ----------
    run : CoarseRun
        The run.

    Returns
    -------
    CoarseRun
        What is left.
    ndarray of bool
        Of those, which have gaps that are times of single tokens.
    tuple of EventGate
        What was dropped, and what was kept only for its first token.
    """
    cached = np.nan_to_num(run.cached) > 0
    unknown = ~np.isfinite(run.first_s - run.arrival_s) | ~(run.prompt >= 1)
    left = run.take(~cached & ~unknown)
    joined = left.chunks < left.output
    padded = left.chunks > left.output
    rules = (
        ("requests_unusable", unknown, "no time to the first token, or no prompt"),
        ("requests_cached", cached & ~unknown, "part of the prompt came from the prefix cache"),
        ("several_tokens_per_chunk", joined, "gaps between its chunks are not those of tokens"),
        ("chunks_inflated", padded, "more chunks than tokens: some held none"),
    )
    counts = tuple(
        EventGate(name, run.run, int(np.count_nonzero(mask)), rule)
        for name, mask, rule in rules
        if mask.any()
    )
    single = ~joined & ~padded & (left.output > 1) & np.isfinite(left.end_s - left.first_s)
    return left, single, counts
