"""Transfers of KV: to an offload tier and between pools. They never enter a step."""

from __future__ import annotations

from kernelfit.kernel.errors import InvalidArgument, Refusal
from kernelfit.kernel.memory import sequence_variable_bytes
from kernelfit.kernel.pool import Direction, Placement, Tier
from kernelfit.kernel.pricing import Plan

LINK_SHARE = 0.8
"""Share of a link's datasheet rate that bulk transfers reach; assumed."""

HOST_MEMORY_BYTES_PER_S = 100e9
"""Memory of the host that serves one GPU [byte/s]; assumed, eight DDR5 channels over four GPUs."""

LATENCY_S = 10e-6
"""Fixed time of one transfer [s]; NVIDIA AIConfigurator system.yaml, p2p_latency."""


def tier_time_s(
    plan: Plan, tier: Tier, direction: Direction, nbytes: int, queue_depth: int
) -> float:
    """Return the time of one offload transfer.

    Parameters
    ----------
    plan : Plan
        The plan.
    tier : Tier
        Where the KV goes to or comes from.
    direction : Direction
        Which way it goes; the links priced here are symmetric.
    nbytes : int
        Size of the transfer [bytes].
    queue_depth : int
        Transfers that share the links, this one included.

    Returns
    -------
    float
        Time until this transfer is done [s]: the CPU tier crosses the host link and the
        host's memory, and the slower of the two binds.

    Raises
    ------
    InvalidArgument
        When a size is negative or the queue is empty.
    Refusal
        When the chip states no host link, or for a tier without a stated rate.
    """
    if nbytes < 0:
        raise InvalidArgument("nbytes", nbytes, ">= 0 bytes")
    if queue_depth < 1:
        raise InvalidArgument("queue_depth", queue_depth, ">= 1 transfer")
    Direction(direction)
    if Tier(tier) is not Tier.CPU:
        raise Refusal("tier", str(tier), "no rate is stated for it; the cpu tier is accepted")
    if plan.chip.pcie_bytes_per_s <= 0:
        raise Refusal(
            "tier", str(tier), f"{plan.chip.name} states no host link; a GPU with one is accepted"
        )
    rate = min(plan.chip.pcie_bytes_per_s * LINK_SHARE, HOST_MEMORY_BYTES_PER_S)
    return LATENCY_S + nbytes * queue_depth / rate


def pd_transfer_time_s(plan: Plan, tokens: int, source: Placement, target: Placement) -> float:
    """Return the time of moving a prompt's KV from a prefill to a decode pool.

    Parameters
    ----------
    plan : Plan
        The plan of the pool that sends.
    tokens : int
        Tokens whose KV moves [tokens].
    source, target : Placement
        Where the two pools stand.

    Returns
    -------
    float
        Time until the KV has arrived [s]; every rank sends its own shard at once. It
        sets an arrival time and is never part of a step.

    Raises
    ------
    InvalidArgument
        When ``tokens`` is negative.
    Refusal
        When the chip states no link of the kind that the placements need.
    """
    nbytes = sequence_variable_bytes(plan, tokens)
    if source.node == target.node and source.rack == target.rack:
        rate, link = plan.chip.nvlink_bytes_per_s, "nvlink"
    else:
        rate, link = plan.chip.nic_bytes_per_s, "nic"
    if rate <= 0:
        raise Refusal(link, 0, f"{plan.chip.name} states no such link; a chip with one is accepted")
    return LATENCY_S + nbytes / (rate * LINK_SHARE)
