"""Step times against values worked out by hand from shapes and peaks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kernelfit.kernel import Batch, DatasheetKernel, FittedKernel, Pool, RequestShape, Resource
from kernelfit.kernel.basis import touched
from kernelfit.kernel.laws import launches
from tests.kernel.builders import CHIP, EAGER, dense, fitted, mixture


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
    # Elementwise per layer: 8*1024 + 2*128*(8+2) + 3*4096 = 23,040 elements; 4 layers.
    activations = 4 * 23_040 * 2
    kernel = DatasheetKernel(dense(), CHIP, EAGER)
    times = per_resource(kernel, Batch.decode(1, 100))
    assert times[Resource.HBM] == pytest.approx((weights + kv + activations) / 1e12, rel=1e-12)
    # 2 FLOP per weight; attention 4 * 8 * 128 FLOP per pair and layer, 101 pairs.
    flop = 2 * 93_585_408 + 4 * 4 * 8 * 128 * 101
    assert times[Resource.SM] == pytest.approx(flop / 100e12, rel=1e-12)
    assert times[Resource.HOST] == 0.0


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
    pair = DatasheetKernel(dense(), CHIP, Pool(**{**_as_dict(EAGER), "tp": 2}))
    batch = Batch.decode(8, 0)
    one, two = per_resource(alone, batch), per_resource(pair, batch)
    assert two[Resource.SM] == pytest.approx(one[Resource.SM] / 2, rel=1e-12)
    # Two all-reduces per layer of 8 tokens * 1024 * 2 bytes, and the logits' gather.
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


def _as_dict(pool: Pool) -> dict[str, object]:
    return {name: getattr(pool, name) for name in pool.__dataclass_fields__}


def test_kv_heads_floor_at_one_per_rank() -> None:
    two = DatasheetKernel(dense(), CHIP, Pool(**{**_as_dict(EAGER), "tp": 2}))
    eight = DatasheetKernel(dense(), CHIP, Pool(**{**_as_dict(EAGER), "tp": 8}))
    # Two KV heads: one per rank at width 2, and still one at width 8.
    assert two.sequence_variable_bytes(16) == eight.sequence_variable_bytes(16) == 16 * 2048


def test_distinct_experts_touched_match_enumeration() -> None:
    # Two tokens, each routed to 1 of 4 experts: 4 of 16 outcomes coincide.
    assert touched(4, 1, 2) == pytest.approx((4 * 1 + 12 * 2) / 16)
    assert touched(16, 2, 1) == pytest.approx(2.0)
    assert touched(8, 8, 1) == 8.0


def test_few_tokens_read_only_the_experts_they_touch() -> None:
    kernel = DatasheetKernel(mixture(), CHIP, EAGER)
    one = per_resource(kernel, Batch.decode(1, 0))[Resource.HBM]
    many = per_resource(kernel, Batch.decode(256, 0))[Resource.HBM]
    expert = 3 * 1024 * 1024 * 2
    # From 2 to (nearly) 16 experts per layer, four layers.
    grown = 4 * expert * (touched(16, 2, 256) - 2)
    assert (many - one) * 1e12 > grown
    # Each further request also reads and writes its own token's KV, 4096 bytes each.
    per_request = 2 * 4096 + 4 * 2 * _moe_elements()
    assert (many - one) * 1e12 == pytest.approx(grown + 255 * per_request, rel=1e-9)


def _moe_elements() -> int:
    # Norms and residuals, rotary, two experts' activations and their gather and scatter.
    return 8 * 1024 + 2 * 128 * 10 + 2 * (3 * 1024 + 4 * 1024)


def test_an_sm_budget_slows_what_runs_on_sms_and_nothing_else() -> None:
    kernel = DatasheetKernel(dense(), CHIP, EAGER)
    requests = (RequestShape(512, 0, 512),)
    full = per_resource(kernel, Batch(requests))
    half = per_resource(kernel, Batch(requests, sm_budget=50))
    assert half[Resource.SM] == pytest.approx(2 * full[Resource.SM], rel=1e-12)
    assert half[Resource.HBM] == full[Resource.HBM]


def test_decode_follows_the_padded_batch_where_graphs_are_replayed() -> None:
    graphs = Pool(
        **{**_as_dict(EAGER), "enforce_eager": False, "cudagraph_capture_sizes": (1, 2, 4, 8, 16)}
    )
    kernel = DatasheetKernel(dense(), CHIP, graphs)
    at = [per_resource(kernel, Batch.decode(b, 0))[Resource.SM] for b in (9, 16, 17)]
    # 9 runs as 16 in the layers; only the head and attention see 9 requests.
    head = 2 * 32_768_000 * 7 / 100e12
    attention = 4 * 4 * 8 * 128 * 7 / 100e12
    assert at[1] - at[0] == pytest.approx(head + attention, rel=1e-9)
    # 17 exceeds the largest captured size and runs as it is.
    assert at[2] > at[1]


def test_launches_are_counted_by_what_a_layer_runs() -> None:
    plain, moe = dense().layers[0], mixture().layers[0]
    # Two norms, four projections' worth of attention and rotary, three in the MLP.
    assert launches(plain, "gpu") == 2 + 5 + 3
    assert launches(moe, "gpu") == 2 + 5 + 3
    normed = replace(plain, attention=replace(plain.attention, qk_norm=True))
    assert launches(normed, "gpu") == 12
    # On a CPU a norm is seven tensor operations.
    assert launches(plain, "cpu") == 14 + 5 + 3
    assert launches(normed, "cpu") == 28 + 5 + 3


def test_a_layer_with_more_launches_costs_more_host_time() -> None:
    kind = replace(dense().layers[0], attention=replace(dense().layers[0].attention, qk_norm=True))
    plain = FittedKernel.of(dense(), CHIP, EAGER, "", fitted(launch_layer_s=1e-3))
    normed = FittedKernel.of(
        replace(dense(), layers=(kind,)), CHIP, EAGER, "", fitted(launch_layer_s=1e-3)
    )
    batch = Batch.decode(1, 16)
    extra = normed.step_time(batch).no_overlap_s - plain.step_time(batch).no_overlap_s
    assert extra == pytest.approx(4 * 1e-3 * (12 / 10 - 1), rel=1e-9)


def test_asynchronous_scheduling_hides_host_time_behind_the_device() -> None:
    sync = FittedKernel.of(dense(), CHIP, EAGER, "", fitted())
    hidden = FittedKernel.of(dense(), CHIP, replace(EAGER, async_scheduling=True), "", fitted())
    small, large = Batch.decode(1, 16), Batch((RequestShape(4096, 0, 4096),))
    for batch, host_bound in ((small, True), (large, False)):
        one, two = sync.step_time(batch), hidden.step_time(batch)
        host = dict(one.per_resource_s)[Resource.HOST]
        device = one.overlap_s - host
        assert (host > device) is host_bound
        assert two.overlap_s == pytest.approx(max(device, host), rel=1e-12)
        # Nothing hides under the other bound, and the fitted time hides what it can.
        assert two.no_overlap_s == one.no_overlap_s
        mean = hidden.calibrated_step_time(batch).mean_s
        assert mean == pytest.approx(max(one.no_overlap_s - host, host), rel=1e-12)
        # What hides is nobody's bottleneck.
        assert (two.bottleneck is Resource.HOST) is host_bound


def test_bottleneck_names_the_resource_with_the_most_time() -> None:
    kernel = DatasheetKernel(dense(), CHIP, EAGER)
    assert kernel.step_time(Batch.decode(1, 1000)).bottleneck is Resource.HBM
    prompt = Batch((RequestShape(4096, 0, 4096),))
    assert kernel.step_time(prompt).bottleneck is Resource.SM
