"""The ``vllm-log`` reader: text logs of vLLM 0.6 to 0.33.

Step lines (``Iteration(...)``) become steps, lines about stretches of time become
intervals, start-up lines become facts of the run, and everything else counts as recognised.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kernelfit.documents.problems import InputError, Problem
from kernelfit.documents.runs import RunFacts
from kernelfit.logs.columns import (
    UNKNOWN,
    Ints,
    ParsedRun,
    Requests,
    Steps,
    make_steps,
    mark_bit,
    warmup_bits,
)
from kernelfit.logs.lines import TruncatedFile, read_blocks
from kernelfit.logs.source import RunSource
from kernelfit.logs.vllm_coverage import COVERAGE
from kernelfit.logs.vllm_facts import (
    FACT_WORDS,
    INITIALIZING,
    facts_of,
    startup_merged,
    startup_of,
)
from kernelfit.logs.vllm_intervals import WORDS, intervals_of
from kernelfit.logs.vllm_lines import QUOTED, Printed, Unusable, printed_steps
from kernelfit.logs.vllm_lives import Life, Lives
from kernelfit.logs.vllm_shapes import STAMP_KINDS, Rows, Shapes
from kernelfit.logs.vllm_text import is_header, process_of, unwrap

BLOCK_BYTES = 1 << 22
"""Bytes that are looked at together: enough lines for arithmetic on all of them at once,
few enough that they stay near the processor [bytes]."""

_STEP = b"Iteration("
_SPECIAL = str.maketrans({c: f"\\{c}" for c in "()#.|*+[]"})
_INTERESTING = (
    "|".join(word.translate(_SPECIAL) for word in (_STEP.decode(), *FACT_WORDS, *WORDS))
    + r"|\| *\d+ *\| *\d+ *\| *\d+ *\| *[A-Z_]+ *\| *\d+ *\|"
)
_MOST_TRIES = 8
_LineOf = Callable[[int], bytes]
_CLOCKS = {
    "printed": "printed lines: month and day, whole seconds, no year",
    "dated_ms": "printed lines: date and milliseconds",
    "container": "printed lines: stamp of the container runtime",
}


class _Parser:
    """Block by block, keeping account of every line."""

    def __init__(self, name: str, shapes: Shapes | None) -> None:
        self.lives = Lives(name)
        self.is_log = False
        self._shapes = shapes

    def feed(self, first: int, block: bytes) -> None:
        """Read whole lines, the first of which has the given number."""
        data = np.frombuffer(block, dtype=np.uint8)
        ends = np.flatnonzero(data == 10)
        if not ends.size or ends[-1] != data.size - 1:
            ends = np.append(ends, data.size)
        begins = np.concatenate([np.zeros(1, dtype=np.int64), ends[:-1] + 1])
        lines = np.arange(ends.size)

        def line(place: int) -> bytes:
            return block[begins[place] : ends[place]]

        found: list[Rows] = []
        if self._shapes is not None:
            rows, lines = self._shapes.match(block, lines, begins, ends)
            found += [] if rows is None else [rows]
        careful = _interesting(block, ends, lines)
        if not self.is_log:
            self.is_log = bool(found) or any(is_header(line(p)) for p in lines.tolist())
        if self._shapes is not None:
            more, careful = self._learn(block, careful, begins, ends)
            found += more
        rows = Rows.joined(found) if found else None
        self._in_order(first, rows, np.sort(careful), ends.size, line)

    def _learn(
        self, block: bytes, careful: Ints, begins: Ints, ends: Ints
    ) -> tuple[list[Rows], Ints]:
        """Learn shapes from lines that fit none, as long as that helps."""
        found: list[Rows] = []
        taken = np.zeros(ends.size, dtype=bool)
        tries = 0
        for place in careful.tolist():
            text = block[begins[place] : ends[place]]
            if taken[place] or _STEP not in text or self._shapes is None:
                continue
            tries += 1
            if tries > _MOST_TRIES:
                break
            steps = printed_steps(text)
            if len(steps) != 1 or not isinstance(steps[0], Printed):
                continue
            if self._shapes.learn(text, steps[0]):
                rows, careful = self._shapes.match(block, careful, begins, ends, newest=True)
                if rows is not None:
                    found.append(rows)
                    taken[rows.place] = True
        return found, careful

    def _in_order(
        self, first: int, rows: Rows | None, careful: Ints, count: int, line: _LineOf
    ) -> None:
        """Take in a block's rows and its other lines in the order of the file."""
        at = row = 0
        stops = [*careful.tolist(), count]
        cuts = [0] * len(stops) if rows is None else np.searchsorted(rows.place, stops).tolist()
        for stop, cut in zip(stops, cuts, strict=True):
            if rows is not None and cut > row:

                def one_by_one(begin: int = at, end: int = stop) -> None:
                    for place in range(begin, end):
                        self._line(first + place, line(place))

                if self.lives.take(rows.take(slice(row, cut)), one_by_one):
                    self.lives.now.tally.know(stop - at - (cut - row))
                    self.is_log = True
            else:
                self.lives.now.tally.know(stop - at)
            if stop < count:
                self._line(first + stop, line(stop))
            at, row = stop + 1, cut

    def _line(self, number: int, line: bytes) -> None:
        """Read one line with care."""
        if _STEP in line:
            self._steps(number, line)
            return
        record = unwrap(line)
        text = record.text
        if QUOTED.search(text):
            self.lives.now.tally.know()
            return
        if INITIALIZING.search(text) and not self.lives.now.empty:
            self.lives.begin()
        life = self.lives.now
        facts, startup = facts_of(text), startup_of(text)
        life.stated |= facts
        life.startup = startup_merged(life.startup, startup)
        engine = process_of(text, record)[0] or 0
        said = intervals_of(text, number, engine)
        if isinstance(said, str):
            life.tally.reject(number, said, text)
            return
        for interval in said:
            after = life.last.get(interval.engine) if interval.engine is not None else None
            life.intervals.append(
                interval if after is None else replace(interval, after_step=after)
            )
        self.is_log = self.is_log or bool(said) or bool(facts)
        life.tally.know()

    def _steps(self, number: int, line: bytes) -> None:
        found = printed_steps(line)
        if not found:
            self.lives.now.tally.know()
        for printed in found:
            if isinstance(printed, Unusable):
                self.lives.now.tally.reject(number, printed.reason, printed.text)
            else:
                self.is_log = True
                self.lives.step(number, printed)


def _interesting(block: bytes, ends: Ints, lines: Ints) -> Ints:
    """Return which of some lines of a block have to be read with care."""
    if not lines.size:
        return lines
    offsets = np.empty(ends.size + 1, dtype=np.int64)
    offsets[0] = 0
    np.minimum(ends + 1, len(block), out=offsets[1:])
    every = pa.Array.from_buffers(
        pa.large_binary(), ends.size, [None, pa.py_buffer(offsets), pa.py_buffer(block)]
    )
    chosen = every if lines.size == ends.size else every.take(pa.array(lines))
    hits = pc.match_substring_regex(chosen, _INTERESTING)
    return lines[np.flatnonzero(hits.to_numpy(zero_copy_only=False))]


def _parse(path: Path, *, fast: bool = True, block_bytes: int = BLOCK_BYTES) -> _Parser:
    """Read a whole log; without ``fast`` every line is read with care."""
    parser = _Parser(path.name, Shapes() if fast else None)
    number = 0
    try:
        for first, block in read_blocks(path, block_bytes):
            parser.feed(first, block)
            number = first + block.count(b"\n") - block.endswith(b"\n")
    except TruncatedFile as error:
        reason = f"the compressed file ends early or is damaged: {error}"
        parser.lives.now.tally.reject(number + 1, reason, "")
    parser.lives.settle()
    return parser


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
        ints, _ = life.table()
        for engine, index, _, context_tokens, _, generation_tokens in ints.tolist():
            yield engine, index, context_tokens + generation_tokens


class VllmLogReader:
    """Reader of vLLM's text logs.

    The printed time covers only the wait for the result: with asynchronous scheduling
    or pipeline parallelism it leaves out what was overlapped, and in synchronous mode
    it leaves out scheduling, submission (which is the whole step on an in-process
    executor) and the update. So the timing is always ``wait``.
    """

    name = "vllm-log"
    version = 2
    needs_facts = False
    coverage = COVERAGE

    def files(self, source: RunSource) -> tuple[Path, ...]:
        """Return the log; parameters as ``Reader.files``."""
        return (source.path,)

    def read(self, source: RunSource, facts: RunFacts | None) -> tuple[ParsedRun, ...]:
        """Read a log; parameters and errors as ``Reader.read``."""
        del facts  # the log states its own
        parser = _parse(source.path)
        place = str(source.path)
        lives = list(parser.lives)
        if not any(life.tally.lines for life in lives):
            raise InputError([Problem(place, None, None, "the log is empty")])
        if all(life.empty for life in lives):
            raise InputError([_no_step(place, parser)])
        return tuple(_run(life) for life in lives)


def _no_step(place: str, parser: _Parser) -> Problem:
    rejects = [reject for life in parser.lives for reject in life.tally.rejects]
    if rejects:
        first = rejects[0]
        message = f"no usable step; the first of {len(rejects)} rejected lines: {first.reason}"
        return Problem(place, first.line, None, message)
    if parser.is_log:
        hint = "start the engine with --enable-logging-iteration-details"
        return Problem(place, None, None, "the log holds no Iteration(...) line", hint=hint)
    message = "not a log of vLLM: no line is recognised"
    return Problem(place, None, None, message, hint="is this the right file, or the right reader?")


def _run(life: Life) -> ParsedRun:
    steps = _steps(life)
    asynchronous = life.stated.get("async_scheduling")
    if steps.count == 0:
        detail = "and this log prints no step at all, only averages"
    elif asynchronous is None:
        detail = "asynchronous scheduling is not known to be off"
    elif asynchronous:
        detail = "asynchronous scheduling is on"
    else:
        detail = "scheduling, submission and update are left out"
    return ParsedRun(
        steps=steps,
        requests=Requests.none(),
        rejects=tuple(life.tally.rejects),
        counts=life.tally.counts(),
        timing="wait",
        clock=_CLOCKS[STAMP_KINDS[life.kind]],
        composition="aggregated",
        stated={"engine": "vllm", "reader": VllmLogReader.name, **life.stated},
        fit_refused_reason=(
            f"timing is wait: the printed time is only the wait for the result ({detail}); "
            "record the run with kernelfit's recorder instead"
        ),
        intervals=tuple(life.intervals),
        startup=life.startup,
    )


def _steps(life: Life) -> Steps:
    ints, floats = life.table()
    count = ints.shape[0]
    if count == 0:
        return make_steps(0, {})
    engine, index, context, context_tokens, generation, generation_tokens = ints.T
    elapsed_s = floats[:, 0]
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
            "kv_usage": floats[:, 1],
            "marks": marks,
        },
    )
