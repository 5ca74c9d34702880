"""Which widths a model can be sharded by.

After vLLM's ``config/model.py``, its model definitions and ``layers/fused_moe``.
"""

from __future__ import annotations

from kernelfit.kernel.asked import Asked
from kernelfit.kernel.errors import InvalidArgument
from kernelfit.kernel.integers import ceil_div
from kernelfit.kernel.model import Attention, LayerKind
from kernelfit.kernel.parallel import asked_exchange, sequence_parallel

VOCAB_PADDING = 64
"""Rows that the embedding is padded to a multiple of (``vocab_parallel_embedding.py``)."""


def check_widths(asked: Asked) -> None:
    """Refuse widths that the engine would not start with.

    Parameters
    ----------
    asked : Asked
        The pool and what it serves.

    Raises
    ------
    InvalidArgument
        When a width does not divide what it shards.
    """
    pool, tp = asked.pool, asked.pool.tp
    padded = ceil_div(asked.model.vocab, VOCAB_PADDING) * VOCAB_PADDING
    _divides("tp", tp, padded, "rows of the padded vocabulary")
    for kind in asked.model.layers:
        _check_attention(tp, kind.attention)
        if kind.mlp is not None:
            _divides("tp", tp, kind.mlp.intermediate, "elements of the MLP width")
        if kind.experts is not None:
            _check_experts(asked, kind)
    if pool.nodes == 1 and asked.ranks > asked.pool_gpus:
        field, value = ("tp", tp) if tp > asked.pool_gpus else ("dp", pool.dp)
        allowed = f"tp x dp of 1 to {asked.pool_gpus} GPUs in one node; more need nodes > 1"
        raise InvalidArgument(field, value, allowed)


def _divides(field: str, width: int, whole: int, what: str) -> None:
    if whole % width:
        raise InvalidArgument(field, width, f"a divisor of {whole} {what}")


def _check_attention(tp: int, a: Attention) -> None:
    if a.linear is not None:
        _divides("tp", tp, a.linear.key_heads, "key heads of linear attention")
        _divides("tp", tp, a.linear.value_heads, "value heads of linear attention")
        return
    _divides("tp", tp, a.heads, "query heads")
    if a.latent is None and a.kv_heads % tp and tp % a.kv_heads:
        raise InvalidArgument("tp", tp, f"a divisor or a multiple of {a.kv_heads} key-value heads")


def _check_experts(asked: Asked, kind: LayerKind) -> None:
    pool, e = asked.pool, kind.experts
    assert e is not None
    width, field = asked.ranks, "tp" if pool.dp == 1 else "dp"
    if pool.enable_expert_parallel:
        if width > e.experts:
            allowed = f"tp x dp of at most {e.experts} experts, so that every rank has one"
            raise InvalidArgument(field, getattr(pool, field), allowed)
        physical = e.experts + (pool.num_redundant_experts or 0)
        if pool.enable_eplb and physical % width:
            allowed = f"a number that makes {physical} experts a multiple of {width} ranks"
            raise InvalidArgument("num_redundant_experts", pool.num_redundant_experts, allowed)
    elif e.intermediate % width:
        allowed = f"tp x dp that divides an expert's width of {e.intermediate}"
        raise InvalidArgument(field, getattr(pool, field), allowed)
    # Where tokens are split over the ranks, the shared expert is whole on each of them.
    if not sequence_parallel(asked, asked_exchange(asked)):
        _divides("tp", pool.tp, e.shared_intermediate, "elements of the shared experts' width")
