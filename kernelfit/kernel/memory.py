"""Bytes on one rank: weights, buffers, and the KV cache in whole pages."""

from __future__ import annotations

from kernelfit.kernel.errors import InvalidArgument
from kernelfit.kernel.estimate import MemoryBreakdown
from kernelfit.kernel.laws import kv_heads_per_rank
from kernelfit.kernel.model import Model, dtype_bytes, mlp_parameters
from kernelfit.kernel.pricing import Plan

NCCL_BYTES: tuple[tuple[int, int], ...] = ((2, 358_612_992), (4, 411_041_792))
"""Communicator buffers from this group width up [bytes]; NVIDIA AIConfigurator system.yaml."""

GRAPH_BYTES = 1 << 29
"""Memory of the captured graphs [bytes]; order of the engines' own start-up lines, assumed."""


def weight_bytes_per_rank(model: Model, tp: int, expert_width: int) -> int:
    """Return the bytes of weights that one rank holds.

    Parameters
    ----------
    model : Model
        The model.
    tp : int
        Tensor-parallel width.
    expert_width : int
        Expert-parallel width; 1 when experts are sharded instead.

    Returns
    -------
    int
        Weights of one rank [bytes]; norms and biases are replicated, the embedding and
        the head are split by rows.
    """
    plain = dtype_bytes(model.dtype)
    weight = dtype_bytes(model.weight_dtype)
    tables = model.vocab * model.hidden * (1 if model.tied_head else 2)
    total = tables / tp * plain + model.hidden * plain
    for kind in model.layers:
        a = kind.attention
        kv_heads = kv_heads_per_rank(kind, tp)
        own = dtype_bytes(a.weight_dtype or model.weight_dtype)
        queries = (3 if a.output_gate else 2) * a.heads / tp
        layer = model.hidden * a.head_dim * (queries + 2 * kv_heads) * own
        layer += 2 * model.hidden * plain
        if a.bias:
            layer += a.head_dim * (a.heads / tp + 2 * kv_heads) * plain
        if a.qk_norm:
            layer += 2 * a.head_dim * plain
        if kind.mlp is not None:
            layer += mlp_parameters(model, kind.mlp.intermediate, kind.mlp.gated) / tp * weight
        if kind.experts is not None:
            e = kind.experts
            share = max(tp, expert_width)
            layer += e.experts * mlp_parameters(model, e.intermediate, e.gated) / share * weight
            layer += model.hidden * e.experts * plain
            layer += mlp_parameters(model, e.shared_intermediate, e.gated) / tp * weight
        total += kind.count * layer
    return round(total)


def kv_bytes_per_token(plan: Plan) -> int:
    """Return the KV bytes of one token on one rank, all layers together.

    Parameters
    ----------
    plan : Plan
        The plan.

    Returns
    -------
    int
        Keys and values of every layer [bytes].
    """
    tp = plan.resolution.tensor_parallel_width
    element = dtype_bytes(plan.resolution.cache_dtype)
    total = 0.0
    for kind in plan.model.layers:
        heads = kv_heads_per_rank(kind, tp)
        total += kind.count * 2 * heads * kind.attention.head_dim * element
    return round(total)


def sequence_variable_bytes(plan: Plan, tokens: int) -> int:
    """Return the KV bytes of one sequence on one rank.

    Parameters
    ----------
    plan : Plan
        The plan.
    tokens : int
        Length of the sequence [tokens].

    Returns
    -------
    int
        Bytes in whole pages of ``block_size`` tokens [bytes].

    Raises
    ------
    InvalidArgument
        When ``tokens`` is negative.
    """
    if tokens < 0:
        raise InvalidArgument("tokens", tokens, ">= 0 tokens")
    page = plan.resolution.block_size
    return -(-tokens // page) * page * kv_bytes_per_token(plan)


def fixed_bytes(plan: Plan) -> MemoryBreakdown:
    """Return the bytes on one rank whatever the requests.

    Parameters
    ----------
    plan : Plan
        The plan.

    Returns
    -------
    MemoryBreakdown
        Parts in [bytes]. Weights hold matrices, norms and the query, key and
        value biases, not the small biases of MLPs or the scales of quantised blocks; the
        activation peak is derived from the
        largest tensors alive at once (residual twice, the widest intermediate, the logits
        in 32 bit); graphs and communication buffers are published or assumed constants.
    """
    resolution = plan.resolution
    model = plan.model
    tp = resolution.tensor_parallel_width
    element = dtype_bytes(model.dtype)
    widest = 0.0
    for kind in model.layers:
        a = kind.attention
        widths = [a.head_dim * (a.heads / tp + 2 * kv_heads_per_rank(kind, tp))]
        if kind.mlp is not None:
            widths.append((2 if kind.mlp.gated else 1) * kind.mlp.intermediate / tp)
        if kind.experts is not None:
            e = kind.experts
            share = max(tp, resolution.expert_parallel_width)
            widths.append(e.per_token * (2 if e.gated else 1) * e.intermediate / share)
        widest = max(widest, *widths)
    activation = resolution.max_num_batched_tokens * (2 * model.hidden + widest) * element
    logits = resolution.max_num_seqs * model.vocab / tp * 4
    buffers = 0
    if tp > 1 and plan.chip.kind == "gpu":
        for width, size in NCCL_BYTES:
            if tp >= width:
                buffers = size
    return MemoryBreakdown(
        weights_bytes=weight_bytes_per_rank(model, tp, resolution.expert_parallel_width),
        activation_peak_bytes=round(activation + logits),
        cuda_graph_bytes=GRAPH_BYTES if resolution.graph_mode != "NONE" else 0,
        redundant_experts_bytes=0,
        comm_buffers_bytes=buffers,
    )
