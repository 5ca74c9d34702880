"""What the laws need to know about a model: counts and widths, nothing else."""

from __future__ import annotations

from dataclasses import dataclass

from kernelfit.kernel.dtypes import DTYPE_BYTES, dtype_bytes
from kernelfit.kernel.layers import Attention, Experts, Latent, LayerKind, LinearState, Mlp

__all__ = [
    "DTYPE_BYTES",
    "Attention",
    "Experts",
    "Latent",
    "LayerKind",
    "LinearState",
    "Mlp",
    "Model",
    "active_parameter_count",
    "attention_parameters",
    "dtype_bytes",
    "mlp_parameters",
    "parameter_count",
    "stored_bytes",
]


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
        Quantisation scales (and zero points) per quantised element [bytes]; 0 for
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


def stored_bytes(model: Model, own: str | None) -> float:
    """Return the bytes that one element of a weight matrix takes.

    Parameters
    ----------
    model : Model
        The model.
    own : str or None
        The part's own data type; None follows the model.

    Returns
    -------
    float
        Size of an element [bytes], with its share of the quantisation scales where the
        part has the model's data type. A part with a data type of its own was left out
        of the quantisation and has no scales.

    Raises
    ------
    InvalidArgument
        When the data type is unknown.
    """
    if own is None or own == model.weight_dtype:
        return dtype_bytes(model.weight_dtype) + model.scale_bytes
    return dtype_bytes(own)


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
    if kind.experts is not None:
        total += hidden * kind.experts.shared_gate + kind.experts.experts * kind.experts.score_bias
    return total


def _expert_parameters(model: Model, experts: Experts) -> int:
    """Matrices and biases of one routed expert."""
    biases = (2 if experts.gated else 1) * experts.intermediate + model.hidden
    matrices = mlp_parameters(model, experts.intermediate, experts.gated)
    return matrices + (biases if experts.bias else 0)


def _layer_parameters(model: Model, kind: LayerKind, experts: int) -> int:
    """Parameters of one layer with so many of its routed experts."""
    layer = attention_parameters(model, kind) + _small_parameters(model, kind)
    if kind.mlp is not None:
        layer += mlp_parameters(model, kind.mlp.intermediate, kind.mlp.gated)
    if kind.experts is not None:
        e = kind.experts
        layer += experts * _expert_parameters(model, e)
        layer += (model.hidden + e.bias) * e.experts
        layer += mlp_parameters(model, e.shared_intermediate, e.gated)
    return layer


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
        held = kind.experts.experts if kind.experts is not None else 0
        total += kind.count * _layer_parameters(model, kind, held)
    return total


def active_parameter_count(model: Model, embedding: bool = True) -> int:
    """Return the number of parameters that one token uses.

    Parameters
    ----------
    model : Model
        The model.
    embedding : bool
        Whether the table of input embeddings is counted. Publishers differ: Mistral and
        Qwen count it, the gpt-oss model card does not, though a token reads one row of it.

    Returns
    -------
    int
        Parameters with only the experts that a token is routed to; equal to
        ``parameter_count`` for a dense model with the embedding.
    """
    tables = 2 if embedding and not model.tied_head else 1
    total = model.vocab * model.hidden * tables + model.hidden
    for kind in model.layers:
        used = kind.experts.per_token if kind.experts is not None else 0
        total += kind.count * _layer_parameters(model, kind, used)
    return total
