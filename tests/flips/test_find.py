from __future__ import annotations

import dataclasses
import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelfit.documents.questions import Question
from kernelfit.flips import Flag, default_questions, find_flips, flip_rows, unanswered
from kernelfit.flips.defaults import round_above
from kernelfit.flips.flag import CONCLUSIONS, FLAGS
from kernelfit.kernel.errors import InvalidArgument
from tests.flips.planted import kernel


def flags_of(*args: object, **words: object) -> tuple[Flag, ...]:
    """Ask with a fixed noise."""
    return find_flips(*args, noise_spread=0.02, inflation=2.0, **words)  # type: ignore[arg-type]


def test_rows_carry_what_the_contract_says() -> None:
    pools = [kernel(), kernel(tp=2, max_num_seqs=8)]
    rows = flip_rows(flags_of(pools, [Question(1023, 0.0126, (1, 8, 32))]))
    text = json.dumps(rows, allow_nan=False)
    assert json.loads(text) == rows
    wanted = {
        "gpu",
        "pool",
        "model",
        "load",
        "conclusion",
        "flag",
        "overlap",
        "no_overlap",
        "fitted",
        "margin",
        "probability",
        "measurement",
    }
    for row in rows:
        assert wanted <= set(row)
        assert row["flag"] in FLAGS
        assert row["conclusion"] in CONCLUSIONS
        assert (row["measurement"] is None) == (row["flag"] == "agree")
        assert row["flag"] == "measure" or row["overlap"] == row["no_overlap"]
    # Per pool three times yes or no, a batch and, where it runs, a bottleneck; then the best,
    # and what the wider pool does where both run.
    assert [row["conclusion"] for row in rows].count("meets_token_latency") == 6
    assert [row["conclusion"] for row in rows].count("bottleneck") == 5
    assert [row["conclusion"] for row in rows[-4:]] == [
        "best_pool",
        "wider_is_faster",
        "wider_is_faster",
        "wider_pays",
    ]


def test_a_row_that_two_questions_share_stands_once() -> None:
    rows = flags_of([kernel()], [Question(1023, 0.02, (8,)), Question(1023, 0.03, (8, 16))])
    keys = [(flag.conclusion, flag.load) for flag in rows]
    assert len(keys) == len(set(keys))
    assert keys.count(("bottleneck", "8 x 1,023 tokens")) == 1
    assert sum(flag.conclusion == "meets_token_latency" for flag in rows) == 3


def test_a_question_may_name_its_model_and_pools() -> None:
    pools = [kernel(), kernel(tp=2), kernel(tp=4)]
    only = Question(1023, 0.03, (8,), model="planted", pools=("tp1", "tp4"))
    stranger, missing = Question(1023, 0.03, (8,), model="other"), Question(1, 1.0, pools=("tp8",))
    flags = flags_of(pools, [only, stranger, missing])
    assert {flag.pool for flag in flags} == {"tp1", "tp4", "tp1, tp4"}
    assert unanswered(pools, [only, stranger, missing]) == (stranger, missing)
    assert flags_of(pools, [stranger]) == ()


def test_pools_can_be_named_and_never_share_a_name() -> None:
    pools = [kernel(), kernel(max_num_seqs=8)]
    question = [Question(1023, 0.03)]
    assert [f.pool for f in flags_of(pools, question)] == ["tp1", "tp1 (2)", "tp1, tp1 (2)"]
    named = flags_of(pools, question, names=("wide", "narrow"))
    assert [f.pool for f in named] == ["wide", "narrow", "wide, narrow"]
    with pytest.raises(InvalidArgument, match="one per kernel"):
        flags_of(pools, question, names=("wide",))


def test_no_noise_is_invented() -> None:
    with pytest.raises(InvalidArgument, match="noise_spread"):
        find_flips([kernel()], [], noise_spread=-1.0, inflation=1.0)


targets = st.floats(1e-3, 0.5)


@settings(max_examples=60, deadline=None)
@given(
    low=targets,
    high=targets,
    requests=st.integers(1, 64),
    share=st.floats(0.0, 1.0),
    tp=st.sampled_from([1, 2, 4]),
    collective_s=st.floats(1e-6, 1e-2),
)
def test_a_longer_target_never_turns_yes_into_no(
    low: float, high: float, requests: int, share: float, tp: int, collective_s: float
) -> None:
    low, high = min(low, high), max(low, high)
    pool = kernel(
        share=share, tp=tp, collective_s=collective_s, draws=((0.8, 1.0), (1.0, 1.1), (1.2, 0.9))
    )
    views = ("overlap", "no_overlap", "fitted")
    at = [
        {flag.conclusion: flag for flag in flags_of([pool], [Question(1023, target, (requests,))])}
        for target in (low, high)
    ]
    for view in views:
        before, after = (getattr(each["meets_token_latency"], view) for each in at)
        assert (before, after) != ("yes", "no")
        before, after = (getattr(each["largest_batch"], view) for each in at)
        assert before <= after
    for each in at:
        # What the slow bound meets, the fast one meets; the fitted mix lies between.
        meets, largest = each["meets_token_latency"], each["largest_batch"]
        assert [meets.no_overlap, meets.fitted, meets.overlap] in (
            ["no", "no", "no"],
            ["no", "no", "yes"],
            ["no", "yes", "yes"],
            ["yes", "yes", "yes"],
        )
        assert largest.no_overlap <= largest.fitted <= largest.overlap
        assert (meets.flag == "measure") == (meets.overlap != meets.no_overlap)
        assert (meets.fitted == "yes") == (requests <= largest.fitted)


@settings(max_examples=40, deadline=None)
@given(target_s=targets, requests=st.integers(1, 64), scale=st.floats(0.1, 10.0))
def test_the_margin_is_where_the_answer_changes(
    target_s: float, requests: int, scale: float
) -> None:
    # Scaling the target by the margin from the right side lands on the change.
    (flag,) = (
        f
        for f in flags_of([kernel()], [Question(1023, target_s, (requests,))])
        if f.conclusion == "meets_token_latency"
    )
    assert flag.margin is not None
    assert flag.fitted_s is not None
    sign = 1.0 if flag.fitted == "yes" else -1.0
    assert flag.fitted_s * (1.0 + sign * flag.margin) == pytest.approx(target_s)


@pytest.mark.parametrize(
    ("time_s", "target_s"),
    [(0.0075, 0.01), (0.01, 0.01), (0.0101, 0.02), (0.021, 0.05), (0.051, 0.1), (3.0, 5.0)],
)
def test_round_targets(time_s: float, target_s: float) -> None:
    assert round_above(time_s) == target_s


@given(time_s=st.floats(1e-7, 1e3))
def test_a_round_target_is_the_next_one_up(time_s: float) -> None:
    target_s = round_above(time_s)
    digit, power = f"{target_s:.0e}".split("e")
    assert digit in ("1", "2", "5")
    assert float(f"{digit}e{power}") == target_s
    assert time_s <= target_s < 2.5 * time_s * (1 + 1e-9)


def test_default_questions_follow_from_the_kernels() -> None:
    pools = [kernel(max_num_seqs=16, max_model_len=1200), kernel(tp=2, max_num_seqs=4)]
    questions = default_questions(pools)
    # 8 requests in 14 ms on one GPU, 4 in (5 + 7) / 2 = 6 ms on two: 20 and 10 ms are next.
    assert questions == (
        Question(256, 0.01, (1, 8), "planted"),
        Question(256, 0.02, (1, 8), "planted"),
        Question(1024, 0.01, (1, 8), "planted"),
        Question(1024, 0.02, (1, 8), "planted"),
        Question(4096, 0.01, (1,), "planted"),
    )
    assert default_questions([kernel(max_model_len=256)]) == ()
    assert len(default_questions([kernel(max_model_len=257)])) == 1
    assert default_questions([]) == ()


def test_default_questions_are_answered() -> None:
    pools = [kernel(), kernel(tp=2)]
    flags = flags_of(pools, default_questions(pools))
    asked = {"meets_token_latency", "largest_batch", "best_pool", "bottleneck"}
    assert {flag.conclusion for flag in flags} == asked | {"wider_is_faster", "wider_pays"}
    assert unanswered(pools, default_questions(pools)) == ()


def test_a_hundred_pools_times_loads_take_seconds() -> None:
    draws = tuple((1.0 + i / 1000, 1.0 - i / 1000) for i in range(100))
    pools = [kernel(draws=draws, max_num_seqs=128, gpu=f"gpu-{i}") for i in range(10)]
    questions = [Question(256 * (1 + i), 0.02, (32,)) for i in range(10)]
    start = time.perf_counter()
    flags = flags_of(pools, questions)
    assert time.perf_counter() - start < 10.0
    assert sum(flag.conclusion == "meets_token_latency" for flag in flags) == 100


def test_a_flag_is_a_plain_value() -> None:
    (flag,) = flags_of([kernel()], [Question(1023, 0.03)])
    assert dataclasses.asdict(flag) | {"ranking": []} == flip_rows([flag])[0]
