"""Steady loads with prompts, against the simulated GPUs' own loops and by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelfit.documents.questions import Question
from kernelfit.flips import Flag, find_flips
from kernelfit.flips.conclude import SIMULATE
from kernelfit.flips.objective import Goal, Stake, scores_of
from kernelfit.flips.pricing import Pricer
from kernelfit.flips.steady import Load, steady
from kernelfit.flips.views import Views, look
from kernelfit.kernel.batch import Batch, RequestShape
from kernelfit.kernel.errors import InvalidArgument
from tests.flips.planted import kernel

NOISE = {"noise_spread": 0.02, "inflation": 2.0}


def asked(conclusion: str, *pools: object, **words: object) -> list[Flag]:
    """Return the flags of one conclusion."""
    prompt, output = int(words.pop("prompt", 96)), int(words.pop("output", 33))  # type: ignore[call-overload]
    question = Question(
        prompt + (output - 2) // 2,
        words.pop("target_s", None),  # type: ignore[arg-type]
        words.pop("concurrency", ()),  # type: ignore[arg-type]
        prompt_tokens=prompt,
        output_tokens=output,
        **words,  # type: ignore[arg-type]
    )
    flags = find_flips(pools, [question], **NOISE)  # type: ignore[arg-type]
    return [flag for flag in flags if flag.conclusion == conclusion]


@settings(max_examples=60, deadline=None)
@given(
    prompt=st.integers(1, 5000),
    output=st.integers(2, 600),
    most=st.integers(1, 64),
    budget=st.integers(64, 4096),
    hit=st.floats(0.0, 1.0),
)
def test_every_token_of_every_request_is_computed_once_a_life(
    prompt: int, output: int, most: int, budget: int, hit: float
) -> None:
    load = Load(prompt + (output - 2) // 2, prompt, output, hit)
    found = steady(load, most, budget)
    tokens = found.columns["tokens"]
    decode, mixed = tokens[:most], tokens[most:]
    # No step holds more than the engine schedules, and shares are shares.
    assert mixed.max() <= budget * (1 + 1e-9)
    assert found.decode_share.min() >= -1e-12
    assert np.allclose(found.decode_share + found.chunk_share, 1.0)
    for requests in (1, most):
        at = requests - 1
        chunks, steps = found.chunks[at], output - 1.0
        life = chunks + steps
        held = requests * chunks
        chunked = min(held, life)
        total = chunked * mixed[at] + (life - chunked) * decode[at]
        # In a lifetime every one of them computes its new tokens and decodes its answer.
        assert total == pytest.approx(requests * (load.new_tokens + steps), rel=1e-9)


def test_pairs_of_a_whole_prompt_are_those_of_its_chunks() -> None:
    # 100 new tokens behind 28 cached ones, in chunks of 25: the sum over four chunks.
    load = Load(140, 128, 26, 28 / 128)
    found = steady(load, 1, 25)
    assert found.chunks[0] == 4
    pairs = context = 0
    for start in range(28, 128, 25):
        pairs += sum(start + i + 1 for i in range(25))
        context += start + 25
    assert found.columns["prefill_pairs"][1] * 4 == pytest.approx(pairs)
    assert found.columns["prefill_context_tokens"][1] * 4 == pytest.approx(context)


def test_one_request_alone_is_priced_as_its_own_steps() -> None:
    pool = kernel(attention_s=1e-4)
    load = Load(96 + 15, 96, 32)
    views = look(Pricer.of(pool), load).views
    assert views.first is not None
    prompt = pool.step_time(Batch((RequestShape(96, 0, 96),)))
    decode = pool.step_time(Batch.decode(1, 111))
    assert views.first.no_overlap_s[0] == pytest.approx(prompt.no_overlap_s)
    assert views.no_overlap_s[0] == pytest.approx(decode.no_overlap_s)
    # Little's law: 32 tokens in the life of the one request.
    life = prompt.no_overlap_s + 31 * decode.no_overlap_s
    assert views.rates()[1][0] == pytest.approx(32 / life)


def test_more_cached_is_never_slower() -> None:
    pricer = Pricer.of(kernel(attention_s=1e-4))
    before = None
    for hit in (0.0, 0.25, 0.5, 0.9, 1.0):
        views = look(pricer, Load(1000 + 31, 1000, 64, hit)).views
        assert views.first is not None
        if before is not None:
            assert (views.fitted_s <= before[0] + 1e-12).all()
            assert (views.first.fitted_s <= before[1] + 1e-12).all()
        before = (views.fitted_s, views.first.fitted_s)


# A prompt of 96 tokens takes 10 ms of memory and 96 of multiplications (48.5 in the layer, the
# head for its last token alone): 49 under Overlap or more, 59 under NoOverlap.
@pytest.mark.parametrize(
    ("target_s", "flag", "seen"),
    [(0.03, "agree", "no"), (0.2, "agree", "yes")],
)
def test_a_target_to_first_token(target_s: float, flag: str, seen: str) -> None:
    (found,) = asked("meets_first_token", kernel(), concurrency=(1,), first_token_target_s=target_s)
    assert (found.flag, found.fitted) == (flag, seen)


def test_a_doubtful_first_token_asks_for_steps_with_a_prompt() -> None:
    pool = kernel()
    views = look(Pricer.of(pool), Load(111, 96, 33)).views
    assert views.first is not None
    between = float(views.first.overlap_s[3] + views.first.no_overlap_s[3]) / 2
    (found,) = asked("meets_first_token", pool, concurrency=(4,), first_token_target_s=between)
    assert found.flag == "measure"
    assert found.proposed is not None
    assert (found.proposed.chunk_tokens, found.proposed.requests) == (96, 4)
    assert found.measurement is not None
    assert "steps with a chunk of 96 tokens of a prompt of 96, beside 3 x 111" in found.measurement


def test_percentiles_are_told_only_where_arrivals_do_not_matter() -> None:
    pool = kernel()
    words = {"concurrency": (4,), "percentile": 0.99}
    fast = asked("meets_token_latency", pool, target_s=1.0, **words)[0]
    slow = asked("meets_token_latency", pool, target_s=0.005, **words)[0]
    open_ = asked("meets_token_latency", pool, target_s=0.05, **words)[0]
    assert (fast.fitted, slow.fitted, open_.fitted) == ("yes", "no", SIMULATE)
    assert open_.note is not None
    assert "simulator" in open_.note
    # Means make no such difference.
    assert asked("meets_token_latency", pool, target_s=0.05, concurrency=(4,))[0].fitted == "yes"


def test_no_wait_is_the_longest_where_requests_come_at_a_rate() -> None:
    words = {"rates_per_s": (1.0,), "percentile": 0.9, "target_s": 1.0}
    found = asked("meets_first_token", kernel(), first_token_target_s=9.0, **words)
    assert [flag.fitted for flag in found] == [SIMULATE]
    late = asked("meets_first_token", kernel(), first_token_target_s=0.001, **words)
    assert [flag.fitted for flag in late] == ["no"]


def test_a_rate_is_sustained_up_to_the_capacity_within_the_target() -> None:
    pool = kernel(max_num_seqs=16)
    views = look(Pricer.of(pool), Load(111, 96, 33)).views
    allowed = views.fitted_s <= 0.03
    capacity = float((views.rates()[2][allowed]).max()) / 33
    for factor, seen in ((0.98, "yes"), (1.02, "no")):
        (found,) = asked("sustains_rate", pool, target_s=0.03, rates_per_s=(factor * capacity,))
        assert found.fitted == seen
        assert found.rate_per_s == pytest.approx(factor * capacity)
        if seen == "no":
            assert found.margin == pytest.approx(abs(1 / 1.02 - 1), rel=0.2)


@pytest.mark.parametrize(("slack", "flag"), [(0.0, "measure"), (50.0, "agree"), (-0.9, "agree")])
def test_memory_hangs_on_what_is_assumed(slack: float, flag: str) -> None:
    fixed = kernel().fixed_bytes()
    assumed = fixed.total() - fixed.weights_bytes
    one = 8 * 16 * 256  # 128 tokens at their longest in pages of 16 tokens of 256 bytes
    room = 4 * one + slack * assumed
    if slack < 0:
        room = one
    pool = kernel(hbm_bytes=int(2 * (fixed.total() + room)) + 2)
    found = asked("kv_fits", pool, prompt=96, output=32, concurrency=(4,), target_s=1.0)
    if slack < 0:
        # A quarter of what is needed; the assumed part would have to be negative.
        assert found[0].fitted == "no"
        return
    assert (found[0].fitted, found[0].flag) == ("yes", flag)
    assert (found[0].measurement is None) == (flag == "agree")


def test_another_gpu_helps_where_it_is_faster_and_pays_where_it_is_worth_two() -> None:
    slow = kernel(tp=2, collective_s=0.004)
    pools = [kernel(), slow]
    flags = find_flips(pools, [Question(1023, 0.2, (2, 64))], **NOISE)
    faster = [f.fitted for f in flags if f.conclusion == "wider_is_faster"]
    # Two requests: 11 ms against 5.5 and 12 of collectives; 64: 69 ms against 34.5 + 12.
    assert faster == ["no", "yes"]
    (pays,) = [f for f in flags if f.conclusion == "wider_pays"]
    assert (pays.fitted, pays.pool) == ("no", "tp1, tp2")


def test_pools_are_ranked_by_what_is_wanted() -> None:
    pools = [kernel(), kernel(tp=2, collective_s=1e-4)]
    base = {"target_s": 0.05, "concurrency": (8,)}

    def best(objective: str, **words: object) -> Flag:
        (flag,) = asked("best_pool", *pools, objective=objective, **{**base, **words})
        return flag

    throughput = best("throughput_per_gpu")
    cost = best("cost_per_token", prices_per_gpu_hour=(("planted-gpu", 3.6),))
    assert throughput.fitted == cost.fitted
    top, priced = throughput.ranking[0], cost.ranking[0]
    assert top.fitted is not None
    # 3.6 an hour is a thousandth a second: so much for a million tokens.
    assert priced.fitted == pytest.approx(1000 / top.fitted)
    fewest = best("fewest_gpus", concurrency=(20,))
    assert [entry.fitted for entry in fewest.ranking] == sorted(
        entry.fitted for entry in fewest.ranking if entry.fitted is not None
    )
    with pytest.raises(InvalidArgument, match="a price of planted-gpu"):
        best("cost_per_token", prices_per_gpu_hour=(("other", 1.0),))


@given(
    times=st.lists(st.floats(0.01, 1.0), min_size=1, max_size=5),
    rate=st.floats(0.1, 50.0),
    gpus=st.integers(1, 8),
    engines=st.integers(1, 4),
)
def test_the_fewest_gpus_are_whole_pools_that_serve_the_rate(
    times: list[float], rate: float, gpus: int, engines: int
) -> None:
    times = sorted(times)
    arrays = (np.asarray(times),) * 3
    views = Views(*arrays, np.zeros((0, len(times))), None, 0)
    goal = Goal(0.5, objective="fewest_gpus", rate_per_s=rate)
    three, _, batches = scores_of([views], [Stake(gpus, engines)], goal)
    fits = [n / t for n, t in enumerate(times, 1) if t <= 0.5]
    if not fits:
        assert three[0, 2] == 0.0
        assert batches == (0,)
        return
    wanted = math.ceil(rate / (max(fits) * engines) - 1e-12) * gpus * engines
    assert goal.value(float(three[0, 2])) == wanted


def test_prefill_apart_is_compared_at_its_transfer() -> None:
    pool = kernel()
    (found,) = asked("disaggregation_pays", pool, target_s=0.05, transfer="nvlink")
    assert found.fitted in ("yes", "no")
    assert found.note is not None
    assert "over nvlink" in found.note
    # The planted chip has no network.
    (refused,) = asked("disaggregation_pays", pool, target_s=0.05, transfer="nic")
    assert refused.fitted == "not priced"
    # A first token that the transfer alone makes late never pays.
    late = asked(
        "disaggregation_pays", pool, target_s=0.05, first_token_target_s=0.04, transfer="nvlink"
    )
    assert late[0].fitted == "no"


def test_a_request_longer_than_the_model_is_not_held() -> None:
    pool = kernel(max_model_len=128)
    (held,) = asked("largest_batch", pool, prompt=96, output=32, target_s=1.0)
    (beyond,) = asked("largest_batch", pool, prompt=96, output=33, target_s=1.0)
    assert held.fitted != "not held"
    assert beyond.fitted == "not held"


def test_labels_and_loads_in_words() -> None:
    assert Load(1023).text == "1,023 tokens"
    assert Load(1151, 1024, 256, 0.25).text == "1,024 + 256 tokens, 25 % cached"
    assert Load(1151, 1024, 256, 0.25).new_tokens == 768
    assert replace(Load(1151, 1024, 256), prefix_hit_share=1.0).new_tokens == 1
