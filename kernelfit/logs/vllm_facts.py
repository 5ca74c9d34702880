"""Facts that vLLM's start-up lines state about a run."""

from __future__ import annotations

import re
from collections.abc import Callable

_GRAPH_MODES = frozenset(("NONE", "PIECEWISE", "FULL", "FULL_DECODE_ONLY", "FULL_AND_PIECEWISE"))

FACT_LINE = re.compile(
    rb"Initializing an? .{0,4}LLM engine|non-default args|max_num_batched_tokens="
    rb"|Async scheduling not supported|Asynchronous scheduling is "
)
"""Finds the lines worth reading, so that the rest is never decoded."""

INITIALIZING = re.compile(r"Initializing an? (?:V[01] )?LLM engine \(v([^)\s]+)\)")


def _flag(word: str) -> bool:
    return word == "True"


_CONFIG: tuple[tuple[str, str, Callable[[str], object]], ...] = (
    ("tp", r"\btensor_parallel_size=(\d+)", int),
    ("pp", r"\bpipeline_parallel_size=(\d+)", int),
    ("dp", r"\bdata_parallel_size=(\d+)", int),
    ("max_model_len", r"\bmax_seq_len=(\d+)", int),
    ("dtype", r"\bdtype=(?:torch\.)?(\w+)", str),
    ("quantization", r"\bquantization='?(?!None)([\w.-]+)", str),
    ("cache_dtype", r"\bkv_cache_dtype='?(\w+)", str),
    ("enforce_eager", r"\benforce_eager=(True|False)", _flag),
    ("enable_prefix_caching", r"\benable_prefix_caching=(True|False)", _flag),
    ("disable_custom_all_reduce", r"\bdisable_custom_all_reduce=(True|False)", _flag),
    ("speculative_method", r"\bspeculative_config=SpeculativeConfig\(method='(\w+)'", str),
    # Only the last part of a path: folders may carry a person's name.
    ("model_name", r"\bmodel='(?:[^']*/)?([^'/]+)/?'", str),
)
_ARGUMENTS: tuple[tuple[str, str, Callable[[str], object]], ...] = (
    ("max_num_seqs", r"'max_num_seqs': (\d+)", int),
    ("block_size", r"'block_size': (\d+)", int),
    ("max_num_batched_tokens", r"'max_num_batched_tokens': (\d+)", int),
    ("async_scheduling", r"'async_scheduling': (True|False)", _flag),
    ("enable_expert_parallel", r"'enable_expert_parallel': (True|False)", _flag),
)
_BUDGET = re.compile(r"Chunked prefill is enabled with max_num_batched_tokens=(\d+)")
_SIZES = re.compile(r"'cudagraph_capture_sizes': \[([\d, ]*)\]")
_MODE = re.compile(r"'cudagraph_mode': <CUDAGraphMode\.(\w+)")


def facts_of(text: str) -> dict[str, object]:
    """Return the facts that one start-up line states.

    Parameters
    ----------
    text : str
        The line, without colours.

    Returns
    -------
    dict of str to object
        By the names of the run document; empty when it states none.
    """
    found: dict[str, object] = {}
    version = INITIALIZING.search(text)
    if version:
        found["engine_version"] = version.group(1)
        found |= _search(text, _CONFIG)
        mode = _MODE.search(text)
        if mode and mode.group(1) in _GRAPH_MODES:
            found["cudagraph_mode"] = mode.group(1)
        sizes = _SIZES.search(text)
        if sizes and sizes.group(1).strip():
            found["cudagraph_capture_sizes"] = [int(s) for s in sizes.group(1).split(",")]
    elif "non-default args" in text:
        found |= _search(text, _ARGUMENTS)
    elif "Async scheduling not supported" in text:
        found["async_scheduling"] = False
    elif "Asynchronous scheduling is " in text:
        found["async_scheduling"] = "Asynchronous scheduling is enabled" in text
    else:
        budget = _BUDGET.search(text)
        if budget:
            found["max_num_batched_tokens"] = int(budget.group(1))
    return found


def _search(
    text: str, patterns: tuple[tuple[str, str, Callable[[str], object]], ...]
) -> dict[str, object]:
    found: dict[str, object] = {}
    for name, pattern, convert in patterns:
        match = re.search(pattern, text)
        if match:
            found[name] = convert(match.group(1))
    return found
