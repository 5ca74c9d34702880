"""The laws of the feed-forward part: dense MLPs, and mixtures of experts."""

from __future__ import annotations

from kernelfit.kernel.basis import Basis, Routing
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
    weight: tuple[str, float],
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
    weight : (str, float)
        Data type that the matrices compute in, and the size of one element of their
        weights, scales included [bytes].

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
        stage.gemm(weight[0], tokens, parameters, weight[1])
    if kind.experts is not None:
        _experts(stage, model, kind.experts, basis, resolution, weight)
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
    weight: tuple[str, float],
) -> None:
    tp, dp = resolution.tensor_parallel_width, resolution.data_parallel_width
    width = resolution.expert_parallel_width
    routed = basis.touched_at(routing_of(e, resolution))
    # A rank holds whole experts, or a slice of each: the basis counts those it touches.
    slices = tp * dp if width == 1 else 1
    one = mlp_parameters(model, e.intermediate, e.gated) / slices
    stage.gemm(weight[0], routed + 1, one, weight[1], fill=routed)
    stage.add(Resource.SM, "expert_floor_s", routed, 1.0)
    router = model.hidden * e.experts
    stage.gemm(model.dtype, at("padded_tokens"), router, dtype_bytes(model.dtype))
    if e.shared_intermediate:
        shared = mlp_parameters(model, e.shared_intermediate, e.gated) / tp
        stage.gemm(weight[0], at("padded_tokens"), shared, weight[1])
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
        copies = min(e.per_token, resolution.expert_parallel_width)
        sent = copies * row / (tp if shared else 1)
        all_to_all(stage, resolution, resolution.expert_parallel_width, tokens, sent, 2.0)
    if shared:
        gather(stage, resolution, "allgather", tp, 1, tokens, row, "_tp")
    else:
        all_reduce(stage, resolution, tokens, row)
