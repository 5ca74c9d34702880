"""Why the kernel's work counts differ from those of vLLM's own metrics.

Each cause is a formula in the widths of a ``config.json`` and the requests of a batch,
worked out here a second time: nothing of the kernel is called. Adding all causes to
vLLM's count gives the kernel's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

Requests = tuple[tuple[int, int, bool], ...]
Parts = dict[str, dict[str, float]]

WEIGHT_BYTES = {"fp8": 1.0, "mxfp4": 0.5}
SCALE_BYTES = {"fp8": 4.0 / 128**2, "mxfp4": 1.0 / 32}
"""Bytes of scales per element: 32 bit per 128 x 128 block; 8 bit per 32 elements."""
ACTIVATION_BYTES = 2.0


@dataclass(frozen=True, slots=True)
class _Sums:
    """Sums over the requests of a batch."""

    tokens: int
    decode_pairs: int
    surplus_pairs: int
    """Pairs of a query with keys after it, which vLLM's product tokens x context holds."""
    prefill_context: int
    prefill_before: int


def _sums(requests: Requests) -> _Sums:
    return _Sums(
        sum(s for s, _, _ in requests),
        sum(s * (c + s) for s, c, prompt in requests if not prompt),
        sum(s * (s - 1) // 2 for s, _, _ in requests),
        sum(c + s for s, c, prompt in requests if prompt),
        sum(c for _, c, prompt in requests if prompt),
    )


def _windowed_surplus(requests: Requests, window: int) -> tuple[int, int]:
    """vLLM's pairs and context of a sliding layer, less each query's own window."""
    pairs = context = 0
    for s, c, _ in requests:
        whole = s * min(c + s, window)
        pairs += whole - sum(min(c + j, window) for j in range(1, s + 1))
        context += min(c + s, window) - min(c + s, s + window - 1)
    return pairs, context


def causes(config: dict[str, Any], tp: int, ep: bool, requests: Requests) -> Parts:
    """Return what to add to vLLM's counts to get the kernel's, by component and cause."""
    quantised = config.get("quantization_config") or {}
    method = quantised.get("quant_method", "")
    weight = WEIGHT_BYTES.get(method, 2.0)
    scale = SCALE_BYTES.get(method, 0.0)
    if method == "fp8" and "weight_block_size" not in quantised:
        scale = 0.0
    sums = _sums(requests)
    latent = "kv_lora_rank" in config
    attention = _latent if latent else _heads
    out = attention(config, tp, requests, sums)
    parameters = out.pop("parameters")[""]
    if method == "mxfp4":
        out["bytes.weights.attention"] = {"attention left unquantised": 1.5 * parameters}
    elif scale:
        out["bytes.weights.attention"] = {"scales": scale * parameters}
    out |= _ffn(config, tp, ep, sums.tokens, weight, scale)
    return out


def _heads(config: dict[str, Any], tp: int, requests: Requests, sums: _Sums) -> Parts:
    hidden, layers = config["hidden_size"], config["num_hidden_layers"]
    heads = config["num_attention_heads"] / tp
    kv_heads = max(1, config["num_key_value_heads"] // tp)
    width = config.get("head_dim") or hidden // config["num_attention_heads"]
    kinds = config.get("layer_types") or []
    sliding = sum("sliding" in kind for kind in kinds)
    full = layers - sliding
    flop = {"each query sees what is before it": -4.0 * heads * width * full * sums.surplus_pairs}
    read = {"queries are activations": -ACTIVATION_BYTES * heads * width * layers * sums.tokens}
    if sliding:
        pairs, context = _windowed_surplus(requests, config["sliding_window"])
        flop["each query has its own window"] = -4.0 * heads * width * sliding * pairs
        kv = 2.0 * kv_heads * width * ACTIVATION_BYTES
        read["a prompt reads all its windows"] = -kv * sliding * context
    parameters = layers * hidden * width * (2 * heads + 2 * kv_heads)
    return {"flop.attention": flop, "bytes.kv": read, "parameters": {"": parameters}}


def _latent(config: dict[str, Any], tp: int, requests: Requests, sums: _Sums) -> Parts:
    del requests
    hidden, layers = config["hidden_size"], config["num_hidden_layers"]
    heads = config["num_attention_heads"] / tp
    rank, rope = config["kv_lora_rank"], config["qk_rope_head_dim"]
    nope, value = config["qk_nope_head_dim"], config["v_head_dim"]
    key = nope + rope
    each = 2.0 * heads * layers
    absorbed = each * ((2 * rank + rope) - (key + value)) * sums.decode_pairs
    expanded = heads * (key + value) * ACTIVATION_BYTES - (rank + rope) * ACTIVATION_BYTES
    query = config["q_lora_rank"]
    split = query * key + rank * (nope + value) + value * hidden
    return {
        "flop.projections": {
            "a prompt expands its whole context": each * rank * (nope + value) * sums.prefill_before
        },
        "flop.attention": {
            "each query sees what is before it": -each * (key + value) * sums.surplus_pairs,
            "decoding multiplies in the latent space": absorbed,
        },
        "bytes.kv": {
            "queries are activations": -ACTIVATION_BYTES * heads * key * layers * sums.tokens,
            "expanded keys and values are activations": -expanded * layers * sums.prefill_context,
        },
        "parameters": {"": layers * (hidden * (query + rank + rope) + heads * split)},
    }


def _ffn(
    config: dict[str, Any], tp: int, ep: bool, tokens: int, weight: float, scale: float
) -> Parts:
    hidden, layers = config["hidden_size"], config["num_hidden_layers"]
    named = ("n_routed_experts", "num_local_experts", "num_experts")
    experts = next((config[k] for k in named if config.get(k)), 0)
    if not experts:
        return {}
    per_token = config["num_experts_per_tok"]
    inner = config.get("moe_intermediate_size") or config["intermediate_size"]
    dense_layers = config.get("first_k_dense_replace", 0)
    moe_layers = layers - dense_layers
    shared = config.get("n_shared_experts") or 0
    ranks = tp if ep else 1
    one = 3.0 * hidden * inner / (1 if ep else tp)
    whole = 3.0 * hidden * (config["intermediate_size"] * dense_layers)
    whole += 3.0 * hidden * inner * shared * moe_layers
    rows = tokens * per_token
    busiest = _busiest(rows, ranks, tokens * experts / ranks)
    touched = experts / ranks * (1.0 - (1.0 - per_token / experts) ** tokens)
    theirs = min(rows // ranks, experts // ranks)
    router = float(hidden * experts * moe_layers)
    # Spread experts: vLLM's metrics stop sharding the dense and shared MLPs as well.
    unsharded = -(1.0 - 1.0 / tp) * whole if ep else 0.0
    scaled = touched * one * moe_layers + whole / tp
    return {
        "flop.ffn": {
            "router": 2.0 * router * tokens,
            "busiest rank": 2.0 * one * moe_layers * (busiest - rows // ranks),
            "dense and shared MLPs stay sharded": 2.0 * unsharded * tokens,
        },
        "bytes.weights.ffn": {
            "router": ACTIVATION_BYTES * router,
            "distinct experts": weight * one * moe_layers * (touched - theirs),
            "dense and shared MLPs stay sharded": weight * unsharded,
            "scales": scale * scaled,
        },
    }


def _busiest(rows: int, ranks: int, most: float) -> float:
    """Mean of a rank, and sqrt(2 ln ranks) binomial standard deviations on top."""
    if ranks == 1:
        return float(rows)
    mean = rows / ranks
    deviation = math.sqrt(mean * (1.0 - 1.0 / ranks))
    return min(mean + math.sqrt(2.0 * math.log(ranks)) * deviation, float(rows), most)
