"""Ranks: where they stand, and what they exchange over."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kernelfit.kernel import (
    Attention,
    Chip,
    Experts,
    InvalidArgument,
    LayerKind,
    Model,
    Pool,
    Refusal,
    Resolution,
)
from kernelfit.kernel.resolution import CUSTOM_ALL_REDUCE_WIDTHS, resolve
from tests.kernel.builders import CHIP, dense, mixture
from tests.kernel.shapes import CPU, hybrid, latent

WIDE = dense(heads=96, kv_heads=96, intermediate=9216, vocab=48000)
SPREAD = {"enable_expert_parallel": True}


def run(
    pool: Pool, model: Model | None = None, chip: Chip = CHIP, version: str = "0.32.0"
) -> Resolution:
    return resolve(pool, model or WIDE, chip, version)


def noted(resolution: Resolution) -> dict[str, str]:
    return {o.field: o.reason for o in resolution.overrides}


def shared(width: int) -> Model:
    experts = Experts(16, 2, 1024, shared_intermediate=width)
    kind = LayerKind("moe", 4, Attention("full", 8, 8, 128), experts=experts)
    return Model("shared", 1024, 32000, (kind,), "bf16", "bf16", tied_head=False)


@pytest.mark.parametrize(("bad", "good"), [(3, 2), (16, 8), (0, 1)])
def test_widths_must_divide_and_fit_the_node(bad: int, good: int) -> None:
    run(Pool(tp=good), dense())
    with pytest.raises(InvalidArgument, match="tp"):
        run(Pool(tp=bad), dense())


@pytest.mark.parametrize(
    ("model", "bad", "good", "word"),
    [
        (WIDE, 7, 6, "vocabulary"),  # 48000 rows are 64 x 750 and no multiple of 7
        (dense(heads=12, kv_heads=12, vocab=64), 8, 4, "query heads"),
        (dense(heads=24, kv_heads=3, intermediate=9216), 2, 1, "key-value heads"),
        (hybrid(key_heads=4), 8, 4, "key heads"),
        (latent(), 7, 8, "vocabulary"),
        (mixture(intermediate=1028), 8, 4, "expert's width"),
        (shared(1028), 8, 4, "shared experts"),
    ],
)
def test_what_is_sharded_divides(model: Model, bad: int, good: int, word: str) -> None:
    run(Pool(tp=good), model)
    with pytest.raises(InvalidArgument, match=word):
        run(Pool(tp=bad), model)


def test_latent_attention_has_one_key_head_whatever_the_width() -> None:
    assert run(Pool(tp=8), latent()).tensor_parallel_width == 8


def test_data_parallel_ranks_slice_experts_that_are_not_spread() -> None:
    # Without expert parallelism the engine shards experts over tp x dp ranks.
    model = mixture(intermediate=1028)
    run(Pool(tp=2, dp=2), model)
    with pytest.raises(InvalidArgument, match="expert's width"):
        run(Pool(tp=2, dp=4), model)
    run(Pool(tp=2, dp=4, enable_expert_parallel=True), model)


@pytest.mark.parametrize(
    ("pool", "chip", "version", "backend"),
    [
        (Pool(tp=1), CHIP, "0.32.0", "none"),
        (Pool(tp=2), CHIP, "0.32.0", "custom"),
        (Pool(tp=6), CHIP, "0.32.0", "custom"),
        (Pool(tp=3), CHIP, "0.32.0", "nccl"),
        (Pool(tp=8, nodes=2), CHIP, "0.32.0", "nccl"),
        (Pool(tp=2, dp=2, nodes=2), CHIP, "0.32.0", "custom"),
        (Pool(tp=16), replace(CHIP, gpus_per_node=16), "0.27.0", "custom"),
        (Pool(tp=16), replace(CHIP, gpus_per_node=16), "0.26.0", "nccl"),
        (Pool(tp=2), CPU, "0.32.0", "shared_memory"),
    ],
)
def test_who_sums_over_tensor_parallel_ranks(
    pool: Pool, chip: Chip, version: str, backend: str
) -> None:
    resolution = run(pool, None, chip, version)
    assert resolution.all_reduce_backend == backend
    assert ("all_reduce_backend" in noted(resolution)) is (backend == "nccl")


def test_a_custom_all_reduce_that_is_switched_off_is_no_override() -> None:
    off = run(Pool(tp=2, disable_custom_all_reduce=True))
    assert off.all_reduce_backend == "nccl"
    assert "all_reduce_backend" not in noted(off)
    wish = run(Pool(tp=2, disable_custom_all_reduce=False), None, CPU)
    assert "shared memory" in noted(wish)["disable_custom_all_reduce"]
    # The widths of blis-schemas' rule pack for release 0.29.
    assert CUSTOM_ALL_REDUCE_WIDTHS == (2, 4, 6, 8, 16)


@pytest.mark.parametrize(
    ("pool", "model", "spanned", "per_node"),
    [
        (Pool(tp=8), dense(), 1, 8),
        (Pool(tp=8, nodes=2), dense(), 2, 4),
        (Pool(tp=8, dp=2, nodes=2), dense(), 1, 8),  # replicas do not exchange
        (Pool(tp=8, dp=2, nodes=2, **SPREAD), mixture(), 2, 8),
        (Pool(tp=8, dp=2, nodes=2), mixture(), 2, 8),
        (Pool(tp=8, dp=2, nodes=4), dense(), 2, 4),
        (Pool(tp=2, dp=4, nodes=2, gpus_per_node=4), mixture(), 2, 4),
    ],
)
def test_ranks_are_spread_evenly_over_nodes(
    pool: Pool, model: Model, spanned: int, per_node: int
) -> None:
    resolution = run(pool, model)
    assert (resolution.nodes_spanned, resolution.ranks_per_node) == (spanned, per_node)


@pytest.mark.parametrize(
    ("bad", "good", "field"),
    [
        (Pool(tp=2, nodes=4), Pool(tp=2, nodes=2), "nodes"),
        (Pool(tp=4, nodes=3), Pool(tp=4, nodes=2), "nodes"),
        (Pool(tp=8, dp=4, nodes=2), Pool(tp=8, dp=4, nodes=4), "nodes"),
        (Pool(tp=8, dp=2), Pool(tp=8, dp=2, nodes=2), "dp"),
        (Pool(tp=8, gpus_per_node=4), Pool(tp=8, gpus_per_node=4, nodes=2), "tp"),
        (Pool(tp=6, dp=2, nodes=3), Pool(tp=6, dp=2, nodes=2), "nodes"),
    ],
)
def test_ranks_must_fit_their_nodes(bad: Pool, good: Pool, field: str) -> None:
    run(good)
    with pytest.raises(InvalidArgument, match=field):
        run(bad)


def test_crossing_nodes_needs_a_network_that_the_chip_states() -> None:
    island = replace(CHIP, nic_bytes_per_s=0.0)
    assert run(Pool(tp=8, nodes=2)).nodes_spanned == 2
    assert run(Pool(tp=4, dp=2, nodes=2), None, island).nodes_spanned == 1
    with pytest.raises(Refusal, match="no network"):
        run(Pool(tp=8, nodes=2), None, island)
    with pytest.raises(Refusal, match="no network"):
        run(Pool(dp=2, nodes=2), mixture(), island)
    run(Pool(tp=2), None, CPU)
    with pytest.raises(Refusal, match="one node"):
        run(Pool(tp=2, nodes=2), None, CPU)


def test_several_nodes_are_taken_to_run_without_ray() -> None:
    assert "distributed_executor_backend" in noted(run(Pool(tp=8, nodes=2)))
    stated = Pool(tp=8, nodes=2, distributed_executor_backend="ray")
    assert "distributed_executor_backend" not in noted(run(stated))


def test_data_parallel_ranks_are_replicas_or_go_in_lock_step() -> None:
    assert {o.resolved for o in run(Pool(dp=2)).overrides if o.field == "dp"} == {
        "independent replicas"
    }
    lock = run(Pool(dp=2), mixture())
    assert {o.resolved for o in lock.overrides if o.field == "dp"} == {"lock-step ranks"}
    assert "equal batch" in noted(lock)["dp"]
    assert "dp" not in noted(run(Pool(dp=1), mixture()))


@pytest.mark.parametrize(
    ("pool", "model", "width"),
    [
        (Pool(tp=2, dp=4, **SPREAD), mixture(), 8),
        (Pool(tp=4, **SPREAD), mixture(), 4),
        (Pool(tp=2, dp=4), mixture(), 1),
        (Pool(**SPREAD), mixture(), 1),
        (Pool(tp=4, **SPREAD), dense(), 1),
    ],
)
def test_experts_are_spread_over_every_rank(pool: Pool, model: Model, width: int) -> None:
    resolution = run(pool, model)
    assert resolution.expert_parallel_width == width
    asked = pool.enable_expert_parallel and width == 1
    assert ("enable_expert_parallel" in noted(resolution)) is asked


def test_experts_need_not_spread_evenly_but_every_rank_holds_one() -> None:
    uneven = run(Pool(tp=8, **SPREAD), mixture(experts=12))
    assert uneven.expert_parallel_width == 8
    assert "first 4 hold one more" in noted(uneven)["enable_expert_parallel"]
    with pytest.raises(InvalidArgument, match="every rank has one"):
        run(Pool(tp=8, **SPREAD), mixture(experts=6))
    # Balancing spreads evenly or does not start: 12 experts and 4 replicas on 8 ranks do.
    balanced = Pool(tp=8, **SPREAD, enable_eplb=True, num_redundant_experts=4)
    assert run(balanced, mixture(experts=12)).redundant_experts == 4
    with pytest.raises(InvalidArgument, match="multiple of 8"):
        run(replace(balanced, num_redundant_experts=2), mixture(experts=12))


@pytest.mark.parametrize(
    ("bad", "good", "chip", "field"),
    [
        (Pool(num_redundant_experts=2), Pool(num_redundant_experts=0), CHIP, "num_redundant"),
        (Pool(tp=2, enable_eplb=True), Pool(tp=2, enable_eplb=True, **SPREAD), CHIP, "eplb"),
        (Pool(enable_eplb=True, **SPREAD), Pool(tp=2, enable_eplb=True, **SPREAD), CHIP, "eplb"),
        (Pool(tp=2, enable_eplb=True, **SPREAD), Pool(tp=2, **SPREAD), CPU, "eplb"),
    ],
)
def test_balancing_has_the_engines_conditions(
    bad: Pool, good: Pool, chip: Chip, field: str
) -> None:
    run(good, mixture(), chip)
    with pytest.raises(InvalidArgument, match=field):
        run(bad, mixture(), chip)


def test_balancing_says_that_moving_experts_is_not_charged() -> None:
    resolution = run(Pool(tp=2, enable_eplb=True, **SPREAD), mixture())
    assert "not charged" in noted(resolution)["enable_eplb"]


@pytest.mark.parametrize(
    ("pool", "model", "chip", "version", "backend", "why"),
    [
        (Pool(), mixture(), CHIP, "0.32.0", "none", None),
        (Pool(dp=2), dense(), CHIP, "0.32.0", "none", None),
        (Pool(all2all_backend="nixl_ep"), mixture(), CHIP, "0.32.0", "none", "no data-parallel"),
        (Pool(dp=2), mixture(), CHIP, "0.32.0", "allgather_reducescatter", "assumed:"),
        (
            Pool(dp=2, all2all_backend="nixl_ep", **SPREAD),
            mixture(),
            CHIP,
            "0.32.0",
            "nixl_ep",
            None,
        ),
        (
            Pool(dp=2, all2all_backend="nixl_ep"),
            mixture(),
            CHIP,
            "0.32.0",
            "allgather_reducescatter",
            "gathering",
        ),
        (
            Pool(dp=2, all2all_backend="nixl_ep", **SPREAD),
            mixture(),
            CPU,
            "0.32.0",
            "allgather_reducescatter",
            "CPU",
        ),
        (
            Pool(dp=2, all2all_backend="pplx", **SPREAD),
            mixture(),
            CHIP,
            "0.17.0",
            "allgather_reducescatter",
            "removed",
        ),
        (Pool(dp=2, all2all_backend="pplx", **SPREAD), mixture(), CHIP, "0.16.0", "pplx", None),
    ],
)
def test_how_rows_of_experts_are_exchanged(
    pool: Pool, model: Model, chip: Chip, version: str, backend: str, why: str | None
) -> None:
    resolution = run(pool, model, chip, version)
    assert resolution.all2all_backend == backend
    reason = noted(resolution).get("all2all_backend")
    assert reason is None if why is None else why in (reason or "")


@pytest.mark.parametrize(
    ("name", "unknown", "known"),
    [("mori", "0.23.0", "0.22.0"), ("deepep_v2", "0.23.0", "0.24.0"), ("moonep", "0.30.0", "")],
)
def test_names_of_exchanges_belong_to_releases(name: str, unknown: str, known: str) -> None:
    pool = Pool(dp=2, all2all_backend=name, **SPREAD)
    with pytest.raises(InvalidArgument, match="all2all_backend"):
        run(pool, mixture(), version=unknown)
    if known:
        assert run(pool, mixture(), version=known).all2all_backend == name


@pytest.mark.parametrize(
    ("name", "version", "word"), [("moonep", "0.32.0", "copies"), ("naive", "0.18.0", "broadcasts")]
)
def test_exchanges_without_a_law_are_refused(name: str, version: str, word: str) -> None:
    run(Pool(dp=2, all2all_backend="deepep_low_latency", **SPREAD), mixture(), version=version)
    with pytest.raises(Refusal, match=word):
        run(Pool(dp=2, all2all_backend=name, **SPREAD), mixture(), version=version)


@pytest.mark.parametrize(
    ("pool", "version", "expected"),
    [
        (Pool(tp=2, dp=2, **SPREAD), "0.32.0", True),
        (Pool(tp=1, dp=2, **SPREAD), "0.32.0", False),
        (Pool(tp=2, dp=1, **SPREAD), "0.32.0", False),
        (Pool(tp=2, dp=2), "0.32.0", False),
        (Pool(tp=2, dp=2, all2all_backend="deepep_v2", **SPREAD), "0.30.0", False),
        (Pool(tp=2, dp=2, all2all_backend="deepep_v2", **SPREAD), "0.31.0", True),
        (Pool(tp=2, dp=2, all2all_backend="flashinfer_nvlink_two_sided", **SPREAD), "", False),
    ],
)
def test_tokens_are_split_before_experts(pool: Pool, version: str, expected: bool) -> None:
    assert run(pool, mixture(), version=version).sequence_parallel_moe is expected


def test_a_shared_expert_is_whole_where_tokens_are_split() -> None:
    model = shared(1026)
    run(Pool(tp=4, dp=2, **SPREAD), model)
    with pytest.raises(InvalidArgument, match="shared experts"):
        run(Pool(tp=4, **SPREAD), model)


def test_the_busiest_rank_is_stated_or_expected() -> None:
    spread = Pool(tp=4, **SPREAD)
    assumed = run(spread, mixture())
    assert assumed.routing_imbalance == 0.0
    assert "equally likely" in noted(assumed)["routing_imbalance"]
    assert run(replace(spread, routing_imbalance=1.5), mixture()).routing_imbalance == 1.5
    for bad in (0.5, 4.5, float("nan")):
        with pytest.raises(InvalidArgument, match="routing_imbalance"):
            run(replace(spread, routing_imbalance=bad), mixture())
    alone = run(Pool(routing_imbalance=1.5), mixture())
    assert alone.routing_imbalance == 0.0
    assert "routing_imbalance" in noted(alone)


def test_fixed_buffers_of_an_exchange_bound_the_default_of_tokens() -> None:
    pool = Pool(dp=2, all2all_backend="deepep_low_latency", **SPREAD)
    assert run(pool, mixture(), version="0.20.0").max_num_batched_tokens == 256
    assert run(pool, mixture(), version="0.20.0").max_num_seqs == 256
    assert run(pool, mixture(), version="0.19.0").max_num_batched_tokens == 8192
    asked = replace(pool, max_num_batched_tokens=512)
    assert run(asked, mixture()).max_num_batched_tokens == 512
