"""The ``vllm-log`` reader: text logs of vLLM 0.6 to 0.33.

Step lines (``Iteration(...)``) become steps, lines about stretches of time become
intervals, start-up lines become facts of the run, and everything else counts as recognised.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from kernelfit.documents.problems import InputError, Problem
from kernelfit.documents.runs import RunFacts
from kernelfit.logs.columns import (
    UNKNOWN,
    Counts,
    Floats,
    Ints,
    ParsedRun,
    Requests,
    Steps,
    make_steps,
)
from kernelfit.logs.marks import mark_bit, warmup_bits
from kernelfit.logs.source import RunSource
from kernelfit.logs.stream import Piece, PiecewiseRun, collected
from kernelfit.logs.vllm_coverage import COVERAGE
from kernelfit.logs.vllm_lives import Life
from kernelfit.logs.vllm_parse import Parser, parse, parsed
from kernelfit.logs.vllm_rows import STAMP_KINDS
from kernelfit.logs.vllm_shapes import Shapes

_CLOCKS = {
    "printed": "printed lines: month and day, whole seconds, no year",
    "dated_ms": "printed lines: date and milliseconds",
    "container": "printed lines: stamp of the container runtime",
}


PIECE_STEPS = 1 << 14
"""Steps that are handed on together; the first of them say what is warm-up [steps]."""


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
    for life in parse(path).lives:
        engine, counts, _, _ = life.table()
        for one, index, tokens in zip(engine, counts[0], counts[2] + counts[4], strict=True):
            yield int(one), int(index), int(tokens)


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

    def open(
        self, source: RunSource, facts: RunFacts | None, *, whole: bool = False
    ) -> Iterator[PiecewiseRun]:
        """Open a log; parameters and errors as ``StreamingReader.open``."""
        del facts, whole  # the log states its own, and is always in order
        log = _OpenLog(source.path)
        place = 0
        while log.parser.lives.at(place) is not None:
            yield _LifeRun(log, place)
            place += 1

    def read(self, source: RunSource, facts: RunFacts | None) -> tuple[ParsedRun, ...]:
        """Read a log; parameters and errors as ``Reader.read``."""
        del facts
        return collected(self, source)


class _OpenLog:
    """A log that is read as far as its lives are asked for."""

    def __init__(self, path: Path) -> None:
        self.place = str(path)
        self.parser = Parser(path.name, Shapes())
        self._blocks = parsed(self.parser, path)

    def advance(self) -> bool:
        """Read on; return whether there was more."""
        return next(self._blocks, self) is not self

    def no_step(self) -> Problem:
        """Say why the log gives nothing at all."""
        life = self.parser.lives.now
        if life.tally.lines == 0:
            return Problem(self.place, None, None, "the log is empty")
        if life.tally.rejects:
            first = life.tally.rejects[0]
            count = life.tally.rejected
            message = f"no usable step; the first of {count} rejected lines: {first.reason}"
            return Problem(self.place, first.line, None, message)
        if self.parser.is_log:
            hint = "start the engine with --enable-logging-iteration-details"
            message = "the log holds no Iteration(...) line"
            return Problem(self.place, None, None, message, hint=hint)
        message = "not a log of vLLM: no line is recognised"
        hint = "is this the right file, or the right reader?"
        return Problem(self.place, None, None, message, hint=hint)


class _LifeRun:
    """One life of a log, a piece at a time."""

    def __init__(self, log: _OpenLog, place: int) -> None:
        self._log = log
        self._place = place
        self.head = ParsedRun(
            steps=make_steps(0, {}),
            requests=Requests.none(),
            rejects=(),
            counts=Counts(0, 0, 0, 0),
            timing="wait",
            clock=_CLOCKS["printed"],
            composition="aggregated",
        )

    @property
    def _life(self) -> Life:
        life = self._log.parser.lives.at(self._place)
        assert life is not None
        return life

    def pieces(self) -> Iterator[Piece]:
        """Yield the life's steps."""
        lives = self._log.parser.lives
        first = True
        while not lives.ended(self._place) and self._log.advance():
            while self._life.waiting >= PIECE_STEPS:
                yield self._piece(PIECE_STEPS, first)
                first = False
        if self._life.empty:
            raise InputError([self._log.no_step()])
        while self._life.waiting or self._life.tally.rejects:
            yield self._piece(PIECE_STEPS, first)
            first = False

    def _piece(self, most: int, first: bool) -> Piece:
        steps = _steps(*self._life.table(most), first)
        return Piece(steps, Requests.none(), self._life.tally.taken())

    def summary(self) -> ParsedRun:
        """Return what is known at the end."""
        life = self._life
        asynchronous = life.stated.get("async_scheduling")
        if life.steps == 0:
            detail = "and this log prints no step at all, only averages"
        elif asynchronous is None:
            detail = "asynchronous scheduling is not known to be off"
        elif asynchronous:
            detail = "asynchronous scheduling is on"
        else:
            detail = "scheduling, submission and update are left out"
        return replace(
            self.head,
            counts=life.tally.counts(),
            clock=_CLOCKS[STAMP_KINDS[life.kind]],
            stated={"engine": "vllm", "reader": VllmLogReader.name, **life.stated},
            fit_refused_reason=(
                f"timing is wait: the printed time is only the wait for the result ({detail}); "
                "record the run with kernelfit's recorder instead"
            ),
            intervals=tuple(life.intervals),
            startup=life.startup,
        )


def _steps(engine: Ints, counts: Ints, elapsed_s: Floats, usage: Floats, first: bool) -> Steps:
    """Return the columns of steps; only the first piece of a life holds warm-up."""
    index, context, context_tokens, generation, generation_tokens = counts
    # Without drafts and resumed requests every generation request has one token.
    plain = generation_tokens == generation
    few = plain & (context <= 1)
    marks = (~plain) * mark_bit("resume_or_spec") + (elapsed_s == 0) * mark_bit("zero_duration")
    for one in np.unique(engine) if first else ():
        rows = engine == one
        marks[rows] |= warmup_bits(index[rows], elapsed_s[rows])

    def known(values: Ints, where: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> Ints:
        return np.where(where, values, UNKNOWN)

    return make_steps(
        engine.size,
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
            "kv_usage": usage,
            "marks": marks,
        },
    )
