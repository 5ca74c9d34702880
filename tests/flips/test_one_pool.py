"""Conclusions about one pool, against answers worked out by hand (see ``planted``)."""

from __future__ import annotations

import numpy as np
import pytest

from kernelfit.documents.questions import Question
from kernelfit.flips import Flag, find_flips
from kernelfit.flips.conclude import largest_batch, meets
from kernelfit.flips.views import Views
from kernelfit.kernel.fitted import FittedKernel
from kernelfit.kernel.handover import Range
from tests.flips.planted import kernel

CONTEXT = 1023


def ask(
    pool: FittedKernel,
    conclusion: str,
    *,
    target_ms: float,
    requests: tuple[int, ...] = (8,),
    context: int = CONTEXT,
) -> Flag:
    """Return the one flag of a conclusion."""
    question = Question(context, target_ms * 1e-3, requests)
    flags = find_flips([pool], [question], noise_spread=0.02, inflation=2.0)
    (found,) = [flag for flag in flags if flag.conclusion == conclusion]
    return found


def outcomes(flag: Flag) -> tuple[object, ...]:
    """Return the conclusion in the three views."""
    return flag.overlap, flag.no_overlap, flag.fitted


# 8 requests take 10 ms under Overlap, 18 ms under NoOverlap and 14 ms as fitted.
@pytest.mark.parametrize(
    ("target_ms", "seen", "flag", "margin"),
    [
        (8.0, ("no", "no", "no"), "agree", 6 / 14),
        (12.0, ("yes", "no", "no"), "measure", 2 / 14),
        (16.0, ("yes", "no", "yes"), "measure", 2 / 14),
        (30.0, ("yes", "yes", "yes"), "agree", 16 / 14),
    ],
)
def test_meets_a_target(target_ms: float, seen: tuple[str, ...], flag: str, margin: float) -> None:
    found = ask(kernel(), "meets_token_latency", target_ms=target_ms)
    assert (outcomes(found), found.flag) == (seen, flag)
    assert found.margin == pytest.approx(margin)
    times = (found.overlap_s, found.no_overlap_s, found.fitted_s)
    assert times == pytest.approx((0.010, 0.018, 0.014))
    assert (found.measurement is None) == (flag == "agree") == (found.steps is None)


@pytest.mark.parametrize(("target_s", "seen"), [(0.25, "yes"), (0.2499, "no")])
def test_a_step_that_takes_exactly_the_target_meets_it(target_s: float, seen: str) -> None:
    times = np.array([0.25])
    views = Views(times, times, times, times[None])
    answer = meets(views, 1, target_s)
    assert (answer.overlap, answer.no_overlap, answer.fitted) == (seen,) * 3
    assert answer.probability == 1.0
    assert largest_batch(views, target_s).fitted == (1 if seen == "yes" else 0)


@pytest.mark.parametrize(("share", "same_as"), [(0.0, "no_overlap"), (1.0, "overlap")])
@pytest.mark.parametrize("target_ms", [8.0, 12.0, 16.0, 30.0])
def test_the_fitted_view_becomes_the_bound_that_it_is_mixed_to(
    share: float, same_as: str, target_ms: float
) -> None:
    pool = kernel(share=share)
    for conclusion in ("meets_token_latency", "largest_batch", "bottleneck"):
        found = ask(pool, conclusion, target_ms=target_ms)
        assert found.fitted == getattr(found, same_as)


# A draw with memory at half speed takes (20 + 28) / 2 = 24 ms; the bounds end at 18 ms.
@pytest.mark.parametrize(("slow", "of", "flag"), [(2, 20, "uncertain"), (1, 20, "agree")])
def test_draws_beyond_the_target_make_it_uncertain(slow: int, of: int, flag: str) -> None:
    draws = ((0.5, 1.0),) * slow + ((1.0, 1.0),) * (of - slow)
    found = ask(kernel(draws=draws), "meets_token_latency", target_ms=20.0)
    assert (outcomes(found), found.flag) == (("yes", "yes", "yes"), flag)
    assert found.probability == pytest.approx(1 - slow / of)


def test_without_draws_nothing_is_uncertain_and_no_probability_is_claimed() -> None:
    found = ask(kernel(), "meets_token_latency", target_ms=20.0)
    assert (found.flag, found.probability) == ("agree", None)


SMALL = (Range("requests", 1.0, 4.0),)


@pytest.mark.parametrize(
    ("requests", "target_ms", "draws", "flag"),
    [
        (4, 30.0, (), "agree"),
        (5, 30.0, (), "extrapolated"),
        (8, 12.0, (), "measure"),  # a flip is not hidden by being outside
        (8, 20.0, ((0.5, 1.0),), "uncertain"),
    ],
)
def test_outside_the_domain(
    requests: int, target_ms: float, draws: tuple[tuple[float, float], ...], flag: str
) -> None:
    pool = kernel(domain=SMALL, draws=draws)
    found = ask(pool, "meets_token_latency", target_ms=target_ms, requests=(requests,))
    assert (found.flag, found.in_domain) == (flag, requests <= 4)
    assert (found.measurement is None) == (flag == "agree")


# With B requests beyond 10, Overlap takes B ms, NoOverlap B + 10 ms, the fitted mix B + 5 ms.
def test_the_largest_batch() -> None:
    found = ask(kernel(), "largest_batch", target_ms=22.25)
    assert (outcomes(found), found.flag) == ((22, 12, 17), "measure")
    # 17 requests take 22 ms and 18 take 23 ms; one more or one fewer is more than 5 %.
    assert found.margin == pytest.approx(0.25 / 22)
    assert found.requests == 17
    # 30 steps: the band from 22 to 23 ms is wide against a noise of 3 %.
    assert found.measurement is not None
    assert "17 x 1,023 tokens on planted tp1 (planted-gpu)" in found.measurement


# 17 requests take 22 ms and 18 take 23 ms; a pool that holds 17 cannot serve 18.
@pytest.mark.parametrize(("held", "margin"), [(18, 0.1 / 23), (17, 0.9 / 22)])
def test_only_a_batch_that_fits_can_be_the_next_one(held: int, margin: float) -> None:
    found = ask(kernel(max_num_seqs=held), "largest_batch", target_ms=22.9)
    assert (found.fitted, found.margin) == (17, pytest.approx(margin))


@pytest.mark.parametrize(
    ("target_ms", "seen", "flag"),
    [(150.5, (150, 140, 145), "measure"), (300.5, (300, 290, 295), "agree")],
)
def test_largest_batches_within_a_twentieth_are_the_same(
    target_ms: float, seen: tuple[int, ...], flag: str
) -> None:
    found = ask(kernel(max_num_seqs=1024), "largest_batch", target_ms=target_ms)
    assert (outcomes(found), found.flag) == (seen, flag)


def test_draws_within_a_twentieth_agree_on_the_largest_batch() -> None:
    # Multiplying at 0.97 of the speed holds 0.97 of the requests; at 0.8 it does not do.
    near, far = (1.0, 0.97), (1.0, 0.8)
    pool = kernel(max_num_seqs=1024, draws=(near,) * 8 + (far,) * 2)
    found = ask(pool, "largest_batch", target_ms=300.5)
    assert (found.flag, found.probability) == ("uncertain", pytest.approx(0.8))


def test_no_batch_meets_a_target_below_the_fastest_step() -> None:
    found = ask(kernel(), "largest_batch", target_ms=9.0)
    assert (outcomes(found), found.flag) == ((0, 0, 0), "agree")
    assert found.margin == pytest.approx(1 - 9 / 10.5)


@pytest.mark.parametrize(("sequences", "held"), [(5.5, 5), (6.01, 6)])
def test_memory_limits_the_largest_batch(sequences: float, held: int) -> None:
    fixed_bytes = kernel().fixed_bytes().total()
    # 1,024 tokens are 64 pages of 16 tokens of 256 bytes; the engine may use half.
    room_bytes = sequences * 64 * 16 * 256
    pool = kernel(hbm_bytes=int(2 * (fixed_bytes + room_bytes)) + 1)
    found = ask(pool, "largest_batch", target_ms=500.0, requests=(held, held + 1)[:1])
    assert outcomes(found) == (held, held, held)
    assert found.limit == "memory"
    beyond = ask(pool, "meets_token_latency", target_ms=500.0, requests=(held + 1,))
    assert outcomes(beyond) == ("not held",) * 3


def test_the_scheduler_limits_the_largest_batch() -> None:
    found = ask(kernel(max_num_seqs=10), "largest_batch", target_ms=22.25)
    assert (outcomes(found), found.flag, found.limit) == ((10,) * 3, "agree", "max_num_seqs = 10")
    assert found.margin == pytest.approx(22.25 / 15 - 1)


@pytest.mark.parametrize(("longest", "held"), [(1024, 64), (1023, 0)])
def test_a_sequence_may_not_grow_beyond_the_model(longest: int, held: int) -> None:
    found = ask(kernel(max_model_len=longest), "largest_batch", target_ms=500.0)
    assert found.fitted == (held or "not held")
    if not held:
        assert found.limit == "max_model_len = 1023"


def test_one_resource_leads_between_the_bounds() -> None:
    found = ask(kernel(), "bottleneck", target_ms=30.0)
    assert (outcomes(found), found.flag) == (("hbm",) * 3, "agree")
    # Of 14 ms, 10 are owed to memory and 4 to multiplications: half of their 8.
    assert found.margin == pytest.approx(6 / 10)
    assert found.load == "8 x 1,023 tokens"


def test_the_bounds_see_another_bottleneck() -> None:
    # 6 requests: the layer multiplies for 3 + 2.5 ms against 5 ms of memory, the head for 3
    # against 5. Added up memory leads (10 to 8.5); the maxima are 5.5 and 5.
    pool = kernel(attention_s=2.5e-3 / 6)
    found = ask(pool, "bottleneck", target_ms=30.0, requests=(6,))
    assert (outcomes(found), found.flag) == (("sm", "hbm", "hbm"), "measure")
    # 10 - 5 s = 8.5 - 3 s at s = 3/4, a step of 12.5 ms instead of 14.5 ms.
    assert found.margin == pytest.approx(2 / 14.5)
    assert found.measurement is not None
    assert "their mean settles a margin of 14 %" in found.measurement


def test_a_doubtful_bottleneck_asks_for_a_new_fit() -> None:
    # Multiplying at 0.7 of the speed takes 11.4 ms against 10 ms of memory.
    pool = kernel(draws=((1.0, 1.0),) * 8 + ((1.0, 0.7),) * 2)
    found = ask(pool, "bottleneck", target_ms=30.0)
    assert (found.flag, found.probability) == ("uncertain", pytest.approx(0.8))
    assert found.measurement is not None
    assert found.measurement.endswith("and fit again with them.")


def test_a_host_that_hides_leads_only_where_it_outlasts_the_device() -> None:
    # 12 ms of host time: longer than 10 ms under Overlap, shorter than 14 ms as fitted.
    pool = kernel(host_s=0.012, async_scheduling=True)
    found = ask(pool, "bottleneck", target_ms=30.0)
    assert (outcomes(found), found.flag) == (("host", "host", "hbm"), "measure")
    # 18 - 8 s = 12 at s = 3/4: a step of 12 ms instead of 14 ms.
    assert found.margin == pytest.approx(2 / 14)
    shorter = ask(
        kernel(host_s=0.011, async_scheduling=True), "bottleneck", target_ms=30.0, requests=(12,)
    )
    assert (outcomes(shorter), shorter.flag) == (("sm",) * 3, "agree")
    assert shorter.margin == pytest.approx((12 - 5) / 12)


def test_a_host_that_does_not_hide_is_added_to_every_view() -> None:
    found = ask(kernel(host_s=0.012), "bottleneck", target_ms=30.0)
    assert outcomes(found) == ("host",) * 3
    assert found.fitted_s == pytest.approx(0.026)
