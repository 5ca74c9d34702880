"""Numbers as people read them: display units, and digits that the interval supports."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

MISSING = "-"

_COMPUTE = ("gemm_eff", "attention_eff")
# Below this a "peak" is no rate; a ratio then has nothing to be turned into.
_LEAST_RATE = 1e6
_DECADE = 10.0


@dataclass(frozen=True, slots=True)
class Scale:
    """How an SI quantity is displayed.

    Attributes
    ----------
    factor : float
        Display value = SI value times this.
    unit : str
        Display unit, ASCII.
    """

    factor: float
    unit: str


def scale_for(unit: str, magnitude: float) -> Scale:
    """Choose the display unit of an SI quantity.

    Parameters
    ----------
    unit : str
        SI unit: ``s`` with an optional ``/...`` or `` per ...``, ``byte/s``, ``FLOP/s``,
        ``1`` for a ratio, or anything else, which is kept.
    magnitude : float
        A typical value, in that unit.

    Returns
    -------
    Scale
        The factor and the display unit.
    """
    size = abs(magnitude)
    if unit == "s" or unit.startswith(("s/", "s per ")):
        rest = unit[1:]
        for factor, name, least in ((1.0, "s", 1.0), (1e3, "ms", 1e-3), (1e6, "us", 1e-7)):
            if size >= least:
                return Scale(factor, name + rest)
        return Scale(1e9, "ns" + rest) if size > 0 else Scale(1e6, "us" + rest)
    if unit.lower() in {"byte/s", "bytes/s", "b/s"}:
        return Scale(1e-9, "GB/s") if size >= 1e8 or size == 0 else Scale(1e-6, "MB/s")
    if unit.lower() in {"flop/s", "flops"}:
        return Scale(1e-12, "TFLOP/s") if size >= 1e12 else Scale(1e-9, "GFLOP/s")
    return Scale(1.0, unit)


def decimals(value: float, half_width: float) -> int:
    """Return how many decimals a value deserves; negative means tens, hundreds.

    Two significant digits of the interval's half width, but never fewer than two nor
    more than six of the value itself; four of the value where there is no interval.

    Parameters
    ----------
    value, half_width : float
        In the display unit.

    Returns
    -------
    int
        Decimals, as ``round`` takes them.
    """
    exponent = math.floor(math.log10(abs(value))) if value else None
    if half_width > 0 and math.isfinite(half_width):
        places = 1 - math.floor(math.log10(half_width))
        if exponent is not None:
            places = min(max(places, 1 - exponent), 5 - exponent)
        return places
    return 0 if exponent is None else 3 - exponent


def fixed(value: float, places: int) -> str:
    """Write a number with a given number of decimals.

    Parameters
    ----------
    value : float
        The number.
    places : int
        Decimals; negative rounds to tens, hundreds.

    Returns
    -------
    str
        With comma between thousands.
    """
    rounded = round(value, places) + 0.0
    return f"{rounded:,.{max(places, 0)}f}"


def number(value: float | None, digits: int = 3) -> str:
    """Write a number to some significant digits, without an exponent where it can be.

    Parameters
    ----------
    value : float or None
        The number.
    digits : int
        Significant digits.

    Returns
    -------
    str
        The text; ``-`` for None.
    """
    if value is None or not math.isfinite(value):
        return MISSING
    if value == 0:
        return "0"
    exponent = math.floor(math.log10(abs(value)))
    if exponent >= 9 or exponent < -6:
        return f"{value:.{digits - 1}e}"
    if float(value).is_integer() and exponent < 9:
        return f"{value:,.0f}"
    return fixed(value, _places(value, digits))


def _places(value: float, digits: int) -> int:
    """Return the decimals that give a number some significant digits, at least 0."""
    return max(digits - 1 - math.floor(math.log10(abs(value))), 0)


def count(value: float | None) -> str:
    """Write a count with comma between thousands.

    Parameters
    ----------
    value : float or None
        The count.

    Returns
    -------
    str
        The text; ``-`` for None.
    """
    return MISSING if value is None else f"{int(value):,d}"


def percent(fraction: float | None, *, signed: bool = False) -> str:
    """Write a fraction in percent, without the sign of percent.

    Parameters
    ----------
    fraction : float or None
        The fraction.
    signed : bool
        Write a plus before what is positive.

    Returns
    -------
    str
        One decimal, two below 1 %, none from 1,000 %; ``-`` for None.
    """
    if fraction is None or not math.isfinite(fraction):
        return MISSING
    value = 100.0 * fraction
    places = 2 if 0 < abs(value) < 0.995 else 0 if abs(value) >= 999.5 else 1
    text = fixed(value, places)
    return f"+{text}" if signed and value > 0 else text


def seconds(value: float | None) -> str:
    """Write a time with its display unit.

    Parameters
    ----------
    value : float or None
        Time [s].

    Returns
    -------
    str
        Such as ``12.3 ms``; ``-`` for None.
    """
    if value is None or not math.isfinite(value):
        return MISSING
    scale = scale_for("s", value)
    return f"{number(value * scale.factor)} {scale.unit}"


@dataclass(frozen=True, slots=True)
class Shown:
    """A coefficient as it is displayed.

    Attributes
    ----------
    value, unit, low, high : str
        Value, display unit and the ends of the 95 % interval.
    factor : float
        Display value = stored value times this.
    """

    value: str
    unit: str
    low: str
    high: str
    factor: float


def show(coefficient: Mapping[str, Any]) -> Shown:
    """Put a coefficient into display units, to the precision of its interval.

    A ratio that refers to a datasheet peak is displayed as the rate it stands for.

    Parameters
    ----------
    coefficient : mapping
        ``name``, ``value``, ``unit``, ``ci95``, optional ``peak`` and ``peak_unit``.

    Returns
    -------
    Shown
        The texts.
    """
    value = float(coefficient["value"])
    interval: Sequence[float] | None = coefficient.get("ci95")
    edges = tuple(float(edge) for edge in interval) if interval else (value, value)
    factor, unit = 1.0, str(coefficient["unit"])
    peak = coefficient.get("peak")
    if share_peak(coefficient):
        unit = _peak_unit(coefficient)
        factor = float(peak or 0)
        scale = scale_for(unit, factor)
    else:
        scale = scale_for(unit, value or edges[1])
    factor *= scale.factor
    texts = interval_texts(value * factor, edges[0] * factor, edges[1] * factor)
    if share_peak(coefficient):
        # Rounding must not lift the end of an interval above the peak that bounds it.
        texts = (*texts[:2], _below(edges[1] * factor, texts[2], float(peak or 0) * scale.factor))
    low, high = texts[1:] if interval else (MISSING, MISSING)
    return Shown(texts[0], scale.unit, low, high, factor)


def interval_texts(value: float, low: float, high: float) -> tuple[str, str, str]:
    """Write a value and its interval to the digits that the interval supports.

    Parameters
    ----------
    value, low, high : float
        In the display unit; ``low <= high``.

    Returns
    -------
    tuple of str
        The three texts: with one last digit for all, or with two digits each where the
        ends are more than ten times apart.
    """
    if low > 0 and high > _DECADE * low:
        # Ends so far apart have no common last digit.
        return (_two_digits(value), _two_digits(low), _two_digits(high))
    places = decimals(value, 0.5 * (high - low))
    return (fixed(value, places), fixed(low, places), fixed(high, places))


def time_texts(value_s: float, low_s: float, high_s: float) -> tuple[str, str, str, str]:
    """Write a time and its interval in one display unit, to the digits of the interval.

    Parameters
    ----------
    value_s, low_s, high_s : float
        The time and the ends of its interval [s].

    Returns
    -------
    tuple of str
        Value, low, high and the unit.
    """
    scale = scale_for("s", value_s or high_s)
    texts = interval_texts(value_s * scale.factor, low_s * scale.factor, high_s * scale.factor)
    return (*texts, scale.unit)


def within(value: float, half_width: float, unit: str = "s") -> str:
    """Write a quantity that is known no better than a half width says.

    Parameters
    ----------
    value, half_width : float
        The quantity and the half width of its interval, in the SI unit.
    unit : str
        SI unit.

    Returns
    -------
    str
        Such as ``12.3 ms``: the last digit is the second of the half width.
    """
    scale = scale_for(unit, value or half_width)
    places = decimals(value * scale.factor, half_width * scale.factor)
    return f"{fixed(value * scale.factor, places)} {scale.unit}"


def _two_digits(value: float) -> str:
    exponent = math.floor(math.log10(abs(value))) if value else 0
    return fixed(value, 1 - exponent)


def share_peak(coefficient: Mapping[str, Any]) -> bool:
    """Return whether a coefficient is a share of a datasheet peak.

    Parameters
    ----------
    coefficient : mapping
        ``unit``, optional ``peak``.

    Returns
    -------
    bool
        True where it is displayed as the rate it stands for.
    """
    peak = coefficient.get("peak")
    return str(coefficient["unit"]) == "1" and peak is not None and float(peak) > _LEAST_RATE


def _below(value: float, text: str, peak: float) -> str:
    """Write an end of an interval with as many digits as keep it at or below the peak."""
    if value > peak:
        return text
    places = 1 - math.floor(math.log10(abs(value))) if value else 0
    while float(text.replace(",", "")) > peak and places < 12:
        places += 1
        text = fixed(value, places)
    return text


def peak_text(coefficient: Mapping[str, Any]) -> str:
    """Return the datasheet peak of a coefficient in its display unit.

    Parameters
    ----------
    coefficient : mapping
        ``name``, ``unit``, optional ``peak`` and ``peak_unit``.

    Returns
    -------
    str
        Such as ``3,350 GB/s``; ``-`` without a peak.
    """
    peak = coefficient.get("peak")
    if peak is None or float(peak) <= _LEAST_RATE:
        return MISSING
    scale = scale_for(_peak_unit(coefficient), float(peak))
    return f"{number(float(peak) * scale.factor, 4)} {scale.unit}"


def _peak_unit(coefficient: Mapping[str, Any]) -> str:
    """Return the unit of a coefficient's datasheet peak: stated, its own, or by its name."""
    if coefficient.get("peak_unit"):
        return str(coefficient["peak_unit"])
    if coefficient["unit"] != "1":
        return str(coefficient["unit"])
    return "FLOP/s" if str(coefficient["name"]).startswith(_COMPUTE) else "byte/s"


def share_of_peak(coefficient: Mapping[str, Any]) -> tuple[float, float, float] | None:
    """Return value and interval of a coefficient as shares of the datasheet peak.

    Parameters
    ----------
    coefficient : mapping
        ``value``, ``ci95``, ``share_of_peak``.

    Returns
    -------
    tuple of float or None
        Share, low, high [1]; None where the coefficient has no peak.
    """
    share = coefficient.get("share_of_peak")
    if share is None:
        return None
    value = float(coefficient["value"])
    low, high = coefficient.get("ci95") or (value, value)
    ratio = float(share) / value if value else 1.0
    return float(share), float(low) * ratio, float(high) * ratio
