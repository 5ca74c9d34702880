"""The strict form of a model document."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from kernelfit.documents.strict import Strict

Count = Annotated[int, Field(ge=1)]
Whole = Annotated[int, Field(ge=0)]
Word = Annotated[str, Field(min_length=1)]
Dtype = Literal["fp32", "bf16", "fp16", "fp8", "int8", "int4", "fp4"]


class LatentSpec(Strict):
    """Widths of multi-head latent attention."""

    query_rank: Whole
    kv_rank: Count
    nope_head_dim: Count
    rope_head_dim: Count
    value_head_dim: Count


class LinearSpec(Strict):
    """Widths of linear attention and its state."""

    key_heads: Count
    value_heads: Count
    key_head_dim: Count
    value_head_dim: Count
    conv_kernel: Count
    state_dtype: Dtype


class AttentionSpec(Strict):
    """A layer's attention."""

    kind: Literal["full", "sliding", "mla", "linear"]
    heads: Count
    kv_heads: Count
    head_dim: Count
    window_tokens: Whole = 0
    bias: bool = False
    qk_norm: bool = False
    output_bias: bool = False
    output_gate: bool = False
    sinks: bool = False
    weight_dtype: Dtype | None = None
    latent: LatentSpec | None = None
    linear: LinearSpec | None = None

    @model_validator(mode="after")
    def _facts_fit_kind(self) -> AttentionSpec:
        for kind, key in (("mla", "latent"), ("linear", "linear")):
            if (self.kind == kind) != (getattr(self, key) is not None):
                raise ValueError(f"{key} belongs to kind {kind} and to no other")
        if (self.kind == "sliding") != (self.window_tokens > 0):
            raise ValueError("window_tokens belongs to kind sliding and to no other")
        if self.kind in ("full", "sliding") and self.heads % self.kv_heads:
            raise ValueError("heads must be a multiple of kv_heads")
        return self


class MlpSpec(Strict):
    """A dense MLP."""

    intermediate: Count
    gated: bool
    bias: bool = False
    weight_dtype: Dtype | None = None


class ExpertsSpec(Strict):
    """A mixture of experts."""

    experts: Count
    per_token: Count
    intermediate: Count
    gated: bool
    shared_intermediate: Whole = 0
    bias: bool = False
    shared_gate: bool = False
    score_bias: bool = False
    weight_dtype: Dtype | None = None
    shared_weight_dtype: Dtype | None = None

    @model_validator(mode="after")
    def _enough_experts(self) -> ExpertsSpec:
        if self.per_token > self.experts:
            raise ValueError("per_token cannot exceed experts")
        return self


class LayerSpec(Strict):
    """Layers that are alike."""

    name: Word
    count: Count
    attention: AttentionSpec
    mlp: MlpSpec | None = None
    experts: ExpertsSpec | None = None

    @model_validator(mode="after")
    def _one_feed_forward(self) -> LayerSpec:
        if (self.mlp is None) == (self.experts is None):
            raise ValueError("a layer has either mlp or experts")
        return self


class Published(Strict):
    """A published number of parameters."""

    value: Annotated[float, Field(gt=0)]
    unit: Literal["count"]
    source: Annotated[str, Field(min_length=8)]


class PublishedActive(Published):
    """A published number of parameters that one token uses, and whether it counts the
    embedding.
    """

    embedding: bool


class PublishedBytes(Strict):
    """A published size of one token in the KV cache, in 16 bit."""

    value: Annotated[float, Field(gt=0)]
    unit: Literal["byte"]
    source: Annotated[str, Field(min_length=8)]


class ModelDocument(Strict):
    """The strict form of a model document."""

    kind: Literal["Model"]
    schema_version: Literal[1]
    name: Word
    aliases: list[Word] = Field(default_factory=list)
    source: Annotated[str, Field(min_length=8)]
    published_parameters: Published | None = None
    published_active_parameters: PublishedActive | None = None
    published_kv_bytes_per_token: PublishedBytes | None = None
    hidden: Count
    vocab: Count
    dtype: Dtype
    weight_dtype: Dtype
    tied_head: bool
    scale_bytes: Annotated[float, Field(ge=0, lt=1)] = 0.0
    layers: Annotated[list[LayerSpec], Field(min_length=1)]
