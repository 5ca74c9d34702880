"""What the laws need to know about a model: counts and widths, nothing else."""

from __future__ import annotations

from dataclasses import dataclass

from kernelfit.kernel.errors import InvalidArgument

DTYPE_BYTES: tuple[tuple[str, float], ...] = (
    ("fp32", 4.0),
    ("bf16", 2.0),
    ("fp16", 2.0),
    ("fp8", 1.0),
    ("int8", 1.0),
    ("int4", 0.5),
    ("fp4", 0.5),
)


def dtype_bytes(dtype: str) -> float:
    """Return the size of one element of a data type.

    Parameters
    ----------
    dtype : str
        A name from ``DTYPE_BYTES``.

    Returns
    -------
    float
        Size of one element [bytes].

    Raises
    ------
    InvalidArgument
        When the name is unknown.
    """
    for name, size in DTYPE_BYTES:
        if name == dtype:
            return size
    raise InvalidArgument("dtype", dtype, ", ".join(name for name, _ in DTYPE_BYTES))


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
    """

    intermediate: int
    gated: bool = True
    bias: bool = False


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
    """

    experts: int
    per_token: int
    intermediate: int
    gated: bool = True
    shared_intermediate: int = 0
    bias: bool = False


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


@dataclass(frozen=True, slots=True)
class Model:
    """A model's shape.

    Attributes
    ----------
    name : str
        The document's name.
    hidden : int
        Width of the residual stream.
    vocab : int
        Rows of the embedding.
    layers : tuple of LayerKind
        The kinds of layer, with their counts.
    dtype : str
        Data type of activations and unquantised weights.
    weight_dtype : str
        Data type of the linear layers' weights.
    tied_head : bool
        Whether the head shares the embedding's weights.
    scale_bytes : float
        Bytes of quantisation scales (and zero points) per quantised element; 0 for
        unquantised weights.
    """

    name: str
    hidden: int
    vocab: int
    layers: tuple[LayerKind, ...]
    dtype: str
    weight_dtype: str
    tied_head: bool
    scale_bytes: float = 0.0

    @property
    def layer_count(self) -> int:
        """Layers of every kind together."""
        return sum(kind.count for kind in self.layers)


def attention_parameters(model: Model, kind: LayerKind) -> int:
    """Return the matrix parameters of one layer's attention projections.

    Parameters
    ----------
    model : Model
        The model.
    kind : LayerKind
        The kind of layer.

    Returns
    -------
    int
        Elements of the query, key, value and output projections, without biases. For
        ``mla`` the compressions and expansions, for ``linear`` the gates and the
        convolution are counted in.

    Notes
    -----
    MLA after the DeepSeek-V2 report, section 2.1; the gated delta rule after the layer
    ``GatedDeltaNet`` of Qwen3-Next: projections to query, key, value and gate, two
    scalars per value head, a depthwise convolution over query, key and value.
    """
    a, hidden = kind.attention, model.hidden
    if a.latent is not None:
        m = a.latent
        query = a.heads * (m.nope_head_dim + m.rope_head_dim)
        query = m.query_rank * (hidden + query) if m.query_rank else hidden * query
        compressed = hidden * (m.kv_rank + m.rope_head_dim)
        expanded = m.kv_rank * a.heads * (m.nope_head_dim + m.value_head_dim)
        return query + compressed + expanded + a.heads * m.value_head_dim * hidden
    if a.linear is not None:
        n = a.linear
        keys, values = n.key_heads * n.key_head_dim, n.value_heads * n.value_head_dim
        projected = 2 * keys + 2 * values + 2 * n.value_heads
        return hidden * (projected + values) + (2 * keys + values) * n.conv_kernel
    query = (2 if a.output_gate else 1) * a.heads
    return hidden * a.head_dim * (query + a.heads + 2 * a.kv_heads)


def mlp_parameters(model: Model, intermediate: int, gated: bool) -> int:
    """Return the matrix parameters of one MLP.

    Parameters
    ----------
    model : Model
        The model.
    intermediate : int
        Hidden width of the MLP.
    gated : bool
        Whether it has a gate projection.

    Returns
    -------
    int
        Elements of its two or three matrices.
    """
    return (3 if gated else 2) * model.hidden * intermediate


def _small_parameters(model: Model, kind: LayerKind) -> int:
    """Norms, biases, sinks and per-head scalars of one layer."""
    a, hidden = kind.attention, model.hidden
    total = 2 * hidden
    if a.bias:
        total += a.head_dim * (a.heads + 2 * a.kv_heads)
    if a.output_bias:
        total += hidden
    if a.qk_norm:
        total += 2 * a.head_dim
    if a.sinks:
        total += a.heads
    if a.latent is not None:
        total += a.latent.query_rank + a.latent.kv_rank
    if a.linear is not None:
        total += 2 * a.linear.value_heads + a.linear.value_head_dim
    if kind.mlp is not None and kind.mlp.bias:
        total += (2 if kind.mlp.gated else 1) * kind.mlp.intermediate + hidden
    if kind.experts is not None and kind.experts.bias:
        e = kind.experts
        total += e.experts * ((2 if e.gated else 1) * e.intermediate + hidden + 1)
    return total


def parameter_count(model: Model) -> int:
    """Return the number of parameters, norms and biases included.

    Parameters
    ----------
    model : Model
        The model.

    Returns
    -------
    int
        Parameters of embedding, layers, norms and head; a tied head counts once. Draft
        layers for speculation, and vision towers, are not part of a model here.
    """
    total = model.vocab * model.hidden * (1 if model.tied_head else 2) + model.hidden
    for kind in model.layers:
        layer = attention_parameters(model, kind) + _small_parameters(model, kind)
        if kind.mlp is not None:
            layer += mlp_parameters(model, kind.mlp.intermediate, kind.mlp.gated)
        if kind.experts is not None:
            e = kind.experts
            layer += e.experts * mlp_parameters(model, e.intermediate, e.gated)
            layer += model.hidden * e.experts
            layer += mlp_parameters(model, e.shared_intermediate, e.gated)
        total += kind.count * layer
    return total
