"""The ``vllm-log`` reader: ``Iteration(...)`` lines of vLLM's text logs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from kernelfit.documents.problems import InputError, Problem
from kernelfit.documents.runs import RunFacts
from kernelfit.logs.columns import (
    MAX_TOKENS,
    UNKNOWN,
    Counts,
    Ints,
    ParsedRun,
    Reject,
    Requests,
    Steps,
    make_steps,
    mark_bit,
    warmup_bits,
)
from kernelfit.logs.lines import MAX_TEXT_CHARACTERS, TruncatedFile, read_lines
from kernelfit.logs.redact import value_shown
from kernelfit.logs.source import RunSource
from kernelfit.logs.vllm_facts import FACT_LINE, INITIALIZING, facts_of
from kernelfit.logs.vllm_text import is_header, process_of, unwrap

_WORD = "Iteration("
_ITERATION = re.compile(
    r"Iteration\((\d{1,12})\): (\d{1,12}) context requests, (\d{1,12}) context tokens, "
    r"(\d{1,12}) generation requests, (\d{1,12}) generation tokens, "
    r"iteration elapsed time: (\d{1,12}(?:\.\d{1,12})?) ms( \(dummy\))?"
    r"(?:, [\w+ ]+? KV cache usage: (\d{1,12}(?:\.\d{1,12})?)%)?"
    r"(?:, encoder inputs: \d+, encoder output embeddings: \d+)?"
)
_LOOSE = re.compile(
    r"Iteration\(([^)]*)\): (\S+) context requests, (\S+) context tokens, "
    r"(\S+) generation requests, (\S+) generation tokens, iteration elapsed time: (\S+) ms"
)
_LOOSE_NAMES = (
    "iteration",
    "context requests",
    "context tokens",
    "generation requests",
    "generation tokens",
    "elapsed time",
)
_ENGINE = re.compile(r"Engine (\d{3}): $")
# What may follow a complete record: later versions' fields, boxes, Ray's repeat note.
_TAIL = re.compile(r"(?:, [\w ./+-]+: [\w.%+-]+)*[\s│|]*(?:\[repeated \d+x[^\]]*\])?[\s│|]*$")
# A prompt or an answer may quote a log line; it is never a step, and never stored.
_QUOTED = re.compile(r"Received request|Generated response|prompt: |prompt_token_ids|output: ")
_CLOCKS = {
    "printed": "printed lines: month and day, whole seconds, no year",
    "dated_ms": "printed lines: date and milliseconds",
    "container": "printed lines: stamp of the container runtime",
}


@dataclass(slots=True)
class _Life:
    """One life of the engine: what was read between two starts."""

    rows: list[tuple[int, int, int, int, int, int, float, float]] = field(default_factory=list)
    rejects: list[Reject] = field(default_factory=list)
    stated: dict[str, object] = field(default_factory=dict)
    last: dict[int, int] = field(default_factory=dict)
    pids: dict[int, int] = field(default_factory=dict)
    stamp: str = "printed"
    lines: int = 0
    recognised: int = 0


class _Parser:
    """Line by line, keeping account of every one."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.lives = [_Life()]
        self.is_log = False

    def feed(self, number: int, line: bytes) -> None:
        if b"Iteration(" in line:
            self._iteration(number, line)
            return
        if FACT_LINE.search(line) is not None:
            self._fact(line)
        elif not self.is_log:
            self.is_log = is_header(line)
        self.lives[-1].lines += 1
        self.lives[-1].recognised += 1

    def reject(self, number: int, reason: str, text: str) -> None:
        life = self.lives[-1]
        life.lines += 1
        life.rejects.append(Reject(self.name, number, reason, text[:MAX_TEXT_CHARACTERS]))

    def _fact(self, line: bytes) -> None:
        self.is_log = self.is_log or is_header(line)
        text = unwrap(line).text
        if _QUOTED.search(text):
            return
        if INITIALIZING.search(text) and self.lives[-1].rows:
            self.lives.append(_Life())
        self.lives[-1].stated |= facts_of(text)

    def _iteration(self, number: int, line: bytes) -> None:
        record = unwrap(line)
        text = record.text
        if record.broken:
            at = max(text.find(_WORD), 0)
            if _QUOTED.search(text):
                self._recognise()
            else:
                self.reject(number, "the JSON line is cut or damaged", text[at:])
            return
        begin = 0
        while True:
            at = text.find(_WORD, begin)
            prefix = text[begin:at]
            if at < 0:
                if begin == 0:
                    self._recognise()
                return
            if _QUOTED.search(prefix) or (prefix and prefix[-1] not in " \t\n])>|:-"):
                self._recognise()
                return
            found = _ITERATION.match(text, at)
            more = -1 if found is None else text.find(_WORD, found.end())
            tail = "" if found is None else text[found.end() : more if more >= 0 else None]
            if found is None or (more < 0 and _TAIL.match(tail) is None):
                self.reject(number, _why(text[at:]), text[at:])
                return
            said = _ENGINE.search(prefix)
            engine, pid = process_of(prefix, record)
            engine = int(said.group(1)) if said else engine or 0
            self.lives[-1].stamp = record.stamp
            self._step(number, text[at : found.end()], found, engine, pid)
            begin = found.end()

    def _recognise(self) -> None:
        self.lives[-1].lines += 1
        self.lives[-1].recognised += 1

    def _step(
        self, number: int, text: str, found: re.Match[str], engine: int, pid: int | None
    ) -> None:
        self.is_log = True
        index, context, context_tokens, generation, generation_tokens = (
            int(found.group(k)) for k in range(1, 6)
        )
        life = self.lives[-1]
        fell = index < life.last.get(engine, -1)
        moved = pid is not None and life.pids.get(engine, pid) != pid
        if (fell or moved) and life.rows:
            life = _Life(stamp=life.stamp)
            self.lives.append(life)
        if index == life.last.get(engine):
            self.reject(number, f"iteration {index} of engine {engine} is repeated", text)
            return
        if max(context_tokens, generation_tokens, index) > MAX_TOKENS * 64:
            self.reject(number, "a count is out of range", text)
            return
        life.last[engine] = index
        if pid is not None:
            life.pids[engine] = pid
        if found.group(7) or max(context, context_tokens, generation, generation_tokens) == 0:
            # A data-parallel peer's dummy step, or a step without work.
            self._recognise()
            return
        if (
            context_tokens < context
            or generation_tokens < generation
            or ((context == 0) != (context_tokens == 0))
            or ((generation == 0) != (generation_tokens == 0))
        ):
            self.reject(number, "requests and tokens do not fit: each request has a token", text)
            return
        usage = float(found.group(8)) / 100 if found.group(8) else float("nan")
        if usage > 1:
            self.reject(number, f"KV cache usage above 100 % (got {found.group(8)})", text)
            return
        life.lines += 1
        elapsed_s = float(found.group(6)) * 1e-3
        life.rows.append(
            (
                engine,
                index,
                context,
                context_tokens,
                generation,
                generation_tokens,
                elapsed_s,
                usage,
            )
        )


def _why(text: str) -> str:
    """Return what is wrong with a step line that does not parse."""
    loose = _LOOSE.match(text)
    if loose is None:
        return "the step line is cut or not understood"
    for name, value in zip(_LOOSE_NAMES, loose.groups(), strict=True):
        try:
            number = float(value)
        except ValueError:
            return f"{name} is not a number (got {value_shown(value)})"
        if not np.isfinite(number):
            return f"{name} is not a finite number (got {value_shown(value)})"
        if number < 0:
            return f"{name} is negative (got {value_shown(value)})"
        if name != "elapsed time" and not value.isdigit():
            return f"{name} is not a whole number (got {value_shown(value)})"
    return "the step line is cut or followed by something not understood"


def iteration_tokens(path: Path) -> Iterator[tuple[int, int, int]]:
    """Yield what each printed step scheduled.

    Parameters
    ----------
    path : pathlib.Path
        A text log of vLLM.

    Yields
    ------
    tuple of (int, int, int)
        Engine, iteration index, and context plus generation tokens [tokens].
    """
    for life in _parse(path).lives:
        for engine, index, _, context_tokens, _, generation_tokens, _, _ in life.rows:
            yield engine, index, context_tokens + generation_tokens


def _parse(path: Path) -> _Parser:
    parser = _Parser(path.name)
    number = 0
    try:
        for number, line in read_lines(path):
            parser.feed(number, line)
    except TruncatedFile as error:
        parser.reject(number + 1, f"the compressed file ends early or is damaged: {error}", "")
    # A restart that never took a step is no run; its lines stay with the one before.
    while len(parser.lives) > 1 and not parser.lives[-1].rows:
        last, before = parser.lives.pop(), parser.lives[-1]
        before.lines += last.lines
        before.recognised += last.recognised
        before.rejects += last.rejects
    return parser


class VllmLogReader:
    """Reader of vLLM's text logs with ``--enable-logging-iteration-details``.

    The printed time covers only the wait for the result: with asynchronous scheduling
    or pipeline parallelism it leaves out what was overlapped, and in synchronous mode
    it leaves out scheduling, submission (which is the whole step on an in-process
    executor) and the update. So the timing is always ``wait``.
    """

    name = "vllm-log"
    version = 1
    needs_facts = False

    def files(self, source: RunSource) -> tuple[Path, ...]:
        """Return the log; parameters as ``Reader.files``."""
        return (source.path,)

    def read(self, source: RunSource, facts: RunFacts | None) -> tuple[ParsedRun, ...]:
        """Read a log; parameters and errors as ``Reader.read``."""
        del facts  # the log states its own
        parser = _parse(source.path)
        place = str(source.path)
        if not any(life.lines for life in parser.lives):
            raise InputError([Problem(place, None, None, "the log is empty")])
        if not any(life.rows for life in parser.lives):
            raise InputError([_no_step(place, parser)])
        return tuple(_run(life) for life in parser.lives)


def _no_step(place: str, parser: _Parser) -> Problem:
    rejects = [reject for life in parser.lives for reject in life.rejects]
    if rejects:
        first = rejects[0]
        message = f"no usable step; the first of {len(rejects)} rejected lines: {first.reason}"
        return Problem(place, first.line, None, message)
    if parser.is_log:
        hint = "start the engine with --enable-logging-iteration-details"
        return Problem(place, None, None, "the log holds no Iteration(...) line", hint=hint)
    message = "not a log of vLLM: no line is recognised"
    return Problem(place, None, None, message, hint="is this the right file, or the right reader?")


def _run(life: _Life) -> ParsedRun:
    steps = _steps(life)
    asynchronous = life.stated.get("async_scheduling")
    if asynchronous is None:
        detail = "asynchronous scheduling is not known to be off"
    elif asynchronous:
        detail = "asynchronous scheduling is on"
    else:
        detail = "scheduling, submission and update are left out"
    return ParsedRun(
        steps=steps,
        requests=Requests.none(),
        rejects=tuple(life.rejects),
        counts=Counts(life.lines, len(life.rows), life.recognised, len(life.rejects)),
        timing="wait",
        clock=_CLOCKS[life.stamp],
        composition="aggregated",
        stated={"engine": "vllm", "reader": VllmLogReader.name, **life.stated},
        fit_refused_reason=(
            f"timing is wait: the printed time is only the wait for the result ({detail}); "
            "record the run with kernelfit's recorder instead"
        ),
    )


def _steps(life: _Life) -> Steps:
    count = len(life.rows)
    if count == 0:
        return make_steps(0, {})
    table = np.array(life.rows, dtype=np.float64)  # counts are far below 2**53
    ints: Ints = table[:, :6].astype(np.int64)
    engine, index, context, context_tokens, generation, generation_tokens = ints.T
    elapsed_s = table[:, 6]
    # Without drafts and resumed requests every generation request has one token.
    plain = generation_tokens == generation
    few = plain & (context <= 1)
    marks = (~plain) * mark_bit("resume_or_spec") + (elapsed_s == 0) * mark_bit("zero_duration")
    for one in np.unique(engine):
        rows = engine == one
        marks[rows] |= warmup_bits(index[rows], elapsed_s[rows])

    def known(values: Ints, where: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> Ints:
        return np.where(where, values, UNKNOWN)

    return make_steps(
        count,
        {
            "step": index,
            "engine": engine,
            "duration_s": elapsed_s,
            "wait_s": elapsed_s,
            "requests": context + generation,
            "scheduled_tokens": context_tokens + generation_tokens,
            "decode_requests": known(generation + (context_tokens == 1), few),
            "past_prompt_requests": known(generation, plain),
            "past_prompt_tokens": known(generation_tokens, plain),
            "in_prompt_requests": known(context, plain),
            "in_prompt_tokens": known(context_tokens, plain),
            "kv_usage": table[:, 7],
            "marks": marks,
        },
    )
