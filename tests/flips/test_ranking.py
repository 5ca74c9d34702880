"""Which pool is best, against answers worked out by hand (see ``planted``)."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kernelfit.documents.questions import Question
from kernelfit.flips import Flag, find_flips
from kernelfit.flips.conclude import Answer
from kernelfit.flips.objective import Goal, Stake
from kernelfit.flips.ranking import rank_pools
from kernelfit.flips.views import Views
from kernelfit.kernel.fitted import FittedKernel
from kernelfit.kernel.handover import Range
from tests.flips.planted import kernel


def best(pools: list[FittedKernel], target_ms: float) -> Flag:
    """Return the one flag about the best pool."""
    question = Question(1023, target_ms * 1e-3)
    flags = find_flips(pools, [question], noise_spread=0.02, inflation=2.0)
    (found,) = [flag for flag in flags if flag.conclusion == "best_pool"]
    return found


def outcomes(flag: Flag) -> tuple[object, ...]:
    """Return the conclusion in the three views."""
    return flag.overlap, flag.no_overlap, flag.fitted


def test_the_bounds_prefer_different_pools() -> None:
    # Within 12.6 ms, one GPU: 10 requests in 10 ms under Overlap, 2 in 12 ms under NoOverlap,
    # 5 in 12.5 ms as fitted. Two GPUs, at most 8 requests: 5, 10.5 and 7.75 ms.
    found = best([kernel(), kernel(tp=2, max_num_seqs=8, collective_s=0.0005)], 12.6)
    assert (outcomes(found), found.flag) == (("tp1", "tp2", "tp2"), "measure")
    assert found.overlap_gpu_tokens_per_s == pytest.approx(1000)
    assert found.no_overlap_gpu_tokens_per_s == pytest.approx(8 / 0.0105 / 2)
    assert found.fitted_gpu_tokens_per_s == pytest.approx(8 / 0.00775 / 2)
    # Two GPUs lead until they are slower by 29 % (then they serve the 400 tokens/s of one), but
    # one GPU that is faster by 7 % holds 7 requests in 12.6 ms, and so 556 tokens/s.
    assert found.margin == pytest.approx(1 - 12.6 / 13.5)
    # One GPU is known less: 1000 to 167 tokens/s against 800 to 381.
    assert found.measurement is not None
    assert "7 x 1,023 tokens on planted tp1" in found.measurement
    assert found.measurement.endswith("settles a margin of 6.7 %.")
    assert (found.pool, found.load) == ("tp1, tp2", "1,023 tokens, target 12.6 ms")


def test_only_one_pool_meets_the_target() -> None:
    # One GPU needs 10 ms for anything; two need 5 + B/2 ms under NoOverlap.
    found = best([kernel(), kernel(tp=2)], 8.1)
    assert (outcomes(found), found.flag) == (("tp2",) * 3, "agree")
    # It serves 11 requests in 8 ms, and one request in 5.25 ms, so that it may become slower by
    # 54 %; one GPU overtakes with 6 requests (13 ms) once it is faster by 38 %.
    assert found.margin == pytest.approx(1 - 8.1 / 13)


def test_a_pool_that_alone_meets_the_target_is_measured_at_its_last_batch() -> None:
    # Two GPUs, one request: 5 ms under Overlap, 5.5 ms under NoOverlap, 5.25 ms as fitted.
    found = best([kernel(), kernel(tp=2)], 5.4)
    assert (outcomes(found), found.flag) == (("tp2", "none", "tp2"), "measure")
    assert found.margin == pytest.approx(5.4 / 5.25 - 1)
    assert found.measurement is not None
    assert "1 x 1,023 tokens on planted tp2" in found.measurement


def test_no_pool_meets_the_target() -> None:
    found = best([kernel(), kernel(tp=2)], 4.0)
    assert (outcomes(found), found.flag) == (("none",) * 3, "agree")
    assert found.margin == pytest.approx(1 - 4 / 5.25)
    assert found.fitted_gpu_tokens_per_s == 0.0


@pytest.mark.parametrize(("slow", "flag"), [(2, "uncertain"), (0, "agree")])
def test_the_draws_of_one_gpu_type_put_its_lead_in_doubt(slow: int, flag: str) -> None:
    # 8 requests in 14 ms (571/s) against 7 in 13.5 ms (518/s) as fitted; with memory at half
    # speed, the first needs 24 ms (333/s).
    draws = ((0.5, 1.0),) * slow + ((1.0, 1.0),) * (10 - slow)
    first = kernel(max_num_seqs=8, gpu="first", draws=draws)
    found = best([first, kernel(max_num_seqs=7, gpu="second")], 100.0)
    assert (outcomes(found), found.flag) == (("first tp1",) * 3, flag)
    assert found.probability == pytest.approx(1 - slow / 10)
    assert found.gpu == "first, second"
    if slow:
        assert found.measurement is not None
        assert "8 x 1,023 tokens on planted tp1 (first)" in found.measurement


def test_a_fitted_winner_that_neither_bound_names_is_a_flip() -> None:
    none = np.zeros((0, 1))
    first = Views(np.array([1.0]), np.array([3.0]), np.array([2.5]), none)
    second = Views(np.array([1.1]), np.array([3.1]), np.array([2.0]), none)
    answer = rank_pools([first, second], [Stake(1), Stake(1)], ["a", "b"], Goal(10.0)).answer
    assert (answer.overlap, answer.no_overlap, answer.fitted) == ("a", "a", "b")
    assert answer.differ


@settings(max_examples=100, deadline=None)
@given(
    times=st.lists(st.lists(st.floats(0.1, 10.0), min_size=1, max_size=4), min_size=2, max_size=4),
    gpus=st.lists(st.integers(1, 4), min_size=4, max_size=4),
    target_s=st.floats(0.1, 10.0),
)
@example(times=[[3.0], [1.099609375], [1.099609375]], gpus=[1, 3, 3, 1], target_s=2.0)
def test_the_winner_changes_at_the_margin_and_not_before(
    times: list[list[float]], gpus: list[int], target_s: float
) -> None:
    def winner(scale: float, of: int) -> Answer:
        pools = [
            Views(*(np.array(t) * (scale if place == of else 1.0),) * 3, np.zeros((0, len(t))))
            for place, t in enumerate(times)
        ]
        return rank_pools(pools, stakes[: len(times)], labels, Goal(target_s)).answer

    stakes = [Stake(n) for n in gpus]
    labels = [str(place) for place in range(len(times))]
    plain = winner(1.0, 0)
    assert plain.margin is not None
    changed = []
    for of in range(len(times)):
        for sign in (1.0, -1.0):
            # Two pools that tie have a margin of rounding alone.
            inside = winner(1.0 + sign * max(plain.margin - 1e-9, 0.0), of)
            assert inside.fitted == plain.fitted
            changed.append(winner(1.0 + sign * (plain.margin + 1e-6), of).fitted != plain.fitted)
    assert any(changed)


def test_one_pool_outside_its_domain() -> None:
    inside = kernel(max_num_seqs=8, gpu="first")
    outside = kernel(max_num_seqs=6, gpu="second", domain=(Range("requests", 1.0, 5.0),))
    found = best([inside, outside], 100.0)
    assert (found.fitted, found.flag) == ("first tp1", "extrapolated")
    assert found.measurement is not None
    assert "6 x 1,023 tokens on planted tp1 (second)" in found.measurement


def test_a_pool_that_holds_nothing_does_not_compete() -> None:
    short = kernel(tp=2, max_model_len=100)
    found = best([short, kernel()], 30.5)
    assert outcomes(found) == ("tp1",) * 3
    assert found.margin is not None
    assert math.isfinite(found.margin)
    flags = find_flips([short, short], [Question(1023, 1.0)], noise_spread=0.0, inflation=1.0)
    assert [flag.conclusion for flag in flags] == ["largest_batch", "largest_batch"]
