"""What is kept between steps: pages of the KV cache, and recurrent state.

After vLLM's ``config/cache.py``, ``platforms/interface.py`` and
``model_executor/models/config.py``.
"""

from __future__ import annotations

from kernelfit.kernel.asked import Asked, OverrideLog
from kernelfit.kernel.errors import InvalidArgument, Refusal
from kernelfit.kernel.integers import ceil_div
from kernelfit.kernel.model import LayerKind, dtype_bytes
from kernelfit.kernel.rules import (
    CPU_PAGE,
    DEFAULT_PAGE,
    LATENT_HYBRID_PAGE,
    LATENT_PAGES,
    LATENT_PAGES_FORCED,
    RECURRENT_PREFIX_CACHING,
    STATE_MODES,
    rule,
)

CACHE_DTYPES: tuple[tuple[str, str], ...] = (
    ("bfloat16", "bf16"),
    ("bf16", "bf16"),
    ("float16", "fp16"),
    ("fp16", "fp16"),
    ("fp32", "fp32"),
    ("fp8", "fp8"),
    ("fp8_e4m3", "fp8"),
    ("fp8_e5m2", "fp8"),
    ("fp8_ds_mla", "fp8_ds_mla"),
)
"""The engine's words for the KV cache's data type, and the core's."""

STATE_DTYPES: tuple[tuple[str, str], ...] = (
    ("float32", "fp32"),
    ("fp32", "fp32"),
    ("bfloat16", "bf16"),
    ("bf16", "bf16"),
    ("float16", "fp16"),
    ("fp16", "fp16"),
)

PACKED_LATENT = (512, 64)
"""Latent rank and rotary width that ``fp8_ds_mla`` is laid out for."""


def cache_dtype(asked: Asked, log: OverrideLog) -> str:
    """Choose the data type of the KV cache.

    Parameters
    ----------
    asked : Asked
        The pool and what it serves.
    log : OverrideLog
        Takes the overrides.

    Returns
    -------
    str
        The core's name.

    Raises
    ------
    Refusal
        When its page layout has no law.
    InvalidArgument
        When the layout does not fit the model.
    """
    wanted, model = asked.pool.cache_dtype, asked.model
    if wanted in (None, "auto"):
        if wanted is None:
            log.default("cache_dtype", model.dtype, "the KV cache follows the model's data type")
        return model.dtype
    resolved = dict(CACHE_DTYPES).get(wanted)
    if resolved is None:
        raise Refusal(
            "cache_dtype",
            wanted,
            "its page layout has no law; auto, bf16, fp16, fp8 or, for latent attention, "
            "fp8_ds_mla is accepted",
        )
    if resolved == "fp8_ds_mla":
        latents = [
            kind.attention.latent for kind in model.layers if kind.attention.kind != "linear"
        ]
        if any(m is None or (m.kv_rank, m.rope_head_dim) != PACKED_LATENT for m in latents):
            raise InvalidArgument(
                "cache_dtype", wanted, "auto or fp8: it packs latents of 512 and 64 elements only"
            )
    return resolved


def state_dtype(asked: Asked, log: OverrideLog) -> str:
    """Choose the data type of recurrent states.

    Parameters
    ----------
    asked : Asked
        The pool and what it serves.
    log : OverrideLog
        Takes the overrides.

    Returns
    -------
    str
        The model's own where it has no recurrent layer.

    Raises
    ------
    InvalidArgument
        When the word is unknown.
    Refusal
        When layers keep states of different types.
    """
    wanted, model, field = asked.pool.state_dtype, asked.model, "state_dtype"
    named = None
    if wanted not in (None, "auto"):
        named = dict(STATE_DTYPES).get(wanted)
        if named is None:
            words = ", ".join(word for word, _ in STATE_DTYPES)
            raise InvalidArgument(field, wanted, f"auto, {words}")
    own = sorted({k.attention.linear.state_dtype for k in model.layers if k.attention.linear})
    if not own:
        if named is not None and named != model.dtype:
            log.override(field, wanted, model.dtype, f"{model.name} keeps no recurrent state")
        return model.dtype
    if named is not None:
        return named
    if len(own) > 1:
        raise Refusal(field, wanted, f"layers keep states in {', '.join(own)}; state one type")
    log.default(field, own[0], "the model's own type of recurrent state")
    return own[0]


def state_mode(asked: Asked, log: OverrideLog) -> str:
    """Choose which recurrent states are kept for prefix caching.

    Parameters
    ----------
    asked : Asked
        The pool and what it serves.
    log : OverrideLog
        Takes the overrides.

    Returns
    -------
    str
        ``none`` or ``align``.

    Raises
    ------
    InvalidArgument
        When the release knows no such mode.

    Notes
    -----
    ``all`` needs kernels that write every page's state, which gated delta rules have
    not: the engine falls back to ``align``.
    """
    wanted, field = asked.pool.mamba_cache_mode, "mamba_cache_mode"
    known = rule(STATE_MODES, asked.version)
    if wanted is not None and wanted not in known:
        raise InvalidArgument(field, wanted, ", ".join(known))
    caching, reason = asked.pool.enable_prefix_caching, "prefix caching is off"
    if caching is None:
        caching = rule(RECURRENT_PREFIX_CACHING, asked.version)
        reason = "prefix caching is off by default for recurrent layers"
    if not asked.has("linear"):
        resolved, reason = "none", f"{asked.model.name} keeps no recurrent state"
    elif "align" not in known:
        resolved, reason = "none", "this release keeps no recurrent state for prefix caching"
    elif caching:
        resolved, reason = "align", "prefix caching keeps the states at page boundaries"
    else:
        resolved = "none"
    if wanted is None and asked.has("linear"):
        log.default(field, resolved, reason)
    elif wanted not in (None, resolved):
        log.override(field, wanted, resolved, reason)
    return resolved


def block_size(asked: Asked, cache: str, state: str, query: int, log: OverrideLog) -> int:
    """Choose the page of the KV cache.

    Parameters
    ----------
    asked : Asked
        The pool and what it runs on.
    cache : str
        Data type of the KV cache.
    state : str
        Data type of recurrent states.
    query : int
        Tokens that a decoding request schedules.
    log : OverrideLog
        Takes the overrides.

    Returns
    -------
    int
        Tokens of a page [tokens].

    Raises
    ------
    InvalidArgument
        When it is below 1.
    """
    wanted, field = asked.pool.block_size, "block_size"
    if wanted is not None and wanted < 1:
        raise InvalidArgument(field, wanted, ">= 1 token")
    unit, whose = _unit(asked)
    size = unit if wanted is None else wanted
    reason = ""
    forced = asked.has("mla") and not asked.on_cpu and rule(LATENT_PAGES_FORCED, asked.version)
    if forced and size % unit:
        size, reason = unit, f"this release's latent attention takes multiples of {unit}"
    held = _held_by_state(asked, cache, state, query, size)
    if held > size:
        size, reason = held, "one page of attention is to hold one recurrent state"
    if wanted is None:
        log.default(field, size, reason or whose)
    elif size != wanted:
        log.override(field, wanted, size, reason)
    return size


def _unit(asked: Asked) -> tuple[int, str]:
    if asked.on_cpu:
        if asked.has("mla"):
            return DEFAULT_PAGE, "latent attention on a CPU without matrix tiles (AMX)"
        return CPU_PAGE, "the engine's default on this platform"
    pages = dict(rule(LATENT_PAGES, asked.version))
    if asked.has("mla") and asked.generation in pages:
        return pages[asked.generation], f"latent attention's default kernels on {asked.chip.name}"
    return DEFAULT_PAGE, "the engine's default on this platform"


def _held_by_state(asked: Asked, cache: str, state: str, query: int, size: int) -> int:
    """Return the smallest page that holds a recurrent state; 0 where nothing has to.

    A state is the convolution's last inputs, in the model's type, and one matrix per
    value head; attention and states share one pool of pages of one size.
    """
    tp = asked.pool.tp
    states = [state_bytes(asked, kind, state, query) for kind in asked.model.layers]
    per_token = max(
        (_token_bytes(kind, cache, tp) for kind in asked.model.layers if not kind.attention.linear),
        default=0.0,
    )
    needed = max(states)
    if not needed or not per_token:
        return 0
    unit = size
    if asked.has("mla"):
        unit = max(unit, rule(LATENT_HYBRID_PAGE, asked.version))
    return unit * ceil_div(round(needed), round(unit * per_token))


def state_bytes(asked: Asked, kind: LayerKind, state: str, query: int) -> float:
    """Return the recurrent state of one sequence in one layer, on one rank.

    Parameters
    ----------
    asked : Asked
        The pool and what it serves.
    kind : LayerKind
        The kind of layer.
    state : str
        Data type of the state.
    query : int
        Tokens that a decoding request schedules.

    Returns
    -------
    float
        State of the convolution and of the delta rule [bytes]; 0 for other layers
        (``model_executor/layers/mamba/mamba_utils.py``).
    """
    n = kind.attention.linear
    if n is None:
        return 0.0
    tp = asked.pool.tp
    channels = (2 * n.key_heads * n.key_head_dim + n.value_heads * n.value_head_dim) / tp
    convolution = channels * (n.conv_kernel - 1 + query - 1) * dtype_bytes(asked.model.dtype)
    matrix = n.value_heads / tp * n.value_head_dim * n.key_head_dim
    return convolution + matrix * dtype_bytes(state)


def _token_bytes(kind: LayerKind, cache: str, tp: int) -> float:
    a = kind.attention
    if a.latent is not None:
        if cache == "fp8_ds_mla":
            return 656.0
        return (a.latent.kv_rank + a.latent.rope_head_dim) * dtype_bytes(cache)
    return 2.0 * max(1, a.kv_heads // tp) * a.head_dim * dtype_bytes(cache)
