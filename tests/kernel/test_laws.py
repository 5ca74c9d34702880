"""Step times against values worked out by hand from shapes and peaks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kernelfit.kernel import Batch, DatasheetKernel, InvalidArgument, RequestShape, Resource
from tests.kernel.builders import CHIP, EAGER, dense


def per_resource(kernel: DatasheetKernel, batch: Batch) -> dict[Resource, float]:
    return dict(kernel.step_time(batch).per_resource_s)


def test_one_decode_token_reads_every_weight_and_its_context_once() -> None:
    # One layer: hidden 1024, 8 query and 2 KV heads of 128, MLP 4096 gated.
    # Attention: q 1024*1024, k and v 1024*256 each, o 1024*1024 = 2,621,440 elements.
    # MLP: 3 * 1024 * 4096 = 12,582,912. Layer: 15,204,352 elements; 4 layers: 60,817,408.
    # Head: 32000 * 1024 = 32,768,000. All: 93,585,408 elements, 2 bytes each.
    weights = 93_585_408 * 2
    # KV: 2 * 2 heads * 128 * 2 bytes * 4 layers = 4096 bytes per token; 101 read, 1 written.
    kv = 4096 * 102
    # Elementwise per layer: 8*1024 + 4*128*(8+2) + 3*4096 = 25,600 elements; 4 layers.
    # The head's logits: written and read in 16 bit, written and read in 32 bit.
    activations = 4 * 25_600 * 2 + 32_000 * (2 + 2 + 4 + 4)
    kernel = DatasheetKernel(dense(), CHIP, EAGER)
    times = per_resource(kernel, Batch.decode(1, 100))
    assert times[Resource.HBM] == pytest.approx((weights + kv + activations) / 1e12, rel=1e-12)
    # 2 FLOP per weight; attention 4 * 8 * 128 FLOP per pair and layer, 101 pairs.
    flop = 2 * 93_585_408 + 4 * 4 * 8 * 128 * 101
    assert times[Resource.SM] == pytest.approx(flop / 100e12, rel=1e-12)
    assert times[Resource.HOST] == 0.0


def test_the_head_runs_once_a_step_on_one_row_per_request() -> None:
    # A prompt of 512 tokens makes one row of logits, as one decoded token does.
    head = DatasheetKernel(dense(layers=0), CHIP, EAGER)
    for batch in (Batch.decode(1, 100), Batch((RequestShape(512, 0, 512),))):
        times = per_resource(head, batch)
        assert times[Resource.SM] == pytest.approx(2 * 32_768_000 / 100e12, rel=1e-12)
        assert times[Resource.HBM] == pytest.approx((32_768_000 * 2 + 32_000 * 12) / 1e12)
    # Its weights are read once, whatever the batch; its rows and logits go with requests.
    many = per_resource(head, Batch.decode(8, 100))
    assert many[Resource.SM] == pytest.approx(8 * 2 * 32_768_000 / 100e12, rel=1e-12)
    assert many[Resource.HBM] == pytest.approx((32_768_000 * 2 + 8 * 32_000 * 12) / 1e12)


def test_every_proposed_token_has_a_row_of_logits() -> None:
    # Three proposals: four rows for a decoding request, one for a prompt.
    pool = replace(EAGER, speculative_method="ngram", num_speculative_tokens=3, tp=2)
    head = DatasheetKernel(dense(layers=0), CHIP, pool)
    decode = Batch((RequestShape(4, 100, 90),), decode_threshold=4)
    prompt = Batch((RequestShape(512, 0, 600),), decode_threshold=4)
    for batch, rows in ((decode, 4), (prompt, 1)):
        times = per_resource(head, batch)
        assert times[Resource.SM] == pytest.approx(rows * 32_768_000 / 100e12, rel=1e-12)
        nbytes = 32_768_000 + rows * 32_000 * 12
        assert times[Resource.HBM] == pytest.approx(nbytes / 1e12, rel=1e-12)
        # The gather takes every request for a decoding one.
        assert times[Resource.NVLINK] == pytest.approx(4 * 16_000 * 2 / 100e9, rel=1e-12)


def test_a_prompt_pays_for_causal_pairs_not_for_the_square() -> None:
    kernel = DatasheetKernel(dense(), CHIP, EAGER)
    one = per_resource(kernel, Batch((RequestShape(512, 0, 512),)))[Resource.SM]
    # 512 tokens: 512*513/2 pairs; matrices on 512 rows, the head on one.
    pairs = 512 * 513 // 2
    flop = 2 * 60_817_408 * 512 + 2 * 32_768_000 + 4 * 4 * 8 * 128 * pairs
    assert one == pytest.approx(flop / 100e12, rel=1e-12)


def test_chunks_of_a_prompt_make_the_same_pairs_as_the_whole() -> None:
    whole = RequestShape(512, 0, 512)
    parts = (RequestShape(200, 0, 512), RequestShape(312, 200, 512))
    pairs = [r.scheduled * r.computed + r.scheduled * (r.scheduled + 1) // 2 for r in parts]
    assert sum(pairs) == whole.scheduled * (whole.scheduled + 1) // 2


def test_tensor_parallel_ranks_share_work_and_add_collectives() -> None:
    alone = DatasheetKernel(dense(), CHIP, EAGER)
    pair = DatasheetKernel(dense(), CHIP, replace(EAGER, tp=2))
    batch = Batch.decode(8, 0)
    one, two = per_resource(alone, batch), per_resource(pair, batch)
    assert two[Resource.SM] == pytest.approx(one[Resource.SM] / 2, rel=1e-12)
    # Two all-reduces per layer of 8 tokens * 1024 * 2 bytes, and the logits' gather.
    # A ring of two moves 2 * 1/2 of each message, the gather brings the other half.
    nbytes = 4 * 2 * 8 * 1024 * 2 + 8 * 16_000 * 2
    assert two[Resource.NVLINK] == pytest.approx(nbytes / 100e9, rel=1e-12)
    assert Resource.NVLINK not in one


def test_wider_groups_send_more_of_every_all_reduce() -> None:
    # A ring of n sends 2 (n - 1) / n of the message; the gather brings (n - 1) / n of it.
    model = dense(kv_heads=8)
    batch = Batch.decode(8, 0)
    message, logits = 4 * 2 * 8 * 1024 * 2, 8 * 32_000 * 2
    for n in (2, 4, 8):
        times = per_resource(DatasheetKernel(model, CHIP, replace(EAGER, tp=n)), batch)
        expected = (2 * message + logits) * (n - 1) / n
        assert times[Resource.NVLINK] == pytest.approx(expected / 100e9, rel=1e-12)


def test_kv_heads_floor_at_one_per_rank() -> None:
    two = DatasheetKernel(dense(), CHIP, replace(EAGER, tp=2))
    eight = DatasheetKernel(dense(), CHIP, replace(EAGER, tp=8))
    # Two KV heads: one per rank at width 2, and still one at width 8.
    assert two.sequence_variable_bytes(16) == eight.sequence_variable_bytes(16) == 16 * 2048


@pytest.mark.parametrize(("tp", "kv_heads"), [(1, 2), (2, 1), (4, 1), (8, 1)])
def test_a_rank_reads_at_least_one_kv_head(tp: int, kv_heads: int) -> None:
    kernel = DatasheetKernel(dense(), CHIP, replace(EAGER, tp=tp))
    near, far = (per_resource(kernel, Batch.decode(1, c))[Resource.HBM] for c in (100, 1100))
    # Key and value of 128 in 16 bit, in four layers.
    assert far - near == pytest.approx(1000 * 4 * 2 * kv_heads * 128 * 2 / 1e12, rel=1e-9)


def test_an_sm_budget_slows_what_runs_on_sms_and_nothing_else() -> None:
    kernel = DatasheetKernel(dense(), CHIP, EAGER)
    requests = (RequestShape(512, 0, 512),)
    full = per_resource(kernel, Batch(requests))
    half = per_resource(kernel, Batch(requests, sm_budget=50))
    assert half[Resource.SM] == pytest.approx(2 * full[Resource.SM], rel=1e-12)
    assert half[Resource.HBM] == full[Resource.HBM]


def test_bottleneck_names_the_resource_with_the_most_time() -> None:
    kernel = DatasheetKernel(dense(), CHIP, EAGER)
    assert kernel.step_time(Batch.decode(1, 1000)).bottleneck is Resource.HBM
    prompt = Batch((RequestShape(4096, 0, 4096),))
    assert kernel.step_time(prompt).bottleneck is Resource.SM


QUANTISED = (
    # weights, scale bytes, bytes per element, type that multiplies
    ("bf16", 0.0, 2.0, "bf16"),
    ("fp8", 0.0, 1.0, "fp8"),
    # One 32-bit scale per 128 x 128 block.
    ("fp8", 4 / 128**2, 1.0 + 4 / 128**2, "fp8"),
    # One 8-bit scale per 32 elements; no fp4 peak here, so they are expanded.
    ("fp4", 1 / 32, 0.5 + 1 / 32, "bf16"),
    ("int4", 2 / 128, 0.5 + 2 / 128, "bf16"),
)


@pytest.mark.parametrize(("weights", "scales", "size", "multiplies"), QUANTISED)
def test_quantised_weights_are_read_with_their_scales_and_multiply_as_the_chip_can(
    weights: str, scales: float, size: float, multiplies: str
) -> None:
    model = replace(dense(), weight_dtype=weights, scale_bytes=scales)
    one = per_resource(DatasheetKernel(model, CHIP, EAGER), Batch.decode(1, 0))
    two = per_resource(DatasheetKernel(model, CHIP, EAGER), Batch.decode(2, 0))
    layers, head = 60_817_408, 32_768_000
    per_request = 4 * (25_600 * 2 + 2 * 1024) + 32_000 * 12
    expected = layers * size + head * 2 + per_request
    assert one[Resource.HBM] == pytest.approx(expected / 1e12, rel=1e-12)
    # Head and attention always multiply in the model's own type.
    rate = {"bf16": 100e12, "fp8": 200e12}[multiplies]
    flop = 2 * layers / rate + (2 * head + 4 * 4 * 8 * 128) / 100e12
    assert two[Resource.SM] - one[Resource.SM] == pytest.approx(flop, rel=1e-9)


def test_weights_multiply_in_the_type_of_the_chip_where_it_has_one() -> None:
    model = replace(dense(), weight_dtype="fp4")
    able = replace(CHIP, peak_flop_per_s=(*CHIP.peak_flop_per_s, ("fp4", 400e12)))
    batch = Batch((RequestShape(512, 0, 512),))
    slow = per_resource(DatasheetKernel(model, CHIP, EAGER), batch)[Resource.SM]
    fast = per_resource(DatasheetKernel(model, able, EAGER), batch)[Resource.SM]
    saved = 2 * 60_817_408 * 512 * (1 / 100e12 - 1 / 400e12)
    assert slow - fast == pytest.approx(saved, rel=1e-9)


def test_attention_may_keep_weights_of_its_own_type() -> None:
    kind = dense().layers[0]
    own = replace(kind, attention=replace(kind.attention, weight_dtype="bf16"))
    model = replace(dense(), weight_dtype="fp8", scale_bytes=0.25, layers=(own,))
    times = per_resource(DatasheetKernel(model, CHIP, EAGER), Batch.decode(1, 0))
    # Attention 2,621,440 elements a layer unquantised, the MLP's 12,582,912 with scales.
    weights = 4 * (2_621_440 * 2 + 12_582_912 * 1.25) + 32_768_000 * 2
    rest = 4 * (25_600 * 2 + 2 * 1024) + 32_000 * 12
    assert times[Resource.HBM] == pytest.approx((weights + rest) / 1e12, rel=1e-12)
    flop = 4 * 2 * 2_621_440 / 100e12 + 4 * 2 * 12_582_912 / 200e12
    flop += (2 * 32_768_000 + 4 * 4 * 8 * 128) / 100e12
    assert times[Resource.SM] == pytest.approx(flop, rel=1e-12)


def test_an_mlp_may_keep_weights_of_its_own_type() -> None:
    kind = dense().layers[0]
    assert kind.mlp is not None
    own = replace(kind, mlp=replace(kind.mlp, weight_dtype="fp8"))
    plain, changed = (
        per_resource(DatasheetKernel(model, CHIP, EAGER), Batch.decode(1, 0))
        for model in (dense(), replace(dense(), layers=(own,)))
    )
    saved = plain[Resource.HBM] - changed[Resource.HBM]
    assert saved == pytest.approx(4 * 12_582_912 / 1e12, rel=1e-9)
    faster = plain[Resource.SM] - changed[Resource.SM]
    assert faster == pytest.approx(4 * 2 * 12_582_912 * (1 / 100e12 - 1 / 200e12), rel=1e-9)


@pytest.mark.parametrize("dtype", ["fp8", "bf16"])
def test_the_cache_is_read_in_its_own_type(dtype: str) -> None:
    kernel = DatasheetKernel(dense(), CHIP, replace(EAGER, cache_dtype=dtype))
    near, far = (per_resource(kernel, Batch.decode(1, c))[Resource.HBM] for c in (100, 1100))
    # 2 * 2 heads * 128 elements in each of 4 layers.
    size = {"fp8": 1, "bf16": 2}[dtype]
    assert far - near == pytest.approx(1000 * 2048 * size / 1e12, rel=1e-9)


def test_a_width_that_divides_nothing_is_refused_beside_one_that_does() -> None:
    DatasheetKernel(dense(), CHIP, replace(EAGER, tp=4))
    with pytest.raises(InvalidArgument, match="tp: got 3"):
        DatasheetKernel(dense(), CHIP, replace(EAGER, tp=3))
