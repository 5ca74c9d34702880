"""A checkpoint's ``quantization_config`` in the core's words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_BY_BITS = {4: "int4", 8: "int8"}
_MODELOPT = {"FP8": "fp8", "NVFP4": "fp4", "W4A16_AWQ": "int4"}
_FLOATS = {4: "fp4", 8: "fp8"}


def quantized_dtype(config: Mapping[str, Any]) -> str | None:
    """Return the data type of quantised weights.

    Parameters
    ----------
    config : mapping
        The ``quantization_config`` of a ``config.json``.

    Returns
    -------
    str or None
        ``fp8``, ``fp4``, ``int8`` or ``int4``; None when it is not understood. Scales
        are not counted: for blocks of 32 they add a quarter of a bit per weight.
    """
    method = config.get("quant_method")
    if method in ("fp8", "fbgemm_fp8"):
        return "fp8"
    if method == "mxfp4":
        return "fp4"
    if method in ("awq", "gptq"):
        return _by(config.get("bits"), _BY_BITS)
    if method == "bitsandbytes":
        if config.get("load_in_4bit") is True:
            return "int4"
        return "int8" if config.get("load_in_8bit") is True else None
    if method == "modelopt":
        algorithm = config.get("quant_algo")
        return _MODELOPT.get(algorithm) if isinstance(algorithm, str) else None
    if method == "compressed-tensors":
        return _compressed(config.get("config_groups"))
    return None


def _by(bits: Any, table: Mapping[int, str]) -> str | None:
    return table.get(bits) if isinstance(bits, int) and not isinstance(bits, bool) else None


def _compressed(groups: Any) -> str | None:
    """Return the one weight type of all groups; None where groups differ."""
    found = set()
    for group in groups.values() if isinstance(groups, dict) else ():
        weights = group.get("weights") if isinstance(group, dict) else None
        if not isinstance(weights, dict):
            return None
        table = _FLOATS if weights.get("type") == "float" else _BY_BITS
        found.add(_by(weights.get("num_bits"), table))
    return found.pop() if len(found) == 1 else None


def attention_is_spared(config: Mapping[str, Any] | None) -> bool:
    """Return whether the attention's projections keep the checkpoint's data type.

    Parameters
    ----------
    config : mapping or None
        The ``quantization_config`` of a ``config.json``.

    Returns
    -------
    bool
        True when its list of modules left alone names the attention as a whole.
    """
    if config is None:
        return False
    spared = config.get("modules_to_not_convert") or config.get("ignore") or []
    if not isinstance(spared, list):
        return False
    return any(isinstance(name, str) and name.endswith(".self_attn") for name in spared)
