"""The ``blis-trace`` reader: engine steps rebuilt from the times of streamed chunks.

A trace of BLIS (version 3) holds, per request, when each chunk reached the client. With
continuous batching every running request gets a token at the end of every step, so the
chunks of one step arrive together, and the time between two such bundles is the step:
``cycle``, by the client's clock.

**Chunks are not tokens.** Servers send an empty chunk before the first token and one after
the last; each arrives within microseconds of its neighbour and is dropped. What remains
must be one chunk for each output token; otherwise the request is rejected with both
numbers (a client that counted a begin-of-sequence token for each chunk has about two).

**Bundles.** Chunks closer together than a quarter of the median time between a request's
chunks are one bundle. Where times between bundles and within them do not separate, the
run is refused for fitting.

**Which bundles are steps.** Only those whose batch is certain: every request that runs
before and after the bundle has exactly one chunk in it; at least one of them was in the
bundle before, so that nothing was idle; and no request had been sent before the step
began without having its first token by the end, because parts of its prompt may have run
unseen. A step with first tokens is kept when prefix caching is stated off and the prompts fit
the token budget together with the rest (``max_num_batched_tokens`` in the run document);
otherwise how many tokens it computed is not known. Requests that failed or were rejected
spoil every step from when they were sent until their last chunk, or, without one, as
long as the longest request took. All other chunks count as recognised.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kernelfit.documents.problems import InputError, Problem
from kernelfit.documents.runs import RunFacts
from kernelfit.logs.blis_files import Trace, header_facts, read_trace, trace_files
from kernelfit.logs.columns import (
    UNKNOWN,
    Counts,
    Floats,
    Ints,
    ParsedRun,
    Reject,
    Requests,
    make_steps,
)
from kernelfit.logs.coverage import Coverage, LogForm, TimingRule
from kernelfit.logs.marks import mark_bit
from kernelfit.logs.source import RunSource
from kernelfit.logs.totals import request_totals

Bools = NDArray[np.bool_]

BUNDLE_SHARE = 0.25
"""Longest time within a bundle, by the median time between a request's chunks [1]."""

TWIN_SHARE = 0.05
"""Longest time between a token's chunk and an empty one beside it, by the same [1]."""

MOST_BETWEEN = 0.02
"""Share of times between chunks that may lie near the limit of a bundle before steps
count as not separated [1]."""

COVERAGE = Coverage(
    "blis-trace",
    "request trace of `blis observe` with chunk times: `NAME.itl.csv`, `NAME.csv`, `NAME.yaml`",
    (
        LogForm("chunks", "any server", "trace_version 3", "steps", "`request_id,chunk_index,…`"),
        LogForm("requests", "any server", "trace_version 3", "recognised", "27 columns a request"),
        LogForm("header", "any server", "trace_version 3", "facts", "`server: {…}`, `mode`"),
    ),
    (
        TimingRule(
            "any server", "all", "mode real, dp 1", "cycle", True,
            "from bundle to bundle of chunks by the client's clock",
        ),
        TimingRule(
            "any server", "all", "mode generated or replayed", "cycle", False,
            "no server was measured",
        ),
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Tokens:
    """The chunks that are tokens, by request and order."""

    request: Ints
    order: Ints
    time_us: Floats


class BlisTraceReader:
    """Reader of request traces with chunk times."""

    name = "blis-trace"
    version = 1
    needs_facts = False
    coverage = COVERAGE

    def files(self, source: RunSource) -> tuple[Path, ...]:
        """Return the trace's files that exist; parameters as ``Reader.files``."""
        return (source.path, *(p for p in trace_files(source.path) if p.is_file()))

    def read(self, source: RunSource, facts: RunFacts | None) -> tuple[ParsedRun, ...]:
        """Rebuild the steps; parameters and errors as ``Reader.read``."""
        del facts  # the trace states its own, and what else was said is enough
        place = str(source.path)
        stated, mode = header_facts(trace_files(source.path)[1])
        said = {**stated, **source.said}
        width = said.get("dp", 1)
        if isinstance(width, int) and width > 1:
            message = "chunks of several engines cannot be told apart"
            raise InputError([Problem(place, None, None, message, got=f"dp {width}", allowed="1")])
        trace = read_trace(source.path)
        beside = trace_files(source.path)[0].name
        typical_us = _typical(trace)
        tokens, rejects = _tokens(trace, typical_us, beside)
        refused = None if mode == "real" else f"the trace is {mode}: no server was measured"
        return (_run(trace, tokens, typical_us, rejects, said, stated, refused),)


def _typical(trace: Trace) -> float:
    """Return the median time between a request's chunks [us]."""
    order = np.lexsort((trace.index, trace.request))
    order = order[trace.request[order] >= 0]
    gap = np.diff(trace.time_us[order])[np.diff(trace.request[order]) == 0]
    gap = gap[gap > 0]
    return float(np.median(gap)) if gap.size else 0.0


def _tokens(trace: Trace, typical_us: float, beside: str) -> tuple[_Tokens, list[Reject]]:
    """Return the chunks that are tokens; requests whose chunks do not fit are rejected."""
    order = np.lexsort((trace.index, trace.request))
    order = order[trace.request[order] >= 0]
    owner, ordinal, when = trace.request[order], trace.index[order], trace.time_us[order]
    rejects: list[Reject] = []
    keep: list[Ints] = []
    count = trace.prompt_len.size
    begins = np.searchsorted(owner, np.arange(count), "left")
    ends = np.searchsorted(owner, np.arange(count), "right")
    twin_us = TWIN_SHARE * typical_us
    for number in np.flatnonzero(trace.usable).tolist():
        mine = np.arange(begins[number], ends[number])
        reason = None
        if not np.array_equal(ordinal[mine], np.arange(mine.size)):
            reason = "chunks are missing or repeated"
        elif (np.diff(when[mine]) < 0).any():
            reason = "a chunk is earlier than the one before it"
        else:
            want = int(trace.output_len[number])
            mine = _without_twins(mine, when, want, twin_us)
            if mine.size != want or want == 0:
                reason = f"{ends[number] - begins[number]} chunks for {want} output tokens"
        if reason is None:
            keep.append(mine)
        else:
            trace.usable[number] = False
            rejects.append(Reject(beside, trace.request_lines[number], reason, ""))
    chosen = np.concatenate(keep) if keep else np.empty(0, dtype=np.int64)
    order_in = np.concatenate([np.arange(k.size) for k in keep]) if keep else chosen
    return _Tokens(owner[chosen], order_in, when[chosen]), rejects


def _without_twins(mine: Ints, when: Floats, want: int, twin_us: float) -> Ints:
    """Drop the empty chunk before the first token, and the one after the last."""
    if mine.size > want and mine.size > 1 and when[mine[1]] - when[mine[0]] <= twin_us:
        mine = mine[1:]
    if mine.size > want and mine.size > 1 and when[mine[-1]] - when[mine[-2]] <= twin_us:
        mine = mine[:-1]
    return mine


def _run(
    trace: Trace,
    tokens: _Tokens,
    typical_us: float,
    rejects: list[Reject],
    said: Mapping[str, object],
    stated: Mapping[str, object],
    refused: str | None,
) -> ParsedRun:
    order = np.argsort(tokens.time_us, kind="stable")
    time_us = tokens.time_us[order]
    request, ordinal = tokens.request[order], tokens.order[order]
    gap = np.diff(time_us)
    limit_us = BUNDLE_SHARE * typical_us
    bundle = np.concatenate([np.zeros(min(time_us.size, 1), int), np.cumsum(gap > limit_us)])
    count = int(bundle[-1]) + 1 if bundle.size else 0
    near = np.count_nonzero((gap > 0.5 * limit_us) & (gap < 2.0 * limit_us))
    if refused is None and count > 1 and near > MOST_BETWEEN * count:
        refused = (
            f"bundles of chunks do not separate: {near} of {count} times lie near the limit of "
            f"{limit_us / 1e3:.3g} ms between one step and two"
        )
    at_us = np.full(count, np.nan)
    at_us[bundle[::-1]] = time_us[::-1]  # the earliest of a bundle is written last
    sure = _certain(trace, request, ordinal, bundle, at_us)
    first = ordinal == 0
    known, budget = _prompts_known(said)
    whole = np.bincount(bundle, np.where(first, trace.prompt_len[request], 1), count)
    starts = np.bincount(bundle, first, count) > 0
    sure &= ~starts | (known & (whole <= budget))
    keep = np.flatnonzero(sure)
    inside = sure[bundle]
    by_bundle = np.argsort(bundle[inside], kind="stable")
    owner = request[inside][by_bundle]
    place = ordinal[inside][by_bundle]
    fresh = place == 0
    prompt = trace.prompt_len[owner]
    scheduled = np.where(fresh, prompt, 1)
    computed = np.where(fresh, 0, prompt + place - 1)
    sizes = np.bincount(bundle[inside], minlength=count)[keep]
    offsets = np.concatenate([np.zeros(1, int), np.cumsum(sizes)])
    columns: dict[str, NDArray[np.generic]] = dict(
        request_totals(offsets, scheduled, computed, prompt)
    )
    marks = np.zeros(keep.size, dtype=np.int64)
    if not trace.served_length:
        marks |= mark_bit("context_approximated")
    columns |= {
        "step": keep,
        "start_s": at_us[keep - 1] * 1e-6,
        "duration_s": (at_us[keep] - at_us[keep - 1]) * 1e-6,
        "marks": marks,
    }
    rejected = [*trace.rejects, *rejects]
    return ParsedRun(
        steps=make_steps(keep.size, columns),
        requests=Requests(
            step=np.repeat(keep, sizes),
            engine=np.zeros(owner.size, dtype=np.int64),
            scheduled=scheduled,
            computed=computed,
            prompt_len=prompt,
            cached=np.full(owner.size, 0 if known else UNKNOWN, dtype=np.int64),
        ),
        rejects=tuple(sorted(rejected, key=lambda r: (r.file, r.line))),
        counts=Counts(
            trace.lines, keep.size, trace.lines - keep.size - len(rejected), len(rejected)
        ),
        timing="cycle",
        clock="the client's clock",
        composition="per_request",
        stated={"reader": BlisTraceReader.name, **stated},
        fit_refused_reason=refused,
    )


def _prompts_known(said: Mapping[str, object]) -> tuple[bool, int]:
    """Return whether a prompt's computed tokens are known, and the token budget."""
    budget = said.get("max_num_batched_tokens")
    if said.get("enable_prefix_caching") is not False or not isinstance(budget, int):
        return said.get("enable_prefix_caching") is False, 0
    return True, budget


def _certain(trace: Trace, request: Ints, ordinal: Ints, bundle: Ints, at_us: Floats) -> Bools:
    """Return which bundles are steps with a certain batch and a certain begin."""
    count = at_us.size
    if count == 0:
        return np.zeros(0, dtype=bool)
    numbers = trace.prompt_len.size
    first = np.full(numbers, count, dtype=np.int64)
    last = np.full(numbers, -1, dtype=np.int64)
    np.minimum.at(first, request, bundle)
    np.maximum.at(last, request, bundle)
    seen = last >= 0
    # Every request that runs across a bundle has exactly one chunk in it.
    running = _cover(first[seen] + 1, last[seen] + 1, count)
    continued = np.bincount(bundle, ordinal > 0, count)
    pairs = np.unique(np.stack([bundle, request]), axis=1)[0]
    whole = (continued == running) & (np.bincount(pairs, minlength=count) == np.bincount(bundle))
    spoiled = np.zeros(count, dtype=bool)
    # A request sent before a step began, whose first token came after it, was in it unseen.
    sent = np.searchsorted(at_us, np.where(np.isfinite(trace.send_us), trace.send_us, -np.inf))
    waiting = seen & (sent + 1 < first)
    spoiled |= _cover(sent[waiting] + 1, first[waiting], count) > 0
    # So is the step of that first token, which computed the rest of the prompt.
    spoiled[first[waiting]] = True
    # None gets its token from a step that began before it was sent.
    spoiled[first[seen & (sent >= first)]] = True
    stray = np.searchsorted(at_us, trace.stray_us)
    spoiled[np.clip(np.concatenate([stray - 1, stray, stray + 1]), 0, count - 1)] |= stray.size > 0
    lost = ~trace.usable
    until = _lost_until(trace, at_us)
    spoiled |= _cover(sent[lost], until[lost], count) > 0
    sure = whole & ~spoiled & (running > 0)
    sure[1:] &= whole[:-1]
    sure[0] = False
    # One that continues shows that the engine was not idle before.
    return np.asarray(sure, dtype=bool)


def _cover(begin: Ints, end: Ints, count: int) -> Ints:
    """Return how many of the ranges [begin, end) hold each place."""
    change = np.zeros(count + 1, dtype=np.int64)
    end = np.maximum(end, begin)
    np.add.at(change, np.clip(begin, 0, count), 1)
    np.add.at(change, np.clip(end, 0, count), -1)
    return np.cumsum(change)[:-1]


def _lost_until(trace: Trace, at_us: Floats) -> Ints:
    """Return up to which bundle a request that cannot be used may have run."""
    numbers = trace.prompt_len.size
    known = trace.request >= 0
    final_us = np.full(numbers, -np.inf)
    np.maximum.at(final_us, trace.request[known], trace.time_us[known])
    took = (final_us - trace.send_us)[np.isfinite(final_us) & np.isfinite(trace.send_us)]
    longest = float(took.max()) if took.size else 0.0
    send = np.where(np.isfinite(trace.send_us), trace.send_us, -np.inf)
    final_us = np.where(np.isfinite(final_us), final_us, send + longest)
    final_us = np.where(np.isfinite(trace.send_us), final_us, np.inf)
    return np.searchsorted(at_us, final_us, "right").astype(np.int64) + 1
