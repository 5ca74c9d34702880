"""Ranks: how many, where they stand, and how they exchange.

After vLLM's ``config/parallel.py``, ``model_executor/layers/fused_moe`` and
``distributed/device_communicators``.
"""

from __future__ import annotations

from kernelfit.kernel.asked import Asked, OverrideLog
from kernelfit.kernel.errors import InvalidArgument, Refusal
from kernelfit.kernel.integers import ceil_div
from kernelfit.kernel.rules import (
    CUSTOM_ALL_REDUCE,
    EXCHANGE_DEFAULT,
    EXCHANGES,
    EXCHANGES_REMOVED,
    SEQUENCE_PARALLEL_EXCHANGES,
    rule,
)

UNPRICED_EXCHANGES: tuple[tuple[str, str], ...] = (
    ("naive", "it broadcasts rank by rank, which has no law"),
    ("moonep", "it copies experts between ranks within a step, which has no law"),
)


def placement(asked: Asked, log: OverrideLog) -> tuple[int, int]:
    """Place the ranks on nodes.

    Parameters
    ----------
    asked : Asked
        The pool and what it runs on.
    log : OverrideLog
        Takes the overrides.

    Returns
    -------
    (int, int)
        Nodes that the widest exchanging group crosses, and ranks of a node. Ranks are
        spread evenly, tensor-parallel ones next to each other.

    Raises
    ------
    InvalidArgument
        When ranks cannot be spread evenly, or do not fit.
    Refusal
        When a group would cross nodes over a link that the chip does not state.
    """
    pool, chip = asked.pool, asked.chip
    if pool.nodes > asked.ranks or asked.ranks % pool.nodes:
        raise InvalidArgument(
            "nodes", pool.nodes, f"a divisor of the tp x dp = {asked.ranks} ranks"
        )
    per_node = asked.ranks // pool.nodes
    if per_node > asked.pool_gpus:
        least = ceil_div(asked.ranks, asked.pool_gpus)
        raise InvalidArgument(
            "nodes", pool.nodes, f"at least {least}: a node has {asked.pool_gpus} GPUs"
        )
    if per_node % pool.tp and pool.tp % per_node:
        raise InvalidArgument(
            "nodes",
            pool.nodes,
            f"a number by which each node holds whole groups of tp = {pool.tp} ranks, or each "
            "group whole nodes",
        )
    group = asked.ranks if asked.has_experts else pool.tp
    spanned = max(1, group // per_node)
    if spanned > 1 and asked.on_cpu:
        raise Refusal(
            "nodes",
            pool.nodes,
            "ranks on CPUs reduce through the memory of one node; nodes=1 is accepted",
        )
    if spanned > 1 and chip.nic_bytes_per_s <= 0:
        raise Refusal(
            "nodes", pool.nodes, f"{chip.name} states no network between nodes; nodes=1 is accepted"
        )
    if pool.nodes > 1 and pool.distributed_executor_backend is None:
        log.default("distributed_executor_backend", "mp", "one engine per node, without Ray")
    return spanned, per_node


def all_reduce(asked: Asked, ranks_per_node: int, log: OverrideLog) -> str:
    """Choose how tensor-parallel ranks sum.

    Parameters
    ----------
    asked : Asked
        The pool and what it runs on.
    ranks_per_node : int
        Ranks that share a node.
    log : OverrideLog
        Takes the overrides.

    Returns
    -------
    str
        ``custom``, ``nccl``, ``shared_memory`` or ``none``.

    Notes
    -----
    The engine also gives up the custom kernel on more than two GPUs that only PCIe
    joins; such GPUs state no link here, and tensor parallelism is refused on them.
    """
    pool = asked.pool
    if pool.tp == 1:
        return "none"
    if asked.on_cpu:
        if pool.disable_custom_all_reduce is False:
            log.override(
                "disable_custom_all_reduce",
                False,
                "shared_memory",
                "ranks on CPUs reduce through shared memory",
            )
        return "shared_memory"
    if pool.disable_custom_all_reduce:
        return "nccl"
    widths = rule(CUSTOM_ALL_REDUCE, asked.version)
    reason = ""
    if pool.tp not in widths:
        listed = ", ".join(str(w) for w in widths)
        reason = f"the custom all-reduce needs a tensor-parallel width in {listed}"
    elif pool.tp > ranks_per_node:
        reason = (
            "the custom all-reduce needs its ranks in one node, or NVLink between nodes, which "
            "the chip's datasheet does not state"
        )
    if reason:
        log.override("all_reduce_backend", "custom", "nccl", reason)
        return "nccl"
    return "custom"


def expert_width(asked: Asked, log: OverrideLog) -> int:
    """Return the ranks that experts are spread over.

    Parameters
    ----------
    asked : Asked
        The pool and what it serves.
    log : OverrideLog
        Takes the overrides.

    Returns
    -------
    int
        tp x dp where experts are spread, else 1.
    """
    pool, field = asked.pool, "enable_expert_parallel"
    if not pool.enable_expert_parallel:
        return 1
    if not asked.has_experts:
        log.override(field, True, 1, f"{asked.model.name} has no experts to spread")
        return 1
    if asked.ranks == 1:
        log.override(field, True, 1, "one rank holds every expert")
        return 1
    numbers = {kind.experts.experts for kind in asked.model.layers if kind.experts is not None}
    for experts in sorted(numbers):
        least, more = divmod(experts, asked.ranks)
        if more and not pool.enable_eplb:
            log.override(
                field,
                True,
                f"{least} or {least + 1} experts per rank",
                f"{experts} experts do not spread evenly over {asked.ranks} ranks: the first "
                f"{more} hold one more",
            )
    return asked.ranks


def asked_exchange(asked: Asked) -> str:
    """Return the exchange that runs, without recording why.

    Parameters
    ----------
    asked : Asked
        The pool and what it serves.

    Returns
    -------
    str
        A name from ``EXCHANGES``, or ``none``.
    """
    return exchange(asked, OverrideLog())


def exchange(asked: Asked, log: OverrideLog) -> str:
    """Choose how data-parallel ranks exchange the rows of experts.

    Parameters
    ----------
    asked : Asked
        The pool and what it serves.
    log : OverrideLog
        Takes the overrides.

    Returns
    -------
    str
        A name from ``EXCHANGES``, or ``none`` where ranks exchange nothing.

    Raises
    ------
    InvalidArgument
        When the release knows no such exchange.
    Refusal
        When it has no law.
    """
    pool, field = asked.pool, "all2all_backend"
    wanted, known = pool.all2all_backend, rule(EXCHANGES, asked.version)
    if wanted is not None and wanted not in known:
        raise InvalidArgument(field, wanted, ", ".join(sorted(known)))
    if pool.dp == 1 or not asked.has_experts:
        if wanted is not None:
            log.override(field, wanted, "none", "no data-parallel ranks exchange rows of experts")
        return "none"
    if wanted is None:
        log.default(field, EXCHANGE_DEFAULT, "the engine's default")
        return EXCHANGE_DEFAULT
    reason = ""
    if wanted in rule(EXCHANGES_REMOVED, asked.version):
        reason = "removed from this release, which falls back to its default"
    elif asked.on_cpu:
        reason = "the only exchange of the CPU back end"
    elif not pool.enable_expert_parallel:
        reason = "sharded experts are reached by gathering, whatever the back end"
    if reason and wanted != EXCHANGE_DEFAULT:
        log.override(field, wanted, EXCHANGE_DEFAULT, reason)
        return EXCHANGE_DEFAULT
    for name, why in UNPRICED_EXCHANGES:
        if wanted == name:
            raise Refusal(field, wanted, f"{why}; {EXCHANGE_DEFAULT} is accepted")
    return wanted


def sequence_parallel(asked: Asked, backend: str) -> bool:
    """Return whether each tensor-parallel rank takes its own share of tokens to experts.

    Parameters
    ----------
    asked : Asked
        The pool and what it serves.
    backend : str
        The exchange that runs.

    Returns
    -------
    bool
        True when experts are spread over more than one tensor-parallel and more than one
        data-parallel rank and the exchange allows it.
    """
    pool = asked.pool
    allowed = rule(SEQUENCE_PARALLEL_EXCHANGES, asked.version)
    return pool.enable_expert_parallel and pool.tp > 1 and pool.dp > 1 and backend in allowed


def redundant_experts(asked: Asked, width: int, log: OverrideLog) -> int:
    """Return the replicas of experts, over all ranks.

    Parameters
    ----------
    asked : Asked
        The pool and what it serves.
    width : int
        Ranks that experts are spread over.
    log : OverrideLog
        Takes the overrides.

    Returns
    -------
    int
        Replicas; 0 where experts are not balanced.

    Raises
    ------
    InvalidArgument
        When the engine would not start: on a CPU, without spread experts, or with
        replicas but no balancing.

    Notes
    -----
    Balancing is accepted because it leaves the steps between two rearrangements as they
    are, and those are nearly all of them: one rearrangement in 3,000 steps by default, and
    its copies run beside the steps (``EPLBConfig``).
    """
    pool, replicas = asked.pool, asked.pool.num_redundant_experts or 0
    if not pool.enable_eplb:
        if replicas:
            raise InvalidArgument("num_redundant_experts", replicas, "0 without enable_eplb")
        return 0
    if asked.on_cpu:
        raise InvalidArgument("enable_eplb", True, "false on a CPU")
    if width == 1:
        raise InvalidArgument("enable_eplb", True, "false where experts are not spread over ranks")
    log.override(
        "enable_eplb",
        True,
        f"{replicas} replicas in memory",
        "moving experts between ranks is not charged: by default once in 3000 steps, beside them",
    )
    return replicas


def imbalance(asked: Asked, width: int, log: OverrideLog) -> float:
    """Return the rows of the busiest rank over the mean.

    Parameters
    ----------
    asked : Asked
        The pool and what it serves.
    width : int
        Ranks that experts are spread over.
    log : OverrideLog
        Takes the overrides.

    Returns
    -------
    float
        At least 1 [1]; 0 where uniform routing's own expectation is taken.

    Raises
    ------
    InvalidArgument
        When it is below 1, or above the number of ranks.
    """
    wanted, field = asked.pool.routing_imbalance, "routing_imbalance"
    if wanted is not None and not wanted >= 1.0:
        raise InvalidArgument(field, wanted, ">= 1")
    if width == 1:
        if wanted is not None and wanted != 1.0:
            log.override(field, wanted, "none", "no ranks between which rows could be unbalanced")
        return 0.0
    if wanted is None:
        log.default(
            field, "uniform", "every expert is equally likely; the busiest rank by its expectation"
        )
        return 0.0
    if wanted > width:
        raise InvalidArgument(field, wanted, f"1 to {width}, where one rank has every row")
    return wanted
