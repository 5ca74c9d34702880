"""The KV cache in pages, against rules worked out by hand and a simulated window."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelfit.kernel.cache import (
    page_tokens,
    sequence_bytes,
    sequence_state_bytes,
    state_bytes,
    token_bytes,
)
from kernelfit.kernel.errors import InvalidArgument, Refusal
from kernelfit.kernel.model import Attention, Latent, LayerKind, LinearState, Mlp, Model
from tests.kernel.deployed import (
    EVERY_KIND,
    GQA,
    HYBRID,
    LATENT,
    LINEAR,
    MIXED,
    PLAIN,
    WINDOW,
    one_kind,
    resolution,
)

MODELS = st.sampled_from(EVERY_KIND)
TOKENS = st.integers(0, 5000)


def test_heads_are_divided_down_to_one() -> None:
    assert [token_bytes(GQA, resolution(tp)) for tp in (1, 2, 4, 8)] == [256, 128, 128, 128]
    assert token_bytes(GQA, resolution(cache_dtype="fp8")) == 128
    assert token_bytes(LINEAR, PLAIN) == 0


def test_a_latent_is_whole_on_every_rank() -> None:
    assert [token_bytes(LATENT, resolution(tp)) for tp in (1, 8)] == [(64 + 16) * 2] * 2
    deepseek = Attention("mla", 128, 128, 192, latent=Latent(1536, 512, 128, 64, 128))
    assert token_bytes(deepseek, PLAIN) == 1152
    assert token_bytes(deepseek, resolution(8, cache_dtype="fp8")) == 576
    # 512 values, 4 scales in 32 bit, 64 rotary values in 16 bit: the published 656 bytes.
    assert token_bytes(deepseek, resolution(8, cache_dtype="fp8_ds_mla")) == 656
    for other in (GQA, LATENT):
        with pytest.raises(InvalidArgument, match="only for a latent of 512"):
            token_bytes(other, resolution(cache_dtype="fp8_ds_mla"))


@pytest.mark.parametrize(("tokens", "pages"), [(0, 0), (1, 1), (16, 1), (17, 2), (4000, 250)])
def test_whole_pages(tokens: int, pages: int) -> None:
    assert sequence_bytes(one_kind(GQA), PLAIN, tokens) == pages * 16 * 2 * 256
    with pytest.raises(InvalidArgument, match="tokens"):
        sequence_bytes(one_kind(GQA), PLAIN, -1)


def held_pages(tokens: int, window: int, page: int, unsettled: int) -> int:
    """Pages that a manager holds after giving pages to a sequence token by token.

    A page goes when all its tokens lie before the window of the first unsettled token.
    """
    settled = max(0, tokens - unsettled)
    past = max(0, settled - window + 1)
    pages = range(-(-tokens // page))
    return sum(1 for number in pages if (number + 1) * page > past)


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("proposed", [1, 4])
@pytest.mark.parametrize(("window", "page"), [(128, 16), (127, 16), (129, 16), (5, 16), (4096, 1)])
def test_a_window_keeps_what_its_manager_keeps_at_the_most(
    window: int, page: int, proposed: int, asynchronous: bool
) -> None:
    run = resolution(block_size=page, decode_query_tokens=proposed, async_scheduling=asynchronous)
    unsettled = proposed * (2 if asynchronous else 1)
    model = one_kind(replace(WINDOW, window_tokens=window))
    unit = 2 * 256 * page
    most = 0
    for tokens in range(window + unsettled + 3 * page):
        most = max(most, held_pages(tokens, window, page, unsettled))
        assert sequence_bytes(model, run, tokens) == most * unit
    assert sequence_bytes(model, run, 10**6) == most * unit


def test_full_and_sliding_layers_are_counted_each_by_its_rule() -> None:
    # gpt-oss keeps 128 tokens in half of its layers: 9 pages of 16 at the most.
    page = 16 * 256
    assert sequence_bytes(MIXED, PLAIN, 100) == 6 * 7 * page
    assert sequence_bytes(MIXED, PLAIN, 8000) == (3 * 500 + 3 * 9) * page


def layers(*counts: int) -> Model:
    """So many sliding and full layers."""
    kinds = (LayerKind("s", counts[0], WINDOW, Mlp(8)), LayerKind("f", counts[1], GQA, Mlp(8)))
    return replace(MIXED, layers=kinds)


@pytest.mark.parametrize(
    ("sliding", "full", "padded"),
    [(3, 3, (3, 3)), (12, 13, (13, 13)), (5, 1, (5, 1)), (20, 10, (20, 10)), (25, 10, (30, 10))],
)
def test_layers_are_filled_up_to_groups(sliding: int, full: int, padded: tuple[int, int]) -> None:
    # The engine's own examples: 12 and 13 become 13 and 13; 5:1 and 2:1 need no filling.
    page = 16 * 256
    found = sequence_bytes(layers(sliding, full), PLAIN, 16)
    assert found == sum(padded) * page


def test_unlike_pages_are_refused_beside_like_ones() -> None:
    wide = LayerKind("w", 3, replace(GQA, head_dim=48), Mlp(8))
    other = LayerKind("t", 3, replace(GQA, kv_heads=1), Mlp(8))
    # Layers of one kind may differ: pages are given to all of them together.
    alike = replace(MIXED, layers=(MIXED.layers[1], wide))
    assert sequence_bytes(alike, PLAIN, 16) == 3 * 16 * (256 + 384)
    with pytest.raises(Refusal, match="unlike bytes per token"):
        sequence_bytes(replace(MIXED, layers=(MIXED.layers[0], other)), PLAIN, 16)
    sequence_bytes(MIXED, PLAIN, 16)


def test_recurrent_state_by_hand() -> None:
    # (2 x 64 + 256) channels of 3 past inputs in 16 bit, 8 matrices of 32 x 16 in 32 bit.
    assert state_bytes(LINEAR, HYBRID, PLAIN) == 384 * 3 * 2 + 8 * 32 * 16 * 4
    assert state_bytes(LINEAR, HYBRID, resolution(4)) == (384 * 3 * 2 + 8 * 32 * 16 * 4) // 4
    short = resolution(state_dtype="bf16")
    assert state_bytes(LINEAR, HYBRID, short) == 384 * 3 * 2 + 8 * 32 * 16 * 2
    assert state_bytes(GQA, HYBRID, PLAIN) == 0
    with pytest.raises(InvalidArgument, match="a divisor of 4 key and 8 value heads"):
        state_bytes(LINEAR, HYBRID, resolution(8))


QWEN_LINEAR = Attention("linear", 32, 16, 128, linear=LinearState(16, 32, 128, 128, 4, "fp32"))


@pytest.mark.parametrize(
    ("kv_heads", "head_dim", "tokens", "padding"),
    [
        # Qwen3.5-9B, as vLLM pull request 37467 prints it: "Setting attention block size to
        # 528 tokens", "Padding mamba page size by 0.76%".
        (4, 256, 528, 0.0076),
        # Qwen3.5-35B-A3B has half the key-value heads.
        (2, 256, 1056, 0.0076),
    ],
)
def test_pages_of_a_hybrid_hold_a_state(
    kv_heads: int, head_dim: int, tokens: int, padding: float
) -> None:
    full = Attention("full", 16, kv_heads, head_dim)
    kinds = (LayerKind("l", 24, QWEN_LINEAR, Mlp(8)), LayerKind("f", 8, full, Mlp(8)))
    model = replace(HYBRID, layers=kinds)
    assert page_tokens(model, PLAIN) == tokens
    # Asked for by hand, a size that already fits stays.
    assert page_tokens(model, resolution(block_size=tokens)) == tokens
    page = tokens * token_bytes(full, PLAIN)
    state = state_bytes(QWEN_LINEAR, model, PLAIN)
    assert page / state - 1 == pytest.approx(padding, abs=5e-5)
    assert sequence_state_bytes(model, PLAIN) == 24 * page
    assert sequence_bytes(model, PLAIN, 1) == 8 * page


def test_states_kept_by_mode() -> None:
    one = sequence_state_bytes(HYBRID, PLAIN)
    assert one == 6 * page_tokens(HYBRID, PLAIN) * 256
    assert sequence_state_bytes(HYBRID, resolution(mamba_cache_mode="align")) == 2 * one
    every = resolution(mamba_cache_mode="all")
    page = page_tokens(HYBRID, every)
    assert sequence_state_bytes(HYBRID, every) == 0
    full = sequence_bytes(HYBRID, PLAIN, 3 * page)
    assert sequence_bytes(HYBRID, every, 3 * page) == full + 3 * one
    # Every proposed token may have to be taken back: one state more each.
    speculative = resolution(decode_query_tokens=3)
    pages = 6 * page_tokens(HYBRID, speculative) * 256
    assert sequence_state_bytes(HYBRID, speculative) == 3 * pages
    with pytest.raises(InvalidArgument, match="mamba_cache_mode"):
        sequence_state_bytes(HYBRID, resolution(mamba_cache_mode="some"))
    assert sequence_state_bytes(one_kind(GQA), PLAIN) == 0
    # Linear layers alone: their own page, unpadded.
    assert sequence_state_bytes(one_kind(LINEAR), PLAIN) == 2 * state_bytes(LINEAR, HYBRID, PLAIN)


@given(MODELS, TOKENS, st.integers(0, 500), st.booleans())
def test_more_tokens_never_take_less(
    model: Model, tokens: int, more: int, asynchronous: bool
) -> None:
    run = resolution(async_scheduling=asynchronous)
    assert sequence_bytes(model, run, tokens) <= sequence_bytes(model, run, tokens + more)


@given(MODELS, TOKENS, TOKENS)
def test_two_sequences_never_take_less_than_one_of_both(model: Model, one: int, two: int) -> None:
    together = sequence_bytes(model, PLAIN, one + two)
    assert together <= sequence_bytes(model, PLAIN, one) + sequence_bytes(model, PLAIN, two)


@given(MODELS, TOKENS, st.sampled_from((1, 8, 16, 128)))
def test_bytes_come_in_pages(model: Model, tokens: int, size: int) -> None:
    run = resolution(block_size=size)
    page = page_tokens(model, run)
    assert page % size == 0
    widths = {token_bytes(k.attention, run) for k in model.layers} - {0}
    found = sequence_bytes(model, run, tokens)
    for width in widths:
        assert found % (page * width) == 0
    first = -(-tokens // page) * page
    assert found == sequence_bytes(model, run, first)


@given(MODELS, TOKENS, st.sampled_from((2, 4)))
def test_ranks_together_hold_at_least_one_copy(model: Model, tokens: int, tp: int) -> None:
    one, split = resolution(), resolution(tp)
    # Pages of a hybrid differ with the width, so its tokens are taken in whole ones.
    tokens = -(-tokens // page_tokens(model, one)) * page_tokens(model, one)
    assert sequence_bytes(model, split, tokens) * tp >= sequence_bytes(model, one, tokens)
    assert sequence_bytes(model, split, tokens) <= sequence_bytes(model, one, tokens) + sum(
        k.count * page_tokens(model, split) * token_bytes(k.attention, split) for k in model.layers
    )
