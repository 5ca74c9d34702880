"""Bytes of the KV cache and of recurrent states, in the pages that vLLM gives them.

Read off vLLM 0.32.0: ``v1/kv_cache_interface.py`` (sizes of pages),
``v1/core/kv_cache_utils.py`` (layers gathered into groups of one page size),
``v1/core/single_type_kv_cache_manager.py`` (pages that leave a window are freed) and
``platforms/interface.py`` (pages of a hybrid model).
"""

from __future__ import annotations

from dataclasses import dataclass

from kernelfit.kernel.dtypes import dtype_bytes
from kernelfit.kernel.errors import InvalidArgument, Refusal
from kernelfit.kernel.integers import ceil_div
from kernelfit.kernel.layers import Attention
from kernelfit.kernel.model import Model
from kernelfit.kernel.resolved import Resolution

PACKED_LATENT = "fp8_ds_mla"
"""Cache data type that keeps a latent of 512 in 8 bit with 4 scales, and 64 rotary values in
16 bit: 512 + 4 x 4 + 64 x 2 = 656 bytes per token and layer; vLLM ``flashmla_sparse.py``."""

STATE_BLOCKS: tuple[tuple[str, int], ...] = (("none", 1), ("align", 2), ("all", 0))
"""Recurrent states of a running sequence by ``mamba_cache_mode``, whatever its length: the
current one, or that of the last page boundary beside it; vLLM ``MambaSpec``. Under ``all``
(engines before 0.32) every page of tokens keeps one instead."""


def token_bytes(attention: Attention, resolution: Resolution) -> int:
    """Return the KV bytes of one token in one layer on one rank.

    Parameters
    ----------
    attention : Attention
        The layer's attention.
    resolution : Resolution
        What will run.

    Returns
    -------
    int
        Keys and values of the rank's heads, at least one of them [bytes]; for ``mla``
        the one latent and rotary part, which every rank holds whole; 0 for ``linear``.

    Raises
    ------
    InvalidArgument
        When the cache's data type is unknown, or does not fit the attention.
    """
    if attention.linear is not None:
        return 0
    if resolution.cache_dtype == PACKED_LATENT:
        m = attention.latent
        if m is None or (m.kv_rank, m.rope_head_dim) != (512, 64):
            raise InvalidArgument(
                "cache_dtype", PACKED_LATENT, "only for a latent of 512 with 64 rotary values"
            )
        return 656
    element = dtype_bytes(resolution.cache_dtype)
    if attention.latent is not None:
        return round((attention.latent.kv_rank + attention.latent.rope_head_dim) * element)
    heads = max(1, attention.kv_heads // resolution.tensor_parallel_width)
    return round(2 * heads * attention.head_dim * element)


def state_bytes(attention: Attention, model: Model, resolution: Resolution) -> int:
    """Return the bytes of one recurrent state of one layer on one rank.

    Parameters
    ----------
    attention : Attention
        The layer's attention.
    model : Model
        The model.
    resolution : Resolution
        What will run.

    Returns
    -------
    int
        The last inputs of the convolution in the model's data type, and one matrix per
        value head in the state's [bytes]; both are split by heads. 0 for other kinds.

    Raises
    ------
    InvalidArgument
        When the ranks do not divide the heads, or the state's data type is unknown.
    """
    n = attention.linear
    if n is None:
        return 0
    tp = resolution.tensor_parallel_width
    if n.key_heads % tp or n.value_heads % tp:
        raise InvalidArgument(
            "tp", tp, f"a divisor of {n.key_heads} key and {n.value_heads} value heads"
        )
    proposed = resolution.decode_query_tokens - 1
    channels = (2 * n.key_heads * n.key_head_dim + n.value_heads * n.value_head_dim) // tp
    convolution = channels * (n.conv_kernel - 1 + proposed) * dtype_bytes(model.dtype)
    matrix = n.value_heads // tp * n.value_head_dim * n.key_head_dim
    return round(convolution + matrix * dtype_bytes(resolution.state_dtype))


def page_tokens(model: Model, resolution: Resolution) -> int:
    """Return the tokens of one page of the KV cache.

    Parameters
    ----------
    model : Model
        The model.
    resolution : Resolution
        What will run.

    Returns
    -------
    int
        ``block_size`` [tokens]; where layers with and without recurrent state share a
        cache, the smallest multiple of it whose page holds a state.
    """
    state = max(state_bytes(kind.attention, model, resolution) for kind in model.layers)
    token = max(token_bytes(kind.attention, resolution) for kind in model.layers)
    size = resolution.block_size
    if not state or not token:
        return size
    return size * max(1, ceil_div(state, size * token))


@dataclass(frozen=True, slots=True)
class _Group:
    """Layers whose pages are given and freed together."""

    kind: str
    window_tokens: int
    layers: int
    page_bytes: int


def _padded(counts: list[int]) -> list[int]:
    """Layers of each kind, filled up to whole groups of one size.

    The size is that of the rarest kind, or of the commonest where that is less than half
    as many again.
    """
    size = min(counts)
    if max(counts) < 1.5 * size:
        size = max(counts)
    return [ceil_div(count, size) * size for count in counts]


def _groups(model: Model, resolution: Resolution) -> tuple[_Group, ...]:
    page = page_tokens(model, resolution)
    layers: dict[tuple[str, int], int] = {}
    sizes: dict[tuple[str, int], int] = {}
    widths: set[int] = set()
    for kind in model.layers:
        a = kind.attention
        key = ("full" if a.kind == "mla" else a.kind, a.window_tokens)
        width = token_bytes(a, resolution)
        layers[key] = layers.get(key, 0) + kind.count
        sizes[key] = sizes.get(key, 0) + kind.count * width
        if width:
            widths.add(width)
    if len(layers) == 1:
        ((kind_, window), count) = next(iter(layers.items()))
        if kind_ == "linear":
            width = max(state_bytes(k.attention, model, resolution) for k in model.layers)
            return (_Group(kind_, window, count, width),)
        # Layers of one kind are given pages together, whatever each one's width.
        return (_Group(kind_, window, 1, sizes[kind_, window] * page),)
    if len(widths) > 1:
        raise Refusal(
            "layers",
            ", ".join(str(width) for width in sorted(widths)),
            f"attention kinds of {model.name} keep unlike bytes per token, and how their "
            "pages are made alike is not modelled; kinds with equal heads are accepted",
        )
    counts = _padded(list(layers.values()))
    size = page * widths.pop()
    return tuple(
        _Group(kind_, window, count, size)
        for (kind_, window), count in zip(layers, counts, strict=True)
    )


def _window_pages(window_tokens: int, page: int, resolution: Resolution) -> int:
    """Most pages that a window keeps while a sequence decodes.

    With ``a`` tokens scheduled and not yet settled, all but the last ``window - 1 + a``
    tokens are past. Of ``n`` tokens ``ceil(n/p) - floor((n - window + 1 - a)/p)`` pages
    are then held, which is at most ``ceil((window + a - 2)/p) + 1``.
    """
    steps = 2 if resolution.async_scheduling else 1
    unsettled = resolution.decode_query_tokens * steps
    return ceil_div(window_tokens + unsettled - 2, page) + 1


def sequence_bytes(model: Model, resolution: Resolution, tokens: int) -> int:
    """Return the cache bytes of one sequence that grow with its length.

    Parameters
    ----------
    model : Model
        The model.
    resolution : Resolution
        What will run.
    tokens : int
        Length of the sequence [tokens].

    Returns
    -------
    int
        Bytes on one rank in whole pages [bytes]. A sliding window keeps the pages that it
        can touch, and no more, however long the sequence. Layers without a token's KV
        add nothing, unless the resolution keeps their states for every page.

    Raises
    ------
    InvalidArgument
        When ``tokens`` is negative.
    Refusal
        When attention kinds of unlike width share a cache.

    Notes
    -----
    The window's pages are those of a decoding sequence at its fullest. One being
    prefilled holds the pages of the chunk in flight as well; of those there is one batch
    at a time, not one per sequence.
    """
    if tokens < 0:
        raise InvalidArgument("tokens", tokens, ">= 0 tokens")
    page = page_tokens(model, resolution)
    total = 0
    for group in _groups(model, resolution):
        pages = ceil_div(tokens, page)
        if group.kind == "sliding":
            pages = min(pages, _window_pages(group.window_tokens, page, resolution))
        if group.kind == "linear" and resolution.mamba_cache_mode != "all":
            pages = 0
        total += group.layers * pages * group.page_bytes
    return total


def sequence_state_bytes(model: Model, resolution: Resolution) -> int:
    """Return the cache bytes of one sequence whatever its length.

    Parameters
    ----------
    model : Model
        The model.
    resolution : Resolution
        What will run.

    Returns
    -------
    int
        Pages of the recurrent states on one rank [bytes]: ``STATE_BLOCKS`` of them in
        every linear layer, and one more per token proposed; 0 for pure attention.

    Raises
    ------
    InvalidArgument
        When ``mamba_cache_mode`` is unknown.
    """
    modes = dict(STATE_BLOCKS)
    if resolution.mamba_cache_mode not in modes:
        raise InvalidArgument("mamba_cache_mode", resolution.mamba_cache_mode, ", ".join(modes))
    blocks = modes[resolution.mamba_cache_mode] + resolution.decode_query_tokens - 1
    groups = (g for g in _groups(model, resolution) if g.kind == "linear")
    return sum(group.layers * group.page_bytes for group in groups) * blocks
