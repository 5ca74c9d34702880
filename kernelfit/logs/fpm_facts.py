"""What the documents beside a file of forward pass metrics state about its run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernelfit.documents.problems import InputError, Problem, shown

METADATA = "vllm_metadata.json"
EFFECTIVE = "effective_vllm_config.json"

_KEYS: dict[str, str] = {
    "vllm_version": "engine_version",
    "model_config.dtype": "dtype",
    "model_config.max_model_len": "max_model_len",
    "model_config.quantization": "quantization",
    "cache_config.block_size": "block_size",
    "cache_config.cache_dtype": "cache_dtype",
    "cache_config.enable_prefix_caching": "enable_prefix_caching",
    "cache_config.mamba_cache_mode": "mamba_cache_mode",
    "compilation_config.cudagraph_mode": "cudagraph_mode",
    "compilation_config.cudagraph_capture_sizes": "cudagraph_capture_sizes",
    "compilation_config.max_cudagraph_capture_size": "max_cudagraph_capture_size",
    "parallel_config.tensor_parallel_size": "tp",
    "parallel_config.pipeline_parallel_size": "pp",
    "parallel_config.data_parallel_size": "dp",
    "parallel_config.enable_expert_parallel": "enable_expert_parallel",
    "parallel_config.disable_custom_all_reduce": "disable_custom_all_reduce",
    "scheduler_config.max_num_seqs": "max_num_seqs",
    "scheduler_config.max_num_batched_tokens": "max_num_batched_tokens",
    "scheduler_config.async_scheduling": "async_scheduling",
}
_REQUESTED = ("enforce_eager", "gpu_memory_utilization")
_LIMITS = {"max_num_seqs": "requests", "max_num_batched_tokens": "tokens"}


def facts_files(path: Path) -> tuple[Path, ...]:
    """Return the documents that stand beside a file.

    Parameters
    ----------
    path : pathlib.Path
        The file of metrics.

    Returns
    -------
    tuple of pathlib.Path
        Those that exist.
    """
    return tuple(p for p in (path.parent / METADATA, path.parent / EFFECTIVE) if p.is_file())


def stated_facts(path: Path, most: Mapping[str, int]) -> dict[str, object]:
    """Return the facts that those documents state, by the names of the run document.

    A limit that the file's own steps exceed is no fact and is left out: exporters write
    the default where the server derives a larger one.

    Parameters
    ----------
    path : pathlib.Path
        The file of metrics.
    most : mapping of str to int
        Largest ``requests`` and ``tokens`` of a step [tokens].

    Returns
    -------
    dict of str to object
        Facts; what is null is absent.

    Raises
    ------
    InputError
        When a document is no JSON object, or two of them disagree.
    """
    facts: dict[str, object] = {}
    origin: dict[str, str] = {}
    problems: list[Problem] = []
    for file in facts_files(path):
        found = _facts(_loaded(file))
        for key, value in found.items():
            if facts.setdefault(key, value) != value:
                message = f"{key} contradicts {origin[key]}, which says {shown(facts[key])}"
                problems.append(Problem(str(file), None, None, message, got=shown(value)))
            origin.setdefault(key, file.name)
    if problems:
        raise InputError(problems)
    for key, what in _LIMITS.items():
        limit = facts.get(key)
        if isinstance(limit, int) and most[what] > limit:
            del facts[key]
    return facts


def _loaded(file: Path) -> dict[str, Any]:
    try:
        data = json.loads(file.read_bytes())
    except (ValueError, RecursionError) as error:
        first = str(error).splitlines()[0][:200]
        raise InputError(
            [Problem(str(file), None, None, f"not a JSON document: {first}")]
        ) from None
    if not isinstance(data, dict):
        raise InputError([Problem(str(file), None, None, "not a JSON object")])
    return data


def _facts(data: Mapping[str, Any]) -> dict[str, object]:
    effective = data.get("effective_config", data)
    facts: dict[str, object] = {}
    for key, name in _KEYS.items():
        value = effective.get(key) if isinstance(effective, dict) else None
        if value is not None:
            facts[name] = value
    if "engine_version" in facts:
        facts["engine"] = "vllm"
    if isinstance(facts.get("dtype"), str):
        facts["dtype"] = str(facts["dtype"]).removeprefix("torch.")
    requested = data.get("requested")
    asked = requested.get("deployment_config") if isinstance(requested, dict) else None
    if not isinstance(asked, dict):
        return facts
    facts |= {key: asked[key] for key in _REQUESTED if asked.get(key) is not None}
    if asked.get("no_async_scheduling") is True:
        facts["async_scheduling"] = False
    arguments = asked.get("extra_args")
    if isinstance(arguments, list) and "--enable-expert-parallel" in arguments:
        facts["enable_expert_parallel"] = True
    if isinstance(asked.get("model"), str):
        # Only the last part of a path: folders may carry a person's name.
        facts["model_name"] = asked["model"].rstrip("/").rpartition("/")[2]
    return facts
