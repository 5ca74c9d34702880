"""Collectives: both forms of their law, and what crosses which link."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kernelfit.kernel import (
    Batch,
    DatasheetKernel,
    FittedKernel,
    InvalidArgument,
    RequestShape,
    Resource,
)
from kernelfit.kernel.links import nodes_of_group
from tests.kernel.builders import CHIP, CPU, EAGER, dense, fitted

PAIR = replace(EAGER, tp=2)
LAW = {
    "allreduce_custom_floor_s": 1e-5,
    "allreduce_custom_transition_eff": 0.8,
    "allreduce_custom_eff": 0.2,
    "allgather_floor_s": 2e-5,
    "allgather_transition_eff": 0.5,
    "allgather_eff": 0.25,
}


def link_time(tokens: int, **changes: float) -> float:
    kernel = FittedKernel.of(dense(), CHIP, PAIR, "", fitted(**{**LAW, **changes}))
    batch = Batch((RequestShape(tokens, 0, 5000),))
    return dict(kernel.step_time(batch).per_resource_s)[Resource.NVLINK]


@pytest.mark.parametrize("tokens", [1, 8, 64, 120, 130, 512, 4096])
def test_a_collective_takes_the_longer_of_its_two_forms(tokens: int) -> None:
    # Two ranks: 2 * 1/2 of tokens * 1024 * 2 bytes each way, eight times a step.
    nbytes = tokens * 2048
    small = 1e-5 + nbytes / (0.8 * 100e9)
    large = nbytes / (0.2 * 100e9)
    # They meet where 1e-5 = nbytes * (1/20e9 - 1/80e9), at 266,667 bytes or 130.2 tokens.
    assert (small > large) is (tokens <= 130)
    gather = max(2e-5 + 32_000 / (0.5 * 100e9), 32_000 / (0.25 * 100e9))
    assert link_time(tokens) == pytest.approx(8 * max(small, large) + gather, rel=1e-9)


@pytest.mark.parametrize("tokens", [1, 4096])
def test_only_the_form_that_counts_moves_a_step(tokens: int) -> None:
    base = link_time(tokens)
    by_floor = link_time(tokens, allreduce_custom_floor_s=1.1e-5) - base
    by_transition = link_time(tokens, allreduce_custom_transition_eff=0.7) - base
    by_rate = link_time(tokens, allreduce_custom_eff=0.19) - base
    if tokens == 1:
        assert by_floor == pytest.approx(8 * 1e-6, rel=1e-6)
        assert by_transition == pytest.approx(8 * 2048 / 100e9 * (1 / 0.7 - 1 / 0.8), rel=1e-6)
        assert by_rate == 0.0
    else:
        assert by_floor == by_transition == 0.0
        nbytes = 8 * 4096 * 2048
        assert by_rate == pytest.approx(nbytes / 100e9 * (1 / 0.19 - 1 / 0.2), rel=1e-6)


def test_sixteen_ranks_on_two_nodes_by_hand() -> None:
    pool = replace(EAGER, tp=16, nodes=2)
    kernel = DatasheetKernel(dense(heads=16, kv_heads=8), CHIP, pool)
    times = dict(kernel.step_time(Batch.decode(8, 0)).per_resource_s)
    message, logits = 8 * 1024 * 2, 8 * 32_000 * 2
    # Eight all-reduces: within a node 2 * 7/8 of the message; then 2 * 1/2 of an eighth of
    # it across. The logits: 7/8 within, and half of an eighth across.
    inside = 8 * 2 * 7 / 8 * message + 7 / 8 * logits
    across = 8 * 2 * 1 / 2 * message / 8 + 1 / 2 * logits / 8
    assert times[Resource.NVLINK] == pytest.approx(inside / 100e9, rel=1e-12)
    assert times[Resource.NIC] == pytest.approx(across / 50e9, rel=1e-12)


def test_one_rank_per_node_reduces_over_the_network_alone() -> None:
    pool = replace(EAGER, tp=2, nodes=2)
    times = dict(DatasheetKernel(dense(), CHIP, pool).step_time(Batch.decode(8, 0)).per_resource_s)
    across = 8 * 2 * 1 / 2 * 8 * 1024 * 2 + 1 / 2 * 8 * 32_000 * 2
    assert times[Resource.NIC] == pytest.approx(across / 50e9, rel=1e-12)
    assert Resource.NVLINK not in times


def test_each_part_of_a_crossing_collective_has_its_floor() -> None:
    given = fitted(
        allreduce_nccl_floor_s=1e-3,
        internode_floor_s=3e-3,
        allgather_floor_s=5e-3,
    )
    pool = replace(EAGER, tp=16, nodes=2)
    kernel = FittedKernel.of(dense(heads=16, kv_heads=8), CHIP, pool, "0.32.0", given)
    times = dict(kernel.step_time(Batch.decode(1, 0)).per_resource_s)
    # Eight all-reduces and one gather; floors drown the few bytes.
    assert times[Resource.NVLINK] == pytest.approx(8 * 1e-3 + 5e-3, rel=1e-3)
    assert times[Resource.NIC] == pytest.approx(9 * 3e-3, rel=1e-3)
    assert "allreduce_custom_floor_s" not in kernel.plan.coefficients


@pytest.mark.parametrize(
    ("chip", "changes", "op"),
    [
        (CHIP, {}, "custom"),
        (CHIP, {"disable_custom_all_reduce": True}, "nccl"),
        (CPU, {}, "shared_memory"),
    ],
)
def test_the_all_reduce_is_priced_by_what_runs_it(
    chip: object, changes: dict[str, object], op: str
) -> None:
    floors = {"custom": 1e-3, "nccl": 2e-3, "shared_memory": 4e-3}
    given = fitted(
        allgather_floor_s=1e-9, **{f"allreduce_{o}_floor_s": f for o, f in floors.items()}
    )
    pool = replace(PAIR, **changes)  # type: ignore[arg-type]
    kernel = FittedKernel.of(dense(), chip, pool, "0.32.0", given)  # type: ignore[arg-type]
    time = dict(kernel.step_time(Batch.decode(1, 0)).per_resource_s)[Resource.NVLINK]
    assert time == pytest.approx(8 * floors[op], rel=1e-2)
    used = {c for c in kernel.plan.coefficients if c.startswith("allreduce")}
    assert used == {f"allreduce_{op}_{part}" for part in ("floor_s", "transition_eff", "eff")}


@pytest.mark.parametrize(
    ("ranks", "stride", "per_node", "nodes"),
    [
        (8, 1, 8, 1),
        (16, 1, 8, 2),
        (2, 8, 8, 2),  # data-parallel neighbours stand a whole group apart
        (4, 2, 8, 1),
        (4, 4, 8, 2),
        (2, 1, 1, 2),
        (1, 8, 8, 1),
    ],
)
def test_nodes_of_a_group_match_a_count_of_ranks(
    ranks: int, stride: int, per_node: int, nodes: int
) -> None:
    assert nodes_of_group(ranks, stride, per_node) == nodes
    assert len({rank * stride // per_node for rank in range(ranks)}) == nodes


def test_a_missing_coefficient_of_a_collective_is_named_beside_a_full_set() -> None:
    full = fitted()
    FittedKernel.of(dense(), CHIP, PAIR, "", full)
    for name in ("allreduce_custom_floor_s", "allreduce_custom_eff", "allgather_transition_eff"):
        without = replace(
            full,
            coefficients=tuple(c for c in full.coefficients if c.name != name),
            draw_names=(),
        )
        with pytest.raises(InvalidArgument, match=f"{name} missing.*width 2"):
            FittedKernel.of(dense(), CHIP, PAIR, "", without)
        # One rank needs no collective.
        FittedKernel.of(dense(), CHIP, EAGER, "", without)
