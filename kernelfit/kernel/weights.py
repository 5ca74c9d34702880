"""Bytes of weights on one rank, under tensor, data and expert parallelism.

How matrices are split was read off vLLM 0.32.0 (``model_executor/layers/linear.py``,
``vocab_parallel_embedding.py``, ``fused_moe/config.py``, ``models/deepseek_v2.py``,
``models/qwen3_next.py``): columns or rows by rank, what is too narrow to split is held
whole by every rank.
"""

from __future__ import annotations

from kernelfit.kernel.dtypes import dtype_bytes
from kernelfit.kernel.integers import ceil_div
from kernelfit.kernel.layers import Attention, Experts, LayerKind
from kernelfit.kernel.model import Model, mlp_parameters, stored_bytes
from kernelfit.kernel.resolved import Resolution

VOCAB_PADDING = 64
"""Rows to which the embedding and the head are padded; vLLM ``vocab_parallel_embedding.py``."""

_FULL_PRECISION_BYTES = 4


def experts_per_rank(experts: Experts, resolution: Resolution) -> int:
    """Return the routed experts that the fullest rank holds whole.

    Parameters
    ----------
    experts : Experts
        The experts of one layer.
    resolution : Resolution
        What will run.

    Returns
    -------
    int
        All of them without expert parallelism, where each is sharded instead; otherwise
        experts over the expert-parallel width, rounded up, without redundant ones.
    """
    return ceil_div(experts.experts, resolution.expert_parallel_width)


def _expert_shards(resolution: Resolution) -> int:
    """Ranks that share each expert: none under expert parallelism.

    Without it, experts are sharded over tensor- and data-parallel ranks together.
    """
    if resolution.expert_parallel_width > 1:
        return 1
    return resolution.tensor_parallel_width * resolution.data_parallel_width


def _expert_bytes(model: Model, experts: Experts, resolution: Resolution) -> float:
    """Bytes of one routed expert on a rank that holds it."""
    shards = _expert_shards(resolution)
    width = ceil_div(experts.intermediate, shards)
    total = mlp_parameters(model, width, experts.gated) * stored_bytes(model, experts.weight_dtype)
    if experts.bias:
        biases = (2 if experts.gated else 1) * width + model.hidden
        total += biases * dtype_bytes(model.dtype)
    return total


def _latent_parameters(model: Model, attention: Attention, tp: int) -> int:
    """Matrices of multi-head latent attention on one rank.

    Both compressions are replicated, expansions and output are split by heads.
    """
    m = attention.latent
    if m is None:
        return 0
    heads = ceil_div(attention.heads, tp)
    query = heads * (m.nope_head_dim + m.rope_head_dim)
    total = m.query_rank * (model.hidden + query) if m.query_rank else model.hidden * query
    total += model.hidden * (m.kv_rank + m.rope_head_dim)
    total += m.kv_rank * heads * (m.nope_head_dim + m.value_head_dim)
    return total + heads * m.value_head_dim * model.hidden


def _attention_bytes(model: Model, attention: Attention, tp: int) -> float:
    plain = dtype_bytes(model.dtype)
    own = stored_bytes(model, attention.weight_dtype)
    if attention.latent is not None:
        m = attention.latent
        return _latent_parameters(model, attention, tp) * own + (m.query_rank + m.kv_rank) * plain
    if attention.linear is not None:
        n = attention.linear
        keys = ceil_div(n.key_heads, tp) * n.key_head_dim
        heads = ceil_div(n.value_heads, tp)
        values = heads * n.value_head_dim
        total = model.hidden * (2 * keys + 3 * values) * own
        # Two scalars per value head, projected and learned, and the convolution: checkpoints
        # leave them out of a quantisation.
        small = model.hidden * 2 * heads + (2 * keys + values) * n.conv_kernel + 2 * heads
        return total + (small + n.value_head_dim) * plain
    heads = ceil_div(attention.heads, tp)
    kv_heads = max(1, ceil_div(attention.kv_heads, tp))
    queries = (2 if attention.output_gate else 1) * heads
    total = model.hidden * attention.head_dim * (queries + heads + 2 * kv_heads) * own
    small = attention.head_dim * (heads + 2 * kv_heads) if attention.bias else 0
    small += model.hidden if attention.output_bias else 0
    small += 2 * attention.head_dim if attention.qk_norm else 0
    small += heads if attention.sinks else 0
    return total + small * plain


def _layer_bytes(model: Model, kind: LayerKind, resolution: Resolution) -> float:
    tp = resolution.tensor_parallel_width
    plain = dtype_bytes(model.dtype)
    total = _attention_bytes(model, kind.attention, tp) + 2 * model.hidden * plain
    if kind.mlp is not None:
        width = ceil_div(kind.mlp.intermediate, tp)
        total += mlp_parameters(model, width, kind.mlp.gated) * stored_bytes(
            model, kind.mlp.weight_dtype
        )
        if kind.mlp.bias:
            total += ((2 if kind.mlp.gated else 1) * width + model.hidden) * plain
    if kind.experts is not None:
        e = kind.experts
        total += experts_per_rank(e, resolution) * _expert_bytes(model, e, resolution)
        total += (model.hidden + e.bias) * e.experts * plain
        total += e.experts * e.score_bias * _FULL_PRECISION_BYTES
        # Where the rows are split between tensor-parallel ranks, shared experts are not.
        ways = 1 if resolution.sequence_parallel_moe else tp
        shared = mlp_parameters(model, ceil_div(e.shared_intermediate, ways), e.gated)
        total += shared * stored_bytes(model, e.shared_weight_dtype)
        total += model.hidden * e.shared_gate * plain
    return total


def weight_bytes_per_rank(model: Model, resolution: Resolution) -> int:
    """Return the bytes of a checkpoint's weights that one rank holds.

    Parameters
    ----------
    model : Model
        The model.
    resolution : Resolution
        What will run; its widths decide what is split.

    Returns
    -------
    int
        Weights of the fullest rank with quantisation scales, biases and norms [bytes].
        Embedding and head are split by padded rows, a tied head counts once; norms, the
        router and compressions of a latent are held by every rank; KV heads are held
        by several where there are fewer of them than ranks.

    Notes
    -----
    Not counted: copies and padding that a kernel makes of quantised weights, which depend
    on the back end, scales per tensor or per row, which are below a thousandth, draft
    layers and vision towers.
    """
    plain = dtype_bytes(model.dtype)
    rows = ceil_div(model.vocab, VOCAB_PADDING) * VOCAB_PADDING
    tables = 1 if model.tied_head else 2
    rows = ceil_div(rows, resolution.tensor_parallel_width)
    total = (rows * tables + 1) * model.hidden * plain
    for kind in model.layers:
        total += kind.count * _layer_bytes(model, kind, resolution)
    return round(total)


def redundant_expert_bytes(model: Model, resolution: Resolution) -> int:
    """Return the bytes of replicated experts on one rank.

    Parameters
    ----------
    model : Model
        The model.
    resolution : Resolution
        What will run.

    Returns
    -------
    int
        What the replicas add to the fullest rank, over all layers [bytes]; 0 without
        expert parallelism, whose ranks are the only ones that replicas balance.
    """
    if resolution.expert_parallel_width == 1:
        return 0
    total = 0.0
    for kind in model.layers:
        e = kind.experts
        if e is not None:
            held = ceil_div(
                e.experts + resolution.redundant_experts, resolution.expert_parallel_width
            )
            added = held - experts_per_rank(e, resolution)
            total += kind.count * added * _expert_bytes(model, e, resolution)
    return round(total)


def absorbed_bytes(model: Model, resolution: Resolution) -> int:
    """Return the bytes of the latent's expansion that decoding keeps a second time.

    Parameters
    ----------
    model : Model
        The model.
    resolution : Resolution
        What will run.

    Returns
    -------
    int
        Key and value expansions of every ``mla`` layer in the model's data type [bytes].

    Notes
    -----
    vLLM multiplies queries by the key expansion before attention, and the result by the
    value expansion after it, from copies that are not quantised
    (``layers/attention/mla_attention.py``, ``process_weights_after_loading``); prefill
    keeps using the checkpoint's own matrix.
    """
    tp = resolution.tensor_parallel_width
    elements = 0
    for kind in model.layers:
        m = kind.attention.latent
        if m is not None:
            heads = ceil_div(kind.attention.heads, tp)
            elements += kind.count * m.kv_rank * heads * (m.nope_head_dim + m.value_head_dim)
    return round(elements * dtype_bytes(model.dtype))
