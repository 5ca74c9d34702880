"""The laws: which work a layer asks of which resource, and what a unit of it costs.

Every term is ``amount x unit cost``. The amount is a constant of the deployment times
one function of the batch (``kernelfit.kernel.basis``); the unit cost follows from
coefficients and datasheet peaks:

====================  =================================================================
efficiency            amount / (peak x efficiency), amount in FLOP or bytes
m_half                amount x m_half / (peak x efficiency): the envelope
                      ``flop / (peak x eff x m/(m + m_half))`` is linear in the two,
                      with ``amount = flop / m``
time                  amount x seconds, amount a count
====================  =================================================================

Collectives are the one exception: the larger of two such forms,
``max(floor + bytes/transition, bytes/rate)``.

Sources: the envelope, the floors and the collectives' law are the forms of the BLIS
registry; work counts are derived from the matrix shapes (2 FLOP per multiply-add).
"""

from __future__ import annotations

from kernelfit.kernel.attention import add_attention
from kernelfit.kernel.basis import Basis, Routing
from kernelfit.kernel.chip import Chip
from kernelfit.kernel.compute import weight_of
from kernelfit.kernel.experts import add_feed_forward, routing_of
from kernelfit.kernel.launches import launches, plain_launches
from kernelfit.kernel.links import all_reduce, gather
from kernelfit.kernel.model import LayerKind, Model, dtype_bytes
from kernelfit.kernel.passes import LOGIT_BYTES, elementwise_elements
from kernelfit.kernel.resolved import Resolution
from kernelfit.kernel.resources import Resource
from kernelfit.kernel.stage import HEAD_STAGE, HOST_STAGE, LAUNCH_STAGE, Stage, Term, at

SCHEDULE_COEFFICIENTS: tuple[str, ...] = ("schedule_step_s", "schedule_request_s")
"""Host work outside the worker's span."""


def basis_of(model: Model, resolution: Resolution) -> Basis:
    """Return the functions of a batch that a deployment uses.

    Parameters
    ----------
    model : Model
        The model.
    resolution : Resolution
        What will run.

    Returns
    -------
    Basis
        With one pair of functions per distinct routing and one set per sliding window.
    """
    routings: list[Routing] = []
    windows = set()
    for kind in model.layers:
        if kind.experts is not None:
            routing = routing_of(kind.experts, resolution)
            if routing not in routings:
                routings.append(routing)
        if kind.attention.window_tokens:
            windows.add(kind.attention.window_tokens)
    decode, mixed = GRAPHS[resolution.graph_mode]
    return Basis(
        routings=tuple(routings),
        windows=tuple(sorted(windows)),
        capture_sizes=resolution.capture_sizes,
        decode_graph=decode,
        mixed_graph=mixed,
        decode_query_tokens=resolution.decode_query_tokens,
    )


GRAPHS: dict[str, tuple[str, str]] = {
    "NONE": ("none", "none"),
    "PIECEWISE": ("piecewise", "piecewise"),
    "FULL": ("full", "full"),
    "FULL_DECODE_ONLY": ("full", "none"),
    "FULL_AND_PIECEWISE": ("full", "piecewise"),
}
"""What a uniform decode and any other batch are launched as, by graph mode (vLLM 0.32.0,
``vllm/config/compilation.py``)."""


def build_terms(model: Model, resolution: Resolution, basis: Basis, chip: Chip) -> tuple[Term, ...]:
    """Return every term of a deployment's step time.

    Parameters
    ----------
    model : Model
        The model.
    resolution : Resolution
        What will run.
    basis : Basis
        The functions of a batch, from ``basis_of``.
    chip : Chip
        The GPU type; it decides compute types and what a layer launches.

    Returns
    -------
    tuple of Term
        Device terms by stage (each kind of layer, then the head), then host terms.

    Notes
    -----
    Domain: one pipeline stage. Under tensor parallelism every layer all-reduces its
    attention's and its MLP's output, ``tokens x hidden`` elements each, and the head
    gathers the logits.
    """
    terms: list[Term] = []
    for kind in model.layers:
        terms.extend(_layer(model, kind, resolution, basis, chip))
    terms.extend(_head(model, resolution))
    terms.extend(_host(model, resolution, chip))
    return tuple(terms)


def _layer(
    model: Model, kind: LayerKind, resolution: Resolution, basis: Basis, chip: Chip
) -> tuple[Term, ...]:
    stage = Stage(f"layer.{kind.name}", kind.count)
    element = dtype_bytes(model.dtype)
    own = weight_of(model, kind.attention.weight_dtype, chip)
    add_attention(stage, model, kind, basis, resolution, own)
    all_reduce(stage, resolution, at("padded_tokens"), model.hidden * element)
    add_feed_forward(stage, model, kind, basis, resolution, chip)
    passes = elementwise_elements(model, kind, resolution)
    stage.add(Resource.HBM, "hbm_activation_eff", at("padded_tokens"), passes * element)
    if chip.kind == "gpu":
        floors = launches(kind, chip.kind) / plain_launches(chip.kind)
        stage.add(Resource.SM, "layer_floor_s", at("one"), floors)
    return stage.finish()


def _head(model: Model, resolution: Resolution) -> tuple[Term, ...]:
    tp = resolution.tensor_parallel_width
    element = dtype_bytes(model.dtype)
    head = Stage(HEAD_STAGE)
    parameters = model.hidden * model.vocab / tp
    head.gemm((model.dtype, element), at("requests"), parameters)
    # One row per request, and under speculation one more per proposed token.
    proposed = resolution.decode_query_tokens - 1
    head.add(
        Resource.SM, f"gemm_eff_{model.dtype}", at("decode_requests"), 2.0 * parameters * proposed
    )
    passes = model.vocab * LOGIT_BYTES
    head.add(Resource.HBM, "hbm_activation_eff", at("requests"), passes)
    head.add(Resource.HBM, "hbm_activation_eff", at("decode_requests"), passes * proposed)
    # The gathered logits are taken as those of decoding requests: the usual batch.
    gathered = model.vocab * element * (1 + proposed)
    gather(head, resolution, "allgather", tp, 1, at("requests"), gathered)
    return head.finish()


def _host(model: Model, resolution: Resolution, chip: Chip) -> tuple[Term, ...]:
    """Host work: launching runs ahead of a GPU; the rest only under asynchronous scheduling."""
    ahead = Stage(LAUNCH_STAGE)
    behind = Stage(HOST_STAGE)
    launch = ahead if resolution.launches_run_ahead or resolution.async_scheduling else behind
    other = ahead if resolution.async_scheduling else behind
    layers = sum(kind.count * launches(kind, chip.kind) for kind in model.layers)
    plain = layers / plain_launches(chip.kind)
    launch.add(Resource.HOST, "launch_layer_s", at("eager"), plain)
    linear = sum(kind.count for kind in model.layers if kind.attention.linear is not None)
    launch.add(Resource.HOST, "launch_linear_s", at("eager"), float(linear))
    if resolution.graph_mode != "NONE":
        launch.add(Resource.HOST, "launch_graph_s", at("full_graphs"), 1.0)
        # Graphs are cut at every attention, which is launched between two pieces.
        pieces = at("piecewise_graphs")
        softmax = float(model.layer_count - linear)
        launch.add(Resource.HOST, "launch_graph_s", pieces, model.layer_count + 1.0)
        launch.add(Resource.HOST, "launch_attention_s", pieces, softmax)
        launch.add(Resource.HOST, "launch_linear_s", pieces, float(linear))
    other.add(Resource.HOST, "launch_step_s", at("one"), 1.0)
    other.add(Resource.HOST, "launch_request_s", at("requests"), 1.0)
    other.add(Resource.HOST, "schedule_step_s", at("one"), 1.0)
    other.add(Resource.HOST, "schedule_request_s", at("requests"), 1.0)
    return ahead.finish() + behind.finish()
