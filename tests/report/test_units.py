"""Display units and digits: what is shown is the number, to the digits it deserves."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelfit.report.units import (
    count,
    decimals,
    fixed,
    number,
    peak_text,
    percent,
    scale_for,
    seconds,
    share_of_peak,
    show,
    time_texts,
    within,
)
from tests.report.samples import PEAK_BYTES_PER_S, PEAK_FLOP_PER_S, coefficient


@pytest.mark.parametrize(
    ("unit", "magnitude", "factor", "shown"),
    [
        ("s", 2.0, 1.0, "s"),
        ("s", 0.999, 1e3, "ms"),
        ("s", 1e-3, 1e3, "ms"),
        ("s/layer", 9.99e-4, 1e6, "us/layer"),
        ("s per request per layer", 3e-7, 1e6, "us per request per layer"),
        ("s/token", 5e-8, 1e9, "ns/token"),
        ("s/step", 0.0, 1e6, "us/step"),
        ("byte/s", 3.35e12, 1e-9, "GB/s"),
        ("byte/s", 5e7, 1e-6, "MB/s"),
        ("FLOP/s", 989e12, 1e-12, "TFLOP/s"),
        ("FLOP/s", 9e11, 1e-9, "GFLOP/s"),
        ("tokens", 170.0, 1.0, "tokens"),
        ("1", 0.8, 1.0, "1"),
        ("steps", 3.0, 1.0, "steps"),
    ],
)
def test_display_unit(unit: str, magnitude: float, factor: float, shown: str) -> None:
    scale = scale_for(unit, magnitude)
    assert scale.factor == pytest.approx(factor)
    assert scale.unit == shown


def test_a_ratio_with_a_peak_is_shown_as_the_rate_it_stands_for() -> None:
    # 0.7 of 989 TFLOP/s is 692.3; the half width 0.01 of 989 is 9.89, two digits are one decimal.
    shown = show(coefficient("gemm_eff_bf16", 0.7, "1", [0.69, 0.71], peak=PEAK_FLOP_PER_S))
    assert (shown.value, shown.unit) == ("692.3", "TFLOP/s")
    assert (shown.low, shown.high) == ("682.4", "702.2")
    # 0.8 of 3,350 GB/s is 2,680.
    shown = show(coefficient("hbm_kv_eff", 0.8, "1", [0.795, 0.805], peak=PEAK_BYTES_PER_S))
    assert (shown.value, shown.unit) == ("2,680", "GB/s")


def test_the_stated_unit_of_the_peak_counts() -> None:
    entry = coefficient("gemm_eff_fp32", 0.5, "1", [0.4, 0.6], peak=8e10, peak_unit="flop/s")
    shown = show(entry)
    assert (shown.value, shown.unit, peak_text(entry)) == ("40.0", "GFLOP/s", "80 GFLOP/s")
    odd = coefficient("sparse_eff", 0.5, "1", [0.4, 0.6], peak=2e12, peak_unit="flop/s")
    assert show(odd).unit == "TFLOP/s"


def test_a_ratio_without_a_peak_stays_a_ratio() -> None:
    shown = show(coefficient("moe_imbalance", 1.05, "1", [1.01, 1.09]))
    assert (shown.value, shown.unit, shown.low, shown.high) == ("1.050", "1", "1.010", "1.090")


def test_a_value_without_an_interval_has_four_digits_and_no_ends() -> None:
    entry = coefficient("launch_step_s", 0.00123456, "s/step", [0, 0])
    entry["ci95"] = None
    shown = show(entry)
    assert (shown.value, shown.unit, shown.low, shown.high) == ("1.235", "ms/step", "-", "-")


def test_ends_that_are_decades_apart_have_digits_of_their_own() -> None:
    shown = show(coefficient("attention_request_s", 1e-7, "s", [1e-9, 6.8128e-6]))
    assert (shown.value, shown.unit, shown.low, shown.high) == (
        "0.10",
        "us",
        "0.0010",
        "6.8",
    )
    shown = show(coefficient("launch_request_s", 1e-5, "s", [9.2e-8, 1.2673e-4]))
    assert (shown.value, shown.unit, shown.low, shown.high) == ("10", "us", "0.092", "130")
    # The nearest interval with one last digit for all.
    shown = show(coefficient("launch_request_s", 1e-5, "s", [1.4e-6, 1.3e-5]))
    assert (shown.value, shown.low, shown.high) == ("10.0", "1.4", "13.0")


def test_a_wide_interval_takes_digits_away() -> None:
    # A half width of 3.4 tokens says nothing about hundredths of a token.
    shown = show(coefficient("gemm_m_half_bf16", 3.854, "tokens", [1.612, 8.361]))
    assert (shown.value, shown.low, shown.high) == ("3.9", "1.6", "8.4")
    assert time_texts(0.0123456, 0.0101, 0.0149) == ("12.3", "10.1", "14.9", "ms")
    assert time_texts(0.0123456, 0.012341, 0.012351)[0] == "12.3456"
    assert within(0.0123456, 0.0012) == "12.3 ms"
    assert within(0.0, 0.0012) == "0.0 ms"


def test_rounding_does_not_lift_a_rate_above_its_peak() -> None:
    # 1.0 of 3,350 GB/s rounds to 3,400 at the digits of [1,005, 3,350].
    shown = show(coefficient("hbm_kv_eff", 0.8, "1", [0.3, 1.0], peak=PEAK_BYTES_PER_S))
    assert (shown.value, shown.low, shown.high) == ("2,700", "1,000", "3,350")
    # An efficiency that may pass its peak is not held down.
    shown = show(coefficient("hbm_expert_eff", 0.9, "1", [0.3, 1.4], peak=PEAK_BYTES_PER_S))
    assert shown.high == "4,700"


def test_a_zero_is_shown_in_the_unit_of_its_interval() -> None:
    shown = show(coefficient("launch_step_s", 0.0, "s/step", [0.0, 0.002]))
    assert (shown.value, shown.unit, shown.high) == ("0.0", "ms/step", "2.0")


@pytest.mark.parametrize(
    ("value", "half_width", "places"),
    [
        (1.0, 0.1, 2),
        (1234.0, 20.0, 0),
        (1234.0, 500.0, -1),
        (0.00123, 0.0005, 5),
        (1.0, 1e-12, 5),
        (123.456, 0.0, 1),
        (0.0, 0.0, 0),
        (0.0, 0.25, 2),
    ],
)
def test_decimals(value: float, half_width: float, places: int) -> None:
    assert decimals(value, half_width) == places


TIMES = st.tuples(st.sampled_from(["s", "s/layer", "tokens"]), st.floats(1e-10, 1e4))
RATES = st.tuples(st.sampled_from(["byte/s", "FLOP/s"]), st.floats(1e3, 1e17))


@given(quantity=TIMES | RATES, relative=st.floats(1e-9, 0.9))
def test_what_is_shown_differs_from_the_value_by_less_than_the_interval(
    quantity: tuple[str, float], relative: float
) -> None:
    unit, value = quantity
    half = value * relative
    shown = show(coefficient("c", value, unit, [value - half, value + half]))
    back = float(shown.value.replace(",", "")) / shown.factor
    # Two digits of the half width leave at most a twentieth of it; six of the value 5e-6.
    assert abs(back - value) <= max(0.0501 * half, 5.01e-6 * value)
    low, high = (float(edge.replace(",", "")) for edge in (shown.low, shown.high))
    assert low <= float(shown.value.replace(",", "")) <= high


@given(st.floats(-1e4, 1e4).filter(lambda value: value == 0 or abs(value) > 1e-5))
def test_percent_is_near_and_keeps_the_sign(fraction: float) -> None:
    text = percent(fraction, signed=True)
    back = float(text.replace(",", "")) / 100
    assert back == pytest.approx(fraction, abs=max(5.1e-4, 5.1e-3 * abs(fraction)))
    assert text.startswith("+") == (100 * fraction > 0)


def test_percent_digits() -> None:
    assert [percent(x) for x in (0.0, 0.00123, 0.0099, 0.031, 0.4125, 12.0, 0.00996)] == [
        "0.0",
        "0.12",
        "0.99",
        "3.1",
        "41.2",
        "1,200",
        "1.0",
    ]
    assert percent(-0.02, signed=True) == "-2.0"
    assert percent(0.02, signed=True) == "+2.0"


@given(st.floats(allow_nan=True, allow_infinity=True))
def test_any_number_has_a_text_without_nan(value: float) -> None:
    text = number(value)
    assert "nan" not in text
    assert "inf" not in text
    if math.isfinite(value) and 1e-6 < abs(value) < 1e9:
        assert float(text.replace(",", "")) == pytest.approx(value, rel=6e-3)


def test_missing_is_a_dash() -> None:
    assert (number(None), percent(None), count(None), seconds(None)) == ("-", "-", "-", "-")
    assert percent(math.nan) == "-"


def test_times_and_counts() -> None:
    assert seconds(0.0123) == "12.3 ms"
    assert seconds(2.5e-5) == "25 us"
    assert count(1234567) == "1,234,567"
    assert fixed(-0.0001, 1) == "0.0"


def test_share_of_peak_scales_the_interval() -> None:
    entry = coefficient("r", 2e12, "byte/s", [1.5e12, 2.5e12], share_of_peak=0.5)
    assert share_of_peak(entry) == pytest.approx((0.5, 0.375, 0.625))
    assert share_of_peak(coefficient("t", 1.0, "s", [0.5, 1.5])) is None
