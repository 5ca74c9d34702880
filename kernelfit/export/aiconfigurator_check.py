"""The loading rules of AIConfigurator's ``system.yaml``, applied strictly.

Source: PyPI aiconfigurator-core 0.12.0. Which fields its compiled engine cannot do without
was found by leaving each out of ``h100_sxm.yaml``: ``mem_bw``, ``num_gpus_per_node``,
``inter_node_bw``, ``intra_node_bw``, and the peak of the data type in use. Its Python side
also reads ``data_dir``, ``sm_version``, ``mem_capacity`` and ``misc``.
"""

from __future__ import annotations

import math
import re
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from kernelfit.export.base import Files

_NEEDED = {
    "gpu": ("mem_bw", "mem_capacity", "bfloat16_tc_flops", "sm_version"),
    "node": ("num_gpus_per_node", "inter_node_bw", "intra_node_bw"),
    "misc": ("nccl_mem", "other_mem", "nccl_version"),
}
_KNOWN = {
    "gpu": (
        *_NEEDED["gpu"],
        "mem_bw_empirical_scaling_factor",
        "mem_empirical_constant_latency",
        "int8_tc_flops",
        "fp8_tc_flops",
        "fp4_tc_flops",
        "power",
    ),
    "node": (*_NEEDED["node"], "pcie_bw", "p2p_latency", "num_gpus_per_rack", "inter_rack_bw"),
    "misc": (*_NEEDED["misc"], "oneccl_version"),
}
_WHOLE = ("sm_version", "num_gpus_per_node", "num_gpus_per_rack")
_MAY_BE_ZERO = ("mem_empirical_constant_latency", "p2p_latency", "other_mem")
_ENTRY = re.compile(r"\s*(\w+):\s*(\S+)")
_EXPONENT = re.compile(r"[-+]?[\d.]+[eE][-+]?\d+")
_PYYAML_FLOAT = re.compile(r"[-+]?\d+\.\d*[eE][-+]\d+")
_TEXT = ("nccl_version", "oneccl_version")


def check_files(files: Files) -> tuple[str, ...]:
    """Check the files of an export.

    Parameters
    ----------
    files : tuple of ExportedFile
        System files.

    Returns
    -------
    tuple of str
        What is wrong, each line with its place; empty where the package loads them.
    """
    return tuple(
        line for file in files for line in check_system(file.content.decode("utf-8"), file.path)
    )


def check_system(text: str, file: str = "system.yaml") -> tuple[str, ...]:
    """Check the text of a system file.

    Parameters
    ----------
    text : str
        The YAML text.
    file : str
        What the lines call the file.

    Returns
    -------
    tuple of str
        What is wrong, as ``file:line: what``; unknown fields too, because the package would
        not read them.
    """
    try:
        document = YAML(typ="rt", pure=True).load(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = 1 if mark is None else mark.line + 1
        return (f"{file}:{line}: not readable as YAML: {error.problem}",)
    except YAMLError as error:
        return (f"{file}:1: not readable as YAML: {error}",)
    if not isinstance(document, CommentedMap):
        return (f"{file}:1: a system is a mapping, got {type(document).__name__}",)
    out = _texts(text, file)
    if not isinstance(document.get("data_dir"), str):
        out.append(f"{file}:{_line(document, 'data_dir')}: data_dir is a path below the systems")
    out.extend(
        f"{file}:{_line(document, key)}: {key} is not read; allowed data_dir, {', '.join(_KNOWN)}"
        for key in document
        if key not in ("data_dir", *_KNOWN)
    )
    for section in _KNOWN:
        node = document.get(section)
        if isinstance(node, CommentedMap):
            out.extend(f"{file}:{line}: {what}" for line, what in _section(section, node))
        else:
            out.append(f"{file}:{_line(document, section)}: {section} is missing")
    return tuple(out)


def _texts(text: str, file: str) -> list[str]:
    """Find numbers that PyYAML, which the package reads with, takes for text."""
    out = []
    for number, line in enumerate(text.splitlines(), 1):
        found = _ENTRY.match(line)
        if found and _EXPONENT.fullmatch(found[2]) and not _PYYAML_FLOAT.fullmatch(found[2]):
            out.append(f"{file}:{number}: {found[1]} is no number as PyYAML reads {found[2]}")
    return out


def _line(node: CommentedMap, key: Any) -> int:
    data = node.lc.data or {}
    return int(data[key][0]) + 1 if key in data else int(node.lc.line) + 1


def _section(section: str, node: CommentedMap) -> list[tuple[int, str]]:
    out = [
        (_line(node, key), f"{section}.{key} is missing")
        for key in _NEEDED[section]
        if key not in node
    ]
    for key, value in node.items():
        line, name = _line(node, key), f"{section}.{key}"
        if key not in _KNOWN[section]:
            out.append((line, f"{name} is not read; allowed {', '.join(_KNOWN[section])}"))
        elif key == "nccl_mem":
            out.extend((line, what) for what in _communicators(value))
        elif key in _TEXT:
            if not isinstance(value, str):
                out.append((line, f"{name} is a text, got {value!r}"))
        elif key != "power":
            what = _number(key, value)
            if what:
                out.append((line, f"{name} {what}, got {value!r}"))
    return out


def _number(key: str, value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return "is no number"
    if key in _WHOLE and not isinstance(value, int):
        return "is a whole number"
    if not math.isfinite(value) or value < 0 or (value == 0 and key not in _MAY_BE_ZERO):
        return "is to be finite and above 0"
    return ""


def _communicators(value: Any) -> list[str]:
    if not isinstance(value, CommentedMap):
        return ["misc.nccl_mem is a mapping of widths to bytes"]
    out = [f"misc.nccl_mem lacks width {tp}" for tp in (1, 2, 4, 8) if tp not in value]
    out.extend(
        f"misc.nccl_mem.{tp} is a whole number of bytes, got {size!r}"
        for tp, size in value.items()
        if isinstance(size, bool) or not isinstance(size, int) or size < 0
    )
    return out
