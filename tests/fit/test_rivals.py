"""A composition that the runs do not rule out widens what the chosen one says."""

from __future__ import annotations

import math

import numpy as np
import pytest

from kernelfit.fit.calibration import Score
from kernelfit.fit.choose import Choice
from kernelfit.fit.rivals import Rival, allow_for, find_rivals
from kernelfit.fit.solve import Solution
from kernelfit.kernel.catalog import Coefficient
from tests.kernel.builders import CHIP

NAMES = ("hbm_weight_eff", "launch_step_s")


def solution(*costs: float) -> Solution:
    return Solution(np.log(costs), 0.0, 0.02, converged=True, evaluations=1)


def choice(error: float) -> Choice:
    # Weights cost half again as much, launches a tenth less, where only the busiest counts.
    return Choice(
        "sum",
        (Score("sum", 0.10, 0.12, "time_block"), Score("max", error, 0.2, "time_block")),
        (),
        (("sum", solution(2e-12, 1e-3)), ("max", solution(3e-12, 0.9e-3))),
    )


def measured(value: float, low: float, high: float, verdict: str = "identified") -> Coefficient:
    return Coefficient(
        name="hbm_weight_eff",
        value=value,
        unit="1",
        scope=CHIP.name,
        method="measured",
        verdict=verdict,
        ci95=(low, high),
    )


def rival(ratio: float, rule: str = "max") -> Rival:
    return Rival(rule, 0.105, (("hbm_weight_eff", ratio),))


def test_a_rule_is_a_rival_up_to_half_again_the_error() -> None:
    # The chosen rule gains a third where the other errs half again as much: 0.10 and 0.15.
    (found,) = find_rivals(choice(0.149), NAMES, CHIP)
    assert found.rule == "max"
    assert dict(found.ratios) == pytest.approx({"hbm_weight_eff": 2 / 3, "launch_step_s": 0.9})
    assert find_rivals(choice(0.151), NAMES, CHIP) == ()


def test_a_given_rule_has_no_rivals() -> None:
    assert find_rivals(Choice("max", (), (), ()), NAMES, CHIP) == ()


def test_what_a_rival_puts_elsewhere_is_weak_and_reaches_there() -> None:
    (found,), (note,) = allow_for([measured(0.66, 0.65, 0.67)], [rival(1.4)])
    assert found.verdict == "weak"
    assert found.ci95 == pytest.approx((0.65, 0.924))
    assert "max (held-out error 10.5 %)" in note
    assert "hbm_weight_eff" in note


@pytest.mark.parametrize(("off", "verdict"), [(0.099, "identified"), (0.101, "weak")])
def test_a_tenth_off_is_where_it_stops_being_identified(off: float, verdict: str) -> None:
    (found,), notes = allow_for([measured(0.5, 0.49, 0.51)], [rival(math.exp(-off))])
    assert found.verdict == verdict
    assert found.ci95 == pytest.approx((0.5 * math.exp(-off), 0.51))
    assert notes


def test_a_rival_that_agrees_changes_nothing() -> None:
    before = measured(0.66, 0.60, 0.70)
    assert allow_for([before], [rival(1.05)]) == ((before,), ())


def test_no_rate_beats_its_peak() -> None:
    (found,), _ = allow_for([measured(0.9, 0.88, 0.92)], [rival(1.3)])
    assert found.ci95 == pytest.approx((0.88, 1.0))


@pytest.mark.parametrize("verdict", ["prior", "at_bound"])
def test_what_the_data_did_not_settle_is_left_alone(verdict: str) -> None:
    before = measured(0.66, 0.65, 0.67, verdict)
    assert allow_for([before], [rival(2.0)]) == ((before,), ())


def test_two_rivals_widen_both_ends() -> None:
    (found,), notes = allow_for([measured(0.5, 0.49, 0.51)], [rival(0.8), rival(1.2, "share")])
    assert found.ci95 == pytest.approx((0.4, 0.6))
    assert len(notes) == 2
