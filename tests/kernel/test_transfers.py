"""Transfers: the slower of the links that are crossed, and what has to cross them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelfit.kernel import memory, transfers
from kernelfit.kernel.errors import InvalidArgument, Refusal
from kernelfit.kernel.model import Model
from kernelfit.kernel.pool import Direction, Placement, Tier
from kernelfit.kernel.transfers import StorageRates
from tests.kernel.builders import CHIP
from tests.kernel.deployed import EVERY_KIND, GQA, HYBRID, LATENT, WINDOW, deployed, one_kind

PLAN = deployed(one_kind(GQA))
# A host link above what its memory takes.
FAST = deployed(one_kind(GQA), replace(CHIP, pcie_bytes_per_s=500e9))
GIGABYTE = 10**9
TO, FROM = Direction.TO_TIER, Direction.FROM_TIER


def test_the_slower_of_host_link_and_host_memory_binds() -> None:
    # 0.8 of 32 GB/s either way; memory reads 100 GB/s and is written at 80.
    for direction in Direction:
        time = transfers.tier_time_s(PLAN, Tier.CPU, direction, GIGABYTE, 1)
        assert time == pytest.approx(1e-5 + 1e9 / 25.6e9)
    assert transfers.tier_time_s(FAST, Tier.CPU, FROM, GIGABYTE, 1) == pytest.approx(1e-5 + 1e-2)
    assert transfers.tier_time_s(FAST, Tier.CPU, TO, GIGABYTE, 1) == pytest.approx(1e-5 + 1.25e-2)


def test_transfers_in_a_queue_share_the_links() -> None:
    alone = transfers.tier_time_s(PLAN, Tier.CPU, TO, GIGABYTE, 1)
    three = transfers.tier_time_s(PLAN, Tier.CPU, TO, GIGABYTE, 3)
    assert three - 1e-5 == pytest.approx(3 * (alone - 1e-5))
    assert transfers.tier_time_s(PLAN, Tier.CPU, TO, 0, 3) == 1e-5


def test_storage_is_priced_where_its_rates_are_stated() -> None:
    with pytest.raises(Refusal, match="StorageRates"):
        transfers.tier_time_s(PLAN, Tier.STORAGE, TO, GIGABYTE, 1)
    rates = StorageRates(read_bytes_per_s=5e9, write_bytes_per_s=2e9, latency_s=1e-4)
    write = transfers.tier_time_s(PLAN, Tier.STORAGE, TO, GIGABYTE, 1, rates)
    assert write == pytest.approx(1.1e-4 + 0.5)
    read = transfers.tier_time_s(PLAN, Tier.STORAGE, FROM, GIGABYTE, 1, rates)
    assert read == pytest.approx(1.1e-4 + 0.2)
    # A storage faster than the host link is bound by the link.
    quick = StorageRates(1e12, 1e12)
    assert transfers.tier_time_s(
        PLAN, Tier.STORAGE, TO, GIGABYTE, 1, quick
    ) == transfers.tier_time_s(PLAN, Tier.CPU, TO, GIGABYTE, 1)


@pytest.mark.parametrize(
    ("rates", "field"),
    [
        ({"read_bytes_per_s": 0.0}, "read_bytes_per_s"),
        ({"write_bytes_per_s": float("nan")}, "write_bytes_per_s"),
        ({"latency_s": -1.0}, "latency_s"),
    ],
)
def test_rates_that_are_none_are_refused(rates: dict[str, float], field: str) -> None:
    good = {"read_bytes_per_s": 1.0, "write_bytes_per_s": 1.0}
    StorageRates(**good)
    with pytest.raises(InvalidArgument, match=field):
        StorageRates(**{**good, **rates})


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"nbytes": -1}, "nbytes"),
        ({"queue_depth": 0}, "queue_depth"),
        ({"tier": "tape"}, "tier"),
        ({"direction": "sideways"}, "direction"),
    ],
)
def test_bad_transfers_are_named(changes: dict[str, Any], field: str) -> None:
    good = {"tier": "cpu", "direction": "to_tier", "nbytes": 0, "queue_depth": 1}
    transfers.tier_time_s(PLAN, **good)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match=field):
        transfers.tier_time_s(PLAN, **{**good, **changes})


def test_a_chip_without_a_host_link_is_refused() -> None:
    bare = deployed(one_kind(GQA), replace(CHIP, pcie_bytes_per_s=0.0))
    with pytest.raises(Refusal, match="host link"):
        transfers.tier_time_s(bare, Tier.CPU, TO, 1, 1)


HERE, NEXT, FAR = Placement(0, 0), Placement(1, 0), Placement(0, 1)


def test_the_link_follows_from_the_placements() -> None:
    nbytes = transfers.pd_transfer_bytes(PLAN, 1000)
    near = transfers.pd_transfer_time_s(PLAN, 1000, HERE, HERE)
    assert near == pytest.approx(1e-5 + nbytes / 80e9)
    for other in (NEXT, FAR):
        far = transfers.pd_transfer_time_s(PLAN, 1000, HERE, other)
        assert far == pytest.approx(1e-5 + nbytes / 40e9)
    alone = deployed(one_kind(GQA), replace(CHIP, nic_bytes_per_s=0.0))
    transfers.pd_transfer_time_s(alone, 10, HERE, HERE)
    with pytest.raises(Refusal, match="nic"):
        transfers.pd_transfer_time_s(alone, 10, HERE, NEXT)
    lonely = deployed(one_kind(GQA), replace(CHIP, nvlink_bytes_per_s=0.0))
    transfers.pd_transfer_time_s(lonely, 10, HERE, NEXT)
    with pytest.raises(Refusal, match="nvlink"):
        transfers.pd_transfer_time_s(lonely, 10, HERE, HERE)


def test_ranks_send_their_own_heads_and_a_whole_latent() -> None:
    def received(model: Model, tp: int) -> int:
        return transfers.pd_transfer_bytes(deployed(model, tp=tp), 1600)

    heads, latent = one_kind(GQA), one_kind(LATENT)
    assert received(heads, 1) == 2 * 1600 * 256
    # Two heads over two ranks, and over eight, where each is held four times.
    assert received(heads, 2) == received(heads, 8) == 2 * 1600 * 128
    # 64 + 16 elements for every rank, however many there are.
    assert received(latent, 1) == received(latent, 8) == 2 * 1600 * 160


def test_only_the_window_moves_and_the_state_does_too() -> None:
    window = deployed(one_kind(WINDOW))
    assert transfers.pd_transfer_bytes(window, 10**6) == 2 * 9 * 16 * 256
    states = memory.sequence_fixed_bytes(deployed(HYBRID))
    for mode in ("none", "align"):
        plan = deployed(HYBRID, mamba_cache_mode=mode)
        moved = transfers.pd_transfer_bytes(plan, 500)
        # Of the states that a sequence keeps, the current one.
        assert moved == memory.sequence_variable_bytes(plan, 500) + states
        assert transfers.pd_transfer_bytes(plan, 0) == 0
    each = deployed(HYBRID, mamba_cache_mode="all")
    assert transfers.pd_transfer_bytes(each, 500) == memory.sequence_variable_bytes(each, 500)


@pytest.mark.parametrize(
    ("tokens", "source", "target", "field"),
    [
        (-1, HERE, HERE, "tokens"),
        (1, Placement(-1, 0), HERE, r"source\.node"),
        (1, HERE, Placement(0, -2), r"target\.rack"),
    ],
)
def test_bad_moves_are_named(tokens: int, source: Placement, target: Placement, field: str) -> None:
    transfers.pd_transfer_time_s(PLAN, 1, HERE, HERE)
    with pytest.raises(InvalidArgument, match=field):
        transfers.pd_transfer_time_s(PLAN, tokens, source, target)


@given(st.sampled_from(EVERY_KIND), st.integers(0, 4000), st.integers(0, 4000))
def test_more_tokens_never_arrive_sooner(model: Model, tokens: int, more: int) -> None:
    plan = deployed(model)
    one = transfers.pd_transfer_time_s(plan, tokens, HERE, NEXT)
    assert 1e-5 <= one <= transfers.pd_transfer_time_s(plan, tokens + more, HERE, NEXT)


@given(
    st.sampled_from(list(Direction)),
    st.integers(0, 10**12),
    st.integers(0, 10**12),
    st.integers(1, 64),
)
def test_more_bytes_never_take_less(
    direction: Direction, nbytes: int, more: int, depth: int
) -> None:
    one = transfers.tier_time_s(PLAN, Tier.CPU, direction, nbytes, depth)
    assert one <= transfers.tier_time_s(PLAN, Tier.CPU, direction, nbytes + more, depth)
    assert one <= transfers.tier_time_s(PLAN, Tier.CPU, direction, nbytes, depth + 1)


def test_constants_say_their_evidence() -> None:
    names = [name for name, _ in transfers.CONSTANTS + memory.CONSTANTS]
    assert len(set(names)) == len(names)
    assert {method for _, method in transfers.CONSTANTS} <= {"literature", "assumed"}
