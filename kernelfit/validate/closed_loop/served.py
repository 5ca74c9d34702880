"""The arrival trace and the latencies that a stored run holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kernelfit.documents.problems import InputError, Problem
from kernelfit.kernel.fitted import FittedKernel
from kernelfit.store.scan import RunRecord
from kernelfit.validate.closed_loop.requests import Arrival, Latencies, latencies
from kernelfit.validate.closed_loop.scheduler import Limits

_NEEDED = (
    "arrival_s",
    "first_token_s",
    "finish_s",
    "prompt_tokens",
    "output_tokens",
)

CACHED_ALIKE = 0.1
"""Share of a load's prompt tokens by which the prefix-cache hits of a repeat may differ [1]."""


@dataclass(frozen=True, slots=True)
class ServedRun:
    """What a run served, in order of arrival.

    Attributes
    ----------
    run : str
        The run's name.
    observer : str
        Who saw it: ``client`` or ``engine``.
    start_s : float
        When the first arrives, on the run's own clock [s].
    trace : tuple of Arrival
        The requests; the first arrives at 0 s.
    measured : Latencies
        What they saw.
    unknown : int
        Requests that were left out because a time or a count of theirs is not known.
    uncounted : int
        Requests whose prefix-cache hits are not known and are taken as none.
    preempted_steps : int
        Steps of the run in which requests made way.
    """

    run: str
    observer: str
    start_s: float
    trace: tuple[Arrival, ...]
    measured: Latencies
    unknown: int
    uncounted: int
    preempted_steps: int


def served_run(record: RunRecord) -> ServedRun:
    """Return what a run served, as its clients saw it or else as the engine did.

    Parameters
    ----------
    record : RunRecord
        A run of the store.

    Returns
    -------
    ServedRun
        Its arrival trace and latencies.

    Raises
    ------
    InputError
        When the run holds no requests as served.
    """
    table = record.table("served")
    observer = _observer(table)
    table = table.filter(pc.equal(table["observer"], observer))
    known = pa.chunked_array([pa.array(np.ones(table.num_rows, dtype=bool))])
    for name in _NEEDED:
        known = pc.and_(known, pc.is_valid(table[name]))
    for name in ("prompt_tokens", "output_tokens"):
        known = pc.and_(known, pc.fill_null(pc.greater(table[name], 0), fill_value=False))
    rows = table.filter(known).sort_by("arrival_s").to_pylist()
    if not rows:
        message = "the run holds no requests as served, with their times and token counts"
        hint = "record the front end or a client: docs/host.md"
        raise InputError([Problem(record.run_id, None, None, message, hint=hint)])
    start_s = rows[0]["arrival_s"]
    trace = tuple(
        Arrival(
            row["arrival_s"] - start_s,
            row["prompt_tokens"],
            row["output_tokens"],
            min(row["cached_tokens"] or 0, row["prompt_tokens"] - 1),
        )
        for row in rows
    )
    measured = latencies(
        [row["arrival_s"] for row in rows],
        [row["first_token_s"] for row in rows],
        [row["finish_s"] for row in rows],
        [row["output_tokens"] for row in rows],
    )
    marks = record.steps["marks"].to_pylist()
    return ServedRun(
        record.run_id,
        observer,
        start_s,
        trace,
        measured,
        table.num_rows - len(rows),
        sum(row["cached_tokens"] is None for row in rows),
        sum("preempted" in found for found in marks),
    )


def limits_of(kernel: FittedKernel, kv_blocks: int | None = None) -> Limits:
    """Return the limits of a kernel's pool.

    Parameters
    ----------
    kernel : FittedKernel
        The kernel.
    kv_blocks : int, optional
        Blocks of its KV cache; without it the cache never fills.

    Returns
    -------
    Limits
        As the engine resolves them.
    """
    resolved = kernel.resolved()
    return Limits(
        resolved.max_num_batched_tokens,
        resolved.max_num_seqs,
        resolved.block_size,
        kv_blocks,
    )


def repeats_of(record: RunRecord, records: Sequence[RunRecord]) -> tuple[RunRecord, ...]:
    """Return the runs that served the same load.

    Parameters
    ----------
    record : RunRecord
        A run.
    records : sequence of RunRecord
        Runs, this one among them or not.

    Returns
    -------
    tuple of RunRecord
        Those other runs whose requests have the same lengths and, but for a tenth of their
        prompts' tokens, the same prefix-cache hits: prompts that a server has seen before are
        no repeat of those that it had not.
    """
    lengths, cached = _counts(record)
    most = CACHED_ALIKE * sum(prompt for prompt, _ in lengths)
    found = []
    for other in records:
        if other.run_id != record.run_id and lengths:
            theirs, hits = _counts(other)
            if theirs == lengths and abs(hits - cached) <= most:
                found.append(other)
    return tuple(found)


def _counts(record: RunRecord) -> tuple[list[tuple[int, int]], int]:
    """Return the lengths of a run's requests, in order, and their prefix-cache hits."""
    table = record.table("served")
    table = table.filter(pc.equal(table["observer"], _observer(table)))
    prompts, outputs = (table[name].to_pylist() for name in ("prompt_tokens", "output_tokens"))
    pairs = zip(prompts, outputs, strict=True)
    known = sorted((p, o) for p, o in pairs if p is not None and o is not None)
    return known, sum(c or 0 for c in table["cached_tokens"].to_pylist())


def _observer(table: pa.Table) -> str:
    return "client" if "client" in table["observer"].to_pylist() else "engine"
