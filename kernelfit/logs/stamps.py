"""Times that stand beside log lines: enough to see that a clock went back."""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from kernelfit.logs.arrays import Floats, Ints

CLOCK_STEP_S = 10.0
"""A stamp that goes back further than this marks a new run: lines of one process come in
order, and several processes print within an interval of each other [s]."""

STAMP = re.compile(
    rb"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?|(?<!\d)\d\d-\d\d \d\d:\d\d:\d\d"
    rb"|\d\d/\d\d/\d{4}-\d\d:\d\d:\d\d|(?<![\d:])\d\d:\d\d:\d\d(?:[.,]\d{1,9})?"
)
"""Any stamp, in the bytes of a line."""

_DAY_S = 86_400.0
_YEAR_S = 366 * _DAY_S
_TIME = r"(\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?"
_FULL = re.compile(r"(\d{4})-(\d\d)-(\d\d)[T ]" + _TIME)
_AMERICAN = re.compile(r"(\d\d)/(\d\d)/(\d{4})-" + _TIME)
_SHORT = re.compile(r"(?<!\d)(\d\d)-(\d\d) " + _TIME)
_ONLY_TIME = re.compile(r"(?<!\d)" + _TIME)


def stamp_s(text: str) -> tuple[float, float] | None:
    """Return the first time that a text states.

    Parameters
    ----------
    text : str
        The part of a line before its message.

    Returns
    -------
    tuple of (float, float) or None
        Seconds since the beginning of the period that the stamp counts in, and the
        length of the period [s]: 0 for a stamp with a year, a year without one, a day
        for a time alone; None when the text states no time. Months are taken to have 31
        days, which keeps the order.
    """
    for pattern in (_FULL, _AMERICAN, _SHORT, _ONLY_TIME):
        found = pattern.search(text)
        if found is None:
            continue
        *date, hour, minute, second, fraction = found.groups()
        part = float(f"0.{fraction}") if fraction else 0.0
        of_day = int(hour) * 3600.0 + int(minute) * 60.0 + int(second) + part
        if pattern is _FULL:
            year, month, day = (int(word) for word in date)
            return ((year * 12 + month) * 31 + day) * _DAY_S + of_day, 0.0
        if pattern is _AMERICAN:
            month, day, year = (int(word) for word in date)
            return ((year * 12 + month) * 31 + day) * _DAY_S + of_day, 0.0
        if pattern is _SHORT:
            month, day = (int(word) for word in date)
            return (month * 31 + day) * _DAY_S + of_day, _YEAR_S
        return of_day, _DAY_S
    return None


def went_back(before: tuple[float, float], now: tuple[float, float]) -> bool:
    """Whether the clock went back between two stamps of one process.

    Parameters
    ----------
    before, now : tuple of (float, float)
        As ``stamp_s`` returns them.

    Returns
    -------
    bool
        True when it went back by more than ``CLOCK_STEP_S`` and not because a year or
        a day began. Stamps that count differently are not compared.
    """
    if before[1] != now[1]:
        return False
    back_s = before[0] - now[0]
    if back_s <= CLOCK_STEP_S:
        return False
    # Most of a period back is a period on: the year or the day began anew.
    return now[1] == 0.0 or back_s < 0.5 * now[1]


def stamps_s(stamps: NDArray[np.generic]) -> tuple[NDArray[np.bool_], Floats]:
    """Read many stamps, of which most repeat the one before.

    Parameters
    ----------
    stamps : ndarray of bytes, shape (n,)
        Texts of one length.

    Returns
    -------
    tuple of (ndarray of bool, ndarray of float64)
        Which are sound, shape (n,); and all as ``stamp_s`` returns them [s], shape (n, 2).
    """
    first = _changes(stamps)
    texts = stamps[first].tolist()
    sound = [STAMP.fullmatch(text) is not None for text in texts]
    read = [
        stamp_s(text.decode()) if fine else None for text, fine in zip(texts, sound, strict=True)
    ]
    lengths = np.diff(np.append(first, stamps.size))
    seconds = np.array([(np.nan, np.nan) if pair is None else pair for pair in read])
    return (
        np.repeat(np.array(sound, dtype=bool), lengths),
        np.repeat(seconds.reshape(-1, 2), lengths, axis=0),
    )


def _changes(stamps: NDArray[np.generic]) -> Ints:
    """Return the first of every stretch of equal stamps."""
    if not stamps.size:
        return np.empty(0, dtype=np.int64)
    return np.flatnonzero(np.concatenate([np.ones(1, bool), stamps[1:] != stamps[:-1]]))
