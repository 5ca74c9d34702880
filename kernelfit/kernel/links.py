"""Collectives of a deployment: which ranks take part, and what crosses which link."""

from __future__ import annotations

from kernelfit.kernel.integers import ceil_div
from kernelfit.kernel.resolved import Resolution
from kernelfit.kernel.resources import Resource
from kernelfit.kernel.stage import Stage


def nodes_of_group(ranks: int, stride: int, ranks_per_node: int) -> int:
    """Return how many nodes a group of ranks crosses.

    Parameters
    ----------
    ranks : int
        Ranks of the group.
    stride : int
        Distance between neighbours: 1 for tensor parallelism, which is innermost.
    ranks_per_node : int
        Ranks that share a node.

    Returns
    -------
    int
        At least 1; every node holds the same number of the group's ranks where the
        widths are powers of two, and the group is taken as spread evenly otherwise.
    """
    return max(1, min(ranks, ceil_div(ranks * stride, ranks_per_node)))


def all_reduce(
    stage: Stage, resolution: Resolution, function: int, nbytes: float, times: float = 1.0
) -> None:
    """Add all-reduces over the tensor-parallel group.

    Parameters
    ----------
    stage : Stage
        Where they run.
    resolution : Resolution
        What will run.
    function : int
        Basis function that the bytes are proportional to.
    nbytes : float
        Bytes of the reduced tensor per unit of the function [bytes].
    times : float
        All-reduces per layer.

    Notes
    -----
    A ring of n ranks moves 2 (n - 1) / n of the tensor over each rank's link (Thakur,
    Rabenseifner and Gropp, 2005). A group of m nodes with g ranks each reduces within
    the node first: 2 (g - 1) / g on the inner link, then 2 (m - 1) / m of a g-th over
    the network.
    """
    ranks = resolution.tensor_parallel_width
    if ranks == 1:
        return
    nodes = nodes_of_group(ranks, 1, resolution.ranks_per_node)
    inner = ranks / nodes
    if inner > 1:
        op = f"allreduce_{resolution.all_reduce_backend}"
        stage.collective(op, Resource.NVLINK, function, 2.0 * (inner - 1) / inner * nbytes, times)
    if nodes > 1:
        crossing = 2.0 * (nodes - 1) / nodes * nbytes / inner
        stage.collective("internode", Resource.NIC, function, crossing, times, "_allreduce")


def gather(
    stage: Stage,
    resolution: Resolution,
    op: str,
    ranks: int,
    stride: int,
    function: int,
    nbytes: float,
    label: str = "",
) -> None:
    """Add a gather of shards, or the sum of shards, over a group.

    Parameters
    ----------
    stage : Stage
        Where it runs.
    resolution : Resolution
        What will run.
    op : str
        ``allgather`` or ``reducescatter``.
    ranks, stride : int
        The group, see ``nodes_of_group``.
    function : int
        Basis function that the bytes are proportional to.
    nbytes : float
        Bytes of the whole tensor, all shards together, per unit of the function [bytes].
    label : str
        Tells collectives of one kind and different sizes apart.

    Notes
    -----
    A ring moves (n - 1) / n of the tensor over each rank's link; over m nodes of g ranks
    each, (m - 1) / m of a g-th crosses the network, the rest stays inside.
    """
    if ranks == 1:
        return
    nodes = nodes_of_group(ranks, stride, resolution.ranks_per_node)
    inner = ranks / nodes
    if inner > 1:
        stage.collective(op, Resource.NVLINK, function, (inner - 1) / inner * nbytes, 1.0, label)
    if nodes > 1:
        crossing = (nodes - 1) / nodes * nbytes / inner
        stage.collective("internode", Resource.NIC, function, crossing, 1.0, f"_{op}{label}")


def all_to_all(
    stage: Stage,
    resolution: Resolution,
    ranks: int,
    function: int,
    nbytes: float,
    times: float,
) -> None:
    """Add exchanges of rows between all ranks of the expert-parallel group.

    Parameters
    ----------
    stage : Stage
        Where they run.
    resolution : Resolution
        What will run.
    ranks : int
        Ranks of the group, neighbours side by side.
    function : int
        Basis function that the bytes are proportional to.
    nbytes : float
        Bytes that one rank sends, its own share included, per unit of the function [bytes].
    times : float
        Exchanges per layer.

    Notes
    -----
    Of n ranks, g on each node, a rank sends (g - 1) / n of its rows inside the node and
    (n - g) / n over the network.
    """
    if ranks == 1:
        return
    nodes = nodes_of_group(ranks, 1, resolution.ranks_per_node)
    inner = ranks / nodes
    if inner > 1:
        stage.collective("alltoall", Resource.NVLINK, function, (inner - 1) / ranks * nbytes, times)
    if nodes > 1:
        crossing = (ranks - inner) / ranks * nbytes
        stage.collective("internode", Resource.NIC, function, crossing, times, "_alltoall")
