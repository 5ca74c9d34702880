"""Stretches of the recorder's lines as columns, many lines at a time.

Lines that are as the recorder writes them are decoded together: the lists stay text until
the numbers of all steps are parsed at once. A stretch with anything unusual in it is decoded
again line by line with every check, so that both ways give the same rows and only the second
gives reasons.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kernelfit.logs.columns import MAX_TOKENS, UNKNOWN, Ints
from kernelfit.logs.lines import split_lines
from kernelfit.logs.row_columns import (
    LISTS,
    PAIRS,
    StepColumns,
    WorkerColumns,
    assembled,
    step_columns,
    worker_columns,
)
from kernelfit.logs.rows import (
    MOST_MOMENT_NS,
    NOT_GIVEN,
    Cut,
    Header,
    PackedRow,
    PackedStepRow,
    StepRow,
    WorkerRow,
    decode_line,
)

_PACKED = msgspec.json.Decoder(PackedRow)
_NULL_BYTES = len(bytes(NOT_GIVEN))
_COMMA, _CLOSING, _N = ord(","), ord("]"), ord("n")
_BEGIN, _END, _LINE_FEED = ord("{"), ord("}"), ord("\n")
_BLANKS = b"[ \t\r\n"


_TEXTS = attrgetter(*LISTS, *PAIRS)


class _Unusual(Exception):
    """The lines must be looked at one by one."""


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """What a stretch of lines holds.

    Attributes
    ----------
    first : int
        Number of its first line, from 1.
    lines : int
        Lines in it.
    data : bytes
        The lines themselves.
    headers : tuple of (int, Header)
        Header rows and their lines.
    steps : StepColumns or None
        Step rows; None without any.
    workers : WorkerColumns or None
        Worker rows; None without any.
    bad : tuple of (int, str)
        Lines that are no row, and why.
    cut : int
        1 where the last line is cut short, as a killed process leaves its file.
    """

    first: int
    lines: int
    data: bytes
    headers: tuple[tuple[int, Header], ...]
    steps: StepColumns | None
    workers: WorkerColumns | None
    bad: tuple[tuple[int, str], ...]
    cut: int = 0

    @property
    def recognised(self) -> int:
        """Header, clock, dummy and blank lines, and one that is cut short."""
        rows = sum(part.count for part in (self.steps, self.workers) if part is not None)
        return self.lines - rows - len(self.bad)

    def text(self, line: int) -> bytes:
        """Return one of the lines.

        Parameters
        ----------
        line : int
            Its number.

        Returns
        -------
        bytes
            The line.
        """
        return self.data.split(b"\n", line - self.first + 1)[line - self.first]


def decode_block(first: int, data: bytes) -> Block:
    """Decode a stretch of lines.

    Parameters
    ----------
    first : int
        Number of its first line, from 1.
    data : bytes
        Whole lines; the last may lack its end.

    Returns
    -------
    Block
        Every line of it, as a row, as recognised or as bad.
    """
    lines = data.count(b"\n") + (not data.endswith(b"\n"))
    try:
        return _together(first, data, lines)
    except _Unusual:
        return _one_by_one(first, data, lines)


def _together(first: int, data: bytes, lines: int) -> Block:
    # Each line begins and ends as an object does and there are as many objects as lines,
    # so no object spans lines and no line holds two.
    if not data.startswith(b"{") or not data.endswith((b"}\n", b"}")):
        raise _Unusual
    codes = np.frombuffer(data, dtype=np.uint8)
    breaks = np.flatnonzero(codes[:-1] == _LINE_FEED)
    if np.any(codes[breaks - 1] != _END) or np.any(codes[breaks + 1] != _BEGIN):
        raise _Unusual
    try:
        rows = _PACKED.decode_lines(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise _Unusual from None
    if len(rows) != lines:
        raise _Unusual
    kinds = [type(row) for row in rows]
    headers = (
        [(first + place, row) for place, row in enumerate(rows) if isinstance(row, Header)]
        if Header in kinds
        else []
    )
    steps = workers = None
    chosen, line = _of_kind(rows, kinds, PackedStepRow, first)
    if chosen:
        steps = _unpacked(chosen, line)
    spans, line = _of_kind(rows, kinds, WorkerRow, first)
    if spans:
        workers = worker_columns(spans, line)
    return Block(first, lines, data, tuple(headers), steps, workers, ())


def _of_kind(
    rows: Sequence[Any], kinds: Sequence[type], kind: type, first: int
) -> tuple[Sequence[Any], Ints]:
    found = kinds.count(kind)
    if found == len(rows):
        return rows, np.arange(first, first + found, dtype=np.int64)
    if found == 0:
        return [], np.empty(0, dtype=np.int64)
    places = [place for place, one in enumerate(kinds) if one is kind]
    return [rows[place] for place in places], np.array(places, dtype=np.int64) + first


def _one_by_one(first: int, data: bytes, lines: int) -> Block:
    headers: list[tuple[int, Header]] = []
    steps: list[StepRow] = []
    step_lines: list[int] = []
    workers: list[WorkerRow] = []
    worker_lines: list[int] = []
    bad: list[tuple[int, str]] = []
    cut = 0
    for number, text in enumerate(split_lines(data), start=first):
        row = decode_line(text)
        if isinstance(row, str):
            bad.append((number, row))
        elif type(row) is StepRow:
            steps.append(row)
            step_lines.append(number)
        elif type(row) is WorkerRow:
            workers.append(row)
            worker_lines.append(number)
        elif type(row) is Header:
            headers.append((number, row))
        elif type(row) is Cut:
            cut = 1
    return Block(
        first,
        lines,
        data,
        tuple(headers),
        step_columns(steps, np.array(step_lines, dtype=np.int64)) if steps else None,
        worker_columns(workers, np.array(worker_lines, dtype=np.int64)) if workers else None,
        tuple(bad),
        cut,
    )


def _unpacked(rows: Sequence[PackedStepRow], line: Ints) -> StepColumns:
    """Parse the lists of many steps at once."""
    columns: dict[str, NDArray[np.generic]] = {}
    sizes: Ints | None = None
    texts = dict(zip((*LISTS, *PAIRS), zip(*map(_TEXTS, rows), strict=True), strict=True))
    for name in LISTS:
        values, counts = _numbers(texts[name])
        if sizes is None:
            sizes = counts
        elif not np.array_equal(counts, sizes):
            raise _Unusual
        columns[name] = _within(values, 1 if name == "scheduled" else 0, MAX_TOKENS)
    for name in PAIRS:
        raws = texts[name]
        short = name.removesuffix("_ns")
        known = np.fromiter(map(len, raws), dtype=np.int64, count=len(raws)) > _NULL_BYTES
        pairs = np.zeros((len(raws), 2), dtype=np.int64)
        given = (
            raws
            if known.all()
            else [raw for raw, is_known in zip(raws, known, strict=True) if is_known]
        )
        if given:
            values, counts = _numbers(given)
            if values.null_count or np.any(counts != 2):
                raise _Unusual
            pairs[known] = _within(values, 0, MOST_MOMENT_NS).reshape(-1, 2)
        columns[name] = pairs
        if name != "sched_ns":
            columns[f"has_{short}"] = known
        elif not known.all():
            raise _Unusual
    assert sizes is not None
    return assembled(rows, line, sizes, columns)


def _within(values: pa.Array, least: int, most: int) -> Ints:
    """Return numbers after their range is checked; ``UNKNOWN`` for null."""
    if values.null_count:
        if least > 0:
            raise _Unusual
        known = values.drop_null().to_numpy()
        out = values.fill_null(UNKNOWN).to_numpy()
    else:
        known = out = values.to_numpy()
    if known.size and (known.min() < least or known.max() > most):
        raise _Unusual
    return np.asarray(out, dtype=np.int64)


def _numbers(raws: Sequence[msgspec.Raw]) -> tuple[pa.Array, Ints]:
    """Parse lists of numbers, all at once.

    Returns the numbers, null where the text says so, and how many each list holds. The
    decoder has checked that the text is JSON; what is left is that it is flat lists.
    """
    joined = b",".join(raws)
    count = len(raws)
    try:
        return _parsed(joined, count)
    except _Unusual:
        if b"[]" not in joined:
            raise
    # Steps without requests.
    full = np.fromiter(map(len, raws), dtype=np.int64, count=count) > len(b"[]")
    sizes = np.zeros(count, dtype=np.int64)
    if not full.any():
        return pa.array([], type=pa.int64()), sizes
    raws = [raw for raw, is_full in zip(raws, full, strict=True) if is_full]
    values, sizes[full] = _parsed(b",".join(raws), len(raws))
    return values, sizes


def _parsed(joined: bytes, count: int) -> tuple[pa.Array, Ints]:
    text = joined.translate(None, _BLANKS)  # "1,1],2],30]"
    digits = text.translate(None, b",]")
    codes = np.frombuffer(text, dtype=np.uint8)
    commas = np.flatnonzero(codes == _COMMA)
    closes = codes[commas - 1] == _CLOSING
    # As many ends as lists, each but the last before a comma: no list holds another.
    ends = len(text) - len(digits) - commas.size
    if ends != count or np.count_nonzero(closes) != count - 1:
        raise _Unusual
    offsets = np.empty(commas.size + 2, dtype=np.int32)
    offsets[0] = 0
    offsets[1:-1] = commas - np.arange(commas.size) - np.cumsum(closes)
    offsets[-1] = len(digits)
    validity = None
    if b"n" in digits:
        first = np.frombuffer(digits, dtype=np.uint8)[np.minimum(offsets[:-1], len(digits) - 1)]
        validity = pa.py_buffer(np.packbits(first != _N, bitorder="little"))
    words = pa.Array.from_buffers(
        pa.string(), offsets.size - 1, [validity, pa.py_buffer(offsets), pa.py_buffer(digits)]
    )
    try:
        values = words.cast(pa.int64())
    except pa.ArrowInvalid:
        raise _Unusual from None
    last = np.concatenate((np.flatnonzero(closes) + 1, [offsets.size - 1]))
    return values, np.diff(last, prepend=0)
