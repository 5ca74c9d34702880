"""From the bytes of a vLLM log to lives: which lines are read together, and which with care."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kernelfit.logs.columns import Ints
from kernelfit.logs.lines import TruncatedFile, read_bytes
from kernelfit.logs.vllm_facts import (
    FACT_WORDS,
    INITIALIZING,
    facts_of,
    startup_merged,
    startup_of,
)
from kernelfit.logs.vllm_intervals import WORDS, intervals_of
from kernelfit.logs.vllm_lines import QUOTED, Printed, Unusable, printed_steps
from kernelfit.logs.vllm_lives import Lives
from kernelfit.logs.vllm_rows import Rows
from kernelfit.logs.vllm_shapes import MARGIN_BYTES, Shapes
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
_MARGIN = bytes(MARGIN_BYTES)
_MOST_TRIES = 8
_LineOf = Callable[[int], bytes]


class Parser:
    """Block by block, keeping account of every line.

    Parameters
    ----------
    name : str
        The log's name, for rejects.
    shapes : Shapes or None
        Shapes of step lines; None reads every line with care.

    Attributes
    ----------
    lives : Lives
        What was read so far.
    is_log : bool
        Whether a line was recognised as the engine's own.
    """

    def __init__(self, name: str, shapes: Shapes | None) -> None:
        self.lives = Lives(name)
        self.is_log = False
        self._shapes = shapes
        self._rows: Rows | None = None
        self._before: dict[int, int] = {}

    def feed(self, first: int, block: bytes) -> int:
        """Read whole lines.

        Parameters
        ----------
        first : int
            Number of the first line.
        block : bytes
            Whole lines, and ``MARGIN_BYTES`` more.

        Returns
        -------
        int
            How many lines there were.
        """
        data = np.frombuffer(block, dtype=np.uint8, count=len(block) - MARGIN_BYTES)
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
        return int(ends.size)

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
        plain = not any(_begins_life(line(place)) for place in careful.tolist())
        self._before, self._rows = dict(self.lives.now.last), rows
        if plain and (rows is None or self.lives.take(rows)):
            self.lives.now.tally.know(count - careful.size - (0 if rows is None else rows.count))
            for place in careful.tolist():
                self._line(first + place, line(place), place)
            return
        self._rows = None
        at = row = 0
        stops = [*careful.tolist(), count]
        cuts = [0] * len(stops) if rows is None else np.searchsorted(rows.place, stops).tolist()
        for stop, cut in zip(stops, cuts, strict=True):
            if rows is None or cut == row or self.lives.take(rows.take(slice(row, cut))):
                self.lives.now.tally.know(stop - at - (cut - row))
            else:
                for place in range(at, stop):
                    self._line(first + place, line(place))
            if stop < count:
                self._line(first + stop, line(stop))
            at, row = stop + 1, cut

    def _after(self, engine: int | None, place: int) -> int | None:
        """Return the last step of an engine before a line of the block."""
        if engine is None:
            return None
        if self._rows is None:
            return self.lives.now.last.get(engine)
        upto = int(np.searchsorted(self._rows.place, place))
        mine = np.flatnonzero(self._rows.engine[:upto] == engine)
        if mine.size:
            return int(self._rows.counts[0, mine[-1]])
        return self._before.get(engine)

    def _line(self, number: int, line: bytes, place: int = 0) -> None:
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
            after = self._after(interval.engine, place)
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


def _begins_life(line: bytes) -> bool:
    """Whether what follows a line may be another life, or the line is a step of its own."""
    return _STEP in line or b"LLM engine (v" in line


def _interesting(block: bytes, ends: Ints, lines: Ints) -> Ints:
    """Return which of some lines of a block have to be read with care."""
    if not lines.size:
        return lines
    offsets = np.empty(ends.size + 1, dtype=np.int64)
    offsets[0] = 0
    offsets[1:] = ends + 1  # of a line without an end, a byte of the margin
    every = pa.Array.from_buffers(
        pa.large_binary(), ends.size, [None, pa.py_buffer(offsets), pa.py_buffer(block)]
    )
    chosen = every if lines.size == ends.size else every.take(pa.array(lines))
    hits = pc.match_substring_regex(chosen, _INTERESTING)
    return lines[np.flatnonzero(hits.to_numpy(zero_copy_only=False))]


def parse(path: Path, *, fast: bool = True, block_bytes: int = BLOCK_BYTES) -> Parser:
    """Read a whole log.

    Parameters
    ----------
    path : pathlib.Path
        The log, plain or compressed.
    fast : bool
        Whether to take lines of one shape apart together; the rows are the same.
    block_bytes : int
        Bytes that are looked at together [bytes].

    Returns
    -------
    Parser
        At the end of the log.

    Raises
    ------
    OSError
        When the log cannot be opened.
    """
    parser = Parser(path.name, Shapes() if fast else None)
    number = 1
    try:
        for block in _stretches(path, block_bytes):
            number += parser.feed(number, block)
    except TruncatedFile as error:
        reason = f"the compressed file ends early or is damaged: {error}"
        parser.lives.now.tally.reject(number, reason, "")
    parser.lives.settle()
    return parser


def _stretches(path: Path, size: int) -> Iterator[bytes]:
    """Yield a file as whole lines; their number is counted where they are looked at."""
    held: list[bytes] = []
    for data in read_bytes(path, size):
        end = data.rfind(b"\n") + 1
        if end:
            yield b"".join((*held, data[:end], _MARGIN))
            held = []
        if end < len(data):
            held.append(data[end:])
    if held:
        yield b"".join((*held, _MARGIN))
