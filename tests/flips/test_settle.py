from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelfit.flips.settle import aim_of, check_noise, steps_needed, tie_margin
from kernelfit.kernel.errors import InvalidArgument


def test_steps_by_hand() -> None:
    # sigma = 1.4826 x 2 % = 2.9652 %; a third of 3 % is 1 %; 2 x 2.9652^2 = 17.58: at least 30.
    assert steps_needed(0.03, 0.02, 2.0) == 30
    # A third of 1.5 % is 0.5 %; 2 x (2.9652 / 0.5)^2 = 70.34.
    assert steps_needed(0.015, 0.02, 2.0) == 71
    # Four times as many for half of it: 281.36.
    assert steps_needed(0.0075, 0.02, 2.0) == 282
    # 3 x 2.9652 % x sqrt(2 / 10,000) = 0.1258 %.
    assert tie_margin(0.02, 2.0) == pytest.approx(0.001258, abs=1e-6)


@pytest.mark.parametrize("margin", [0.0, 1e-9, 0.00125])
def test_a_tie_takes_the_most_steps(margin: float) -> None:
    assert steps_needed(margin, 0.02, 2.0) == 10_000
    assert "is a tie" in aim_of("meets_token_latency", "measure", margin, tie_margin(0.02, 2.0))


@pytest.mark.parametrize(("margin", "noise"), [(None, 0.02), (0.0, 0.0), (1e-9, 0.0)])
def test_without_a_margin_or_noise_the_fewest_steps(margin: float | None, noise: float) -> None:
    assert steps_needed(margin, noise, 2.0) == 30


@given(
    margin=st.floats(1e-6, 10.0),
    noise=st.floats(1e-6, 1.0),
    inflation=st.floats(0.5, 100.0),
)
def test_the_fewest_steps_that_do(margin: float, noise: float, inflation: float) -> None:
    steps = steps_needed(margin, noise, inflation)
    assert 30 <= steps <= 10_000

    def error(n: int) -> float:
        return 1.4826 * noise * math.sqrt(inflation / n)

    if steps < 10_000:
        assert error(steps) < margin / 3 * (1 + 1e-9)
    if steps > 30:
        assert error(steps - 1) >= margin / 3 * (1 - 1e-9)


@pytest.mark.parametrize(
    ("noise", "inflation"),
    [(-0.01, 1.0), (math.nan, 1.0), (math.inf, 1.0), (0.01, 0.0), (0.01, -1.0), (0.01, math.nan)],
)
def test_a_noise_that_no_calibration_has(noise: float, inflation: float) -> None:
    with pytest.raises(InvalidArgument):
        check_noise(noise, inflation)
    check_noise(0.0, 0.01)
