"""Facts that vLLM's start-up lines state about a run."""

from __future__ import annotations

import re
from collections.abc import Callable

_GRAPH_MODES = frozenset(("NONE", "PIECEWISE", "FULL", "FULL_DECODE_ONLY", "FULL_AND_PIECEWISE"))

FACT_WORDS: tuple[str, ...] = (
    "LLM engine (v",
    "non-default args",
    "max_num_batched_tokens=",
    "Async scheduling not supported",
    "Asynchronous scheduling is ",
    "KV cache size: ",
    "GPU blocks: ",
    "cuda blocks: ",
    "num_gpu_blocks is: ",
    "Maximum concurrency for ",
    "Available KV cache memory: ",
    "model weights took ",
    "Model loading took ",
    "Graph capturing finished in ",
    "attention backend out of ",
    " backend on V1 engine",
    "Custom allreduce is disabled",
    "init engine (profile",
)
"""One of these stands in every line that states a fact, so that the rest is never decoded."""

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


_STARTUP: tuple[tuple[re.Pattern[str], tuple[tuple[str, Callable[[str], object]], ...]], ...] = (
    (
        re.compile(r"KV cache size: ([\d,]{1,20}) tokens"),
        (("kv_cache_tokens", lambda t: int(t.replace(",", ""))),),
    ),
    (
        re.compile(r"Maximum concurrency for [\d,]{1,20} tokens per request: ([\d.]{1,12})x"),
        (("max_concurrency", float),),
    ),
    (
        re.compile(r"# (?:GPU|cuda) blocks: (\d{1,12}), # (?:CPU|cpu) blocks: (\d{1,12})"),
        (("kv_blocks", int), ("cpu_kv_blocks", int)),
    ),
    (
        re.compile(r"num_gpu_blocks is: (\d{1,12})"),
        (("kv_blocks", int),),
    ),
    (
        re.compile(r"Available KV cache memory: ([\d.]{1,12}) GiB"),
        (("kv_cache_bytes", lambda t: float(t) * 2**30),),
    ),
    (
        re.compile(
            r"(?:model weights|Model loading) took ([\d.]{1,12}) Gi?B(?: memory)?"
            r"(?: and ([\d.]{1,12}) seconds)?"
        ),
        # The unit printed up to 0.6 as GB is 2**30 bytes as well.
        (("weights_bytes", lambda t: float(t) * 2**30), ("weights_load_s", float)),
    ),
    (
        re.compile(
            r"Graph capturing finished in ([\d.]{1,12}) secs?, took (-?[\d.]{1,12}) (?:GiB|MiB)"
        ),
        (("graph_capture_s", float), ("graph_bytes", lambda t: float(t) * 2**30)),
    ),
    (
        re.compile(r"Using (.{1,40}?) (?:attention backend out of |backend on V1 engine)"),
        (("attention_backend", str),),
    ),
    (
        re.compile(r"(Custom allreduce is disabled)"),
        (("custom_all_reduce", lambda _: False),),
    ),
    (
        re.compile(r"init engine \(profile[^)]{0,80}\) took ([\d.]{1,12}) s"),
        (("init_s", float),),
    ),
)
_NAME = re.compile(r"[\w. -]{1,40}")
_SMALLEST = frozenset(("kv_cache_tokens", "kv_blocks", "kv_cache_bytes", "max_concurrency"))


def startup_of(text: str) -> dict[str, object]:
    """Return what a start-up line says that the run document has no word for.

    Parameters
    ----------
    text : str
        The line, without colours.

    Returns
    -------
    dict of str to object
        ``kv_cache_tokens`` [tokens], ``kv_blocks``, ``kv_cache_bytes``,
        ``weights_bytes``, ``graph_bytes`` [bytes], ``weights_load_s``,
        ``graph_capture_s``, ``init_s`` [s], ``attention_backend``, and so on.
    """
    found: dict[str, object] = {}
    for pattern, names in _STARTUP:
        match = pattern.search(text)
        for group, (name, convert) in enumerate(names, start=1):
            word = match.group(group) if match else None
            if word is None or not (_NAME.fullmatch(word) or "," in word):
                continue
            try:
                found[name] = convert(word)
            except ValueError:
                continue
    if "graph_bytes" in found and " MiB" in text:
        found["graph_bytes"] = float(str(found["graph_bytes"])) / 1024
    return found


def startup_merged(held: dict[str, object], new: dict[str, object]) -> dict[str, object]:
    """Return facts of the start together: workers print the same one each.

    Parameters
    ----------
    held : dict of str to object
        What was printed so far.
    new : dict of str to object
        What a further line says.

    Returns
    -------
    dict of str to object
        The first statement stands, but for sizes of the KV cache the smallest, which is
        what every rank can hold.
    """
    merged = {**new, **held}
    for name in _SMALLEST & held.keys() & new.keys():
        merged[name] = min(float(str(held[name])), float(str(new[name])), key=float)
        if isinstance(held[name], int):
            merged[name] = int(float(str(merged[name])))
    return merged


def _search(
    text: str, patterns: tuple[tuple[str, str, Callable[[str], object]], ...]
) -> dict[str, object]:
    found: dict[str, object] = {}
    for name, pattern, convert in patterns:
        match = re.search(pattern, text)
        if match:
            found[name] = convert(match.group(1))
    return found
