"""Elementwise passes over activations: what they read and write."""

from __future__ import annotations

from kernelfit.kernel.attention import kv_heads_per_rank
from kernelfit.kernel.model import LayerKind, Model
from kernelfit.kernel.resolved import Resolution

LOGIT_BYTES = 12.0
"""Bytes moved per logit: written and read in 16 bit, written in 32 bit, read once to find
the largest. Penalties and top-k or top-p sampling pass over them more often: not counted."""


def elementwise_elements(model: Model, kind: LayerKind, resolution: Resolution) -> float:
    """Return the elements that elementwise passes of one layer move per token.

    Parameters
    ----------
    model : Model
        The model.
    kind : LayerKind
        The kind of layer.
    resolution : Resolution
        What will run.

    Returns
    -------
    float
        Elements read and written per token on one rank [1]: two norms with their residual
        additions (read twice, written twice: 8 hidden), rotary embedding of queries and
        keys (read and written), attention's own reads and writes of queries, new keys and
        values and its output, and the activation function between the MLP's matrices
        (the inputs read, the output written).
    """
    tp = resolution.tensor_parallel_width
    a = kind.attention
    elements = 8.0 * model.hidden
    if a.latent is not None:
        rotary = a.latent.rope_head_dim * (a.heads / tp + 1)
        elements += 2.0 * (a.latent.query_rank + a.latent.kv_rank + rotary)
    elif a.linear is not None:
        n = a.linear
        keys, values = n.key_heads * n.key_head_dim, n.value_heads * n.value_head_dim
        # The convolution reads and writes its channels; the gated norm reads two of
        # value width and writes one.
        elements += (2.0 * (2 * keys + values) + 3.0 * values) / tp
    else:
        # Rotary embedding, and what attention reads (queries) and writes (its output, and
        # keys and values as they come out of the projections).
        elements += 4.0 * a.head_dim * (a.heads / tp + kv_heads_per_rank(kind, tp))
    if kind.mlp is not None:
        elements += (3.0 if kind.mlp.gated else 2.0) * kind.mlp.intermediate / tp
    if kind.experts is not None:
        e = kind.experts
        gate = 3.0 if e.gated else 2.0
        # Routed copies are gathered and scattered once each: 4 hidden per expert.
        # Sharded experts see every routed row whole; spread ones only their share of them.
        width = resolution.expert_parallel_width
        dp = resolution.data_parallel_width
        share = max(tp * dp, width)
        elements += dp * e.per_token * gate * e.intermediate / share
        elements += dp * e.per_token * 4.0 * model.hidden / width
        elements += gate * e.shared_intermediate / tp
    return elements
