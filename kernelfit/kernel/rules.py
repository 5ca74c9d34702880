"""What vLLM decides by itself, as data keyed by the first release that does it.

Every minor release from 0.11 to 0.32 was read (the released wheels' ``vllm/config``,
``vllm/engine/arg_utils.py``, ``vllm/platforms``, ``vllm/v1/executor`` and
``vllm/distributed/device_communicators/custom_all_reduce.py``; attention back ends of
0.32.0 only), so "since" means: in this release and not in the one before. Nothing here
rests on release notes. A release outside that span takes the nearest rules and the
resolution says so.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")
Version = tuple[int, ...]
Since = tuple[tuple[Version, T], ...]

OLDEST: Version = (0, 11)
NEWEST: Version = (0, 32)

GIB = 1 << 30

EXCHANGE_DEFAULT = "allgather_reducescatter"
"""How data-parallel ranks exchange rows unless told otherwise (``config/parallel.py``)."""

CUSTOM_ALL_REDUCE: Since[tuple[int, ...]] = (
    ((0, 11), (2, 4, 6, 8)),
    ((0, 27), (2, 4, 6, 8, 16)),
)
CUSTOM_ALL_REDUCE_WIDTHS: tuple[int, ...] = CUSTOM_ALL_REDUCE[-1][1]
"""Tensor-parallel widths that the newest custom all-reduce supports."""

ASYNC_DEFAULT: Since[bool] = (((0, 11), False), ((0, 14), True))
ASYNC_OFF_ON_CPU: Since[bool] = (((0, 11), False), ((0, 14), True))
"""Whether a CPU switches it off even when asked for (``platforms/cpu.py``)."""
ASYNC_EXECUTORS: Since[tuple[str, ...]] = (
    ((0, 11), ("mp", "uni", "external_launcher")),
    # From here Ray's workers are those of "mp" unless an environment variable says no.
    ((0, 21), ("mp", "uni", "external_launcher", "ray")),
)
_HEADS = ("eagle", "eagle3", "mtp")
ASYNC_SPECULATION: Since[tuple[str, ...]] = (
    ((0, 11), ()),
    ((0, 12), _HEADS),
    ((0, 18), (*_HEADS, "extract_hidden_states", "ngram_gpu", "draft_model")),
    ((0, 20), (*_HEADS, "extract_hidden_states", "ngram_gpu", "draft_model", "dflash")),
    ((0, 25), (*_HEADS, "extract_hidden_states", "ngram_gpu", "draft_model", "dflash", "dspark")),
)
"""Speculative methods that asynchronous scheduling goes with."""

CASCADE_DEFAULT: Since[bool] = (((0, 11), True), ((0, 18), False))
"""Whether cascade attention may be used unless told otherwise (``config/model.py``)."""

MEMORY_SHARE: Since[float] = (((0, 11), 0.9), ((0, 20), 0.92))
"""Share of a GPU's memory that the engine takes [1] (``config/cache.py``)."""
CPU_MEMORY_SHARE = 0.9
"""The same for a CPU, whatever the release [1]: calibrations of recorded CPU runs were
made with it, and on a CPU the share only bounds the number of requests."""


@dataclass(frozen=True, slots=True)
class BatchLimit:
    """Default limits of a step for GPUs of one memory size, behind the API server.

    Attributes
    ----------
    memory_bytes : int
        Smallest memory that it holds for [bytes].
    spared : str
        A word in a GPU's name that it does not hold for; empty means none.
    requests : int
        Most requests in a step.
    tokens : int
        Most tokens in a step.
    """

    memory_bytes: int
    spared: str
    requests: int
    tokens: int


_SMALL = BatchLimit(0, "", 256, 2048)
_LARGE = BatchLimit(70 * GIB, "a100", 1024, 8192)
BATCH_LIMITS: Since[tuple[BatchLimit, ...]] = (
    ((0, 11), (_LARGE, _SMALL)),
    ((0, 28), (BatchLimit(160 * GIB, "", 1024, 16384), _LARGE, _SMALL)),
)
CPU_BATCH_LIMIT = BatchLimit(0, "", 128, 2048)
"""Per tensor-parallel rank."""
SHORT_EXCHANGES: Since[tuple[str, ...]] = (
    ((0, 11), ()),
    ((0, 20), ("deepep_low_latency", "nixl_ep")),
)
"""Exchanges whose fixed buffers bring the default of tokens down to ``SHORT_TOKENS``."""
SHORT_TOKENS = 256

_FIRST = ("deepep_high_throughput", "deepep_low_latency")
_MORI = ("mori_high_throughput", "mori_low_latency")
_FLASHINFER = ("flashinfer_nvlink_one_sided", "flashinfer_nvlink_two_sided")
_SINCE_18 = (EXCHANGE_DEFAULT, *_FIRST, *_FLASHINFER, "flashinfer_all2allv", "nixl_ep")
EXCHANGES: Since[tuple[str, ...]] = (
    ((0, 11), (EXCHANGE_DEFAULT, "naive", "pplx", *_FIRST, "flashinfer_all2allv")),
    ((0, 15), (EXCHANGE_DEFAULT, "naive", "pplx", *_FIRST, "flashinfer_all2allv", "mori")),
    ((0, 18), (*_SINCE_18, "naive", "pplx", "mori")),
    ((0, 23), (*_SINCE_18, "naive", "pplx", *_MORI)),
    ((0, 24), (*_SINCE_18, "naive", "pplx", *_MORI, "deepep_v2")),
    ((0, 31), (*_SINCE_18, "naive", "pplx", *_MORI, "deepep_v2", "moonep")),
)
"""Names that the engine takes for ``all2all_backend``."""
EXCHANGES_REMOVED: Since[tuple[str, ...]] = (
    ((0, 11), ()),
    ((0, 17), ("pplx",)),
    ((0, 19), ("pplx", "naive")),
)
"""Names still taken, for which the default runs instead."""
SEQUENCE_PARALLEL_EXCHANGES: Since[tuple[str, ...]] = (
    ((0, 11), (EXCHANGE_DEFAULT, "naive", *_FIRST)),
    ((0, 15), (EXCHANGE_DEFAULT, "naive", *_FIRST, "mori")),
    ((0, 18), (EXCHANGE_DEFAULT, "naive", *_FIRST, "mori", "nixl_ep")),
    ((0, 19), (EXCHANGE_DEFAULT, *_FIRST, "mori", "nixl_ep")),
    ((0, 23), (EXCHANGE_DEFAULT, *_FIRST, *_MORI, "nixl_ep")),
    ((0, 29), (EXCHANGE_DEFAULT, *_FIRST, *_MORI, "nixl_ep", _FLASHINFER[0])),
    ((0, 31), (EXCHANGE_DEFAULT, *_FIRST, *_MORI, "nixl_ep", _FLASHINFER[0], "deepep_v2")),
)
"""Exchanges before which tokens are split over the tensor-parallel ranks."""
GRAPHLESS_EXCHANGES: tuple[str, ...] = ("deepep_high_throughput",)
"""Exchanges that no graph can hold (``config/compilation.py``, every release read)."""


@dataclass(frozen=True, slots=True)
class CaptureRule:
    """How a release chooses the batch sizes that it captures as graphs.

    Attributes
    ----------
    ceiling, blackwell_ceiling : int
        Largest size by default [tokens], elsewhere and on data-centre Blackwell.
    coarse : bool
        Whether sizes from 256 on are 16 apart instead of 8.
    per_query : bool
        Whether the default ceiling counts the tokens of a speculating request.
    rounds : bool
        Whether sizes become multiples of those tokens.
    with_limit : bool
        Whether ``max_num_batched_tokens`` is captured too.
    with_decodes : bool
        Whether whole batches of speculating requests are captured too.
    with_seqs : bool
        Whether ``max_num_seqs`` is captured too.
    """

    ceiling: int = 512
    blackwell_ceiling: int = 512
    coarse: bool = True
    per_query: bool = True
    rounds: bool = True
    with_limit: bool = True
    with_decodes: bool = True
    with_seqs: bool = True


_PLAIN = {"with_decodes": False, "with_seqs": False}
CAPTURES: Since[CaptureRule] = (
    (
        (0, 11),
        CaptureRule(coarse=False, per_query=False, rounds=False, with_limit=False, **_PLAIN),
    ),
    ((0, 12), CaptureRule(per_query=False, with_limit=False, **_PLAIN)),
    ((0, 13), CaptureRule(with_limit=False, **_PLAIN)),
    ((0, 21), CaptureRule(**_PLAIN)),
    ((0, 28), CaptureRule(blackwell_ceiling=1024, **_PLAIN)),
    ((0, 29), CaptureRule(blackwell_ceiling=1024, with_seqs=False)),
    ((0, 31), CaptureRule(blackwell_ceiling=1024)),
)

DEFAULT_PAGE = 16
CPU_PAGE = 128
"""Tokens of a KV page unless told otherwise (``config/cache.py``, ``platforms/cpu.py``)."""
LATENT_PAGES: Since[tuple[tuple[str, int], ...]] = (
    ((0, 11), (("hopper", 64), ("blackwell", 128))),
    ((0, 15), (("hopper", 64), ("blackwell", 64))),
    ((0, 18), (("hopper", 16), ("blackwell", 32))),
)
"""Pages of latent attention by generation [tokens]: FlashMLA, then FlashAttention's MLA on
Hopper; CUTLASS, then FlashInfer on Blackwell. Other generations keep ``DEFAULT_PAGE``."""
LATENT_PAGES_FORCED: Since[bool] = (((0, 11), True), ((0, 18), False))
"""Whether a page that was asked for is raised to a multiple of that."""
LATENT_HYBRID_PAGE: Since[int] = (((0, 11), 64), ((0, 27), 128))
"""Unit of the page where latent and recurrent layers share a pool [tokens]."""

STATE_MODES: Since[tuple[str, ...]] = (
    ((0, 11), ("none",)),
    ((0, 15), ("none", "align", "all")),
    ((0, 32), ("none", "align")),
)
RECURRENT_PREFIX_CACHING: Since[bool] = (((0, 11), False), ((0, 26), True))
"""Whether a model with recurrent layers caches prefixes unless told otherwise."""

GENERATIONS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("ampere", ("a100", "a800", "a40", "a30", "a10", "a10g")),
    ("ada", ("l40s", "l40", "l20", "l4")),
    ("hopper", ("h100", "h200", "h800", "h20", "gh200")),
    ("blackwell", ("b100", "b200", "b300", "gb200", "gb300")),
)
"""Words in a GPU's name, since a datasheet states no compute capability."""


def parse_version(text: str) -> Version:
    """Return the leading numbers of a version.

    Parameters
    ----------
    text : str
        For example ``0.32.0`` or ``0.20.1.dev3``.

    Returns
    -------
    tuple of int
        For example ``(0, 32, 0)``; empty where the text starts with no number.
    """
    numbers: list[int] = []
    for part in text.lstrip("v").split("."):
        if not part.isdigit():
            break
        numbers.append(int(part))
    return tuple(numbers)


def rules_for(text: str) -> tuple[Version, str]:
    """Return the release whose rules an engine's version takes.

    Parameters
    ----------
    text : str
        The engine's version; empty where unstated.

    Returns
    -------
    (tuple of int, str)
        Major and minor number, and why they are not the engine's own; empty where
        they are.
    """
    stated = parse_version(text)[:2]
    if len(stated) < 2:
        return NEWEST, "no release is stated, so the newest rules known are taken"
    if stated > NEWEST:
        return NEWEST, "a release after the newest one whose rules were read"
    if stated < OLDEST:
        return OLDEST, "a release before the oldest one whose rules were read"
    return stated, ""


def rule(table: Since[T], version: Version) -> T:
    """Return what a release does.

    Parameters
    ----------
    table : tuple of (tuple of int, T)
        First releases, ascending, and what holds since.
    version : tuple of int
        The release.

    Returns
    -------
    T
        The last entry that is not newer than the release; the first where all are.
    """
    found = table[0][1]
    for since, value in table:
        if since <= version:
            found = value
    return found


def generation(name: str) -> str:
    """Return the generation of a GPU by its name.

    Parameters
    ----------
    name : str
        The chip document's name.

    Returns
    -------
    str
        One of ``GENERATIONS``; empty where no word of it is in the name.
    """
    words = set(re.split(r"[^a-z0-9]+", name.lower()))
    for label, known in GENERATIONS:
        if words.intersection(known):
            return label
    return ""
