"""Experts: how many a step touches, what the busiest rank does, what is exchanged."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from kernelfit.kernel import Batch, DatasheetKernel, Model, Pool, RequestShape, Resource
from kernelfit.kernel.basis import Routing, busiest_rows, touched
from tests.kernel.builders import CHIP, EAGER, dense, mixture

ROW = 1024 * 2


def per_resource(
    batch: Batch, pool: Pool = EAGER, model: Model | None = None
) -> dict[Resource, float]:
    kernel = DatasheetKernel(model or mixture(), CHIP, pool)
    return dict(kernel.step_time(batch).per_resource_s)


def test_distinct_experts_touched_match_enumeration() -> None:
    # Two tokens, each routed to 1 of 4 experts: 4 of 16 outcomes coincide.
    assert touched(Routing(4, 1), 2) == pytest.approx((4 * 1 + 12 * 2) / 16)
    assert touched(Routing(16, 2), 1) == pytest.approx(2.0)
    assert touched(Routing(8, 8), 1) == pytest.approx(8.0)


@pytest.mark.parametrize(
    ("experts", "per_token", "tokens", "ranks"),
    [(4, 2, 3, 1), (4, 2, 3, 2), (5, 2, 3, 1), (6, 3, 2, 1), (6, 3, 2, 3)],
)
def test_touched_experts_match_every_outcome(
    experts: int, per_token: int, tokens: int, ranks: int
) -> None:
    held = range(experts // ranks)
    choices = [set(c) for c in itertools.combinations(range(experts), per_token)]
    counts = [
        len(set().union(*outcome).intersection(held))
        for outcome in itertools.product(choices, repeat=tokens)
    ]
    expected = sum(counts) / len(counts)
    assert touched(Routing(experts, per_token, ranks), tokens) == pytest.approx(expected)
    # Two data-parallel ranks with one token each bring two tokens.
    if tokens == 2:
        assert touched(Routing(experts, per_token, ranks, 2), 1) == pytest.approx(expected)


def uniform(
    rng: np.random.Generator, experts: int, per_token: int, ranks: int, tokens: int
) -> tuple[int, int]:
    """Experts touched on the first rank, and rows of the busiest one, of one random step."""
    chosen = rng.random((tokens, experts)).argpartition(per_token - 1, axis=1)[:, :per_token]
    held = experts // ranks
    rows = np.bincount((chosen // held).ravel(), minlength=ranks)
    return len(np.unique(chosen[chosen < held])), int(rows.max())


@pytest.mark.parametrize(
    ("experts", "per_token", "ranks"), [(16, 2, 2), (16, 2, 4), (64, 8, 8), (128, 8, 16)]
)
@pytest.mark.parametrize("tokens", [1, 4, 16, 64, 256])
def test_spread_experts_match_random_routing(
    experts: int, per_token: int, ranks: int, tokens: int
) -> None:
    rng = np.random.default_rng(experts + 1000 * ranks + tokens)
    steps = [uniform(rng, experts, per_token, ranks, tokens) for _ in range(300)]
    hit, busiest = (np.mean(column) for column in zip(*steps, strict=True))
    error = np.std([h for h, _ in steps]) / 300**0.5
    routing = Routing(experts, per_token, ranks)
    assert touched(routing, tokens) == pytest.approx(hit, abs=4 * error + 0.01)
    # The busiest rank is overstated, by less the more tokens there are: the expected
    # maximum of r counts is below sqrt(2 ln r) standard deviations, and a token's distinct
    # experts scatter less than independent ones.
    most = 1.30 if tokens < 16 else 1.13 if tokens < 64 else 1.09 if tokens < 256 else 1.06
    assert 0.98 <= busiest_rows(routing, tokens) / busiest <= most


def test_the_busiest_rank_has_no_more_than_it_can_get() -> None:
    # One token to one of two experts on two ranks: the busier rank has exactly that row.
    assert busiest_rows(Routing(2, 1, 2), 1) == 1.0
    # Every token to every expert: all ranks are equally busy.
    assert busiest_rows(Routing(4, 4, 2), 10) == pytest.approx(20.0)
    # What is stated replaces the expectation.
    assert busiest_rows(Routing(64, 8, 8, 1, 1.5), 100) == pytest.approx(1.5 * 100)
    assert busiest_rows(Routing(64, 8, 8, 2, 1.0), 100) == pytest.approx(200)
    # One rank has every row.
    assert busiest_rows(Routing(64, 8), 100) == 800.0


@pytest.mark.parametrize("tp", [1, 2])
def test_few_tokens_read_only_the_experts_they_touch(tp: int) -> None:
    pool = replace(EAGER, tp=tp)
    one = per_resource(Batch.decode(1, 0), pool)[Resource.HBM]
    many = per_resource(Batch.decode(256, 0), pool)[Resource.HBM]
    # From 2 to (nearly) 16 experts per layer, four layers; each is sharded.
    hit = 16 * (1 - (14 / 16) ** 256)
    grown = 4 * (3 * 1024 * 1024 * 2 / tp) * (hit - 2)
    # Each further request also writes and reads its own token, 1024 bytes a layer, and
    # passes over norms, rotary embedding, attention, what two experts take and give, and
    # its logits.
    passes = 8 * 1024 + 4 * 128 * 10 / tp + 2 * (3 * 1024 / tp + 4 * 1024)
    per_request = 4 * (2 * 1024 / tp + 2 * passes) + 32_000 * 12
    assert (many - one) * 1e12 == pytest.approx(grown + 255 * per_request, rel=1e-9)


def test_every_token_multiplies_by_its_experts_and_the_router() -> None:
    one, two = (per_resource(Batch.decode(n, 0))[Resource.SM] for n in (1, 2))
    # Two experts of 3 * 1024 * 1024, attention's 2,621,440, 16 scores, one pair per layer.
    layer = 2 * (2 * 3 * 1024**2 + 2_621_440 + 1024 * 16) + 4 * 8 * 128
    assert two - one == pytest.approx((4 * layer + 2 * 32_768_000) / 100e12, rel=1e-9)


@pytest.mark.parametrize("tp", [1, 2])
def test_shared_experts_run_on_every_token(tp: int) -> None:
    kind = mixture().layers[0]
    assert kind.experts is not None
    shared = replace(kind, experts=replace(kind.experts, shared_intermediate=512))
    model, pool = replace(mixture(), layers=(shared,)), replace(EAGER, tp=tp)
    batch = Batch((RequestShape(64, 0, 100),))
    plain, more = per_resource(batch, pool), per_resource(batch, pool, model)
    elements = 3 * 1024 * 512 / tp
    flop = 4 * 2 * elements * 64
    assert more[Resource.SM] - plain[Resource.SM] == pytest.approx(flop / 100e12, rel=1e-9)
    nbytes = 4 * (2 * elements + 64 * 3 * 512 / tp * 2)
    assert more[Resource.HBM] - plain[Resource.HBM] == pytest.approx(nbytes / 1e12, rel=1e-9)


def with_experts(**changes: object) -> Model:
    kind = mixture().layers[0]
    assert kind.experts is not None
    experts = replace(kind.experts, **changes)  # type: ignore[arg-type]
    return replace(mixture(), layers=(replace(kind, experts=experts),))


def test_shared_experts_are_whole_where_their_rows_are_split() -> None:
    # Sequence-parallel: each of a pair multiplies half of the rows by the whole matrices.
    pool = replace(EAGER, tp=2, dp=2, enable_expert_parallel=True)
    batch = Batch((RequestShape(64, 0, 100),))
    plain, more = (per_resource(batch, pool, with_experts(shared_intermediate=n)) for n in (0, 512))
    elements = 3 * 1024 * 512
    flop = 4 * 2 * elements * 64 / 2
    assert more[Resource.SM] - plain[Resource.SM] == pytest.approx(flop / 100e12, rel=1e-9)
    nbytes = 4 * (2 * elements + 64 * 3 * 512 / 2 * 2)
    assert more[Resource.HBM] - plain[Resource.HBM] == pytest.approx(nbytes / 1e12, rel=1e-9)


def test_a_gate_of_the_shared_experts_is_one_more_score() -> None:
    batch = Batch((RequestShape(64, 0, 100),))
    without, gated = (
        per_resource(batch, EAGER, with_experts(shared_intermediate=512, shared_gate=gate))
        for gate in (False, True)
    )
    extra = gated[Resource.SM] - without[Resource.SM]
    assert extra == pytest.approx(4 * 2 * 1024 * 64 / 100e12, rel=1e-6)


@pytest.mark.parametrize(
    ("own", "weights", "size", "rate"),
    [
        (None, "bf16", 2.0, 100e12),
        (None, "fp8", 1.25, 200e12),
        ("bf16", "fp8", 2.0, 100e12),
        ("fp8", "bf16", 1.0, 200e12),
    ],
)
def test_routed_experts_may_have_a_type_of_their_own(
    own: str | None, weights: str, size: float, rate: float
) -> None:
    # Scales of 0.25 bytes per element go with the model's quantised type only.
    scales = 0.25 if weights == "fp8" else 0.0
    model = replace(with_experts(weight_dtype=own), weight_dtype=weights, scale_bytes=scales)
    batch = Batch((RequestShape(512, 0, 600),))
    once = per_resource(batch, EAGER, model)
    bare = replace(model, layers=(replace(model.layers[0], experts=None),))
    none = per_resource(batch, EAGER, bare)
    # Every one of 16 experts is read; 512 rows go to two of them each, and to the router.
    one = 3 * 1024 * 1024
    hit = 16 * (1 - (14 / 16) ** 512)
    passes = 512 * 2 * (3 * 1024 + 4 * 1024) * 2
    nbytes = 4 * (hit * one * size + 1024 * 16 * 2 + passes)
    assert once[Resource.HBM] - none[Resource.HBM] == pytest.approx(nbytes / 1e12, rel=1e-9)
    flop = 4 * (2 * 512 * 2 * one / rate + 2 * 512 * 1024 * 16 / 100e12)
    assert once[Resource.SM] - none[Resource.SM] == pytest.approx(flop, rel=1e-9)


@pytest.mark.parametrize(("tp", "dp"), [(4, 1), (2, 2), (1, 4)])
def test_spread_and_sharded_experts_do_the_same_work_but_for_the_busiest_rank(
    tp: int, dp: int
) -> None:
    batch = Batch((RequestShape(512, 0, 600),))
    sharded = replace(EAGER, tp=tp, dp=dp)
    # With an imbalance of 1 every rank has the mean.
    even = replace(sharded, enable_expert_parallel=True, routing_imbalance=1.0)
    skewed = replace(even, routing_imbalance=1.5)
    times = [per_resource(batch, pool)[Resource.SM] for pool in (sharded, even, skewed)]
    assert times[1] == pytest.approx(times[0], rel=1e-9)
    # Half of the experts' work more: 512 tokens of each of dp ranks, two experts each.
    work = 4 * dp * 512 * 2 * 2 * 3 * 1024**2 / (tp * dp)
    assert times[2] - times[1] == pytest.approx(0.5 * work / 100e12, rel=1e-9)


def test_a_spread_rank_reads_the_experts_it_holds() -> None:
    # With 512 tokens every one of 16 experts is touched: 4 on each of 4 ranks.
    pool = replace(EAGER, tp=4, enable_expert_parallel=True)
    batch = Batch((RequestShape(512, 0, 600),))
    spread, sharded = (
        per_resource(batch, p)[Resource.HBM]
        for p in (pool, replace(pool, enable_expert_parallel=False))
    )
    # The same bytes of weights; rows are whole where experts are, but a quarter of them.
    passes = 4 * 512 * 2 * (4 * 1024 * (1 - 1 / 4)) * 2
    assert sharded - spread == pytest.approx(passes / 1e12, rel=1e-6)


LAYERS, TOKENS = 4, 8


def distinct(experts: int, ranks: int) -> float:
    """Mean number of different ranks that a token's experts are on, over every outcome."""
    outcomes = itertools.product(range(ranks), repeat=experts)
    return sum(len(set(outcome)) for outcome in outcomes) / ranks**experts


def exchanged(pool: Pool) -> tuple[float, float]:
    """Bytes that one rank moves inside the node and across, per layer, without the head."""
    times = per_resource(Batch.decode(TOKENS, 0), pool)
    tp, nodes = pool.tp, max(1, pool.tp * pool.dp // 8)
    logits = TOKENS * 32_000 * 2
    assert tp <= 8
    inside = times.get(Resource.NVLINK, 0.0) * 100e9 - (tp - 1) / tp * logits
    across = times.get(Resource.NIC, 0.0) * 50e9
    assert nodes > 1 or across == 0.0
    return inside / LAYERS, across / LAYERS


def test_tensor_parallel_experts_are_summed_like_an_mlp() -> None:
    for spread in (False, True):
        pool = replace(EAGER, tp=4, enable_expert_parallel=spread)
        inside, _ = exchanged(pool)
        # After attention and after the experts.
        assert inside == pytest.approx(2 * 2 * 3 / 4 * TOKENS * ROW)


def test_sharded_experts_gather_over_data_parallel_ranks() -> None:
    # Each rank gathers the other's tokens, returns their sums, and both halves of a tensor-
    # parallel pair reduce what attention and the experts gave.
    inside, _ = exchanged(replace(EAGER, tp=2, dp=2))
    both = 1 / 2 * 2 * TOKENS * ROW
    assert inside == pytest.approx(2 * both + 2 * (2 * 1 / 2 * TOKENS * ROW))


def test_gathering_moves_every_token_and_all_to_all_only_where_it_goes() -> None:
    spread = replace(EAGER, dp=4, enable_expert_parallel=True)
    inside, _ = exchanged(spread)
    # Four ranks' tokens, three quarters of them from others, there and back.
    assert inside == pytest.approx(2 * 3 / 4 * 4 * TOKENS * ROW)
    inside, _ = exchanged(replace(spread, all2all_backend="deepep_low_latency"))
    # Each token once to every rank of its two experts: one where both are on the same, else
    # two. Three quarters of that goes to others, there and back.
    assert inside == pytest.approx(2 * 3 / 4 * distinct(2, 4) * TOKENS * ROW)


@pytest.mark.parametrize(
    ("backend", "sent"),
    [
        # The tokens of both groups over four ranks.
        ("allgather_reducescatter", 3 / 4 * 2 * TOKENS),
        # Each of a pair sends its half of the tokens to the ranks of two experts.
        ("deepep_low_latency", 3 / 4 * distinct(2, 4) * TOKENS / 2),
    ],
)
def test_sequence_parallel_experts_split_tokens_and_gather_them_again(
    backend: str, sent: float
) -> None:
    pool = replace(EAGER, tp=2, dp=2, enable_expert_parallel=True, all2all_backend=backend)
    kernel = DatasheetKernel(mixture(), CHIP, pool)
    assert kernel.resolved().sequence_parallel_moe
    inside, _ = exchanged(pool)
    # Attention's sum, the exchange there and back, and the gather of the pair.
    expected = 2 * 1 / 2 * TOKENS + 2 * sent + 1 / 2 * TOKENS
    assert inside == pytest.approx(expected * ROW)


def test_a_token_goes_once_to_each_rank_of_its_experts() -> None:
    # Eight experts per token, but only two ranks to send them to.
    model = mixture(experts=16, per_token=8)
    pool = replace(EAGER, dp=2, enable_expert_parallel=True, all2all_backend="deepep_low_latency")
    times = per_resource(Batch.decode(TOKENS, 0), pool, model)
    sent = LAYERS * 2 * 1 / 2 * distinct(8, 2) * TOKENS * ROW
    assert 1.99 < distinct(8, 2) < 2.0
    assert times[Resource.NVLINK] == pytest.approx(sent / 100e9, rel=1e-9)


@pytest.mark.parametrize(
    ("spread", "backend", "inside", "across"),
    [
        # Sixteen ranks on two nodes, tensor-parallel groups of eight within a node. The
        # sum after attention moves 2 * 7/8 of the tokens inside.
        # Sharded: each rank gathers from its like on the other node, and the group sums.
        (False, None, 4 * 7 / 8, 2 * 1 / 2 * 2),
        # Spread: 7/8 of both groups' tokens inside, the other node's half by eighths
        # across, there and back; then the group gathers its own.
        (True, None, 2 * 7 / 8 + 2 * 7 / 8 * 2 + 7 / 8, 2 * 1 / 2 * 2 / 8),
        # An eighth of the tokens to their ranks: 7 of 16 inside, 8 of 16 across.
        (
            True,
            "deepep_high_throughput",
            2 * 7 / 8 + 2 * 7 / 16 * distinct(2, 16) / 8 + 7 / 8,
            2 * 8 / 16 * distinct(2, 16) / 8,
        ),
    ],
)
def test_experts_on_two_nodes(
    spread: bool, backend: str | None, inside: float, across: float
) -> None:
    pool = replace(
        EAGER, tp=8, dp=2, nodes=2, enable_expert_parallel=spread, all2all_backend=backend
    )
    got = exchanged(pool)
    assert got == pytest.approx((inside * TOKENS * ROW, across * TOKENS * ROW), rel=1e-9)


def test_ranks_of_one_width_are_independent_replicas_without_experts() -> None:
    one = per_resource(Batch.decode(TOKENS, 0), EAGER, dense())
    two = per_resource(Batch.decode(TOKENS, 0), replace(EAGER, dp=2), dense())
    assert one == two
