"""The laws of attention: full, sliding, latent (MLA) and linear."""

from __future__ import annotations

from kernelfit.kernel.basis import Basis
from kernelfit.kernel.model import Attention, Latent, LayerKind, LinearState, Model, dtype_bytes
from kernelfit.kernel.resolved import Resolution
from kernelfit.kernel.resources import Resource
from kernelfit.kernel.stage import Stage, at

PACKED_LATENT = "fp8_ds_mla"
PACKED_LATENT_BYTES = 656.0
"""Bytes of one token and layer in the packed cache of latent attention: 512 in fp8, four
32-bit scales, 64 rotary elements in 16 bit (vLLM 0.32.0, ``v1/kv_cache_interface.py``)."""

DELTA_CHUNK = 64
"""Tokens that the chunked gated delta rule handles at once (the usual kernel's choice)."""


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


def latent_bytes(latent: Latent, cache_dtype: str) -> float:
    """Return what one token of a latent cache takes in one layer.

    Parameters
    ----------
    latent : Latent
        The widths.
    cache_dtype : str
        Data type of the cache.

    Returns
    -------
    float
        Latent and shared rotary key [bytes].
    """
    if cache_dtype == PACKED_LATENT:
        return PACKED_LATENT_BYTES
    return (latent.kv_rank + latent.rope_head_dim) * dtype_bytes(cache_dtype)


def add_attention(
    stage: Stage,
    model: Model,
    kind: LayerKind,
    basis: Basis,
    resolution: Resolution,
    weight: tuple[str, float],
) -> None:
    """Add a layer's attention.

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
        Data type that its projections compute in, and the size of one element of their
        weights, scales included [bytes].

    Notes
    -----
    Causal attention multiplies ``4 x heads x head_dim`` FLOP per query-key pair: 2 per
    multiply-add, for scores and for values. Keys and values of every context token are
    read once per step, those of the new tokens written.
    """
    a = kind.attention
    if a.latent is not None:
        _latent(stage, model, a, a.latent, resolution, weight)
    elif a.linear is not None:
        _linear(stage, model, a.linear, resolution, weight)
    else:
        _heads(stage, model, kind, basis, resolution, weight)


def _heads(
    stage: Stage,
    model: Model,
    kind: LayerKind,
    basis: Basis,
    resolution: Resolution,
    weight: tuple[str, float],
) -> None:
    tp = resolution.tensor_parallel_width
    a = kind.attention
    heads = a.heads / tp
    kv_heads = kv_heads_per_rank(kind, tp)
    queries = (3 if a.output_gate else 2) * heads
    parameters = model.hidden * a.head_dim * (queries + 2 * kv_heads)
    stage.gemm(weight, at("padded_tokens"), parameters)
    kv_bytes = 2.0 * kv_heads * a.head_dim * dtype_bytes(resolution.cache_dtype)
    _read(stage, model, basis, a.window_tokens, 4.0 * heads * a.head_dim, kv_bytes)
    stage.add(Resource.SM, "attention_head_s", at("padded_requests"), float(kv_heads))


def _read(
    stage: Stage, model: Model, basis: Basis, window: int, pair_flop: float, kv_bytes: float
) -> None:
    """Score and read the context, all of it or what a window leaves."""
    compute = f"attention_eff_{model.dtype}"
    for path in ("decode", "prefill"):
        pairs, context = f"{path}_pairs", f"{path}_context_tokens"
        sliding = window > 0
        pair_at = basis.window_at(window, pairs) if sliding else at(pairs)
        context_at = basis.window_at(window, context) if sliding else at(context)
        stage.add(Resource.SM, compute, pair_at, pair_flop)
        stage.add(Resource.HBM, "hbm_kv_eff", context_at, kv_bytes)
    stage.add(Resource.HBM, "hbm_kv_eff", at("tokens"), kv_bytes)


def _latent(
    stage: Stage,
    model: Model,
    a: Attention,
    m: Latent,
    resolution: Resolution,
    weight: tuple[str, float],
) -> None:
    """Latent attention (DeepSeek-V2 report, section 2.1).

    A decoding request multiplies in the latent's space, its expansion absorbed into the
    query and the output; one in its prompt expands the latents of its whole context. The
    compressions and the cache are whole on every tensor-parallel rank, heads are split.
    The absorbed expansion multiplies in the model's own type whatever the checkpoint's: the
    engine keeps an unquantised copy for it (vLLM 0.32.0, ``mla_attention.py``).
    """
    heads = a.heads / resolution.tensor_parallel_width
    query = m.nope_head_dim + m.rope_head_dim
    tokens = at("padded_tokens")
    whole = model.hidden * (m.kv_rank + m.rope_head_dim + m.query_rank)
    split = (m.query_rank or model.hidden) * heads * query + heads * m.value_head_dim * model.hidden
    stage.gemm(weight, tokens, whole + split)
    expansion = m.kv_rank * heads * (m.nope_head_dim + m.value_head_dim)
    stage.gemm(weight, at("prefill_context_tokens"), expansion)
    # What is expanded is written, and read again by attention with the shared rotary key.
    moved = 2.0 * heads * (query + m.value_head_dim) * dtype_bytes(model.dtype)
    stage.add(Resource.HBM, "hbm_activation_eff", at("prefill_context_tokens"), moved)
    decoding = 2.0 * expansion * resolution.decode_query_tokens
    stage.add(Resource.SM, f"gemm_eff_{model.dtype}", at("decode_requests"), decoding)
    compute = f"attention_eff_{model.dtype}"
    absorbed = 2.0 * heads * (2 * m.kv_rank + m.rope_head_dim)
    stage.add(Resource.SM, compute, at("decode_pairs"), absorbed)
    stage.add(Resource.SM, compute, at("prefill_pairs"), 2.0 * heads * (query + m.value_head_dim))
    kv_bytes = latent_bytes(m, resolution.cache_dtype)
    for function in ("decode_context_tokens", "prefill_context_tokens", "tokens"):
        stage.add(Resource.HBM, "hbm_kv_eff", at(function), kv_bytes)
    stage.add(Resource.SM, "attention_head_s", at("padded_requests"), 1.0)


def delta_rule_flop(n: LinearState) -> float:
    """Return the work of the gated delta rule for one token and value head.

    Parameters
    ----------
    n : LinearState
        The widths.

    Returns
    -------
    float
        Work [FLOP]: with the state, three products of key and value width (prediction, update,
        output); within a chunk of C tokens, C multiply-adds per element for key-key and
        query-key scores, for solving the triangular system over keys and values, and for
        the output.

    Notes
    -----
    Chunked form of Yang et al., "Gated Delta Networks" (2024), section 3.3; triangular
    products are counted whole, as tiles compute them. A single token costs less than
    this, but then the state's bytes bind, not its FLOP.
    """
    keys, values = n.key_head_dim, n.value_head_dim
    return 6.0 * keys * values + 2.0 * DELTA_CHUNK * (3 * keys + 2 * values)


def state_bytes(n: LinearState, model: Model, state_dtype: str, tp: int) -> float:
    """Return the recurrent state of one sequence in one layer on one rank.

    Parameters
    ----------
    n : LinearState
        The widths.
    model : Model
        The model; its data type is that of the convolution's state.
    state_dtype : str
        Data type of the recurrent state.
    tp : int
        Tensor-parallel width; heads are split.

    Returns
    -------
    float
        State matrix of every value head, and the last inputs of the convolution [bytes].
    """
    matrix = n.value_heads * n.key_head_dim * n.value_head_dim * dtype_bytes(state_dtype)
    channels = 2 * n.key_heads * n.key_head_dim + n.value_heads * n.value_head_dim
    return (matrix + channels * (n.conv_kernel - 1) * dtype_bytes(model.dtype)) / tp


def _linear(
    stage: Stage,
    model: Model,
    n: LinearState,
    resolution: Resolution,
    weight: tuple[str, float],
) -> None:
    """Linear attention: constant state per sequence, read and written once a step."""
    tp = resolution.tensor_parallel_width
    keys, values = n.key_heads * n.key_head_dim, n.value_heads * n.value_head_dim
    parameters = model.hidden * (2 * keys + 3 * values + 2 * n.value_heads)
    parameters += (2 * keys + values) * n.conv_kernel
    stage.gemm(weight, at("padded_tokens"), parameters / tp)
    flop = delta_rule_flop(n) * n.value_heads / tp
    stage.add(Resource.SM, f"recurrent_eff_{model.dtype}", at("tokens"), flop)
    moved = 2.0 * state_bytes(n, model, resolution.state_dtype, tp)
    stage.add(Resource.HBM, "hbm_kv_eff", at("padded_requests"), moved)
