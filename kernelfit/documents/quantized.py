"""A checkpoint's ``quantization_config`` in the core's words."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

_BY_BITS = {4: "int4", 8: "int8"}
_MODELOPT = {"FP8": "fp8", "NVFP4": "fp4", "W4A16_AWQ": "int4"}
_FLOATS = {4: "fp4", 8: "fp8"}
# A scale per group is kept in 16 bit, one per block of two dimensions in 32.
_SCALE_BYTES = 2
_BLOCK_SCALE_BYTES = 4
# The lists of modules left alone, by the names that writers give them.
_SPARED_KEYS = ("modules_to_not_convert", "ignore", "exclude_modules", "llm_int8_skip_modules")
_WRAPPERS = frozenset({"language_model"})


class QuantizationError(ValueError):
    """A quantisation that the core cannot hold; the message says what of it."""


@dataclass(frozen=True, slots=True)
class Quantization:
    """How a checkpoint's weights are quantised.

    Attributes
    ----------
    dtype : str
        Data type of the quantised weights.
    scale_bytes : float
        Scales and zero points per quantised element [bytes]. Scales per tensor or per row
        count as 0: they are below a thousandth of the weights.
    targets : tuple of str
        What is quantised; empty means every linear layer.
    spared : tuple of str
        What is left alone.
    """

    dtype: str
    scale_bytes: float = 0.0
    targets: tuple[str, ...] = ()
    spared: tuple[str, ...] = ()

    def covers(self, modules: Iterable[str]) -> bool:
        """Return whether a part of the model is quantised.

        Parameters
        ----------
        modules : iterable of str
            Full names of the part's modules, for example
            ``model.layers.0.self_attn.q_proj``.

        Returns
        -------
        bool
            True when all of them are, False when none is.

        Raises
        ------
        QuantizationError
            When some are and others are not: a part has one data type in the core.
        """
        kept: dict[bool, str] = {}
        for name in modules:
            hit = not self.targets or _matches(self.targets, name)
            kept.setdefault(hit and not _matches(self.spared, name), name)
        if len(kept) > 1:
            raise QuantizationError(f"{kept[True]} is quantised and {kept[False]} is not")
        return next(iter(kept), True)

    def spared_experts(self) -> tuple[int, ...]:
        """Return the experts that the lists name one by one.

        Returns
        -------
        tuple of int
            Their numbers, each once.
        """
        names = " ".join((*self.targets, *self.spared))
        return tuple(sorted({int(n) for n in re.findall(r"\bexperts\.(\d+)\b", names)}))


def _parts(name: str) -> tuple[str, ...]:
    return tuple(part for part in name.split(".") if part not in _WRAPPERS)


def _matches(patterns: tuple[str, ...], name: str) -> bool:
    """Whether a list names a module: by expression, with stars, or by whole parts.

    A name without stars means the module and everything in it, wherever its parts stand
    in a row; ``mlp.gate`` is thus no part of ``mlp.gate_proj``.
    """
    parts = _parts(name)
    plain = ".".join(parts)
    for pattern in patterns:
        if pattern.startswith("re:"):
            if re.match(pattern[3:], name) or re.match(pattern[3:], plain):
                return True
        elif "*" in pattern:
            stem = ".".join(_parts(pattern))
            if any(fnmatch.fnmatchcase(".".join(parts[: i + 1]), stem) for i in range(len(parts))):
                return True
        else:
            wanted = _parts(pattern)
            width = len(wanted)
            if any(parts[i : i + width] == wanted for i in range(len(parts) - width + 1)):
                return True
    return False


def read_quantization(config: Any) -> Quantization:
    """Read a ``quantization_config``.

    Parameters
    ----------
    config : mapping
        The ``quantization_config`` of a ``config.json``.

    Returns
    -------
    Quantization
        Data type, scales, and what is left alone.

    Raises
    ------
    QuantizationError
        When the method, its group size or its lists are not understood, when groups of
        layers differ, or when the head is quantised.
    """
    if not isinstance(config, Mapping):
        raise QuantizationError
    method = config.get("quant_method")
    if config.get("lm_head") is True:
        raise QuantizationError(f"{method} with a quantised head")
    if config.get("dynamic"):
        raise QuantizationError(f"{method} with rules per module")
    spared = _names(config)
    if method == "compressed-tensors":
        return _compressed(config, spared)
    dtype, scale_bytes = _dtype_and_scale(method, config)
    return Quantization(dtype, scale_bytes, (), spared)


def _names(config: Mapping[str, Any]) -> tuple[str, ...]:
    found: list[str] = []
    for key in _SPARED_KEYS:
        value = config.get(key) or []
        if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
            raise QuantizationError(f"{key} is no list of names")
        found += value
    for name in found:
        if name.startswith("re:"):
            try:
                re.compile(name[3:])
            except re.error:
                raise QuantizationError(f"{name!r} is no regular expression") from None
    return tuple(found)


def _dtype_and_scale(method: Any, config: Mapping[str, Any]) -> tuple[str, float]:
    if method in ("fp8", "fbgemm_fp8"):
        return "fp8", _block_scale(config.get("weight_block_size"))
    if method == "mxfp4":
        return "fp4", 1 / 32
    if method in ("awq", "gptq"):
        dtype = _by(method, config.get("bits"), _BY_BITS)
        # AWQ keeps a zero point per group unless told otherwise, GPTQ unless symmetric.
        zeros = config.get("zero_point", True) if method == "awq" else not config.get("sym", True)
        return dtype, _group_scale(config.get("group_size", 128), dtype, bool(zeros))
    if method == "bitsandbytes":
        if config.get("load_in_4bit") is True:
            # Blocks of 64 with a scale in 32 bit, or in 8 bit with one more for 256 blocks.
            nested = config.get("bnb_4bit_use_double_quant") is True
            return "int4", 1 / 64 + 4 / (64 * 256) if nested else 4 / 64
        if config.get("load_in_8bit") is True:
            return "int8", 0.0
        raise QuantizationError("bitsandbytes with neither load_in_4bit nor load_in_8bit")
    if method == "modelopt":
        return _modelopt(config)
    raise QuantizationError


def _modelopt(config: Mapping[str, Any]) -> tuple[str, float]:
    algorithm = config.get("quant_algo")
    dtype = _MODELOPT.get(algorithm) if isinstance(algorithm, str) else None
    if dtype is None:
        raise QuantizationError(f"modelopt with {algorithm!r}")
    if dtype == "fp4":
        return dtype, 1 / _whole("group_size", config.get("group_size", 16))
    if dtype == "int4":
        return dtype, _group_scale(config.get("group_size", 128), dtype, zeros=False)
    return dtype, 0.0


def _compressed(config: Mapping[str, Any], spared: tuple[str, ...]) -> Quantization:
    """Read the groups of compressed-tensors; all of them must have one format."""
    groups = config.get("config_groups")
    found: set[tuple[str, float]] = set()
    targets: list[str] = []
    for group in groups.values() if isinstance(groups, Mapping) else ():
        weights = group.get("weights") if isinstance(group, Mapping) else None
        if not isinstance(weights, Mapping):
            raise QuantizationError("compressed-tensors with a group without weights")
        found.add(_compressed_group(weights))
        named = group.get("targets") or ["Linear"]
        if not isinstance(named, list) or not all(isinstance(name, str) for name in named):
            raise QuantizationError("compressed-tensors with targets that are no list of names")
        targets += named
    if len(found) != 1:
        raise QuantizationError("compressed-tensors with no group, or groups that differ")
    dtype, scale_bytes = found.pop()
    return Quantization(dtype, scale_bytes, () if "Linear" in targets else tuple(targets), spared)


def _compressed_group(weights: Mapping[str, Any]) -> tuple[str, float]:
    floating = weights.get("type") == "float"
    dtype = _by("compressed-tensors", weights.get("num_bits"), _FLOATS if floating else _BY_BITS)
    strategy = weights.get("strategy")
    if strategy == "block":
        return dtype, _block_scale(weights.get("block_structure"))
    if strategy in ("group", "tensor_group") or weights.get("group_size") is not None:
        size = weights.get("group_size")
        if floating:
            return dtype, 1 / _whole("group_size", size)
        return dtype, _group_scale(size, dtype, weights.get("symmetric") is False)
    if strategy in (None, "tensor", "channel"):
        return dtype, 0.0
    raise QuantizationError(f"compressed-tensors with strategy {strategy!r}")


def _by(method: str, bits: Any, table: Mapping[int, str]) -> str:
    found = table.get(bits) if isinstance(bits, int) and not isinstance(bits, bool) else None
    if found is None:
        raise QuantizationError(f"{method} with {bits!r} bits")
    return found


def _whole(key: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise QuantizationError(f"{key} is {value!r}, not a whole number above 0")
    return value


def _group_scale(size: Any, dtype: str, zeros: bool) -> float:
    """Bytes of scale and zero point per element; -1 means one group per row."""
    if size == -1:
        return 0.0
    point = 0.5 if dtype == "int4" else 1.0
    return (_SCALE_BYTES + (point if zeros else 0.0)) / _whole("group_size", size)


def _block_scale(shape: Any) -> float:
    if shape is None:
        return 0.0
    if not isinstance(shape, list) or len(shape) != 2:
        raise QuantizationError(f"a block of {shape!r}, not of two sizes")
    rows, columns = (_whole("block size", size) for size in shape)
    return _BLOCK_SCALE_BYTES / (rows * columns)
