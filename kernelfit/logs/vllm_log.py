"""The ``vllm-log`` reader: text logs of vLLM 0.6 to 0.33.

Step lines (``Iteration(...)``) become steps, lines about stretches of time become
intervals, start-up lines become facts of the run, and everything else counts as recognised.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from kernelfit.documents.problems import InputError, Problem
from kernelfit.documents.runs import RunFacts
from kernelfit.logs.columns import UNKNOWN, Ints, ParsedRun, Requests, Steps, make_steps
from kernelfit.logs.marks import mark_bit, warmup_bits
from kernelfit.logs.source import RunSource
from kernelfit.logs.vllm_coverage import COVERAGE
from kernelfit.logs.vllm_lives import Life
from kernelfit.logs.vllm_parse import Parser, parse
from kernelfit.logs.vllm_rows import STAMP_KINDS

_CLOCKS = {
    "printed": "printed lines: month and day, whole seconds, no year",
    "dated_ms": "printed lines: date and milliseconds",
    "container": "printed lines: stamp of the container runtime",
}


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

    def read(self, source: RunSource, facts: RunFacts | None) -> tuple[ParsedRun, ...]:
        """Read a log; parameters and errors as ``Reader.read``."""
        del facts  # the log states its own
        parser = parse(source.path)
        place = str(source.path)
        lives = list(parser.lives)
        if not any(life.tally.lines for life in lives):
            raise InputError([Problem(place, None, None, "the log is empty")])
        if all(life.empty for life in lives):
            raise InputError([_no_step(place, parser)])
        return tuple(_run(life) for life in lives)


def _no_step(place: str, parser: Parser) -> Problem:
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
    engine, counts, elapsed_s, usage = life.table()
    count = engine.size
    if count == 0:
        return make_steps(0, {})
    index, context, context_tokens, generation, generation_tokens = counts
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
            "kv_usage": usage,
            "marks": marks,
        },
    )
