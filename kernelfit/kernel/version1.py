"""The laws of file version 1, kept so that its files mean for ever what they meant.

They know full attention, dense and mixture-of-experts layers, one node, one floor and one
rate for all collectives, and launches that are never replayed as graphs and counted.
"""

from __future__ import annotations

from kernelfit.kernel.attention import kv_heads_per_rank
from kernelfit.kernel.basis import Basis, Routing
from kernelfit.kernel.chip import Chip
from kernelfit.kernel.launches import launches, plain_launches
from kernelfit.kernel.laws import GRAPHS
from kernelfit.kernel.model import Experts, LayerKind, Model, dtype_bytes, mlp_parameters
from kernelfit.kernel.plan import Plan
from kernelfit.kernel.pool import Pool
from kernelfit.kernel.resolution import resolve
from kernelfit.kernel.resolved import Resolution
from kernelfit.kernel.resources import Resource
from kernelfit.kernel.stage import HEAD_STAGE, HOST_STAGE, LAUNCH_STAGE, Stage, Term, at


def plan_of_version_1(model: Model, chip: Chip, pool: Pool, engine_version: str) -> Plan:
    """Lay out the terms of a file of version 1.

    Parameters
    ----------
    model : Model
        The model.
    chip : Chip
        The GPU type.
    pool : Pool
        The pool as stated.
    engine_version : str
        The engine's version.

    Returns
    -------
    Plan
        The plan with the terms that version 1 had.

    Raises
    ------
    Refusal
        When the pool cannot be priced truthfully.
    """
    resolution = resolve(pool, model, chip, engine_version)
    decode, mixed = GRAPHS[resolution.graph_mode]
    experts = [kind.experts for kind in model.layers if kind.experts is not None]
    basis = Basis(
        routings=tuple(dict.fromkeys(_routing(e) for e in experts)),
        capture_sizes=resolution.capture_sizes,
        decode_graph=decode,
        mixed_graph=mixed,
    )
    terms: list[Term] = []
    for kind in model.layers:
        terms.extend(_layer(model, kind, basis, resolution))
    terms.extend(_head(model, resolution))
    terms.extend(_host(model, resolution, chip))
    return Plan(model, chip, pool, engine_version, resolution, basis, tuple(terms))


def _routing(experts: Experts) -> Routing:
    return Routing(experts.experts, experts.per_token, padding=False)


def _compute(model: Model, weight_dtype: str) -> str:
    return "fp8" if weight_dtype == "fp8" else model.dtype


def _layer(model: Model, kind: LayerKind, basis: Basis, resolution: Resolution) -> tuple[Term, ...]:
    tp = resolution.tensor_parallel_width
    element = dtype_bytes(model.dtype)
    tokens = at("padded_tokens")
    stage = Stage(f"layer.{kind.name}", kind.count)
    _attention(stage, model, kind, resolution)
    _feed_forward(stage, model, kind, basis, resolution)
    stage.add(
        Resource.HBM, "hbm_activation_eff", tokens, _passes(model, kind, resolution) * element
    )
    if resolution.graph_mode != "NONE":
        stage.add(Resource.SM, "layer_floor_s", 0, 1.0)
    if tp > 1:
        stage.add(Resource.NVLINK, "allreduce_floor_s", 0, 2.0)
        moved = 2.0 * (tp - 1) / tp * model.hidden * element
        stage.add(Resource.NVLINK, "nvlink_eff", tokens, 2.0 * moved)
    return stage.finish()


def _attention(stage: Stage, model: Model, kind: LayerKind, resolution: Resolution) -> None:
    tp = resolution.tensor_parallel_width
    a = kind.attention
    heads, kv_heads = a.heads / tp, kv_heads_per_rank(kind, tp)
    weights = a.weight_dtype or model.weight_dtype
    queries = (3 if a.output_gate else 2) * heads
    parameters = model.hidden * a.head_dim * (queries + 2 * kv_heads)
    stage.gemm((_compute(model, weights), dtype_bytes(weights)), at("padded_tokens"), parameters)
    for pairs in ("decode_pairs", "prefill_pairs"):
        stage.add(Resource.SM, f"attention_eff_{model.dtype}", at(pairs), 4.0 * heads * a.head_dim)
    kv_bytes = 2.0 * kv_heads * a.head_dim * dtype_bytes(resolution.cache_dtype)
    for context in ("decode_context_tokens", "prefill_context_tokens", "tokens"):
        stage.add(Resource.HBM, "hbm_kv_eff", at(context), kv_bytes)
    stage.add(Resource.SM, "attention_request_s", at("requests"), 1.0)


def _feed_forward(
    stage: Stage, model: Model, kind: LayerKind, basis: Basis, resolution: Resolution
) -> None:
    tp = resolution.tensor_parallel_width
    dtype, weight_bytes = _compute(model, model.weight_dtype), dtype_bytes(model.weight_dtype)
    tokens = at("padded_tokens")
    if kind.mlp is not None:
        parameters = mlp_parameters(model, kind.mlp.intermediate, kind.mlp.gated) / tp
        stage.gemm((dtype, weight_bytes), tokens, parameters)
    if kind.experts is None:
        return
    e = kind.experts
    routed = basis.touched_at(_routing(e))
    share = max(tp, resolution.expert_parallel_width)
    one = mlp_parameters(model, e.intermediate, e.gated)
    stage.add(Resource.SM, f"gemm_eff_{dtype}", tokens, 2.0 * e.per_token * one / share)
    stage.add(Resource.SM, f"gemm_m_half_{dtype}", routed, 2.0 * one / share)
    stage.add(Resource.HBM, "hbm_weight_eff", routed, one * weight_bytes / share)
    stage.add(Resource.SM, "expert_floor_s", routed, 1.0 / resolution.expert_parallel_width)
    stage.gemm((model.dtype, dtype_bytes(model.dtype)), tokens, float(model.hidden * e.experts))
    if e.shared_intermediate:
        shared = mlp_parameters(model, e.shared_intermediate, e.gated) / tp
        stage.gemm((dtype, weight_bytes), tokens, shared)


def _passes(model: Model, kind: LayerKind, resolution: Resolution) -> float:
    tp, width = resolution.tensor_parallel_width, resolution.expert_parallel_width
    a = kind.attention
    elements = 8.0 * model.hidden
    elements += 2.0 * a.head_dim * (a.heads / tp + kv_heads_per_rank(kind, tp))
    if kind.mlp is not None:
        elements += (3.0 if kind.mlp.gated else 2.0) * kind.mlp.intermediate / tp
    if kind.experts is not None:
        e = kind.experts
        gate = 3.0 if e.gated else 2.0
        elements += e.per_token * gate * e.intermediate / max(tp, width)
        elements += e.per_token * 4.0 * model.hidden / width
        elements += gate * e.shared_intermediate / tp
    return elements


def _head(model: Model, resolution: Resolution) -> tuple[Term, ...]:
    tp = resolution.tensor_parallel_width
    element = dtype_bytes(model.dtype)
    head = Stage(HEAD_STAGE)
    head.gemm((model.dtype, element), at("requests"), model.hidden * model.vocab / tp)
    if tp > 1:
        head.add(Resource.NVLINK, "allreduce_floor_s", 0, 1.0)
        received = (tp - 1) / tp * model.vocab * element
        head.add(Resource.NVLINK, "nvlink_eff", at("requests"), received)
    return head.finish()


def _host(model: Model, resolution: Resolution, chip: Chip) -> tuple[Term, ...]:
    host = Stage(LAUNCH_STAGE if resolution.async_scheduling else HOST_STAGE)
    if resolution.graph_mode == "NONE":
        layers = sum(kind.count * launches(kind, chip.kind) for kind in model.layers)
        host.add(Resource.HOST, "launch_layer_s", 0, layers / plain_launches(chip.kind))
    for name in ("launch_step_s", "schedule_step_s"):
        host.add(Resource.HOST, name, 0, 1.0)
    for name in ("launch_request_s", "schedule_request_s"):
        host.add(Resource.HOST, name, at("requests"), 1.0)
    return host.finish()
