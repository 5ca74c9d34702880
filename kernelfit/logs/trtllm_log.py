"""The ``trtllm-log`` reader: iteration lines of TensorRT-LLM (``print_iter_log: true``).

**Whose device time.** ``prev_device_step_time`` is the CUDA-event time of the loop before:
it is given to the row before, if that is the same rank's and the numbers are
consecutive. A row whose successor is missing has no duration and counts as recognised.
After an iteration that scheduled nothing the time has swallowed the idleness; it belongs
to that iteration, which is no step, so it is dropped with it.

**What is not a duration.** ``elapsed_time`` and ``host_step_time`` are the host's loop by
the wall clock: with the overlap scheduler a loop ends while its own forward pass still
runs. A log that prints only them is read with ``wait``, and no fit takes it.

**Composition.** ``num_generation_tokens`` counts the padding of captured graphs, and
drafts. Where it equals the generation requests (scheduled less context requests) each
decodes one token; otherwise the decode counts are unknown. Where the requests are not
printed at all they are unknown too. The KV that was there before, where it is printed,
gives the context; its split between the two attention paths is known where all requests
are of one kind. It may be stale by a token per request.

**Ranks.** Ranks of one tensor-parallel group run the same step, so only the lowest that
prints is kept; with data parallelism in the run document every rank is an engine.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from kernelfit.documents.problems import InputError, Problem
from kernelfit.documents.runs import RunFacts
from kernelfit.logs.columns import MAX_TOKENS, UNKNOWN, Ints, ParsedRun, Requests, make_steps
from kernelfit.logs.coverage import Coverage, LogForm, TimingRule
from kernelfit.logs.marks import mark_bit, warmup_bits
from kernelfit.logs.source import RunSource
from kernelfit.logs.stamps import stamp_s, went_back
from kernelfit.logs.tally import MAX_LINE_BYTES, Tally, log_lines
from kernelfit.logs.trtllm_text import HEADER, WORD, Iteration, ends_clean, iteration_of
from kernelfit.logs.vllm_text import unwrap

COVERAGE = Coverage(
    "trtllm-log",
    "text log of TensorRT-LLM with `print_iter_log: true`",
    (
        LogForm("iter-0.19", "trtllm", "<=0.19", "steps", "`iter = N, … elapsed_time = Xs`"),
        LogForm("iter-0.20", "trtllm", "0.20-1.0rc", "steps", "`num_scheduled_requests: N, `"),
        LogForm("iter-1.0", "trtllm", ">=1.0", "steps", "`host_step_time = …, prev_device_…`"),
        LogForm("iter-kv", "trtllm", "2026-05", "steps", "`kv_cache_util`, `cached_kv_tokens`"),
        LogForm("iter-tail", "trtllm", "2026-07", "steps", "`num_active = …` after the states"),
    ),
    (
        TimingRule(
            "trtllm",
            ">=1.0",
            "prev_device_step_time printed",
            "device",
            True,
            "CUDA-event time, moved to the iteration that it belongs to",
        ),
        TimingRule(
            "trtllm",
            "<=1.0rc",
            "elapsed_time or host_step_time only",
            "wait",
            False,
            "one loop of the host, which may end while its own forward pass runs",
        ),
    ),
)


@dataclass(slots=True)
class _Life:
    """One life of the engine."""

    tally: Tally
    lines: list[Iteration] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    last: dict[int, int] = field(default_factory=dict)
    stamps: dict[int, tuple[float, float]] = field(default_factory=dict)


class _Parser:
    """Line by line, keeping account of every one."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.lives = [_Life(Tally(name))]
        self.is_log = False

    def feed(self, number: int, line: bytes) -> None:
        life = self.lives[-1]
        if b"iter = " not in line or len(line) > MAX_LINE_BYTES:
            head = line[:400].decode("utf-8", "replace")
            self.is_log = self.is_log or HEADER.search(head) is not None
            life.tally.know()
            return
        record = unwrap(line)
        text = record.text
        if record.broken:
            life.tally.reject(number, "the JSON line is cut or damaged", text)
            return
        begin = 0
        while True:
            at = text.find(WORD, begin)
            if at < 0 or (at and text[at - 1] not in " ]\t"):
                if begin == 0:
                    life.tally.know()
                return
            found = iteration_of(text, at)
            if isinstance(found, str):
                self.lives[-1].tally.reject(number, found, text[at:])
                return
            done, end = found
            if text.find(WORD, end) < 0 and not ends_clean(text, end):
                reason = "the iteration line is followed by something not understood"
                self.lives[-1].tally.reject(number, reason, text[at:])
                return
            self._iteration(number, done, text[begin:end])
            begin = end

    def _iteration(self, number: int, done: Iteration, text: str) -> None:
        self.is_log = True
        life = self.lives[-1]
        rank = done.global_rank
        stamp = stamp_s(done.stamp or text)
        before = life.stamps.get(rank)
        back = stamp is not None and before is not None and went_back(before, stamp)
        if life.lines and (back or done.index < life.last.get(rank, -1)):
            life = _Life(Tally(self.name))
            self.lives.append(life)
        if stamp is not None:
            life.stamps[rank] = stamp
        reason = _complaint(done)
        if done.index == life.last.get(rank):
            reason = f"iteration {done.index} of rank {rank} is repeated"
        if reason is not None:
            life.tally.reject(number, reason, text)
            return
        life.last[rank] = done.index
        life.lines.append(done)
        life.numbers.append(number)


def _complaint(done: Iteration) -> str | None:
    """Return why counts that are each possible cannot stand together."""
    tokens = max(done.context_tokens, done.generation_tokens, done.cached_tokens or 0)
    if (
        tokens > MAX_TOKENS * 64
        or max(done.scheduled_requests or 0, done.context_requests) > MAX_TOKENS
    ):
        return "a count is out of range"
    if done.context_tokens < done.context_requests or (
        done.context_requests == 0 and done.context_tokens > 0
    ):
        return "context requests and tokens do not fit: each request has a token"
    if done.scheduled_requests is not None and done.scheduled_requests < done.context_requests:
        return "more context requests than scheduled ones"
    return None


class TrtllmLogReader:
    """Reader of TensorRT-LLM's iteration lines."""

    name = "trtllm-log"
    version = 1
    needs_facts = False
    coverage = COVERAGE

    def files(self, source: RunSource) -> tuple[Path, ...]:
        """Return the log; parameters as ``Reader.files``."""
        return (source.path,)

    def read(self, source: RunSource, facts: RunFacts | None) -> tuple[ParsedRun, ...]:
        """Read a log; parameters and errors as ``Reader.read``."""
        del facts  # the lines say all that is known
        parser = _Parser(source.path.name)
        for number, line, damage in log_lines(source.path):
            if damage is not None:
                parser.lives[-1].tally.reject(number, damage, "")
            else:
                parser.feed(number, line)
        place = str(source.path)
        if not any(life.tally.lines or life.lines for life in parser.lives):
            raise InputError([Problem(place, None, None, "the log is empty")])
        if not any(life.lines for life in parser.lives):
            raise InputError([_no_iteration(place, parser)])
        width = source.said.get("dp")
        every = isinstance(width, int) and width > 1
        return tuple(_run(life, every) for life in parser.lives)


def _no_iteration(place: str, parser: _Parser) -> Problem:
    rejects = [reject for life in parser.lives for reject in life.tally.rejects]
    if rejects:
        first = rejects[0]
        message = f"no usable iteration; the first of {len(rejects)} rejected lines: {first.reason}"
        return Problem(place, first.line, None, message)
    if parser.is_log:
        hint = "start the engine with print_iter_log: true"
        return Problem(place, None, None, "the log holds no iteration line", hint=hint)
    message = "not a log of TensorRT-LLM: no line is recognised"
    return Problem(place, None, None, message, hint="is this the right file, or the right reader?")


def _device_s(lines: list[Iteration]) -> list[float]:
    """Return every line's own device time: the one that its successor prints [s]."""
    own = [float("nan")] * len(lines)
    before: dict[int, int] = {}
    for place, line in enumerate(lines):
        earlier = before.get(line.global_rank)
        consecutive = earlier is not None and lines[earlier].index + 1 == line.index
        if earlier is not None and consecutive and line.previous_device_s is not None:
            own[earlier] = line.previous_device_s
        before[line.global_rank] = place
    return own


def _idle(line: Iteration) -> bool:
    if line.scheduled_requests is not None:
        return line.scheduled_requests == 0
    return line.context_tokens + line.generation_tokens == 0


def _run(life: _Life, every_rank: bool) -> ParsedRun:
    device = any(line.previous_device_s is not None for line in life.lines)
    if device:
        took = _device_s(life.lines)
    else:
        took = [
            float("nan") if (s := line.elapsed_s or line.host_s) is None else s
            for line in life.lines
        ]
    lowest = min((line.global_rank for line in life.lines), default=0)
    kept = [
        place
        for place, line in enumerate(life.lines)
        if (every_rank or line.global_rank == lowest)
        and not _idle(line)
        and took[place] == took[place]
    ]
    life.tally.know(len(life.lines) - len(kept))
    life.tally.lines += len(kept)
    rows = [life.lines[place] for place in kept]
    steps = make_steps(len(rows), _columns(rows, np.array([took[p] for p in kept], dtype=float)))
    refused = None
    if not device:
        refused = (
            "timing is wait: the log prints only the time of the host's loop, which may end "
            "while its own forward pass still runs (prev_device_step_time is printed by 1.0 "
            "and later)"
        )
    return ParsedRun(
        steps=steps,
        requests=Requests.none(),
        rejects=tuple(life.tally.rejects),
        counts=life.tally.counts(),
        timing="device" if device else "wait",
        clock="none: lines are stamped in whole seconds",
        composition="aggregated",
        stated={"engine": "trtllm", "reader": TrtllmLogReader.name},
        fit_refused_reason=refused,
    )


def _columns(
    rows: list[Iteration], duration_s: np.ndarray[tuple[int], np.dtype[np.float64]]
) -> dict[str, np.ndarray[tuple[int, ...], np.dtype[np.generic]]]:
    def ints(values: list[int | None]) -> Ints:
        return np.array([UNKNOWN if v is None else v for v in values], dtype=np.int64)

    scheduled = ints([row.scheduled_requests for row in rows])
    context = ints([row.context_requests for row in rows])
    context_tokens = ints([row.context_tokens for row in rows])
    generation_tokens = ints([row.generation_tokens for row in rows])
    cached = ints([row.cached_tokens for row in rows])
    usage = np.array([np.nan if r.kv_usage is None else r.kv_usage for r in rows], dtype=float)
    known = scheduled != UNKNOWN
    generation = np.where(known, scheduled - context, 0)
    # Padding of captured graphs, or drafts, unless each request has one token.
    plain = known & (generation_tokens == generation)
    few = plain & (context <= 1)
    single = (context == 1) & (context_tokens == 1)
    before = cached != UNKNOWN
    all_decode = few & ((context == 0) | single)
    all_prefill = plain & (generation == 0) & (context == 1) & ~single
    total = cached + context_tokens + generation
    step = ints([row.index for row in rows])
    engine = ints([row.global_rank for row in rows])
    marks = (known & ~plain) * mark_bit("padded_or_spec") + (duration_s == 0) * mark_bit(
        "zero_duration"
    )
    for one in np.unique(engine):
        mine = engine == one
        marks[mine] |= warmup_bits(step[mine], duration_s[mine])
    lone_pairs = context_tokens * np.maximum(cached, 0) + context_tokens * (context_tokens + 1) // 2

    def where(good: np.ndarray[tuple[int, ...], np.dtype[np.bool_]], values: Ints) -> Ints:
        return np.where(good, values, UNKNOWN)

    nothing = np.zeros_like(total)
    return {
        "step": step,
        "engine": engine - engine.min(initial=0),
        "duration_s": duration_s,
        "requests": scheduled,
        "scheduled_tokens": context_tokens + generation_tokens,
        "context_tokens": where(before & plain, total),
        "decode_requests": where(few, generation + single),
        "decode_context_tokens": where(
            before & (all_decode | all_prefill), np.where(all_decode, total, nothing)
        ),
        "decode_pairs": where(
            before & (all_decode | all_prefill), np.where(all_decode, total, nothing)
        ),
        "prefill_context_tokens": where(
            before & (all_decode | all_prefill), np.where(all_decode, nothing, total)
        ),
        "prefill_pairs": where(
            before & (all_decode | all_prefill), np.where(all_decode, nothing, lone_pairs)
        ),
        "past_prompt_requests": where(plain, generation),
        "past_prompt_tokens": where(plain, generation),
        "in_prompt_requests": where(plain, context),
        "in_prompt_tokens": where(plain, context_tokens),
        "kv_usage": usage,
        "marks": marks,
    }
