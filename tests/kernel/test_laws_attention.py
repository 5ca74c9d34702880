"""Latent, sliding and linear attention against values worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelfit.kernel import (
    Attention,
    Batch,
    DatasheetKernel,
    LayerKind,
    Mlp,
    Model,
    RequestShape,
    Resource,
)
from kernelfit.kernel.totals import BatchTotals, window_pairs
from tests.kernel.builders import CHIP, EAGER, alternating, dense, latent, linear_hybrid

PEAK, BANDWIDTH = 100e12, 1e12


def flop(model: Model, batch: Batch, **pool: object) -> float:
    """FLOP of one rank at the datasheet's peak."""
    kernel = DatasheetKernel(model, CHIP, replace(EAGER, **pool))  # type: ignore[arg-type]
    return dict(kernel.step_time(batch).per_resource_s)[Resource.SM] * PEAK


def moved(model: Model, batch: Batch, **pool: object) -> float:
    """Bytes that one rank moves to and from its memory."""
    kernel = DatasheetKernel(model, CHIP, replace(EAGER, **pool))  # type: ignore[arg-type]
    return dict(kernel.step_time(batch).per_resource_s)[Resource.HBM] * BANDWIDTH


# Latent attention, 8 heads of 128 + 64, values of 128, a latent of 512; 4 layers.


@pytest.mark.parametrize("tp", [1, 2, 8])
def test_a_decoding_latent_request_scores_and_sums_latents(tp: int) -> None:
    near, far = (flop(latent(), Batch.decode(1, c), tp=tp) for c in (100, 1100))
    # Per head and pair: scores over 512 + 64, sum over 512; heads are split.
    assert far - near == pytest.approx(1000 * 4 * (8 / tp) * 2 * (512 + 64 + 512), rel=1e-9)


@pytest.mark.parametrize("tp", [1, 2, 8])
def test_a_decoding_latent_request_reads_the_latent_whole_on_every_rank(tp: int) -> None:
    near, far = (moved(latent(), Batch.decode(1, c), tp=tp) for c in (100, 1100))
    # 512 + 64 elements of two bytes in 4 layers, whatever the width.
    assert far - near == pytest.approx(1000 * 4 * (512 + 64) * 2, rel=1e-9)


@pytest.mark.parametrize(
    ("dtype", "size"),
    # Packed: 512 in fp8, four 32-bit scales, 64 rotary elements in 16 bit.
    [("auto", 576 * 2), ("fp8", 576), ("fp8_ds_mla", 512 + 4 * 4 + 64 * 2)],
)
def test_a_latent_token_takes_what_its_cache_says(dtype: str, size: int) -> None:
    near, far = (moved(latent(), Batch.decode(1, c), cache_dtype=dtype) for c in (100, 1100))
    assert far - near == pytest.approx(1000 * 4 * size, rel=1e-9)
    assert dtype != "fp8_ds_mla" or size == 656


@pytest.mark.parametrize("tp", [1, 2, 8])
def test_a_latent_prompt_expands_its_whole_context_and_scores_plain_heads(tp: int) -> None:
    def chunk(computed: int) -> Batch:
        return Batch((RequestShape(64, computed, 4096),))

    near, far = (flop(latent(), chunk(c), tp=tp) for c in (0, 1000))
    heads = 8 / tp
    # A thousand more context tokens: expanded to keys and values of 128 each, and scored
    # by 64 queries over 128 + 64 and summed over 128.
    expansion = 1000 * 2 * 512 * heads * (128 + 128)
    scores = 64 * 1000 * heads * 2 * (128 + 64 + 128)
    assert far - near == pytest.approx(4 * (expansion + scores), rel=1e-9)


def test_one_decoded_latent_token_by_hand() -> None:
    # Projections of a layer: down to 384 and to 512 + 64, up to 8 * 192, out of 8 * 128.
    matrices = 1024 * (384 + 512 + 64) + 384 * 8 * 192 + 8 * 128 * 1024
    absorbed = 512 * 8 * (128 + 128)
    mlp = 3 * 1024 * 4096
    head = 1024 * 32000
    pairs = 101 * 8 * 2 * (512 + 64 + 512)
    expected = 4 * (2 * (matrices + absorbed + mlp) + pairs) + 2 * head
    assert flop(latent(), Batch.decode(1, 100)) == pytest.approx(expected, rel=1e-12)
    weights = 2 * (4 * (matrices + absorbed + mlp) + head)
    cache = 4 * 102 * 576 * 2
    # Norms and residuals, the latents' norms, rotary of 8 queries and the shared key, MLP.
    passes = 4 * 2 * (8 * 1024 + 2 * (384 + 512) + 2 * 64 * 9 + 3 * 4096) + 32000 * 12
    assert moved(latent(), Batch.decode(1, 100)) == pytest.approx(weights + cache + passes)


def test_quantised_latent_attention_absorbs_in_the_models_own_type() -> None:
    model = replace(latent(), weight_dtype="fp8")
    one, two = (flop(model, Batch.decode(n, 0)) for n in (1, 2))
    # At the 16-bit peak: two FLOP of 8 bit take the time of one of 16 bit.
    matrices = 1024 * (384 + 512 + 64) + 384 * 8 * 192 + 8 * 128 * 1024 + 3 * 1024 * 4096
    absorbed, scores = 512 * 8 * (128 + 128), 8 * 2 * (512 + 64 + 512)
    head = 1024 * 32000
    expected = 4 * (2 * matrices / 2 + 2 * absorbed + scores) + 2 * head
    assert two - one == pytest.approx(expected, rel=1e-9)
    # A prompt expands its context with the checkpoint's own matrix.
    near, far = (flop(model, Batch((RequestShape(64, c, 9),))) for c in (0, 1000))
    plain = 64 * 1000 * 8 * 2 * (128 + 64 + 128)
    assert far - near == pytest.approx(4 * (1000 * 2 * absorbed / 2 + plain), rel=1e-9)


def test_queries_without_compression_are_projected_directly() -> None:
    plain = latent(query_rank=0)
    # 1024 * 8 * 192 in one matrix instead of 1024 * 384 + 384 * 8 * 192, per layer.
    change = 1024 * 8 * 192 - (1024 * 384 + 384 * 8 * 192)
    batch = Batch.decode(1, 100)
    assert flop(plain, batch) - flop(latent(), batch) == pytest.approx(4 * 2 * change)


def test_the_threshold_moves_a_latent_request_between_paths() -> None:
    requests = (RequestShape(3, 1000, 900),)
    absorbed = flop(latent(), Batch(requests, decode_threshold=3))
    expanded = flop(latent(), Batch(requests, decode_threshold=2))
    pairs = 1001 + 1002 + 1003
    # A pool without speculation expands one query row per decoding request.
    one = 2 * 512 * 8 * 256
    wide = pairs * 8 * 2 * (512 + 64 + 512) + one
    plain = pairs * 8 * 2 * (128 + 64 + 128) + 1003 * one
    assert expanded - absorbed == pytest.approx(4 * (plain - wide), rel=1e-9)


def test_the_threshold_changes_nothing_where_both_paths_cost_the_same() -> None:
    requests = (RequestShape(3, 1000, 900), RequestShape(1, 50, 40))
    kernel = DatasheetKernel(dense(), CHIP, EAGER)
    times = {kernel.step_time(Batch(requests, threshold)).no_overlap_s for threshold in (0, 1, 3)}
    assert max(times) == pytest.approx(min(times), rel=1e-12)


def test_a_latent_prompt_writes_what_it_expands_and_reads_it_again() -> None:
    near, far = (moved(latent(), Batch((RequestShape(64, c, 9),))) for c in (0, 1000))
    # Keys of 128 + 64 and values of 128 for eight heads, both ways, beside the latent itself.
    expanded = 1000 * 2 * 8 * (128 + 64 + 128) * 2
    assert far - near == pytest.approx(4 * (expanded + 1000 * 576 * 2), rel=1e-9)


# Sliding windows.


@given(st.integers(1, 40), st.integers(0, 60), st.integers(1, 50))
def test_window_counts_match_positions_one_by_one(s: int, c: int, window: int) -> None:
    pairs, seen = 0, set()
    for position in range(c, c + s):
        visible = [key for key in range(position + 1) if position - key < window]
        pairs += len(visible)
        seen.update(visible)
    assert window_pairs(s, c, window) == pairs
    for threshold, path in ((s, "decode"), (s - 1, "prefill")):
        (inside,) = BatchTotals.of([RequestShape(s, c, 1)], threshold, (window,)).windows
        assert getattr(inside, f"{path}_pairs") == pairs
        assert getattr(inside, f"{path}_context_tokens") == len(seen)
        other = "prefill" if path == "decode" else "decode"
        assert getattr(inside, f"{other}_pairs") == 0


def test_beyond_the_window_only_full_layers_read_more() -> None:
    # Two of four layers see all; a token is 2 * 2 heads * 128 elements of two bytes.
    near, far = (moved(alternating(), Batch.decode(1, c)) for c in (128, 1128))
    assert far - near == pytest.approx(1000 * 2 * 1024, rel=1e-9)
    near, far = (flop(alternating(), Batch.decode(1, c)) for c in (128, 1128))
    assert far - near == pytest.approx(1000 * 2 * 4 * 8 * 128, rel=1e-9)
    # Within it all four do.
    near, far = (moved(alternating(), Batch.decode(1, c)) for c in (27, 127))
    assert far - near == pytest.approx(100 * 4 * 1024, rel=1e-9)


def test_a_prompt_in_a_window_grows_with_its_length_not_with_the_square() -> None:
    only = replace(alternating(), layers=(alternating().layers[0],))
    # Past 128 tokens each new one adds 128 pairs in each of two layers.
    first, second, third = (
        flop(only, Batch((RequestShape(n, 0, 4096),))) for n in (1000, 2000, 3000)
    )
    assert third - second == pytest.approx(second - first, rel=1e-9)
    full = replace(only, layers=(replace(only.layers[0], attention=Attention("full", 8, 2, 128)),))
    whole = flop(full, Batch((RequestShape(3000, 0, 4096),)))
    pairs = 3000 * 3001 // 2 - (128 * 129 // 2 + 2872 * 128)
    assert whole - third == pytest.approx(2 * 4 * 8 * 128 * pairs, rel=1e-9)


def test_windows_of_two_sizes_are_kept_apart() -> None:
    kinds = tuple(
        LayerKind(f"w{w}", 1, Attention("sliding", 8, 2, 128, w), Mlp(4096)) for w in (256, 64)
    )
    model = Model("two", 1024, 32000, kinds, "bf16", "bf16", tied_head=False)
    kernel = DatasheetKernel(model, CHIP, EAGER)
    assert [w.window_tokens for w in kernel.totals(Batch.decode(1, 5)).windows] == [64, 256]
    cache = [moved(model, Batch.decode(1, c)) for c in (32, 128, 512)]
    # 33, then 64 and 129, then 64 and 256 tokens read, 1024 bytes each.
    assert cache[1] - cache[0] == pytest.approx((64 + 129 - 2 * 33) * 1024, rel=1e-9)
    assert cache[2] - cache[1] == pytest.approx((256 - 129) * 1024, rel=1e-9)


# Linear attention: 8 key and 16 value heads of 128, four taps, state in 32 bit; 3 layers,
# and one full layer of 8 gated heads of 256 with 2 KV heads.


@pytest.mark.parametrize("tp", [1, 2])
def test_recurrent_state_is_read_and_written_once_per_request_whatever_its_tokens(
    tp: int,
) -> None:
    only = replace(linear_hybrid(), layers=(linear_hybrid().layers[0],))
    # 16 heads * 128 * 128 * 4 bytes; three past inputs of 2 * 1024 + 2048 channels in 16 bit.
    state = (16 * 128 * 128 * 4 + 3 * (2 * 8 * 128 + 16 * 128) * 2) / tp
    one, two = (moved(only, Batch.decode(n, 100), tp=tp) for n in (1, 2))
    row = 2 * (8 * 1024 + (2 * 4096 + 3 * 2048 + 3 * 4096) / tp)
    logits = 32000 * 12
    assert two - one == pytest.approx(3 * (2 * state + row) + logits, rel=1e-9)
    # More tokens of a request move activations only, and context costs nothing.
    chunk = [moved(only, Batch((RequestShape(n, 0, 900),)), tp=tp) for n in (64, 65)]
    assert chunk[1] - chunk[0] == pytest.approx(3 * row, rel=1e-9)
    far = moved(only, Batch.decode(1, 100_000), tp=tp)
    assert far == pytest.approx(one, rel=1e-12)


@pytest.mark.parametrize("tp", [1, 2])
def test_the_recurrence_costs_the_same_for_every_token(tp: int) -> None:
    only = replace(linear_hybrid(), layers=(linear_hybrid().layers[0],))
    one, two, far = (
        flop(only, Batch((RequestShape(n, c, 9),)), tp=tp) for n, c in ((64, 0), (65, 0), (65, 999))
    )
    # In: queries and keys of 1024, values and gates of 2048, two scalars for 16 heads; out
    # of 2048; a convolution of four taps over 4096 channels.
    matrices = 1024 * (1024 + 1024 + 2048 + 2048 + 32) + 2048 * 1024 + 4096 * 4
    # The state: prediction, update, output; within a chunk of 64, keys thrice, values twice.
    rule = 16 * (3 * 2 * 128 * 128 + 64 * 2 * (3 * 128 + 2 * 128))
    token = 3 * (2 * (matrices + 3 * 1024 * 4096) + rule) / tp
    assert two - one == pytest.approx(token, rel=1e-9)
    assert far == two


def test_only_full_layers_of_a_hybrid_read_context() -> None:
    near, far = (moved(linear_hybrid(), Batch.decode(1, c)) for c in (100, 1100))
    assert far - near == pytest.approx(1000 * 2 * 2 * 256 * 2, rel=1e-9)
    near, far = (flop(linear_hybrid(), Batch.decode(1, c)) for c in (100, 1100))
    assert far - near == pytest.approx(1000 * 4 * 8 * 256, rel=1e-9)


def test_an_output_gate_makes_the_query_projection_twice_as_wide() -> None:
    kind = dense().layers[0]
    gated = replace(kind, attention=replace(kind.attention, output_gate=True))
    batch = Batch.decode(1, 100)
    extra = flop(replace(dense(), layers=(gated,)), batch) - flop(dense(), batch)
    assert extra == pytest.approx(4 * 2 * 1024 * 1024, rel=1e-9)


@settings(max_examples=20)
@given(st.integers(0, 3000), st.integers(1, 300), st.integers(1, 299))
def test_chunks_of_a_prompt_make_the_pairs_of_the_whole(c: int, s: int, cut: int) -> None:
    cut = min(cut, s)
    for window in (1, 7, 128, 10_000):
        parts = window_pairs(cut, c, window) + window_pairs(s - cut, c + cut, window)
        assert parts == window_pairs(s, c, window)
