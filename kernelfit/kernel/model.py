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
        Width of one head.
    window_tokens : int
        Sliding window [tokens]; 0 means none.
    bias : bool
        Whether the projections carry a bias.
    qk_norm : bool
        Whether queries and keys are normalised per head.
    """

    kind: str
    heads: int
    kv_heads: int
    head_dim: int
    window_tokens: int = 0
    bias: bool = False
    qk_norm: bool = False


@dataclass(frozen=True, slots=True)
class Mlp:
    """A dense MLP.

    Attributes
    ----------
    intermediate : int
        Hidden width.
    gated : bool
        Whether it has a gate projection (three matrices instead of two).
    """

    intermediate: int
    gated: bool = True


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
    """

    experts: int
    per_token: int
    intermediate: int
    gated: bool = True
    shared_intermediate: int = 0


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
    """

    name: str
    hidden: int
    vocab: int
    layers: tuple[LayerKind, ...]
    dtype: str
    weight_dtype: str
    tied_head: bool

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
        Elements of the query, key, value and output projections, without biases.
    """
    a = kind.attention
    return model.hidden * a.head_dim * (2 * a.heads + 2 * a.kv_heads)


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


def parameter_count(model: Model) -> int:
    """Return the number of parameters, norms and biases included.

    Parameters
    ----------
    model : Model
        The model.

    Returns
    -------
    int
        Parameters of embedding, layers, norms and head; a tied head counts once.
    """
    total = model.vocab * model.hidden * (1 if model.tied_head else 2) + model.hidden
    for kind in model.layers:
        a = kind.attention
        layer = attention_parameters(model, kind) + 2 * model.hidden
        if a.bias:
            layer += a.head_dim * (a.heads + 2 * a.kv_heads)
        if a.qk_norm:
            layer += 2 * a.head_dim
        if kind.mlp is not None:
            layer += mlp_parameters(model, kind.mlp.intermediate, kind.mlp.gated)
        if kind.experts is not None:
            e = kind.experts
            layer += e.experts * mlp_parameters(model, e.intermediate, e.gated)
            layer += model.hidden * e.experts
            layer += mlp_parameters(model, e.shared_intermediate, e.gated)
        total += kind.count * layer
    return total
