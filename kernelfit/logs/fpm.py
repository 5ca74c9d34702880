"""The ``dynamo-fpm`` reader: forward pass metrics, one record per scheduler step.

Dynamo publishes a record per step (``ForwardPassMetrics``), SGLang publishes the same
schema; this reads their JSON lines, and the CSV of NVIDIA's published collections.

**What a record holds.** Sums over the step's requests, no request by itself:

* decode: ``num_decode_requests`` requests that schedule one token each, with
  ``sum_decode_kv_tokens`` computed before the step. Context and pairs of the decode
  path are linear in them, so they are exact whatever the variance is.
* prefill: ``sum_prefill_tokens`` scheduled by ``num_prefill_requests`` whose
  ``sum_prefill_kv_tokens`` are computed. The context is exact. The pairs are exact for
  one request. For several the row is marked ``pairs_approximated``: with nothing
  computed before, ``(n*m**2 + n*var + S)/2`` with ``m = S/n``, which is exact when every
  prompt is scheduled whole (``var_prefill_length`` is the population variance of the
  prompts' lengths); where such a variance is impossible for what was scheduled, some
  prompt was cut, and the tokens are taken as split equally, as for prompts that had
  something computed.
* not recorded: prompt lengths, prefix-cache hits (they are part of the computed tokens),
  drafts (with a speculative method in the document, rows that decode are marked
  ``spec``), and preemption (a resumed request counts as one decode token).

**What the duration means.** ``wall_time`` has changed its meaning: from schedule to
update without asynchronous scheduling, then from one update to the next, then from
schedule to update with two steps in flight (dynamo #7200, #7537, #7779). The form of
later sources, and of vLLM 0.20.1 in Dynamo 1.2.0, is from update to update, or from the
schedule after idleness: ``cycle``. The published collections show it: on one B300 the
weights of Qwen3-32B need 8.2 ms at the data sheet's 8 TB/s and steps last 13.3 ms, so a
duration is not two steps long; and after idleness the first of two chunks carries both
(3,168 tokens in 74 ms, the next 928 in 0.4 ms), which only the times between updates
can do. So sums are right, and neighbours may have exchanged time. A document that says
otherwise (``timing: step`` for the first form, ``device`` for GPU spans of SGLang,
``wait`` for anything in flight, which no fit takes) is believed.

Every ``worker_id`` and ``dp_rank`` is an engine of its own. A collection may hold one rank
of a data-parallel pool only (NVIDIA's hold rank 0); nothing is added for the others.
Rows of a ``sweep`` segment decode from prompts that share their KV pages when prefix
caching is on, so they read less than the sum of their contexts: ``shared_prefix``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kernelfit.documents.runs import RunFacts
from kernelfit.logs.columns import TIMINGS, UNKNOWN, Ints, ParsedRun
from kernelfit.logs.coverage import Coverage, LogForm, TimingRule
from kernelfit.logs.fpm_facts import facts_files, stated_facts
from kernelfit.logs.fpm_files import COUNTS, SEGMENT, STREAM, VARIANCE, read_fpm
from kernelfit.logs.marks import mark_bit
from kernelfit.logs.source import RunSource
from kernelfit.logs.table_rows import Bools, TableRows, aggregated_columns
from kernelfit.logs.table_run import assembled

DESIGNED_SEGMENT = "sweep"
"""Name of the segment whose shapes were designed from one shared prompt."""

_MAX_RANK = 2**15
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,31}")


COVERAGE = Coverage(
    "dynamo-fpm",
    "forward pass metrics as JSON lines, or a CSV with their columns",
    (
        LogForm("json", "vllm", "Dynamo 1.0-1.2", "steps", "`{counter_id, wall_time, …}`"),
        LogForm("csv", "vllm", "Dynamo 1.2.0", "steps", "`counter_id, latency_ms, …`"),
        LogForm("metadata", "vllm", "Dynamo 1.2.0", "facts", "`vllm_metadata.json` beside it"),
        LogForm("idle", "vllm", "Dynamo 1.0-1.2", "recognised", "a record without work"),
    ),
    (
        TimingRule(
            "vllm",
            "Dynamo 1.2.0",
            "nothing stated",
            "cycle",
            True,
            "from update to update, or from the schedule after idleness: right in sums",
        ),
        TimingRule(
            "vllm",
            "other",
            "timing in run.yaml",
            "as stated",
            True,
            "the meaning has changed twice, so the document is believed; `wait` and "
            "`dispatch` are refused",
        ),
    ),
)


class DynamoFpmReader:
    """Reader of forward pass metrics as CSV or JSON lines."""

    name = "dynamo-fpm"
    version = 1
    needs_facts = False
    coverage = COVERAGE
    engine: Mapping[str, object] = {}

    def meaning(self, said: Mapping[str, object], place: str) -> tuple[str, str | None]:
        """Return what durations mean, and why a fit refuses them although it means much.

        Parameters
        ----------
        said : mapping of str to object
            What the documents and flags say.
        place : str
            The file, for complaints.

        Returns
        -------
        tuple of (str, str or None)
            A name from ``TIMINGS``, and a reason of this reader's own.
        """
        del place  # a document is believed
        timing = said.get("timing")
        return timing if isinstance(timing, str) and timing in TIMINGS else "cycle", None

    def files(self, source: RunSource) -> tuple[Path, ...]:
        """Return the file and what stands beside it; parameters as ``Reader.files``."""
        return (source.path, *facts_files(source.path))

    def read(self, source: RunSource, facts: RunFacts | None) -> tuple[ParsedRun, ...]:  # noqa: ARG002
        """Read metrics; parameters and errors as ``Reader.read``."""
        raw, duration = read_fpm(source.path)
        rows = TableRows(raw, {"duration_s": duration, **COUNTS})
        columns = aggregated_columns(rows, str(source.path))
        columns["step"] = rows.counts("step")
        duration_s = rows.floats("duration_s")
        rows.blame(duration_s < 0, "duration_s is negative")
        most = {
            "requests": _most(columns["requests"]),
            "tokens": _most(columns["scheduled_tokens"]),
        }
        stated = stated_facts(source.path, most)
        said = {**stated, **source.said}
        columns["prefill_pairs"] = _pairs(rows, columns)
        segments, columns["segment"] = _segments(rows)
        columns["marks"] = _marks(columns, segments, said)
        engine, columns["engine"] = _streams(rows)
        life = _lives(rows, engine, np.asarray(columns["step"], dtype=np.int64))
        timing, refused = self.meaning(said, str(source.path))
        return tuple(
            assembled(
                source.path.name,
                rows,
                columns,
                duration_s,
                timing=timing,
                clock="none",
                composition="aggregated",
                stated={**self.engine, "reader": self.name, **stated},
                refused=refused,
                chosen=life == number,
                others=raw.rejects if number == 0 else (),
                headers=raw.headers if number == 0 else 0,
                segments=segments,
            )
            for number in range(int(life.max(initial=0)) + 1)
        )


def _most(values: NDArray[np.generic]) -> int:
    return int(np.asarray(values, dtype=np.int64).max(initial=0))


def _pairs(rows: TableRows, columns: dict[str, NDArray[np.generic]]) -> Ints:
    """Return the prefill pairs, better than an equal split where the variance allows it."""
    pairs = np.asarray(columns["prefill_pairs"], dtype=np.int64)
    if VARIANCE not in rows.raw.columns.column_names:
        return pairs
    variance = rows.numbers(rows.raw.columns.column(VARIANCE))[0]
    n = np.maximum(np.asarray(columns["in_prompt_requests"], dtype=np.float64), 1.0)
    tokens = np.asarray(columns["in_prompt_tokens"], dtype=np.float64)
    fresh = rows.counts("prefill_computed_tokens") == 0
    squares = tokens**2 / n + n * np.where(np.isfinite(variance), variance, 0.0)
    # The most uneven split: one request has all but one token of each other.
    uneven = (tokens - n + 1) ** 2 + n - 1
    usable = fresh & (n > 1) & (tokens > n) & (variance > 0) & (squares <= uneven)
    better = (np.where(usable, squares, 0.0) + tokens) / 2
    return np.where(usable, np.rint(better), pairs).astype(np.int64)


def _segments(rows: TableRows) -> tuple[tuple[str, ...], Ints]:
    """Return the segments' names and every row's place among them."""
    if SEGMENT not in rows.raw.columns.column_names:
        return (), np.full(rows.count, UNKNOWN, dtype=np.int64)
    cells = rows.raw.columns.column(SEGMENT).combine_chunks().dictionary_encode()
    named = [str(name) for name in cells.dictionary.to_pylist()]
    # Only a plain word is a segment's name; no other text enters the store.
    words = tuple(name for name in named if _WORD.fullmatch(name))
    place = [words.index(name) if name in words else UNKNOWN for name in named]
    return words, np.array([*place, UNKNOWN])[np.asarray(cells.indices.fill_null(len(place)))]


def _marks(
    columns: dict[str, NDArray[np.generic]], segments: tuple[str, ...], said: dict[str, object]
) -> Ints:
    marks = np.asarray(columns["marks"], dtype=np.int64)
    decoding = np.asarray(columns["past_prompt_requests"], dtype=np.int64)
    if DESIGNED_SEGMENT in segments and said.get("enable_prefix_caching") is not False:
        designed = np.asarray(columns["segment"]) == segments.index(DESIGNED_SEGMENT)
        # One request has nobody to share its pages with.
        marks = marks | (designed & (decoding > 1)) * mark_bit("shared_prefix")
    if said.get("speculative_method") is not None:
        marks = marks | (decoding > 0) * mark_bit("spec")
    return marks


def _streams(rows: TableRows) -> tuple[Ints, Ints]:
    """Return every row's stream, and its engine: the rank where one worker has several."""
    known = rows.raw.columns.column_names
    worker = np.zeros(rows.count, dtype=np.int64)
    rank = np.zeros(rows.count, dtype=np.int64)
    if STREAM[0] in known:
        cells = rows.raw.columns.column(STREAM[0]).combine_chunks().dictionary_encode()
        worker = np.asarray(cells.indices.fill_null(UNKNOWN), dtype=np.int64)
    if STREAM[1] in known:
        values, wrong = rows.numbers(rows.raw.columns.column(STREAM[1]))
        sound = (values >= 0) & (values < _MAX_RANK) & (values == np.floor(values)) & ~wrong
        rows.blame(~sound, "dp_rank is not a rank")
        rank = np.where(sound, values, 0.0).astype(np.int64)
    stream = np.unique(worker * _MAX_RANK + rank, return_inverse=True)[1].reshape(-1)
    workers = np.unique(worker[worker >= 0]).size
    return stream.astype(np.int64), rank if workers <= 1 else stream.astype(np.int64)


def _lives(rows: TableRows, stream: Ints, step: Ints) -> Ints:
    """Return which life of its engine every row is of; a counter that falls starts one."""
    life = np.zeros(rows.count, dtype=np.int64)
    sound = np.ones(rows.count, dtype=bool)
    sound[list(rows.reasons)] = False
    repeated: Bools = np.zeros(rows.count, dtype=bool)
    for one in np.unique(stream).tolist():
        mine = np.flatnonzero((stream == one) & sound)
        change = np.diff(step[mine])
        repeated[mine[1:][change == 0]] = True
        number = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(change < 0)])
        life[mine] = number[: mine.size]
    rows.blame(repeated, "counter_id is repeated")
    return life
