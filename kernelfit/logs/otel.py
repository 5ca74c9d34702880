"""The ``otel-steps`` reader: step summaries of the inference-sim fork of vLLM.

The fork samples its scheduler steps and writes a summary of each; a file is either its
OpenTelemetry export (JSON lines) or the summaries as a Parquet table, which may hold
several experiments, each of which becomes a run.

**The duration is not the step's.** ``step.duration_us`` is the time to dispatch the step:
in the published H100 traces 0.3 to 1.1 ms for models that need 10 ms to read their
weights. With ``timing: dispatch`` it is kept, and no fit takes it. Otherwise the reader
recovers the ``cycle``: the start of the next step less the start of this one, where both
were sampled. A step without its successor has no duration and counts as recognised.

**Which batch a cycle measures.** It is given to the earlier of the two steps. Without
asynchronous scheduling that is the batch it measures. With it (the default of vLLM 0.14
and later) the engine schedules step ``k`` while ``k - 1`` runs and schedules ``k + 1``
when ``k - 1`` is done, so the interval is the time of the batch before. In the published
traces it is: where three steps in a row were sampled, the interval after ``k`` grows with
the prefill tokens of ``k - 1`` (57 and 50 us per token, standard errors 28 and 11) and
not with those of ``k`` (4 and -6, standard errors 14 and 19). Neighbouring batches are
alike but for their prefill: few requests come or go in a step. So every recovered row is
marked ``neighbour_batch`` unless the document says ``async_scheduling: false``.

**Composition.** Decode requests schedule ``decode_tokens`` in all, which must be one each
unless drafts are verified; such rows are rejected, since the summary does not say how the
tokens are shared. The KV of all running requests is the blocks in use times the block
size (16 where the document does not say); a request is given the mean of all, because
nothing tells them apart. Blocks are whole, and blocks of a shared prefix count once, so
rows are marked ``context_approximated``, and steps with prefill ``pairs_approximated``.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kernelfit.documents.columns import ColumnSpec
from kernelfit.documents.runs import RunFacts
from kernelfit.logs.columns import Floats, Ints, ParsedRun
from kernelfit.logs.marks import mark_bit
from kernelfit.logs.otel_files import EXPERIMENT, MODEL, SPECS, TP, read_otel
from kernelfit.logs.source import RunSource
from kernelfit.logs.table_files import RawTable
from kernelfit.logs.table_rows import Bools, TableRows, aggregated_columns
from kernelfit.logs.table_run import assembled

DEFAULT_BLOCK_SIZE = 16
"""Tokens of a KV block where the document does not say: vLLM's own default [tokens]."""

_WORD = re.compile(r"[A-Za-z0-9._/+-]{1,64}")
_DERIVED = {
    "decode_context_tokens": ColumnSpec("decode_before", "tokens"),
    "prefill_computed_tokens": ColumnSpec("prefill_before", "tokens"),
}


class OtelStepsReader:
    """Reader of step summaries; recovers cycles from their start times."""

    name = "otel-steps"
    version = 1
    needs_facts = False

    def files(self, source: RunSource) -> tuple[Path, ...]:
        """Return the file; parameters as ``Reader.files``."""
        return (source.path,)

    def read(self, source: RunSource, facts: RunFacts | None) -> tuple[ParsedRun, ...]:  # noqa: ARG002
        """Read summaries; parameters and errors as ``Reader.read``."""
        raw = read_otel(source.path)
        rows = TableRows(raw, SPECS)
        size = source.said.get("block_size")
        block = size if isinstance(size, int) and size > 0 else DEFAULT_BLOCK_SIZE
        columns = _columns(rows, raw, block, str(source.path))
        group, labels = _experiments(raw)
        rows.blame(group < 0, "the row names no experiment")
        mine = np.maximum(group, 0)
        step, start_s = rows.counts("step"), rows.floats("start_s")
        columns |= {"step": step, "start_s": start_s}
        dispatched = source.said.get("timing") == "dispatch"
        if dispatched:
            duration_s = rows.floats("duration_s")
            rows.blame(duration_s < 0, "step.duration_us is negative")
            passed = np.zeros(rows.count, dtype=bool)
            _repeated(rows, mine, step)
        else:
            duration_s = _cycles(rows, mine, step, start_s)
            passed = np.isnan(duration_s)
            passed[list(rows.reasons)] = False
            if source.said.get("async_scheduling") is not False:
                marks = np.asarray(columns["marks"], dtype=np.int64)
                columns["marks"] = marks | mark_bit("neighbour_batch")
        return tuple(
            assembled(
                source.path.name,
                rows,
                columns,
                duration_s,
                timing="dispatch" if dispatched else "cycle",
                clock="the engine's monotonic clock",
                composition="aggregated",
                stated={"reader": self.name, "engine": "vllm", **stated},
                passed=passed,
                chosen=mine == number,
                others=raw.rejects if number == 0 else (),
                headers=raw.headers if number == 0 else 0,
            )
            for number, stated in enumerate(labels)
        )


def _columns(
    rows: TableRows, raw: RawTable, block: int, place: str
) -> dict[str, NDArray[np.generic]]:
    decode, prefill = rows.counts("decode_requests"), rows.counts("prefill_requests")
    tokens = rows.counts("prefill_tokens")
    rows.blame(rows.counts("decode_tokens") != decode, "decode requests do not schedule one each")
    blocks, free = rows.counts("blocks"), rows.counts("free_blocks")
    rows.blame(free > blocks, "more blocks are free than there are")
    used = np.maximum(blocks - free, 0)
    holders = np.maximum(np.maximum(rows.counts("running"), decode + prefill), 1)
    mean = used * float(block) / holders
    before = {
        "decode_before": np.maximum(np.rint(decode * mean) - decode, 0),
        "prefill_before": np.maximum(np.rint(prefill * mean) - tokens, 0),
    }
    wanted = ("decode_requests", "prefill_requests", "prefill_tokens")
    table = raw.columns
    for name, values in before.items():
        table = table.append_column(name, pa.chunked_array([pa.array(values)]))
    derived = TableRows(
        RawTable(table, raw.lines, (), 0), {**{n: SPECS[n] for n in wanted}, **_DERIVED}
    )
    columns = aggregated_columns(derived, place)
    for at, reason in derived.reasons.items():
        rows.reasons.setdefault(at, reason)
    columns["kv_usage"] = used / np.maximum(blocks, 1)
    marks = np.full(rows.count, mark_bit("context_approximated"), dtype=np.int64)
    marks |= (tokens > prefill) * mark_bit("pairs_approximated")
    marks |= (rows.counts("preempted") > 0) * mark_bit("preempted")
    columns["marks"] = marks
    return columns


def _experiments(raw: RawTable) -> tuple[Ints, list[dict[str, object]]]:
    """Return every row's experiment, and what the table states of each.

    A table of one experiment leaves its model to the run document; in a table of
    several, each must name its own.
    """
    names = raw.columns.column_names
    count = raw.columns.num_rows
    if EXPERIMENT not in names or count == 0:
        return np.zeros(count, dtype=np.int64), [_labels(raw, 0, False)] if count else [{}]
    cells = raw.columns.column(EXPERIMENT).combine_chunks().dictionary_encode()
    group = np.asarray(cells.indices.fill_null(-1), dtype=np.int64)
    kinds = int(group.max(initial=-1)) + 1
    labels = [_labels(raw, int(np.argmax(group == one)), kinds > 1) for one in range(kinds)]
    return group, labels or [{}]


def _labels(raw: RawTable, place: int, several: bool) -> dict[str, object]:
    stated: dict[str, object] = {}
    names = raw.columns.column_names
    if TP in names:
        width = raw.columns.column(TP)[place].as_py()
        if isinstance(width, int) and width > 0:
            stated["tp"] = width
    if MODEL in names:
        model = raw.columns.column(MODEL)[place].as_py()
        if isinstance(model, str) and _WORD.fullmatch(model):
            stated["model_name"] = model
            if several:
                stated["model"] = model
    return stated


def _repeated(rows: TableRows, group: Ints, step: Ints) -> None:
    again = np.ones(rows.count, dtype=bool)
    pairs = np.stack([group, step], axis=1)
    again[np.unique(pairs, axis=0, return_index=True)[1]] = False
    rows.blame(again, "step.id is repeated")


def _cycles(rows: TableRows, group: Ints, step: Ints, start_s: Floats) -> Floats:
    """Return start of the next step less start of this one [s]; NaN without a next step."""
    _repeated(rows, group, step)
    cycle = np.full(rows.count, np.nan)
    sound: Bools = np.ones(rows.count, dtype=bool)
    sound[list(rows.reasons)] = False
    order = np.flatnonzero(sound)
    order = order[np.lexsort((step[order], group[order]))]
    here, after = order[:-1], order[1:]
    follows = (group[here] == group[after]) & (step[after] == step[here] + 1)
    here, after = here[follows], after[follows]
    # Even a clock that counts from 1970 is right to 0.3 microseconds in a double.
    took = start_s[after] - start_s[here]
    cycle[here] = np.where(took > 0, took, np.nan)
    backwards = np.zeros(rows.count, dtype=bool)
    backwards[here[took <= 0]] = True
    rows.blame(backwards, "the next step starts no later")
    return cycle
