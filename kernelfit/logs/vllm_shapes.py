"""Many step lines of one shape at a time, without an object for each.

Almost all of a log's step lines differ only in their numbers and their time. A shape is
what they share: the bytes before, between and after the numbers, learned from one line
that the careful parser understood. Lines that fit a known shape exactly are taken apart
together: each piece of text is gathered from all lines and compared at once, each number
is eight bytes gathered from all lines and parsed by arithmetic on 64-bit words. A line
that fits no shape, or whose numbers are odd in any way, is left to the careful parser; so
both give the same rows, and only the speed differs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from kernelfit.logs.columns import Floats, Ints
from kernelfit.logs.stamps import STAMP, stamp_s, stamps_s
from kernelfit.logs.vllm_lines import Printed
from kernelfit.logs.vllm_rows import STAMP_KINDS, Rows

Bools = NDArray[np.bool_]
Words = NDArray[np.uint64]

MOST_SHAPES = 64
"""Shapes that are kept; what fits none is parsed line by line."""

MARGIN_BYTES = 2048
"""Bytes that stand after the lines of a block, so that nothing is ever read beyond it."""

_MOST_PIECE_BYTES = 512
_BODY = re.compile(
    rb"Iteration\(\d{1,7}\): \d{1,7} context requests, \d{1,7} context tokens, "
    rb"\d{1,7} generation requests, \d{1,7} generation tokens, "
    rb"iteration elapsed time: \d{1,7}\.\d{1,7} ms"
    rb"(?P<kv>, [\w+ ]+? KV cache usage: )?(?(kv)\d{1,7}\.\d{1,7}%)"
)
_BETWEEN = (
    b"): ",
    b" context requests, ",
    b" context tokens, ",
    b" generation requests, ",
    b" generation tokens, iteration elapsed time: ",
    b".",
)
_COUNTS = 5

_ZEROS = np.uint64(0x3030303030303030)
_CARRY = np.uint64(0x7676767676767676)
_HIGH = np.uint64(0x8080808080808080)
_ONE, _SEVEN = np.uint64(1), np.uint64(7)
_SHIFT = np.array([0, *(64 - 8 * width for width in range(1, 9))], dtype=np.uint64)
_STAGES = tuple(
    (np.uint64(factor), np.uint64(shift), np.uint64(mask))
    for factor, shift, mask in (
        (10, 8, 0x00FF00FF00FF00FF),
        (100, 16, 0x0000FFFF0000FFFF),
        (10_000, 32, 0xFFFFFFFF),
    )
)
"""Pairs of digits, of pairs and of fours become one number each: factor, shift, mask."""

_POWERS = 10.0 ** np.arange(9)


@dataclass(slots=True)
class _Piece:
    """Text that all lines share; stamps in it may differ."""

    length: int
    texts: list[tuple[int, bytes]] = field(default_factory=list)
    stamps: list[tuple[int, int]] = field(default_factory=list)

    @staticmethod
    def of(text: bytes) -> _Piece:
        piece = _Piece(len(text))
        at = 0
        for stamp in STAMP.finditer(text):
            if stamp.start() > at:
                piece.texts.append((at, text[at : stamp.start()]))
            piece.stamps.append((stamp.start(), stamp.end() - stamp.start()))
            at = stamp.end()
        if at < len(text):
            piece.texts.append((at, text[at:]))
        # The last words tell most lines apart, so they are compared first.
        piece.texts.reverse()
        return piece


def _gather(block: bytes, at: Ints, size: int, kind: str) -> NDArray[np.generic]:
    """Return ``size`` bytes of the block from each position on."""
    window = np.ndarray(len(block) - size + 1, f"{kind}{size}", block, strides=(1,))
    return window[at]


def _same(block: bytes, at: Ints, text: bytes) -> Bools:
    """Return where the block holds a text; compared in words of eight bytes."""
    count = -(-len(text) // 8)
    wanted = np.frombuffer(text.ljust(8 * count, b"\0"), "<u8")
    words = _gather(block, at, 8 * count, "V").view("<u8").reshape(-1, count)
    last = words[:, -1] ^ wanted[-1]
    spare = 8 * count - len(text)
    if spare:
        last <<= np.uint64(8 * spare)  # what follows the text does not matter
    for column in range(count - 1):
        last |= words[:, column] ^ wanted[column]
    return np.asarray(last == 0)


def _digits(block: bytes, at: Ints) -> tuple[Words, Ints]:
    """Return the digits from each position on, one a byte, and how many there are.

    Eight where no other character ends them.
    """
    word = _gather(block, at, 8, "V").view("<u8")
    value = word ^ _ZEROS
    # A byte that is no digit, or no ASCII, gets its highest bit.
    other = value + _CARRY
    other |= word
    other &= _HIGH
    mask = np.negative(other)
    mask &= other  # the lowest of those bits
    mask >>= _SEVEN
    mask -= _ONE  # every bit before that byte; all of them where there is none
    value &= mask
    width = np.bitwise_count(mask)
    width >>= 3
    return value, width.astype(np.int64)


def _values(digits: Words, width: Ints) -> Ints:
    """Return numbers from their digits, the first of which is the lowest byte."""
    word = digits << _SHIFT[width]
    for factor, shift, mask in _STAGES:
        high = word * factor
        word >>= shift
        word += high
        word &= mask
    return word.view(np.int64)


@dataclass(slots=True)
class Shape:
    """What the step lines of one process have in common.

    Attributes
    ----------
    key : tuple of bytes
        The pieces of text with their stamps blanked.
    head, tail : _Piece
        What stands before the iteration, and after the last number.
    last : bytes
        What stands before the share of the KV cache; empty where it is not printed.
    engine, pid : int
        What the pieces say; -1 for no process.
    kind : int
        Position of the stamp's kind in ``STAMP_KINDS``.
    stamp : tuple of (int, int) or None
        Where the time stands in the head, and its length; None without one.
    """

    key: tuple[bytes, ...]
    head: _Piece
    tail: _Piece
    last: bytes
    engine: int
    pid: int
    kind: int
    stamp: tuple[int, int] | None

    @staticmethod
    def of(line: bytes, printed: Printed) -> Shape | None:
        """Return the shape of a line that the careful parser understood.

        Parameters
        ----------
        line : bytes
            The line, without its end.
        printed : Printed
            The one step that it holds.

        Returns
        -------
        Shape or None
            None when the line is too unusual to be one of many.
        """
        body = _BODY.search(line)
        if body is None or not printed.alone or printed.dummy or line.count(b"Iteration(") > 1:
            return None
        head = line[: body.start()] + b"Iteration("
        tail = b" ms" if body.group("kv") is None else b"%"
        tail += line[body.end() :]
        unread = b"KV cache usage" in tail  # a share that is printed in another way
        if max(len(head), len(tail)) > _MOST_PIECE_BYTES or b"\0" in line or unread:
            return None
        last = b" ms" + body.group("kv") if body.group("kv") is not None else b""
        key = (STAMP.sub(b"#", head), last, STAMP.sub(b"#", tail))
        piece = _Piece.of(head)
        pid = -1 if printed.pid is None else printed.pid
        return Shape(
            key,
            piece,
            _Piece.of(tail),
            last,
            printed.engine,
            pid,
            STAMP_KINDS.index(printed.stamp),
            _stamp_of(head, piece) if printed.when is not None else None,
        )

    def match(self, block: bytes, lines: Ints, begins: Ints, ends: Ints) -> Rows | None:
        """Take apart the lines that have this shape.

        Parameters
        ----------
        block : bytes
            Whole lines, and ``MARGIN_BYTES`` more.
        lines : ndarray of int64, shape (n,)
            Numbers of the lines to look at.
        begins, ends : ndarray of int64, shape (lines,)
            Where every line of the block begins, and its end without the line feed.

        Returns
        -------
        Rows or None
            Those that fit, with sound numbers; None when none does.
        """
        begin, end = begins[lines], ends[lines]
        for offset, text in self.head.texts:
            fits = np.flatnonzero(_same(block, begin + offset, text))
            if fits.size < lines.size:
                lines, begin, end = lines[fits], begin[fits], end[fits]
            if not lines.size:
                return None
        at = begin + self.head.length
        good = np.ones(lines.size, dtype=bool)
        digits: list[Words] = []
        widths: list[Ints] = []
        texts = list(_BETWEEN) if not self.last else [*_BETWEEN, self.last, b"."]
        for number in range(len(texts) + 1):
            word, width = _digits(block, at)
            good &= (width > 0) & (width < 8)
            digits.append(word)
            widths.append(width)
            at = at + width
            if number < len(texts):
                good &= _same(block, at, texts[number])
                at += len(texts[number])
        good &= at + self.tail.length == end
        for offset, text in self.tail.texts:
            good &= _same(block, at + offset, text)
        when = np.full((lines.size, 2), np.nan)
        for piece, base in ((self.head, begin), (self.tail, at)):
            for stamp in piece.stamps:
                sound, read = stamps_s(_gather(block, base + stamp[0], stamp[1], "S"))
                good &= sound
                if piece is self.head and stamp == self.stamp:
                    when = read
        if not good.all():
            chosen = np.flatnonzero(good)
            if not chosen.size:
                return None
            lines, when = lines[chosen], when[chosen]
            digits = [word[chosen] for word in digits]
            widths = [width[chosen] for width in widths]
        return self._rows(lines, when, digits, widths)

    def _rows(
        self, lines: Ints, when: Floats, digits: list[Words], widths: list[Ints]
    ) -> Rows | None:
        values = [_values(word, width) for word, width in zip(digits, widths, strict=True)]
        counts = np.stack(values[:_COUNTS])
        elapsed_s = _decimal(values[5], values[6], widths[6]) * 1e-3
        usage = np.full(lines.size, np.nan)
        if self.last:
            usage = _decimal(values[7], values[8], widths[8]) / 100
        _, context, context_tokens, generation, generation_tokens = counts
        sound = (context_tokens >= context) & (generation_tokens >= generation)
        sound &= (context == 0) == (context_tokens == 0)
        sound &= (generation == 0) == (generation_tokens == 0)
        sound &= context + generation > 0
        sound &= ~(usage > 1)
        rows = Rows(
            lines,
            np.full(lines.size, self.engine),
            np.full(lines.size, self.pid),
            counts,
            elapsed_s,
            usage,
            when,
            np.full(lines.size, self.kind),
        )
        return rows if sound.all() else rows.take(sound)


def _decimal(whole: Ints, fraction: Ints, width: Ints) -> Floats:
    """Return decimals as the nearest doubles: a quotient of exact ones is rounded once."""
    scale = _POWERS[width]
    return np.asarray((whole * scale + fraction) / scale)


def _stamp_of(head: bytes, piece: _Piece) -> tuple[int, int] | None:
    """Return which stamp of a line's head its time is taken from."""
    wanted = stamp_s(head.decode("utf-8", "replace"))
    for offset, size in piece.stamps:
        if stamp_s(head[offset : offset + size].decode()) == wanted:
            return offset, size
    return None


class Shapes:
    """The shapes that a log has shown so far."""

    def __init__(self) -> None:
        self._shapes: list[Shape] = []

    def learn(self, line: bytes, printed: Printed) -> bool:
        """Remember the shape of a line.

        Parameters
        ----------
        line : bytes
            The line, without its end.
        printed : Printed
            What the careful parser made of it.

        Returns
        -------
        bool
            Whether it is a new shape.
        """
        shape = Shape.of(line, printed)
        if shape is None or len(self._shapes) >= MOST_SHAPES:
            return False
        if any(known.key == shape.key for known in self._shapes):
            return False
        self._shapes.append(shape)
        return True

    def match(
        self, block: bytes, lines: Ints, begins: Ints, ends: Ints, newest: bool = False
    ) -> tuple[Rows | None, Ints]:
        """Take apart the lines that fit a known shape.

        Parameters
        ----------
        block : bytes
            Whole lines, and ``MARGIN_BYTES`` more.
        lines : ndarray of int64, shape (n,)
            Numbers of the lines to look at, in order.
        begins, ends : ndarray of int64, shape (lines,)
            Where every line of the block begins, and its end without the line feed.
        newest : bool
            Whether to try only the shape that was learned last.

        Returns
        -------
        tuple of (Rows or None, ndarray of int64)
            The steps, and the lines that are left.
        """
        left = lines
        found: list[Rows] = []
        hits: list[tuple[int, Shape]] = []
        for shape in self._shapes[-1:] if newest else list(self._shapes):
            rows = shape.match(block, left, begins, ends) if left.size else None
            hits.append((0 if rows is None else rows.count, shape))
            if rows is not None and rows.count:
                found.append(rows)
                taken = np.zeros(begins.size, dtype=bool)
                taken[rows.place] = True
                left = left[~taken[left]]
        if not newest:
            # What was common in this block is tried first in the next.
            self._shapes = [shape for _, shape in sorted(hits, key=lambda hit: -hit[0])]
        return Rows.joined(found) if found else None, left
