"""Many stamps of one form at a time, as seconds."""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from kernelfit.logs.columns import Floats
from kernelfit.logs.stamps import stamp_s

STAMP = re.compile(
    rb"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?|(?<!\d)\d\d-\d\d \d\d:\d\d:\d\d"
    rb"|\d\d/\d\d/\d{4}-\d\d:\d\d:\d\d|(?<![\d:])\d\d:\d\d:\d\d(?:[.,]\d{1,9})?"
)
"""A stamp within a line, in any form that ``stamp_s`` reads."""

_DIGITS = b"0123456789"
_DAY_S = 86_400.0
Bools = NDArray[np.bool_]


def read_stamps(
    stamps: NDArray[np.generic], like: bytes, timed: bool
) -> tuple[Bools, Floats | None]:
    """Read the stamps of many lines.

    Parameters
    ----------
    stamps : ndarray of void, shape (n,)
        The bytes of each.
    like : bytes
        One of the same form.
    timed : bool
        Whether to say what time they state.

    Returns
    -------
    tuple of (ndarray of bool, ndarray of float64 or None)
        Which are of that form; and seconds and periods as ``stamp_s`` returns them,
        shape (n, 2) [s].
    """
    if not stamps.size:
        return np.ones(0, dtype=bool), np.empty((0, 2)) if timed else None
    change = np.ones(stamps.size, dtype=bool)
    change[1:] = stamps[1:] != stamps[:-1]  # most lines share the second of the line before
    first = np.flatnonzero(change)
    lengths = np.diff(np.append(first, stamps.size))
    cells = np.ascontiguousarray(stamps[first]).view(np.uint8).reshape(-1, len(like))
    digit = np.array([byte in _DIGITS for byte in like])
    values = cells[:, digit] - np.uint8(48)
    sound = (values < 10).all(axis=1)
    sound &= (cells[:, ~digit] == np.frombuffer(like, np.uint8)[~digit]).all(axis=1)
    seconds = _seconds(values.astype(np.int64), like) if timed else None
    if seconds is not None:
        seconds = np.repeat(seconds, lengths, axis=0)
    return np.repeat(sound, lengths), seconds


def _seconds(digits: NDArray[np.int64], like: bytes) -> Floats:
    """Return the time that digits in the places of a form state."""
    read = stamp_s(like.decode())
    period = float("nan") if read is None else read[1]

    def number(begin: int, end: int) -> NDArray[np.int64]:
        value = np.zeros(digits.shape[0], dtype=np.int64)
        for place in range(begin, end):
            value = value * 10 + digits[:, place]
        return value

    if b"/" in like:  # month, day, year
        date, at = (number(4, 8) * 12 + number(0, 2)) * 31 + number(2, 4), 8
    elif like[4:5] == b"-":
        date, at = (number(0, 4) * 12 + number(4, 6)) * 31 + number(6, 8), 8
    elif like[2:3] == b"-":
        date, at = number(0, 2) * 31 + number(2, 4), 4
    else:
        date, at = np.zeros(digits.shape[0], dtype=np.int64), 0
    width = digits.shape[1] - at - 6
    part = number(at + 6, at + 6 + width) / 10.0**width
    of_day = number(at, at + 2) * 3600.0 + number(at + 2, at + 4) * 60.0 + number(at + 4, at + 6)
    seconds = date * _DAY_S + (of_day + part)
    return np.stack([seconds, np.full(seconds.size, period)], axis=1)
