"""The pool a deployment asks for, and the small vocabulary of transfers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Direction(StrEnum):
    """Which way an offload transfer goes."""

    TO_TIER = "to_tier"
    FROM_TIER = "from_tier"


class Tier(StrEnum):
    """Where offloaded KV lives."""

    CPU = "cpu"
    STORAGE = "storage"


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a pool stands.

    Attributes
    ----------
    node : int
        Node number.
    rack : int
        Rack number.
    """

    node: int = 0
    rack: int = 0


@dataclass(frozen=True, slots=True)
class Pool:
    """A pool as the document states it; None means unstated.

    Attributes
    ----------
    tp, pp, dp : int
        Tensor-, pipeline- and data-parallel widths.
    nodes : int
        Nodes that the pool spans.
    enable_expert_parallel : bool
        Whether experts are spread instead of sharded.
    max_num_seqs : int or None
        Most requests in a step.
    max_num_batched_tokens : int or None
        Most tokens in a step [tokens].
    block_size : int or None
        KV page [tokens].
    max_model_len : int or None
        Longest sequence [tokens].
    cache_dtype : str or None
        Data type of the KV cache; ``auto`` follows the model.
    gpu_memory_utilization : float or None
        Share of the memory that the engine may use [1].
    async_scheduling : bool or None
        Whether the next step is scheduled while this one runs.
    enforce_eager : bool or None
        Whether graphs are switched off.
    cudagraph_mode : str or None
        The engine's graph mode, for example ``FULL_AND_PIECEWISE``.
    cudagraph_capture_sizes : tuple of int
        Batch sizes captured as graphs [tokens]; empty means unstated.
    disable_custom_all_reduce : bool or None
        Whether the custom all-reduce is switched off.
    disable_cascade_attn : bool or None
        Whether cascade attention is switched off.
    enable_prefix_caching : bool or None
        Whether equal prefixes share KV pages.
    quantization : str or None
        The engine's quantisation method.
    speculative_method : str or None
        The engine's speculative decoding method.
    num_speculative_tokens : int or None
        Tokens proposed per request and step [tokens].
    pcp, dcp : int
        Prefill and decode context-parallel widths.
    all2all_backend : str or None
        How data-parallel ranks exchange the rows of experts.
    distributed_executor_backend : str or None
        How the engine runs its workers: ``mp``, ``uni``, ``ray``, ``external_launcher``.
    routing_imbalance : float or None
        Rows of the busiest expert-parallel rank over the mean of all ranks, at least 1
        [1]; where unstated, uniform routing's own expectation is taken.
    enable_eplb : bool or None
        Whether experts are replicated to balance the ranks.
    num_redundant_experts : int or None
        Replicas that this adds.
    enable_dbo : bool or None
        Whether two halves of a batch are overlapped with each other's exchange.
    max_cudagraph_capture_size : int or None
        Largest batch captured as a graph [tokens].
    state_dtype : str or None
        Data type of the recurrent state; ``auto`` follows the model.
    mamba_cache_mode : str or None
        Which recurrent states are kept for prefix caching: ``none``, ``align``, ``all``.
    gpus_per_node : int or None
        GPUs of a node that the pool may use; the chip's own number where unstated.
    """

    tp: int = 1
    pp: int = 1
    dp: int = 1
    nodes: int = 1
    enable_expert_parallel: bool = False
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    block_size: int | None = None
    max_model_len: int | None = None
    cache_dtype: str | None = None
    gpu_memory_utilization: float | None = None
    async_scheduling: bool | None = None
    enforce_eager: bool | None = None
    cudagraph_mode: str | None = None
    cudagraph_capture_sizes: tuple[int, ...] = ()
    disable_custom_all_reduce: bool | None = None
    disable_cascade_attn: bool | None = None
    enable_prefix_caching: bool | None = None
    quantization: str | None = None
    speculative_method: str | None = None
    num_speculative_tokens: int | None = None
    pcp: int = 1
    dcp: int = 1
    all2all_backend: str | None = None
    distributed_executor_backend: str | None = None
    routing_imbalance: float | None = None
    enable_eplb: bool | None = None
    num_redundant_experts: int | None = None
    enable_dbo: bool | None = None
    max_cudagraph_capture_size: int | None = None
    state_dtype: str | None = None
    mamba_cache_mode: str | None = None
    gpus_per_node: int | None = None
