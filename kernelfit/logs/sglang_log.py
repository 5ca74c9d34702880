"""The ``sglang-log`` reader: batch lines of SGLang's text logs.

A line per prefill batch, and one in forty decode steps. No line states how long a step
took: ``gen throughput`` is tokens by the wall time since the decode line before, prefill
batches and idleness between them included, and ``input throughput`` has changed whose
tokens it counts. So the rows have a composition and no duration, and no fit takes them.
The one mean that the lines allow stands in the table of intervals: between two decode
lines with the same requests, no prefill line, no drafts, and exactly the tokens that the
steps between them must have added, a decode step took the requests by the throughput.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from kernelfit.documents.problems import InputError, Problem
from kernelfit.documents.runs import RunFacts
from kernelfit.logs.columns import MAX_TOKENS, UNKNOWN, ParsedRun, Requests, make_steps
from kernelfit.logs.coverage import Coverage, LogForm, TimingRule
from kernelfit.logs.intervals import Interval
from kernelfit.logs.redact import value_shown
from kernelfit.logs.sglang_text import (
    FACT_LINE,
    HEADER,
    START,
    Batch,
    batch_of,
    facts_of,
    split_batches,
)
from kernelfit.logs.source import RunSource
from kernelfit.logs.stamps import stamp_s, went_back
from kernelfit.logs.tally import MAX_LINE_BYTES, Tally, log_lines
from kernelfit.logs.vllm_text import unwrap

DECODE_LOG_INTERVAL = 40
"""Decode steps between two decode lines where the start does not say [steps]."""

_WORDS = (b"Prefill batch", b"Decode batch", b"new fill batch", b"#running-req")
# A prompt may quote a line; requests are logged with these words.
_QUOTED = ("Receive: obj=", "Finish: obj=", "input_ids", "text=")
_REFUSED = (
    "timing is wait: SGLang's text log states no duration of a step, only throughputs over "
    "several steps and the idleness between them; use its forward pass metrics (sglang-fpm)"
)

COVERAGE = Coverage(
    "sglang-log",
    "text log of `sglang.launch_server`",
    (
        LogForm("prefill-0.2", "sglang", "0.1-0.2", "steps", "`new fill batch. #seq: … `"),
        LogForm("prefill-0.3", "sglang", "0.3-0.4.3", "steps", "`Prefill batch. … cache hit rate`"),
        LogForm("prefill", "sglang", ">=0.4.4", "steps", "`Prefill batch. #new-seq: …`"),
        LogForm("prefill-mixed", "sglang", ">=0.3", "steps", "`(mixed #running-req: N)`"),
        LogForm("prefill-pd", "sglang", ">=0.4.6", "steps", "disaggregated: `#unbootstrapped-req`"),
        LogForm("prefill-index", "sglang", ">=0.5.4", "steps", "`Prefill batch [N], …`"),
        LogForm("decode-0.2", "sglang", "0.1-0.2", "steps", "`#running-req: …, #token: …`"),
        LogForm("decode-0.3", "sglang", "0.3-0.4.3", "steps", "`Decode batch. #running-req: …`"),
        LogForm("decode", "sglang", ">=0.4.4", "steps", "`Decode batch`, `cuda graph: True`"),
        LogForm("decode-spec", "sglang", ">=0.4.4", "intervals", "`accept len: …`"),
        LogForm("decode-index", "sglang", ">=0.5.4", "steps", "`Decode batch [N], …`"),
        LogForm("decode-hybrid", "sglang", ">=0.5.1", "steps", "`#full token`, `swa token usage`"),
        LogForm("custom-header", "sglang", "any", "steps", "`… INFO pid [DP3 TP3 file.py:N] `"),
        LogForm("server-args", "sglang", "any", "facts", "`server_args=ServerArgs(…)`"),
        LogForm("pool", "sglang", ">=0.3", "facts", "`max_total_num_tokens=…`"),
    ),
    (TimingRule("sglang", "all", "all", "wait", False, "no line states the time of a step"),),
)


@dataclass(slots=True)
class _Window:
    """The last decode line of an engine."""

    running: int
    tokens: int | None
    prefilled: bool = False


@dataclass(slots=True)
class _Life:
    """One life of the server."""

    tally: Tally
    rows: list[tuple[int, int, int, int, int, int, float]] = field(default_factory=list)
    intervals: list[Interval] = field(default_factory=list)
    stated: dict[str, object] = field(default_factory=dict)
    startup: dict[str, object] = field(default_factory=dict)
    last: dict[int, int] = field(default_factory=dict)
    windows: dict[int, _Window] = field(default_factory=dict)
    stamps: dict[int, tuple[float, float]] = field(default_factory=dict)
    printed: bool = False


class _Parser:
    """Line by line, keeping account of every one."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.lives = [_Life(Tally(name))]
        self.is_log = False

    def _begin(self) -> _Life:
        self.lives.append(_Life(Tally(self.name)))
        return self.lives[-1]

    def feed(self, number: int, line: bytes) -> None:
        life = self.lives[-1]
        if len(line) > MAX_LINE_BYTES:
            life.tally.know()
            return
        fact = FACT_LINE.search(line) is not None
        if not fact and not any(word in line for word in _WORDS):
            self.is_log = (
                self.is_log or HEADER.search(line[:300].decode("utf-8", "replace")) is not None
            )
            life.tally.know()
            return
        record = unwrap(line)
        text = record.text
        if any(word in text for word in _QUOTED) and START not in text:
            life.tally.know()
        elif record.broken:
            life.tally.reject(number, "the JSON line is cut or damaged", text)
        elif fact and START in text:
            self._start(text)
        elif not (records := split_batches(text)):
            self._facts(text)
            self.lives[-1].tally.know()
        else:
            for begin, end, match in records:
                if HEADER.search(text, begin, match.start() + 1) is None:
                    # Without a header it is somebody's quotation.
                    self.lives[-1].tally.know()
                    continue
                self.is_log = True
                batch = batch_of(text, match, end, begin)
                whole = line.endswith(b"\n") or end < len(text)
                if isinstance(batch, str):
                    self.lives[-1].tally.reject(number, batch, text[begin:end])
                else:
                    self._batch(number, text[begin:end], batch, whole)

    def _start(self, text: str) -> None:
        life = self.lives[-1]
        if life.rows or life.intervals or life.stated:
            life = self._begin()
        self._facts(text)
        life.tally.know()
        self.is_log = True

    def _facts(self, text: str) -> None:
        facts, other = facts_of(text)
        life = self.lives[-1]
        # Every rank prints its own pool; the smallest is what all can hold.
        held, new = life.startup.get("kv_cache_tokens"), other.get("kv_cache_tokens")
        if isinstance(held, int) and isinstance(new, int):
            other["kv_cache_tokens"] = min(held, new)
        life.stated |= facts
        life.startup |= other

    def _batch(self, number: int, text: str, batch: Batch, whole: bool) -> None:
        life = self.lives[-1]
        if batch.tp_rank or batch.pp_rank:
            life.tally.know()  # the same batch, seen from another rank
            return
        complaint = _complaint(batch) or (
            None if whole else "the last line has no end: its last number may be cut"
        )
        if complaint is not None:
            life.tally.reject(number, complaint, text)
            return
        engine = batch.dp_rank
        stamp = stamp_s(text)
        before = life.stamps.get(engine)
        back = stamp is not None and before is not None and went_back(before, stamp)
        fell = batch.index is not None and batch.index < life.last.get(engine, -1)
        if (back or fell) and (life.rows or life.intervals):
            life = self._begin()
        if stamp is not None:
            life.stamps[engine] = stamp
        if batch.index is not None and batch.index == life.last.get(engine) and life.printed:
            life.tally.reject(number, f"batch {batch.index} of engine {engine} is repeated", text)
            return
        step = batch.index if batch.index is not None else life.last.get(engine, -1) + 1
        life.printed = life.printed or batch.index is not None
        after = life.last.get(engine)
        life.last[engine] = step
        usage = batch.number("token usage", "full token usage")
        share = float("nan") if usage is None else usage
        if batch.kind == "prefill":
            new, tokens = batch.count("#new-seq", "#seq"), batch.count("#new-token", "#new_token")
            life.rows.append((engine, step, new or 0, tokens or 0, batch.mixed, number, share))
            life.tally.lines += 1
            if engine in life.windows:
                life.windows[engine].prefilled = True
            return
        life.intervals.append(_interval(life, number, engine, after, batch, share))
        running = batch.count("#running-req") or 0
        if running == 0 or _drafts(batch):
            life.tally.know()  # how many tokens were verified is not printed
        else:
            life.rows.append((engine, step, 0, 0, running, number, share))
            life.tally.lines += 1


def _drafts(batch: Batch) -> bool:
    return any(key in batch.values for key in ("accept len", "accept rate", "block accept len"))


def _complaint(batch: Batch) -> str | None:
    """Return what is wrong with a batch; a line that was cut lacks its last keys."""
    for key, value in batch.values.items():
        if key.startswith("#") and (batch.count(key) is None):
            return f"{key} is not a count (got {value_shown(value)})"
        if batch.count(key) is not None and key.startswith("#") and int(value) > MAX_TOKENS * 64:
            return f"{key} is out of range"
    usage = batch.values.get("token usage")
    if usage is not None and not 0 <= (batch.number("token usage") or 0.0) <= 1:
        return f"token usage is not a share (got {value_shown(usage)})"
    if batch.kind == "decode":
        needed: tuple[tuple[str, ...], ...] = (("#running-req",), ("#queue-req",))
    else:
        needed = (
            ("#new-seq", "#seq"),
            ("#new-token", "#new_token"),
            ("#queue-req", "#remaining_req"),
        )
    for names in needed:
        if not any(name in batch.values for name in names):
            return f"the batch line is cut: {names[0]} is missing"
    if batch.kind == "prefill":
        new, tokens = batch.count("#new-seq", "#seq"), batch.count("#new-token", "#new_token")
        if not new or not tokens or tokens < new:
            return "requests and tokens do not fit: each request has a token"
    return None


def _interval(
    life: _Life, number: int, engine: int, after: int | None, batch: Batch, usage: float
) -> Interval:
    rate = batch.number("gen throughput (token/s)")
    running = batch.count("#running-req")
    tokens = batch.count("#token", "#full token")
    every = life.startup.get("decode_log_interval_steps", DECODE_LOG_INTERVAL)
    before = life.windows.get(engine)
    step_s = None
    if (
        before is not None
        and running
        and rate
        and not before.prefilled
        and before.running == running
        and "#token" in batch.values
        and tokens is not None
        and before.tokens is not None
        and tokens - before.tokens == running * int(str(every))
        and not _drafts(batch)
    ):
        step_s = running / rate
    life.windows[engine] = _Window(running or 0, tokens)
    return Interval(
        "throughput",
        number,
        engine=engine,
        after_step=after,
        generation_tokens_per_s=rate,
        running_requests=running,
        waiting_requests=batch.count("#queue-req"),
        kv_tokens=tokens,
        kv_usage=None if np.isnan(usage) else usage,
        mean_acceptance_length_tokens=batch.number("accept len"),
        acceptance_rate=batch.number("accept rate"),
        step_s=step_s,
    )


class SglangLogReader:
    """Reader of SGLang's text logs."""

    name = "sglang-log"
    version = 1
    needs_facts = False
    coverage = COVERAGE

    def files(self, source: RunSource) -> tuple[Path, ...]:
        """Return the log; parameters as ``Reader.files``."""
        return (source.path,)

    def read(self, source: RunSource, facts: RunFacts | None) -> tuple[ParsedRun, ...]:
        """Read a log; parameters and errors as ``Reader.read``."""
        del facts  # the log states its own
        parser = _Parser(source.path.name)
        for number, line, damage in log_lines(source.path):
            if damage is not None:
                parser.lives[-1].tally.reject(number, damage, "")
            else:
                parser.feed(number, line)
        _settle(parser.lives)
        place = str(source.path)
        if not any(life.tally.lines for life in parser.lives):
            raise InputError([Problem(place, None, None, "the log is empty")])
        if not any(life.rows or life.intervals for life in parser.lives):
            raise InputError([_no_batch(place, parser)])
        return tuple(_run(life) for life in parser.lives)


def _settle(lives: list[_Life]) -> None:
    """Leave the lines of a start that never ran a batch with the run before it."""
    while len(lives) > 1 and not (lives[-1].rows or lives[-1].intervals):
        last = lives.pop()
        lives[-1].tally.absorb(last.tally)


def _no_batch(place: str, parser: _Parser) -> Problem:
    rejects = [reject for life in parser.lives for reject in life.tally.rejects]
    if rejects:
        first = rejects[0]
        message = f"no usable batch; the first of {len(rejects)} rejected lines: {first.reason}"
        return Problem(place, first.line, None, message)
    if parser.is_log:
        return Problem(place, None, None, "the log holds no line of a batch")
    message = "not a log of SGLang: no line is recognised"
    return Problem(place, None, None, message, hint="is this the right file, or the right reader?")


def _run(life: _Life) -> ParsedRun:
    count = len(life.rows)
    table = np.array(life.rows, dtype=np.float64).reshape(count, 7)
    engine, step, new, tokens, running = table[:, :5].astype(np.int64).T
    few = (new == 0) | ((new == 1) & (running >= 0))
    steps = make_steps(
        count,
        {
            "step": step,
            "engine": engine,
            "requests": new + running,
            "scheduled_tokens": tokens + running,
            "decode_requests": np.where(few, running + ((new == 1) & (tokens == 1)), UNKNOWN),
            "past_prompt_requests": running,
            "past_prompt_tokens": running,
            "in_prompt_requests": new,
            "in_prompt_tokens": tokens,
            "kv_usage": table[:, 6],
        },
    )
    return ParsedRun(
        steps=steps,
        requests=Requests.none(),
        rejects=tuple(life.tally.rejects),
        counts=life.tally.counts(),
        timing="wait",
        clock="none: lines are stamped in whole seconds",
        composition="aggregated",
        stated={"engine": "sglang", "reader": SglangLogReader.name, **life.stated},
        fit_refused_reason=_REFUSED,
        intervals=tuple(life.intervals),
        startup=life.startup,
    )
