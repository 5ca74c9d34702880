"""One rate without a floor beside it may be that of small or of large messages.

Found on planted fleets in which small messages hide behind multiplications: the rate of
large ones was fitted as that of small ones, 58 % off, and called identified to 0.1 %.
"""

from __future__ import annotations

import pytest

from kernelfit.fit.calibration import Evidence
from kernelfit.fit.two_forms import tell_forms_apart
from kernelfit.kernel.catalog import Coefficient
from tests.kernel.builders import CHIP

LEAST = 1e-3
NAMES = ("allreduce_custom_floor_s", "allreduce_custom_transition_eff", "allreduce_custom_eff")


def judged(
    verdicts: tuple[str, str, str], floor_share: float
) -> tuple[tuple[Coefficient, ...], tuple[Evidence, ...]]:
    values = ((4e-6, 3e-6, 5e-6), (0.25, 0.24, 0.26), (0.90, 0.50, 1.0))
    coefficients = tuple(
        Coefficient(
            name=name,
            value=value,
            unit="s" if name.endswith("_s") else "1",
            scope=CHIP.name,
            method="literature" if verdict == "prior" else "measured",
            verdict=verdict,
            ci95=(low, high),
        )
        for name, verdict, (value, low, high) in zip(NAMES, verdicts, values, strict=True)
    )
    evidence = tuple(
        Evidence(
            data_spread=0.02,
            vif=1.0,
            bootstrap_cv=0.02,
            bound_share=0.0,
            prior_shrinkage=0.9,
            time_share=share,
            alias=(),
        )
        for share in (floor_share, 0.2, 0.0)
    )
    return coefficients, evidence


@pytest.mark.parametrize(
    ("verdicts", "floor_share"),
    [
        (("weak", "identified", "prior"), LEAST / 2),
        (("at_bound", "identified", "prior"), LEAST * 2),
        (("prior", "weak", "prior"), LEAST * 2),
    ],
)
def test_a_rate_without_a_floor_is_an_alias(
    verdicts: tuple[str, str, str], floor_share: float
) -> None:
    before = judged(verdicts, floor_share)
    (floor, small, large), known, (note,) = tell_forms_apart(*before, LEAST)
    assert floor == before[0][0]
    # Whichever of the two shows, both are at least as fast.
    assert (small.verdict, small.ci95) == ("weak", (0.24, 1.0))
    assert small.method != "measured"
    assert (large.verdict, large.ci95) == ("prior", (0.24, 1.0))
    assert [e.alias for e in known] == [(), (NAMES[2],), (NAMES[1],)]
    assert "allreduce_custom: one rate shows" in note


def test_the_rate_of_large_messages_may_be_that_of_small_ones() -> None:
    before = judged(("prior", "prior", "identified"), 0.0)
    (_, small, large), _, _ = tell_forms_apart(*before, LEAST)
    assert (large.verdict, large.ci95) == ("weak", (0.50, 1.0))
    assert (small.verdict, small.ci95) == ("prior", (0.24, 0.26))


@pytest.mark.parametrize(
    ("verdicts", "floor_share"),
    [
        # The floor shows, so the line through it is the first form.
        (("identified", "identified", "prior"), LEAST),
        (("weak", "identified", "prior"), LEAST),
        # Both rates show, so neither is the other.
        (("at_bound", "identified", "identified"), 0.0),
        # Neither was measured.
        (("prior", "prior", "prior"), 0.0),
    ],
)
def test_what_tells_the_forms_apart_leaves_them_alone(
    verdicts: tuple[str, str, str], floor_share: float
) -> None:
    before = judged(verdicts, floor_share)
    assert tell_forms_apart(*before, LEAST) == (*before, ())
