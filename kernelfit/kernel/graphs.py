"""Which batches replay a captured graph.

After vLLM's ``config/vllm.py`` (``_set_cudagraph_sizes``) and ``config/compilation.py``
(``resolve_cudagraph_mode_and_sizes``, ``set_splitting_ops_for_v1``).
"""

from __future__ import annotations

from kernelfit.kernel.asked import Asked, OverrideLog
from kernelfit.kernel.errors import InvalidArgument
from kernelfit.kernel.integers import ceil_div
from kernelfit.kernel.rules import CAPTURES, GRAPHLESS_EXCHANGES, CaptureRule, rule

GRAPH_MODES: tuple[str, ...] = (
    "NONE",
    "PIECEWISE",
    "FULL",
    "FULL_DECODE_ONLY",
    "FULL_AND_PIECEWISE",
)
_FULL_DECODES = ("FULL", "FULL_DECODE_ONLY", "FULL_AND_PIECEWISE")

UNIFORM_ONLY: tuple[str, ...] = ("ampere", "ada", "blackwell")
"""Generations whose default attention kernels are captured whole for decode batches only:
FlashAttention 2 and 4 and FlashInfer. FlashAttention 3, of Hopper, takes any batch."""


def graph_mode(asked: Asked, exchange: str, log: OverrideLog) -> str:
    """Choose the graph mode.

    Parameters
    ----------
    asked : Asked
        The pool and what it runs on.
    exchange : str
        How data-parallel ranks exchange rows.
    log : OverrideLog
        Takes the overrides.

    Returns
    -------
    str
        One of ``GRAPH_MODES``.

    Raises
    ------
    InvalidArgument
        When the mode is unknown.

    Notes
    -----
    Modes fall to what the attention's kernels can be captured for: latent attention of
    Hopper and recurrent layers, like the generations in ``UNIFORM_ONLY``, only for
    batches whose requests schedule equally many tokens. Where the generation is not
    known, the request stands.
    """
    wanted, field = asked.pool.cudagraph_mode, "cudagraph_mode"
    if wanted is not None and wanted not in GRAPH_MODES:
        raise InvalidArgument(field, wanted, ", ".join(GRAPH_MODES))
    reason = ""
    if asked.on_cpu:
        reason = "a CPU has no graphs to replay"
    elif asked.pool.enforce_eager:
        reason = "enforce_eager switches graphs off"
    elif exchange in GRAPHLESS_EXCHANGES:
        reason = f"no graph can hold the exchange {exchange}"
    if reason:
        if wanted not in (None, "NONE"):
            log.override(field, wanted, "NONE", reason)
        elif wanted is None and exchange in GRAPHLESS_EXCHANGES and not asked.on_cpu:
            log.default(field, "NONE", reason)
        return "NONE"
    if wanted is None:
        log.default(field, "FULL_AND_PIECEWISE", "the engine's default")
        return "FULL_AND_PIECEWISE"
    if wanted == "FULL" and _uniform_only(asked):
        log.override(
            field,
            wanted,
            "FULL_AND_PIECEWISE",
            "its attention kernels are captured whole only for uniform decode batches",
        )
        return "FULL_AND_PIECEWISE"
    return wanted


def _uniform_only(asked: Asked) -> bool:
    if asked.has("linear"):
        return True
    if asked.has("mla"):
        return asked.generation in ("ampere", "ada", "hopper")
    return asked.generation in UNIFORM_ONLY


def default_capture_sizes(largest: int, coarse: bool = True) -> tuple[int, ...]:
    """Return the batch sizes that vLLM captures by default.

    Parameters
    ----------
    largest : int
        Largest captured size [tokens].
    coarse : bool
        Whether sizes from 256 on are 16 apart; before 0.12 they are 8 apart.

    Returns
    -------
    tuple of int
        1, 2, 4, then every 8 below 256, then every 16 [tokens].
    """
    fine = 256 if coarse else largest + 1
    sizes = [1, 2, 4, *range(8, fine, 8), *range(256, largest + 1, 16)]
    return tuple(sorted({s for s in sizes if s <= largest}))


def capture_sizes(
    asked: Asked, mode: str, limits: tuple[int, int], query: int, log: OverrideLog
) -> tuple[int, ...]:
    """Choose the batch sizes that are captured.

    Parameters
    ----------
    asked : Asked
        The pool and what it runs on.
    mode : str
        The graph mode.
    limits : (int, int)
        Most requests and most tokens of a step.
    query : int
        Tokens that a decoding request schedules.
    log : OverrideLog
        Takes the overrides.

    Returns
    -------
    tuple of int
        Ascending [tokens]; empty without graphs.

    Raises
    ------
    InvalidArgument
        When a size is not positive, when no size is left, or when the largest stated
        size is not ``max_cudagraph_capture_size``.

    Notes
    -----
    With speculation, sizes become multiples of a request's tokens. From 0.32 on the
    engine rounds so only for decode batches; the one list here is theirs, and pads a
    mixed batch by less than one request more.
    """
    pool = asked.pool
    for size in (*pool.cudagraph_capture_sizes, pool.max_cudagraph_capture_size or 1):
        if size < 1:
            raise InvalidArgument("cudagraph_capture_sizes", size, ">= 1 token")
    if mode == "NONE":
        return ()
    how = rule(CAPTURES, asked.version)
    if pool.cudagraph_capture_sizes:
        sizes = _stated(asked, limits[1], log)
    else:
        sizes = _default(asked, how, limits, query, log)
    if query > 1 and how.rounds and mode in _FULL_DECODES:
        rounded = _rounded(sizes, query)
        if rounded != sizes:
            log.override(
                "cudagraph_capture_sizes",
                _told(sizes),
                _told(rounded),
                f"multiples of the {query} tokens that a speculating request schedules",
            )
        return rounded
    return sizes


def _stated(asked: Asked, tokens: int, log: OverrideLog) -> tuple[int, ...]:
    pool, field = asked.pool, "cudagraph_capture_sizes"
    wanted = pool.cudagraph_capture_sizes
    sizes = tuple(sorted({size for size in wanted if size <= tokens}))
    if not sizes:
        raise InvalidArgument(
            field, wanted, f"at least one size of at most max_num_batched_tokens = {tokens}"
        )
    if pool.max_cudagraph_capture_size not in (None, sizes[-1]):
        raise InvalidArgument(
            "max_cudagraph_capture_size",
            pool.max_cudagraph_capture_size,
            f"the largest of cudagraph_capture_sizes, {sizes[-1]}",
        )
    if set(sizes) != set(wanted):
        log.override(
            field, wanted, sizes, f"no step is larger than max_num_batched_tokens = {tokens}"
        )
    return sizes


def _default(
    asked: Asked, how: CaptureRule, limits: tuple[int, int], query: int, log: OverrideLog
) -> tuple[int, ...]:
    seqs, tokens = limits
    wanted = asked.pool.max_cudagraph_capture_size
    ceiling = how.blackwell_ceiling if asked.generation == "blackwell" else how.ceiling
    width = query if how.per_query else 1
    largest = min(seqs * width * 2, ceiling) if wanted is None else wanted
    decodes: set[int] = set()
    if wanted is None and query > 1 and how.with_decodes:
        counts = {*default_capture_sizes(min(seqs, ceiling)), min(seqs, ceiling)}
        decodes = {n * query for n in counts if n * query <= largest}
    elif wanted is None and query == 1 and how.with_seqs and seqs <= largest:
        decodes = {seqs}
    largest = min(largest, tokens)
    sizes = {*default_capture_sizes(largest, how.coarse), *(s for s in decodes if s <= tokens)}
    if how.with_limit and tokens <= largest:
        sizes.add(tokens)
    ordered = tuple(sorted(sizes))
    reason = "1, 2, 4, every 8, then every 16 up to min(2 x max_num_seqs, the engine's ceiling)"
    log.default("cudagraph_capture_sizes", f"default list up to {ordered[-1]}", reason)
    if wanted is not None and wanted != ordered[-1]:
        log.override(
            "max_cudagraph_capture_size", wanted, ordered[-1], "the largest size of the list"
        )
    return ordered


def _told(sizes: tuple[int, ...]) -> str:
    """Return sizes as text; two lists that differ read differently."""
    return ", ".join(str(size) for size in sizes)


def _rounded(sizes: tuple[int, ...], query: int) -> tuple[int, ...]:
    up = {ceil_div(size, query) * query for size in sizes}
    kept = tuple(sorted(size for size in up if size <= sizes[-1]))
    if kept:
        return kept
    if query <= sizes[-1]:
        return (query,)
    raise InvalidArgument(
        "num_speculative_tokens",
        query - 1,
        f"at most {sizes[-1] - 1}, so that one request fits the largest captured size",
    )
