"""Transfers of KV: to an offload tier and between pools. They never enter a step."""

from __future__ import annotations

from dataclasses import dataclass

from kernelfit.kernel.cache import STATE_BLOCKS
from kernelfit.kernel.errors import InvalidArgument, Refusal
from kernelfit.kernel.memory import Deployed, sequence_fixed_bytes, sequence_variable_bytes
from kernelfit.kernel.pool import Direction, Placement, Tier

LINK_SHARE = 0.8
"""Share of a link's datasheet rate that bulk transfers reach; assumed."""

HOST_MEMORY_BYTES_PER_S = 100e9
"""Rate at which the memory of the host is read for one GPU [byte/s]; assumed, eight DDR5
channels over four GPUs."""

HOST_WRITE_SHARE = 0.8
"""Rate at which that memory is written over the rate at which it is read; assumed: a DDR
channel carries one direction at a time and loses cycles where it turns."""

LATENCY_S = 10e-6
"""Fixed time of one transfer [s]; NVIDIA AIConfigurator system.yaml, p2p_latency."""

CONSTANTS: tuple[tuple[str, str], ...] = (
    ("link_share", "assumed"),
    ("host_memory_bytes_per_s", "assumed"),
    ("host_write_share", "assumed"),
    ("transfer_latency_s", "literature"),
)
"""Name and method of every constant here, for a kernel's provenance."""


@dataclass(frozen=True, slots=True)
class StorageRates:
    """What must be stated of a storage tier before its transfers can be priced.

    Attributes
    ----------
    read_bytes_per_s, write_bytes_per_s : float
        Rates for one GPU [byte/s].
    latency_s : float
        Time of an empty transfer [s].
    """

    read_bytes_per_s: float
    write_bytes_per_s: float
    latency_s: float = 0.0

    def __post_init__(self) -> None:
        for name in ("read_bytes_per_s", "write_bytes_per_s"):
            if not getattr(self, name) > 0:
                raise InvalidArgument(name, getattr(self, name), "above 0 byte/s")
        if not self.latency_s >= 0:
            raise InvalidArgument("latency_s", self.latency_s, ">= 0 s")


def tier_time_s(
    plan: Deployed,
    tier: Tier,
    direction: Direction,
    nbytes: int,
    queue_depth: int,
    storage: StorageRates | None = None,
) -> float:
    """Return the time of one offload transfer.

    Parameters
    ----------
    plan : Deployed
        The deployment.
    tier : Tier
        Where the KV goes to or comes from.
    direction : Direction
        Which way it goes: to a tier its memory is written, from it read. The host link
        carries both alike.
    nbytes : int
        Size of the transfer [bytes].
    queue_depth : int
        Transfers that share the links, this one included.
    storage : StorageRates, optional
        Rates of the storage tier; without them it is refused.

    Returns
    -------
    float
        Time until this transfer is done [s]. The CPU tier crosses the host link and the
        host's memory; data streams through both, so that the slower one binds. The
        storage tier crosses these two and the storage itself. Transfers queued together
        share the rate equally and end together.

    Raises
    ------
    InvalidArgument
        When a size is negative, the queue is empty, or the tier or direction is unknown.
    Refusal
        When the chip states no host link, or nothing states the rates of the storage.
    """
    if nbytes < 0:
        raise InvalidArgument("nbytes", nbytes, ">= 0 bytes")
    if queue_depth < 1:
        raise InvalidArgument("queue_depth", queue_depth, ">= 1 transfer")
    where, write = _tier(tier), _direction(direction) is Direction.TO_TIER
    if where is Tier.STORAGE and storage is None:
        raise Refusal(
            "tier",
            str(where),
            "no rate is stated for it; accepted with storage=StorageRates(read_bytes_per_s, "
            "write_bytes_per_s), and the cpu tier without",
        )
    if plan.chip.pcie_bytes_per_s <= 0:
        raise Refusal(
            "tier", str(where), f"{plan.chip.name} states no host link; a GPU with one is accepted"
        )
    memory = HOST_MEMORY_BYTES_PER_S * (HOST_WRITE_SHARE if write else 1.0)
    rate = min(plan.chip.pcie_bytes_per_s * LINK_SHARE, memory)
    latency = LATENCY_S
    if where is Tier.STORAGE and storage is not None:
        rate = min(rate, storage.write_bytes_per_s if write else storage.read_bytes_per_s)
        latency += storage.latency_s
    return latency + nbytes * queue_depth / rate


def _tier(tier: Tier) -> Tier:
    try:
        return Tier(tier)
    except ValueError:
        raise InvalidArgument("tier", tier, ", ".join(Tier)) from None


def _direction(direction: Direction) -> Direction:
    try:
        return Direction(direction)
    except ValueError:
        raise InvalidArgument("direction", direction, ", ".join(Direction)) from None


def pd_transfer_bytes(plan: Deployed, tokens: int) -> int:
    """Return the bytes that one rank receives when a prompt's KV moves.

    Parameters
    ----------
    plan : Deployed
        The deployment of the pool that sends; the one that receives is as wide.
    tokens : int
        Tokens whose KV moves [tokens].

    Returns
    -------
    int
        Whole pages of the rank's own heads; of a window only what it can still see; of a
        latent all of it, since every rank needs it whole; and the current recurrent
        state, one page per layer [bytes]. 0 without tokens.

    Raises
    ------
    InvalidArgument
        When ``tokens`` is negative.
    """
    nbytes = sequence_variable_bytes(plan, tokens)
    if not tokens:
        return nbytes
    resolution = plan.resolution
    kept = dict(STATE_BLOCKS).get(resolution.mamba_cache_mode, 0)
    kept += resolution.decode_query_tokens - 1
    return nbytes + (sequence_fixed_bytes(plan) // kept if kept else 0)


def pd_transfer_time_s(plan: Deployed, tokens: int, source: Placement, target: Placement) -> float:
    """Return the time of moving a prompt's KV from a prefill to a decode pool.

    Parameters
    ----------
    plan : Deployed
        The deployment of the pool that sends. Both pools are taken to have its widths:
        the interface knows one deployment, so a pool that re-shards the KV is not priced.
    tokens : int
        Tokens whose KV moves [tokens].
    source, target : Placement
        Where the two pools stand.

    Returns
    -------
    float
        Time until the KV has arrived [s]. Every rank of the target reads from one rank of
        the source at once, over a link of its own, so that the bytes of one rank set the
        time. A latent crosses once per rank and not once per pool: the engine's connector
        reads it whole for every rank, though one copy spread over the node would do.
        It sets an arrival time and is never part of a step.

    Raises
    ------
    InvalidArgument
        When ``tokens``, a node or a rack is negative.
    Refusal
        When the chip states no link of the kind that the placements need.

    Notes
    -----
    Within a node the transfer takes the links between GPUs, otherwise the network: nodes
    of one rack are on the same fabric, because a chip document states no link that joins
    them.
    """
    for name, value in (
        ("source.node", source.node),
        ("source.rack", source.rack),
        ("target.node", target.node),
        ("target.rack", target.rack),
    ):
        if value < 0:
            raise InvalidArgument(name, value, ">= 0")
    nbytes = pd_transfer_bytes(plan, tokens)
    if source == target:
        rate, link = plan.chip.nvlink_bytes_per_s, "nvlink"
    else:
        rate, link = plan.chip.nic_bytes_per_s, "nic"
    if rate <= 0:
        raise Refusal(link, 0, f"{plan.chip.name} states no such link; a chip with one is accepted")
    return LATENCY_S + nbytes / (rate * LINK_SHARE)
