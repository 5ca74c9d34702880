"""What the recorder states about a run: engine, model, pool and device.

Everything here is read from the engine's own configuration object with feature
probes, so that a missing attribute in another engine version costs one fact and
never the recording.
"""

from __future__ import annotations

import json
import os
import platform
import re
from pathlib import Path
from typing import Any

FORMAT_VERSION = 2
"""Version of the rows: 2 knows dummy steps and the gap between a pass's two calls."""

RUN_SCHEMA_VERSION = 1
_BEYOND_ASCII = re.compile("[^\\x00-\\x7e]")


def attribute(obj: Any, *names: str) -> Any:
    """Follow attribute names from an object of the engine.

    Parameters
    ----------
    obj : object
        Where to begin.
    *names : str
        Attribute names, one after the other.

    Returns
    -------
    object
        What the last one holds; None where one is missing.
    """
    for name in names:
        obj = getattr(obj, name, None)
        if obj is None:
            return None
    return obj


def cpu_name() -> str:
    """Return the processor's name as the kernel states it, with family and model.

    Returns
    -------
    str
        For example ``AMD EPYC (family 25 model 1)``; ``cpu`` where unknown.
    """
    fields: dict[str, str] = {}
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            key, _, value = line.partition(":")
            fields.setdefault(key.strip(), value.strip())
    except OSError:
        return platform.processor() or "cpu"
    name = fields.get("model name", "cpu")
    return f"{name} (family {fields.get('cpu family', '?')} model {fields.get('model', '?')})"


def device_name(config: Any) -> str:
    """Return the name of the device that the engine runs on.

    Parameters
    ----------
    config : object
        The engine's configuration object (``VllmConfig``).

    Returns
    -------
    str
        The CUDA device's name, or the processor's name on a CPU back end.
    """
    stated = os.environ.get("KERNELFIT_GPU")
    if stated:
        return stated
    if str(attribute(config, "device_config", "device_type")) == "cuda":
        try:
            import torch

            # Device properties need no CUDA context when NVML answers; the
            # worker, which owns a context, is the fallback elsewhere.
            from vllm.platforms import current_platform

            return str(current_platform.get_device_name() or torch.cuda.get_device_name())
        except Exception:  # noqa: BLE001 - a missing name is stated, never fatal
            return "unknown"
    return cpu_name()


def _enum_name(value: Any) -> Any:
    return getattr(value, "name", value)


def run_facts(config: Any, engine_version: str) -> dict[str, Any]:
    """Return the facts of ``run.yaml`` that the engine's configuration states.

    Parameters
    ----------
    config : object
        The engine's configuration object (``VllmConfig``).
    engine_version : str
        The version string of the engine.

    Returns
    -------
    dict
        The document; nested one level under ``pool``. Sizes in tokens or counts.
    """
    model = str(attribute(config, "model_config", "model") or "unknown")
    capture = attribute(config, "compilation_config", "cudagraph_capture_sizes")
    dtype = str(attribute(config, "model_config", "dtype") or "unknown").removeprefix("torch.")
    return {
        "kind": "Run",
        "schema_version": RUN_SCHEMA_VERSION,
        "gpu": device_name(config),
        "model": "model.config.json",
        "model_name": _last_part(model),
        "dtype": dtype,
        "engine": "vllm",
        "engine_version": engine_version,
        "reader": "kernelfit",
        "timing": "device",
        "pool": {
            "tp": attribute(config, "parallel_config", "tensor_parallel_size") or 1,
            "pp": attribute(config, "parallel_config", "pipeline_parallel_size") or 1,
            "dp": attribute(config, "parallel_config", "data_parallel_size") or 1,
            "enable_expert_parallel": bool(
                attribute(config, "parallel_config", "enable_expert_parallel")
            ),
            "nodes": attribute(config, "parallel_config", "nnodes") or 1,
            "block_size": attribute(config, "cache_config", "block_size"),
            "cache_dtype": attribute(config, "cache_config", "cache_dtype"),
            "max_num_seqs": attribute(config, "scheduler_config", "max_num_seqs"),
            "max_num_batched_tokens": attribute(
                config, "scheduler_config", "max_num_batched_tokens"
            ),
            "max_model_len": attribute(config, "model_config", "max_model_len"),
            "async_scheduling": attribute(config, "scheduler_config", "async_scheduling"),
            "enable_prefix_caching": attribute(config, "cache_config", "enable_prefix_caching"),
            "enforce_eager": attribute(config, "model_config", "enforce_eager"),
            "cudagraph_mode": _enum_name(attribute(config, "compilation_config", "cudagraph_mode")),
            "cudagraph_capture_sizes": None if capture is None else [int(s) for s in capture],
            "quantization": attribute(config, "model_config", "quantization"),
            "speculative_method": attribute(config, "speculative_config", "method"),
            "disable_custom_all_reduce": attribute(
                config, "parallel_config", "disable_custom_all_reduce"
            ),
        },
    }


def _scalar(value: Any) -> str:
    # JSON writes a character beyond 16 bits as two escapes, which YAML does not join again.
    text = json.dumps(value, ensure_ascii=False, default=str)
    return _BEYOND_ASCII.sub(lambda found: f"\\U{ord(found[0]):08x}", text)


def to_yaml(document: dict[str, Any], indent: int = 0) -> str:
    """Write a nested document as YAML whose scalars are JSON scalars.

    Parameters
    ----------
    document : dict
        Keys are plain words; values are scalars, lists of scalars or dicts.
    indent : int
        Spaces before each key.

    Returns
    -------
    str
        YAML text; nulls are left out, since an unstated fact is not a fact.
    """
    lines = []
    for key, value in document.items():
        if value is None:
            continue
        if isinstance(value, dict):
            lines.append(f"{' ' * indent}{key}:")
            lines.append(to_yaml(value, indent + 2).rstrip("\n"))
        else:
            lines.append(f"{' ' * indent}{key}: {_scalar(value)}")
    return "\n".join(lines) + "\n"


def _unplaced(facts: Any) -> Any:
    """Return a model's facts without the folder that it was loaded from."""
    if not isinstance(facts, dict):
        return facts
    named = {key: _unplaced(value) for key, value in facts.items()}
    if isinstance(named.get("_name_or_path"), str):
        named["_name_or_path"] = _last_part(named["_name_or_path"])
    return named


def _last_part(path: str) -> str:
    return path.rstrip("/").rsplit("/", 1)[-1]


def write_facts(folder: Path, config: Any, engine_version: str) -> None:
    """Write ``run.yaml`` and ``model.config.json`` into a recording's folder.

    Parameters
    ----------
    folder : pathlib.Path
        The recording's folder; it exists.
    config : object
        The engine's configuration object (``VllmConfig``).
    engine_version : str
        The version string of the engine.
    """
    to_dict = attribute(config, "model_config", "hf_config", "to_dict")
    if to_dict is not None and not (folder / "model.config.json").exists():
        facts = json.dumps(_unplaced(to_dict()), indent=1, sort_keys=True, default=str)
        _write_whole(folder / "model.config.json", facts + "\n")
    if not (folder / "run.yaml").exists():
        _write_whole(folder / "run.yaml", to_yaml(run_facts(config, engine_version)))


def _write_whole(path: Path, text: str) -> None:
    # Engines of several data-parallel ranks state the same facts at the same time.
    half = path.with_name(f".{path.name}.{os.getpid()}")
    half.write_text(text, encoding="utf-8")
    half.replace(path)
