"""The parts of a layer: its attention, its MLP or its experts, in counts and widths."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Latent:
    """Widths of multi-head latent attention (MLA).

    Attributes
    ----------
    query_rank : int
        Rank of the query's compression; 0 means that queries are projected directly.
    kv_rank : int
        Rank of the compressed key-value latent, which is what the cache keeps.
    nope_head_dim : int
        Width of a head's part without rotary positions.
    rope_head_dim : int
        Width of the rotary part; one key part is shared by all heads and cached.
    value_head_dim : int
        Width of a value head.
    """

    query_rank: int
    kv_rank: int
    nope_head_dim: int
    rope_head_dim: int
    value_head_dim: int


@dataclass(frozen=True, slots=True)
class LinearState:
    """Widths of a linear-attention layer (gated delta rule) and its recurrent state.

    Attributes
    ----------
    key_heads : int
        Query and key heads.
    value_heads : int
        Value heads.
    key_head_dim : int
        Width of a query or key head.
    value_head_dim : int
        Width of a value head.
    conv_kernel : int
        Taps of the causal convolution [tokens].
    state_dtype : str
        Data type of the recurrent state.
    """

    key_heads: int
    value_heads: int
    key_head_dim: int
    value_head_dim: int
    conv_kernel: int
    state_dtype: str


@dataclass(frozen=True, slots=True)
class Attention:
    """One layer's attention.

    Attributes
    ----------
    kind : str
        ``full``, ``sliding``, ``mla`` or ``linear``.
    heads : int
        Query heads.
    kv_heads : int
        Key-value heads; equal to ``heads`` for multi-head attention.
    head_dim : int
        Width of one head; for ``mla`` that of a query head, for ``linear`` of a value head.
    window_tokens : int
        Sliding window [tokens]; 0 means none.
    bias : bool
        Whether the query, key and value projections carry a bias.
    qk_norm : bool
        Whether queries and keys are normalised per head.
    output_bias : bool
        Whether the output projection carries a bias.
    output_gate : bool
        Whether the output is gated: the query projection is then twice as wide.
    sinks : bool
        Whether each query head has a learned sink.
    weight_dtype : str or None
        Data type of the projections' weights; None follows the model.
    latent : Latent or None
        Widths of ``mla``; None for other kinds.
    linear : LinearState or None
        Widths of ``linear``; None for other kinds.
    """

    kind: str
    heads: int
    kv_heads: int
    head_dim: int
    window_tokens: int = 0
    bias: bool = False
    qk_norm: bool = False
    output_bias: bool = False
    output_gate: bool = False
    sinks: bool = False
    weight_dtype: str | None = None
    latent: Latent | None = None
    linear: LinearState | None = None


@dataclass(frozen=True, slots=True)
class Mlp:
    """A dense MLP.

    Attributes
    ----------
    intermediate : int
        Hidden width.
    gated : bool
        Whether it has a gate projection (three matrices instead of two).
    bias : bool
        Whether its projections carry a bias.
    weight_dtype : str or None
        Data type of its weights; None follows the model.
    """

    intermediate: int
    gated: bool = True
    bias: bool = False
    weight_dtype: str | None = None


@dataclass(frozen=True, slots=True)
class Experts:
    """A mixture-of-experts MLP.

    Attributes
    ----------
    experts : int
        Routed experts.
    per_token : int
        Experts that each token is routed to.
    intermediate : int
        Hidden width of one expert.
    gated : bool
        Whether an expert has a gate projection.
    shared_intermediate : int
        Hidden width of the shared experts together; 0 means none.
    bias : bool
        Whether the routed experts' projections and the router carry a bias.
    shared_gate : bool
        Whether the shared experts' output is scaled by a gate, one vector of ``hidden``.
    score_bias : bool
        Whether the router keeps one correction of its score per expert, in 32 bit.
    weight_dtype : str or None
        Data type of the routed experts' weights; None follows the model.
    shared_weight_dtype : str or None
        Data type of the shared experts' weights; None follows the model.
    """

    experts: int
    per_token: int
    intermediate: int
    gated: bool = True
    shared_intermediate: int = 0
    bias: bool = False
    shared_gate: bool = False
    score_bias: bool = False
    weight_dtype: str | None = None
    shared_weight_dtype: str | None = None


@dataclass(frozen=True, slots=True)
class LayerKind:
    """Layers that are alike, and how many of them there are.

    Attributes
    ----------
    name : str
        A word for reports.
    count : int
        Layers of this kind.
    attention : Attention
        Their attention.
    mlp : Mlp or None
        Their dense MLP, if any.
    experts : Experts or None
        Their mixture of experts, if any.
    """

    name: str
    count: int
    attention: Attention
    mlp: Mlp | None = None
    experts: Experts | None = None
