"""The strict form of a pool in a document; its fields are those of the core's ``Pool``."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Literal

from pydantic import Field, model_validator

from kernelfit.documents.strict import Strict
from kernelfit.kernel.pool import Pool

Count = Annotated[int, Field(ge=1)]
Word = Annotated[str, Field(min_length=1)]
GraphMode = Literal["NONE", "PIECEWISE", "FULL", "FULL_DECODE_ONLY", "FULL_AND_PIECEWISE"]


class PoolSpec(Strict):
    """What ``pool:`` may say; every key is optional and means what ``Pool`` says."""

    tp: Count = 1
    pp: Count = 1
    dp: Count = 1
    nodes: Count = 1
    enable_expert_parallel: bool = False
    max_num_seqs: Count | None = None
    max_num_batched_tokens: Count | None = None
    block_size: Count | None = None
    max_model_len: Count | None = None
    cache_dtype: Word | None = None
    gpu_memory_utilization: Annotated[float, Field(gt=0, le=1)] | None = None
    async_scheduling: bool | None = None
    enforce_eager: bool | None = None
    cudagraph_mode: GraphMode | None = None
    cudagraph_capture_sizes: list[Count] = Field(default_factory=list)
    disable_custom_all_reduce: bool | None = None
    disable_cascade_attn: bool | None = None
    enable_prefix_caching: bool | None = None
    quantization: Word | None = None
    speculative_method: Word | None = None
    num_speculative_tokens: Count | None = None
    pcp: Count = 1
    dcp: Count = 1
    all2all_backend: Word | None = None
    distributed_executor_backend: Word | None = None
    routing_imbalance: Annotated[float, Field(ge=1)] | None = None
    enable_eplb: bool | None = None
    num_redundant_experts: Annotated[int, Field(ge=0)] | None = None
    enable_dbo: bool | None = None
    max_cudagraph_capture_size: Count | None = None
    state_dtype: Word | None = None
    mamba_cache_mode: Literal["none", "align", "all"] | None = None
    gpus_per_node: Count | None = None

    @model_validator(mode="after")
    def _nodes_hold_ranks(self) -> PoolSpec:
        ranks = self.tp * self.pp * self.dp
        if self.nodes > ranks:
            raise ValueError(f"nodes is {self.nodes}, but tp x pp x dp gives only {ranks} ranks")
        return self

    @model_validator(mode="after")
    def _stated_settings_agree(self) -> PoolSpec:
        # Only what is stated twice can disagree here: the rest may come from a log, and
        # what the engine makes of it is the core's resolution.
        seqs, tokens = self.max_num_seqs, self.max_num_batched_tokens
        if seqs is not None and tokens is not None and seqs > tokens:
            raise ValueError(f"max_num_batched_tokens is {tokens}, less than max_num_seqs {seqs}")
        if self.enable_eplb is False and self.num_redundant_experts:
            raise ValueError(
                f"num_redundant_experts is {self.num_redundant_experts}, but enable_eplb is false"
            )
        return self

    def core(self) -> Pool:
        """Return the pool as the core takes it.

        Returns
        -------
        Pool
            The same facts.
        """
        facts = {item.name: getattr(self, item.name) for item in dataclasses.fields(Pool)}
        facts["cudagraph_capture_sizes"] = tuple(self.cudagraph_capture_sizes)
        return Pool(**facts)


POOL_KEYS: tuple[str, ...] = tuple(item.name for item in dataclasses.fields(Pool))
