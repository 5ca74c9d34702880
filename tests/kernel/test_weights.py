"""Weights of one rank: equal to the checkpoint unsharded, counted by hand where they split."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelfit.kernel.dtypes import dtype_bytes
from kernelfit.kernel.model import (
    Experts,
    Mlp,
    Model,
    active_parameter_count,
    parameter_count,
)
from kernelfit.kernel.weights import (
    absorbed_bytes,
    experts_per_rank,
    redundant_expert_bytes,
    weight_bytes_per_rank,
)
from tests.kernel.deployed import (
    EVERY_KIND,
    EXPERTS,
    GQA,
    LATENT,
    LINEAR,
    one_kind,
    resolution,
)

IDS = [f"{i}-{model.name}" for i, model in enumerate(EVERY_KIND)]


def corrections(model: Model) -> int:
    """What a router's corrections take beyond 16 bit."""
    return sum(
        2 * k.count * k.experts.experts
        for k in model.layers
        if k.experts is not None and k.experts.score_bias
    )


@pytest.mark.parametrize("model", EVERY_KIND, ids=IDS)
def test_one_rank_holds_the_checkpoint(model: Model) -> None:
    held = weight_bytes_per_rank(model, resolution())
    if model.weight_dtype == "bf16":
        assert held == 2 * parameter_count(model) + corrections(model)
    else:
        # Half of what 16 bit take, and more for what stays in 16 bit.
        assert parameter_count(model) < held < 2 * parameter_count(model)


def test_a_latent_splits_its_expansions_and_not_its_compressions() -> None:
    # Per layer: 256 to 96 and to 64 + 16, whole; 96 to 8 heads of 48, 64 to 8 heads of
    # 32 + 24, and 8 heads of 24 back, split; two norms of 256, of 96 and of 64, whole.
    whole = 256 * 96 + 256 * 80 + 2 * 256 + 96 + 64
    split = 96 * 8 * 48 + 64 * 8 * 56 + 8 * 24 * 256 + 3 * 256 * 512
    for tp in (1, 2, 4, 8):
        held = weight_bytes_per_rank(one_kind(LATENT), resolution(tp))
        assert held == 2 * (2 * (whole + split // tp) + 2 * 1280 * 256 // tp + 256)


def test_linear_attention_splits_by_heads() -> None:
    # 4 key heads of 16, 8 value heads of 32: per layer 256 to 2 x 64 + 2 x 256 + 16, 256 back,
    # 384 channels of 4 taps, 16 scalars; one norm of a head and two of the model stay whole.
    split = 256 * (128 + 512 + 16) + 256 * 256 + 384 * 4 + 16 + 3 * 256 * 512
    for tp in (1, 2, 4):
        held = weight_bytes_per_rank(one_kind(LINEAR), resolution(tp))
        assert held == 2 * (2 * (split // tp + 32 + 512) + 2 * 1280 * 256 // tp + 256)


def test_more_ranks_than_heads_hold_copies_of_them() -> None:
    # Two key-value heads of 32 over eight ranks: one each, so four times as many in all.
    queries, pairs = 2 * 256 * 256, 2 * 256 * 32
    for tp, heads in ((1, 2), (2, 1), (8, 1)):
        held = weight_bytes_per_rank(one_kind(GQA), resolution(tp))
        layer = queries // tp + heads * pairs + 3 * 256 * 512 // tp + 512
        assert held == 2 * (2 * layer + 2 * 1280 * 256 // tp + 256)


def test_biases_that_are_summed_once_are_held_by_every_rank() -> None:
    biased = replace(GQA, bias=True, output_bias=True)
    plain = weight_bytes_per_rank(one_kind(GQA), resolution(2))
    held = weight_bytes_per_rank(one_kind(biased, Mlp(512, bias=True)), resolution(2))
    # q, k and v of the rank, the output's whole; gate and up of the rank, down's whole.
    assert held - plain == 2 * 2 * ((128 + 64) + 256 + 512 + 256)


def test_a_vocabulary_is_padded_before_it_is_split() -> None:
    exact, padded = one_kind(GQA, vocab=1280), one_kind(GQA, vocab=1217)
    assert weight_bytes_per_rank(exact, resolution()) == weight_bytes_per_rank(padded, resolution())
    more = one_kind(GQA, vocab=1281)
    added = weight_bytes_per_rank(more, resolution()) - weight_bytes_per_rank(exact, resolution())
    assert added == 2 * 64 * 256 * 2
    tied = one_kind(GQA, tied_head=True)
    saved = weight_bytes_per_rank(exact, resolution(4)) - weight_bytes_per_rank(tied, resolution(4))
    assert saved == 1280 // 4 * 256 * 2


MOE = one_kind(GQA, experts=EXPERTS)


def test_experts_spread_or_sharded_weigh_the_same() -> None:
    for tp, dp in ((2, 1), (4, 1), (2, 4), (1, 8)):
        sharded = resolution(tp, dp)
        spread = resolution(tp, dp, ep=tp * dp)
        assert weight_bytes_per_rank(MOE, sharded) == weight_bytes_per_rank(MOE, spread)
        assert experts_per_rank(EXPERTS, spread) == 16 // (tp * dp)
        assert experts_per_rank(EXPERTS, sharded) == 16


def test_the_fullest_rank_decides() -> None:
    # 16 experts over 3 ranks: 6, 5 and 5.
    assert experts_per_rank(EXPERTS, resolution(3, ep=3)) == 6


def test_shared_experts_are_whole_where_rows_are_split() -> None:
    split = resolution(2, 4, ep=8)
    whole = replace(split, sequence_parallel_moe=True)
    added = weight_bytes_per_rank(MOE, whole) - weight_bytes_per_rank(MOE, split)
    assert added == 2 * 2 * 3 * 256 * 128 // 2


def test_redundant_experts_are_counted_apart() -> None:
    spread = resolution(2, 4, ep=8, redundant_experts=8)
    # One more expert of three matrices on every rank, in each of two layers.
    assert redundant_expert_bytes(MOE, spread) == 2 * 2 * 3 * 256 * 64
    assert weight_bytes_per_rank(MOE, spread) == weight_bytes_per_rank(MOE, resolution(2, 4, ep=8))
    assert redundant_expert_bytes(MOE, resolution(2, 4, ep=8)) == 0
    assert redundant_expert_bytes(MOE, resolution(2, redundant_experts=8)) == 0


def test_decoding_from_a_latent_keeps_its_expansion_twice() -> None:
    # 64 to 8 heads of 32 + 24, in 16 bit whatever the weights, in each of two layers.
    model = one_kind(LATENT, weight_dtype="fp8")
    assert absorbed_bytes(model, resolution()) == 2 * 2 * 64 * 8 * 56
    assert absorbed_bytes(model, resolution(4)) == 2 * 2 * 64 * 2 * 56
    assert absorbed_bytes(one_kind(GQA), resolution()) == 0


def test_parts_with_a_type_of_their_own_have_no_scales() -> None:
    quantised = one_kind(GQA, experts=EXPERTS, weight_dtype="fp4", scale_bytes=1 / 32)
    spared = one_kind(
        replace(GQA, weight_dtype="bf16"),
        experts=replace(EXPERTS, shared_weight_dtype="bf16"),
        weight_dtype="fp4",
        scale_bytes=1 / 32,
    )
    attention, shared = 256 * 32 * (16 + 4), 3 * 256 * 128
    added = weight_bytes_per_rank(spared, resolution())
    added -= weight_bytes_per_rank(quantised, resolution())
    assert added == 2 * (attention + shared) * (2 - 0.5 - 1 / 32)


@st.composite
def widths(draw: st.DrawFn) -> tuple[Model, int, int, bool]:
    """Draw a model and widths that divide it."""
    model = draw(st.sampled_from(EVERY_KIND))
    tp = draw(st.sampled_from((1, 2, 4)))
    dp = draw(st.sampled_from((1, 2)))
    return model, tp, dp, draw(st.booleans())


@given(widths())
def test_ranks_together_hold_at_least_the_model(drawn: tuple[Model, int, int, bool]) -> None:
    model, tp, dp, spread = drawn
    one = weight_bytes_per_rank(model, resolution())
    held = weight_bytes_per_rank(model, resolution(tp, dp, ep=tp * dp if spread else 1))
    assert one / (tp * dp) <= held <= one
    experts = [k.experts for k in model.layers if k.experts is not None]
    if not experts:
        # Without experts, data-parallel ranks are copies of each other.
        assert held == weight_bytes_per_rank(model, resolution(tp))


@given(
    st.integers(1, 64),
    st.integers(1, 8),
    st.integers(1, 64),
    st.booleans(),
    st.sampled_from(("bf16", "fp8", "int4")),
)
def test_a_token_uses_its_own_experts_only(
    experts: int, per_token: int, width: int, bias: bool, dtype: str
) -> None:
    per_token = min(per_token, experts)
    model = one_kind(GQA, experts=Experts(experts, per_token, width, bias=bias), weight_dtype=dtype)
    unused = experts - per_token
    one = 3 * 256 * width + (2 * width + 256 if bias else 0)
    assert parameter_count(model) - active_parameter_count(model) == 2 * unused * one
    tables = active_parameter_count(model) - active_parameter_count(model, embedding=False)
    assert tables == 1280 * 256
    # Quantised experts weigh what their data type says.
    sizes = dtype_bytes(dtype)
    less = weight_bytes_per_rank(
        one_kind(GQA, experts=Experts(experts, 1, width, bias=bias)), resolution()
    ) - weight_bytes_per_rank(model, resolution())
    matrices = 256 * 32 * 20 + experts * 3 * 256 * width
    assert less == pytest.approx(2 * matrices * (2 - sizes))


def test_a_dense_model_uses_all_of_itself() -> None:
    assert active_parameter_count(one_kind(GQA)) == parameter_count(one_kind(GQA))
    tied = one_kind(GQA, tied_head=True)
    # A tied table is the head too, and counts either way.
    assert active_parameter_count(tied, embedding=False) == parameter_count(tied)
