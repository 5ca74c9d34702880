"""The laws of the feed-forward part: dense MLPs, and mixtures of experts."""

from __future__ import annotations

from kernelfit.kernel.basis import Basis, Routing
from kernelfit.kernel.chip import Chip
from kernelfit.kernel.compute import weight_of
from kernelfit.kernel.links import all_reduce, all_to_all, gather
from kernelfit.kernel.model import Experts, LayerKind, Model, dtype_bytes, mlp_parameters
from kernelfit.kernel.resolved import Resolution
from kernelfit.kernel.resources import Resource
from kernelfit.kernel.stage import Stage, at

GATHERING = "allgather_reducescatter"
"""The exchange that gathers every rank's tokens and sums the results back."""


def routing_of(experts: Experts, resolution: Resolution) -> Routing:
    """Return how a deployment spreads a layer's experts.

    Parameters
    ----------
    experts : Experts
        The experts.
    resolution : Resolution
        What will run.

    Returns
    -------
    Routing
        Seen from the busiest rank.
    """
    return Routing(
        experts.experts,
        experts.per_token,
        resolution.expert_parallel_width,
        resolution.data_parallel_width,
        resolution.routing_imbalance,
    )


def add_feed_forward(
    stage: Stage,
    model: Model,
    kind: LayerKind,
    basis: Basis,
    resolution: Resolution,
    chip: Chip,
) -> None:
    """Add a layer's dense MLP or mixture of experts, and the collectives after it.

    Parameters
    ----------
    stage : Stage
        The layer's stage.
    model : Model
        The model.
    kind : LayerKind
        The kind of layer.
    basis : Basis
        The functions of a batch.
    resolution : Resolution
        What will run.
    chip : Chip
        The GPU type; it decides what quantised matrices compute in.

    Notes
    -----
    Sharded over tensor parallelism or spread over expert parallelism, one rank does the
    same share of the routed work; only how many experts it starts differs. Data-parallel
    ranks run in lock-step, each with an equal batch.
    """
    tp = resolution.tensor_parallel_width
    tokens = at("padded_tokens")
    if kind.mlp is not None:
        parameters = mlp_parameters(model, kind.mlp.intermediate, kind.mlp.gated) / tp
        stage.gemm(weight_of(model, kind.mlp.weight_dtype, chip), tokens, parameters)
    if kind.experts is not None:
        _experts(stage, model, kind.experts, basis, resolution, chip)
    if kind.experts is None or not _exchanged(resolution):
        all_reduce(stage, resolution, tokens, model.hidden * dtype_bytes(model.dtype))


def _exchanged(resolution: Resolution) -> bool:
    return resolution.data_parallel_width > 1


def _experts(
    stage: Stage,
    model: Model,
    e: Experts,
    basis: Basis,
    resolution: Resolution,
    chip: Chip,
) -> None:
    tp, dp = resolution.tensor_parallel_width, resolution.data_parallel_width
    width = resolution.expert_parallel_width
    routed = basis.touched_at(routing_of(e, resolution))
    # A rank holds whole experts, or a slice of each: the basis counts those it touches.
    slices = tp * dp if width == 1 else 1
    one = mlp_parameters(model, e.intermediate, e.gated) / slices
    stage.gemm(
        weight_of(model, e.weight_dtype, chip),
        routed + 1,
        one,
        fill=routed,
        operator="experts",
        read="hbm_expert_eff",
    )
    stage.add(Resource.SM, "expert_floor_s", routed, 1.0)
    plain = (model.dtype, dtype_bytes(model.dtype))
    tokens = at("padded_tokens")
    stage.gemm(plain, tokens, float(model.hidden * (e.experts + e.shared_gate)))
    if e.shared_intermediate:
        # Where the rows are split between tensor-parallel ranks, shared experts are not.
        split = 1 if resolution.sequence_parallel_moe else tp
        shared = mlp_parameters(model, e.shared_intermediate, e.gated) / split
        weight = weight_of(model, e.shared_weight_dtype, chip)
        stage.gemm(weight, tokens, shared, rows_share=split / tp)
    if _exchanged(resolution):
        _exchange(stage, model, e, resolution)


def _exchange(stage: Stage, model: Model, e: Experts, resolution: Resolution) -> None:
    """Bring every token to the ranks of its experts, and the results back.

    Gathering moves each data-parallel rank's tokens to all others, whatever their
    experts; the all-to-all back ends send a token once to each of its experts' ranks.
    With sequence-parallel experts each tensor-parallel rank brings its own share of the
    tokens, and the results are gathered over the tensor-parallel group afterwards;
    without, every one of them exchanges all tokens and the results are all-reduced.
    """
    tp, dp = resolution.tensor_parallel_width, resolution.data_parallel_width
    tokens = at("padded_tokens")
    row = model.hidden * dtype_bytes(model.dtype)
    shared = resolution.sequence_parallel_moe
    if resolution.all2all_backend == GATHERING:
        ranks, stride = (tp * dp, 1) if shared else (dp, tp)
        for op in ("allgather", "reducescatter"):
            gather(stage, resolution, op, ranks, stride, tokens, dp * row)
    else:
        ranks = resolution.expert_parallel_width
        # Ranks that hold at least one of a token's experts, under uniform routing: a token
        # is sent once to each.
        copies = ranks * (1.0 - (1.0 - 1.0 / ranks) ** e.per_token)
        sent = copies * row / (tp if shared else 1)
        all_to_all(stage, resolution, ranks, tokens, sent, 2.0)
    if shared:
        gather(stage, resolution, "allgather", tp, 1, tokens, row, "_tp")
    else:
        all_reduce(stage, resolution, tokens, row)
