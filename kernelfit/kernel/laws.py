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

Sources: the envelope and the floors are the forms of the BLIS registry; work counts
are derived from the matrix shapes (2 FLOP per multiply-add, causal attention
``4 x heads x head_dim`` FLOP per query-key pair).
"""

from __future__ import annotations

from dataclasses import dataclass

from kernelfit.kernel.basis import FIXED, Basis
from kernelfit.kernel.model import (
    LayerKind,
    Model,
    dtype_bytes,
    mlp_parameters,
)
from kernelfit.kernel.resolved import Resolution
from kernelfit.kernel.resources import Resource

NATIVE_NORM_LAUNCHES = 7
HOST_STAGE = "host"
HEAD_STAGE = "head"


@dataclass(frozen=True, slots=True)
class Term:
    """One product of work and unit cost.

    Attributes
    ----------
    stage : str
        The stage it belongs to; terms of a stage can overlap across resources.
    resource : Resource
        What the work lands on.
    coefficient : str
        The coefficient that prices it.
    function : int
        Index of its function of the batch in the basis.
    amount : float
        Constant of the deployment, all layers of the stage together; FLOP, bytes or
        a count per unit of the function.
    """

    stage: str
    resource: Resource
    coefficient: str
    function: int
    amount: float


_INDEX = tuple(FIXED)


def _at(name: str) -> int:
    return _INDEX.index(name)


def compute_dtype(model: Model, weight_dtype: str) -> str:
    """Return the data type that a matrix multiplication runs in.

    Parameters
    ----------
    model : Model
        The model.
    weight_dtype : str
        Data type of the matrix.

    Returns
    -------
    str
        ``fp8`` where weights are fp8, else the model's own type: weight-only
        quantisation to 4 or 8 bit integers is expanded before multiplying.
    """
    return "fp8" if weight_dtype == "fp8" else model.dtype


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
        With one expert function per distinct routing.
    """
    routings: list[tuple[int, int]] = []
    for kind in model.layers:
        if kind.experts is not None:
            pair = (kind.experts.experts, kind.experts.per_token)
            if pair not in routings:
                routings.append(pair)
    return Basis(
        routings=tuple(routings),
        capture_sizes=resolution.capture_sizes,
        pad_mixed=resolution.graph_mode in ("PIECEWISE", "FULL", "FULL_AND_PIECEWISE"),
    )


class _Stage:
    """Collects the terms of one stage; equal (resource, coefficient, function) add up."""

    def __init__(self, name: str, count: int) -> None:
        self.name = name
        self.count = count
        self.terms: dict[tuple[Resource, str, int], float] = {}

    def add(self, resource: Resource, coefficient: str, function: int, amount: float) -> None:
        if amount:
            key = (resource, coefficient, function)
            self.terms[key] = self.terms.get(key, 0.0) + amount * self.count

    def gemm(
        self, dtype: str, rows: int, parameters: float, weight_bytes: float, fill: int
    ) -> None:
        """Add a multiplication by a weight matrix, and reading that matrix.

        ``rows`` and ``fill`` are basis functions: how many rows are multiplied, and how
        often the matrix is started (once, or once per touched expert).
        """
        self.add(Resource.SM, f"gemm_eff_{dtype}", rows, 2.0 * parameters)
        self.add(Resource.SM, f"gemm_m_half_{dtype}", fill, 2.0 * parameters)
        self.add(Resource.HBM, "hbm_weight_eff", fill, parameters * weight_bytes)

    def finish(self) -> tuple[Term, ...]:
        return tuple(
            Term(self.name, resource, coefficient, function, amount)
            for (resource, coefficient, function), amount in self.terms.items()
        )


def kv_heads_per_rank(kind: LayerKind, tensor_parallel_width: int) -> int:
    """Return the key-value heads that one rank holds.

    Parameters
    ----------
    kind : LayerKind
        The kind of layer.
    tensor_parallel_width : int
        Tensor-parallel width.

    Returns
    -------
    int
        At least one: below one head per rank, heads are replicated.
    """
    return max(1, kind.attention.kv_heads // tensor_parallel_width)


def _attention(stage: _Stage, model: Model, kind: LayerKind, resolution: Resolution) -> None:
    tp = resolution.tensor_parallel_width
    a = kind.attention
    heads = a.heads / tp
    kv_heads = kv_heads_per_rank(kind, tp)
    weights = a.weight_dtype or model.weight_dtype
    dtype = compute_dtype(model, weights)
    queries = (3 if a.output_gate else 2) * heads
    parameters = model.hidden * a.head_dim * (queries + 2 * kv_heads)
    stage.gemm(dtype, _at("padded_tokens"), parameters, dtype_bytes(weights), 0)
    flop_per_pair = 4.0 * heads * a.head_dim
    for pairs in ("decode_pairs", "prefill_pairs"):
        stage.add(Resource.SM, f"attention_eff_{model.dtype}", _at(pairs), flop_per_pair)
    kv_bytes = 2.0 * kv_heads * a.head_dim * dtype_bytes(resolution.cache_dtype)
    for context in ("decode_context_tokens", "prefill_context_tokens"):
        stage.add(Resource.HBM, "hbm_kv_eff", _at(context), kv_bytes)
    stage.add(Resource.HBM, "hbm_kv_eff", _at("tokens"), kv_bytes)  # writing the new tokens
    stage.add(Resource.SM, "attention_request_s", _at("requests"), 1.0)


def _activation_elements(model: Model, kind: LayerKind, tp: int, expert_width: int) -> float:
    """Elements that elementwise passes of one layer read and write per token.

    Two norms with their residual additions (read twice, written twice: 8 hidden),
    rotary embedding of queries and keys (read and written), and the activation
    function between the MLP's matrices (the inputs read, the output written).
    """
    a = kind.attention
    elements = 8.0 * model.hidden
    elements += 2.0 * a.head_dim * (a.heads / tp + kv_heads_per_rank(kind, tp))
    if kind.mlp is not None:
        elements += (3.0 if kind.mlp.gated else 2.0) * kind.mlp.intermediate / tp
    if kind.experts is not None:
        e = kind.experts
        gate = 3.0 if e.gated else 2.0
        # Routed copies are gathered and scattered once each: 4 hidden per expert.
        # Sharded experts see every routed row whole; spread ones only their share of them.
        share = max(tp, expert_width)
        elements += e.per_token * gate * e.intermediate / share
        elements += e.per_token * 4.0 * model.hidden / expert_width
        elements += gate * e.shared_intermediate / tp
    return elements


def _feed_forward(
    stage: _Stage, model: Model, kind: LayerKind, basis: Basis, resolution: Resolution
) -> None:
    tp = resolution.tensor_parallel_width
    dtype = compute_dtype(model, model.weight_dtype)
    weight_bytes = dtype_bytes(model.weight_dtype)
    tokens = _at("padded_tokens")
    if kind.mlp is not None:
        parameters = mlp_parameters(model, kind.mlp.intermediate, kind.mlp.gated) / tp
        stage.gemm(dtype, tokens, parameters, weight_bytes, 0)
    if kind.experts is None:
        return
    e = kind.experts
    routed = len(FIXED) + basis.routings.index((e.experts, e.per_token))
    # Sharded over tensor parallelism or spread over expert parallelism, one rank
    # does the same share of the work; only the number of experts it starts differs.
    share = max(tp, resolution.expert_parallel_width)
    one = mlp_parameters(model, e.intermediate, e.gated)
    stage.add(Resource.SM, f"gemm_eff_{dtype}", tokens, 2.0 * e.per_token * one / share)
    stage.add(Resource.SM, f"gemm_m_half_{dtype}", routed, 2.0 * one / share)
    stage.add(Resource.HBM, "hbm_weight_eff", routed, one * weight_bytes / share)
    stage.add(Resource.SM, "expert_floor_s", routed, 1.0 / resolution.expert_parallel_width)
    router = model.hidden * e.experts
    stage.gemm(model.dtype, tokens, router, dtype_bytes(model.dtype), 0)
    if e.shared_intermediate:
        shared = mlp_parameters(model, e.shared_intermediate, e.gated) / tp
        stage.gemm(dtype, tokens, shared, weight_bytes, 0)


def build_terms(
    model: Model, resolution: Resolution, basis: Basis, chip_kind: str = "gpu"
) -> tuple[Term, ...]:
    """Return every term of a deployment's step time.

    Parameters
    ----------
    model : Model
        The model.
    resolution : Resolution
        What will run.
    basis : Basis
        The functions of a batch, from ``basis_of``.
    chip_kind : str
        ``gpu`` or ``cpu``; it decides how many operations a norm launches.

    Returns
    -------
    tuple of Term
        Device terms by stage (each kind of layer, then the head), then host terms.

    Notes
    -----
    Domain: full attention, dense or mixture-of-experts layers, one node. Two
    all-reduces per layer of ``tokens x hidden`` elements under tensor parallelism, of which
    a rank of n sends 2 (n - 1) / n, and one gather of the logits, of which it receives
    (n - 1) / n (ring algorithms).
    """
    tp = resolution.tensor_parallel_width
    element = dtype_bytes(model.dtype)
    tokens = _at("padded_tokens")
    terms: list[Term] = []
    for kind in model.layers:
        stage = _Stage(f"layer.{kind.name}", kind.count)
        _attention(stage, model, kind, resolution)
        _feed_forward(stage, model, kind, basis, resolution)
        elements = _activation_elements(model, kind, tp, resolution.expert_parallel_width)
        stage.add(Resource.HBM, "hbm_activation_eff", tokens, elements * element)
        if resolution.graph_mode != "NONE":
            stage.add(Resource.SM, "layer_floor_s", 0, 1.0)
        if tp > 1:
            stage.add(Resource.NVLINK, "allreduce_floor_s", 0, 2.0)
            moved = 2.0 * (tp - 1) / tp * model.hidden * element
            stage.add(Resource.NVLINK, "nvlink_eff", tokens, 2.0 * moved)
        terms.extend(stage.finish())
    head = _Stage(HEAD_STAGE, 1)
    head.gemm(model.dtype, _at("requests"), model.hidden * model.vocab / tp, element, 0)
    if tp > 1:
        head.add(Resource.NVLINK, "allreduce_floor_s", 0, 1.0)
        received = (tp - 1) / tp * model.vocab * element
        head.add(Resource.NVLINK, "nvlink_eff", _at("requests"), received)
    terms.extend(head.finish())
    terms.extend(_host_terms(model, resolution, chip_kind))
    return tuple(terms)


def launches(kind: LayerKind, chip_kind: str) -> int:
    """Return the operations that one layer launches without a graph.

    Parameters
    ----------
    kind : LayerKind
        The kind of layer.
    chip_kind : str
        ``gpu`` or ``cpu``.

    Returns
    -------
    int
        Operations: projections, rotary embedding, cache write, attention, the MLP's
        three or the router, top-k and experts, and the norms.

    Notes
    -----
    A norm is one fused operation on a GPU. vLLM's CPU back end runs it as separate tensor
    operations (its start-up line says ``rms_norm=['native']``). In 0.32.0
    (``vllm/ir/ops/layernorm.py``) those are square, mean, addition, root, two products
    and the residual's addition: seven. A head norm has no residual, so six; it is
    charged seven all the same: of such a layer's 36 launches, two are one too many.
    """
    norm = NATIVE_NORM_LAUNCHES if chip_kind == "cpu" else 1
    count = 2 * norm + 5
    if kind.attention.qk_norm:
        count += 2 * norm
    if kind.mlp is not None:
        count += 3
    if kind.experts is not None:
        count += 6 if kind.experts.shared_intermediate else 3
    return count


def _plain_layers(model: Model, chip_kind: str) -> float:
    """Layers of a model, each counted by its launches against a plain dense layer's."""
    norm = NATIVE_NORM_LAUNCHES if chip_kind == "cpu" else 1
    plain = 2 * norm + 8
    return sum(kind.count * launches(kind, chip_kind) for kind in model.layers) / plain


def _host_terms(model: Model, resolution: Resolution, chip_kind: str) -> tuple[Term, ...]:
    host = _Stage(HOST_STAGE, 1)
    if resolution.graph_mode == "NONE":
        layers = _plain_layers(model, chip_kind)
        host.add(Resource.HOST, "launch_layer_s", 0, layers)
    host.add(Resource.HOST, "launch_step_s", 0, 1.0)
    host.add(Resource.HOST, "launch_request_s", _at("requests"), 1.0)
    host.add(Resource.HOST, "schedule_step_s", 0, 1.0)
    host.add(Resource.HOST, "schedule_request_s", _at("requests"), 1.0)
    return host.finish()


SCHEDULE_COEFFICIENTS: tuple[str, ...] = ("schedule_step_s", "schedule_request_s")
"""Host work outside the worker's span."""
