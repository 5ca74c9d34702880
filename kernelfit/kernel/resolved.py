"""The value types of a resolution: what will run, and what was overridden."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Override:
    """One setting that runs differently from what was asked, or was not stated.

    Attributes
    ----------
    field : str
        The setting.
    requested : str
        What the pool stated; ``unstated`` where it said nothing.
    resolved : str
        What will run.
    reason : str
        Why; it starts with ``assumed`` where an engine default was taken.
    """

    field: str
    requested: str
    resolved: str
    reason: str


@dataclass(frozen=True, slots=True)
class Resolution:
    """What will run.

    Attributes
    ----------
    tensor_parallel_width, data_parallel_width, expert_parallel_width : int
        Widths, at least 1.
    all_reduce_backend : str
        ``custom``, ``nccl``, ``shared_memory`` or ``none``.
    async_scheduling : bool
        Whether host work of the next step hides behind this one.
    cascade_attention : bool
        Whether shared prefixes are read once.
    sequence_parallel_moe : bool
        Whether experts run on sequence shards.
    graph_mode : str
        One of ``GRAPH_MODES``.
    capture_sizes : tuple of int
        Captured batch sizes, ascending [tokens]; empty without graphs.
    block_size : int
        KV page [tokens].
    cache_dtype : str
        Data type of the KV cache.
    max_num_seqs : int
        Most requests in a step.
    max_num_batched_tokens : int
        Most tokens in a step [tokens].
    gpu_memory_utilization : float
        Share of the memory that the engine may use [1].
    overrides : tuple of Override
        Every setting that differs from the request, and every assumed default.
    nodes_spanned : int
        Nodes that the widest group of ranks crosses.
    ranks_per_node : int
        Ranks of the pool that share a node.
    all2all_backend : str
        How data-parallel ranks exchange the rows of experts; ``none`` where they do not.
    routing_imbalance : float
        Rows of the busiest expert-parallel rank over the mean [1]; 0 means that uniform
        routing's own expectation is taken, which depends on the batch.
    decode_query_tokens : int
        Tokens that a decoding request schedules: 1, and those proposed to it [tokens].
    launches_run_ahead : bool
        Whether launches are queued ahead of the device, so that they hide behind it.
    state_dtype : str
        Data type of the recurrent state; the model's own where it has none.
    mamba_cache_mode : str
        Which recurrent states are kept: ``none``, ``align`` or ``all``.
    redundant_experts : int
        Replicas of experts, over all ranks.
    """

    tensor_parallel_width: int
    data_parallel_width: int
    expert_parallel_width: int
    all_reduce_backend: str
    async_scheduling: bool
    cascade_attention: bool
    sequence_parallel_moe: bool
    graph_mode: str
    capture_sizes: tuple[int, ...]
    block_size: int
    cache_dtype: str
    max_num_seqs: int
    max_num_batched_tokens: int
    gpu_memory_utilization: float
    overrides: tuple[Override, ...]
    nodes_spanned: int = 1
    ranks_per_node: int = 1
    all2all_backend: str = "none"
    routing_imbalance: float = 0.0
    decode_query_tokens: int = 1
    launches_run_ahead: bool = False
    state_dtype: str = "fp32"
    mamba_cache_mode: str = "none"
    redundant_experts: int = 0
