"""The published loading rules of inference-sim's files, applied strictly.

Source: inference-sim/inference-sim: ``cmd/default_config.go`` (strict keys of
``defaults.yaml``), ``sim/latency/trained_physics_model.go`` (numbers of coefficients, finite
and not negative), ``sim/latency/hw_config_strict_test.go`` (keys of
``hardware_config.json``), ``sim/latency/config.go`` (positive peaks and utilisations).
"""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from kernelfit.export.base import Files
from kernelfit.export.inference_sim_law import BETAS

ALPHAS = ("alpha0", "alpha1", "alpha2")

_TOP = ("version", "trained_physics_coefficients", "lora")
_COEFFICIENTS = {"alpha_coeffs": ALPHAS, "beta_coeffs": BETAS}
_POSITIVE = ("TFlopsPeak", "BwPeakTBs", "mfuPrefill", "mfuDecode")
_OPTIONAL = (
    "TFlopsFP8",
    "MemoryGiB",
    "IntraNodeBwGBps",
    "InterNodeBwGBps",
    "InterNodeHopLatencyUs",
)
_WORDS = ("_comment", "_comment_interconnect", "Provenance")
_FLAGS = {"--alpha-coeffs": ALPHAS, "--beta-coeffs": BETAS}


def check_files(files: Files) -> tuple[str, ...]:
    """Check the files of an export.

    Parameters
    ----------
    files : tuple of ExportedFile
        A ``defaults.yaml``, a file of flags, a ``hardware_config.json``, told apart by their
        endings.

    Returns
    -------
    tuple of str
        What is wrong, each line with its place; empty where the simulator loads them.
    """
    out: list[str] = []
    for file in files:
        text = file.content.decode("utf-8")
        if file.path.endswith(".yaml"):
            out.extend(check_defaults(text, file.path))
        elif file.path.endswith(".json"):
            out.extend(check_hardware(text, file.path))
        else:
            out.extend(check_flags(text, file.path))
    return tuple(out)


def check_defaults(text: str, file: str = "defaults.yaml") -> tuple[str, ...]:
    """Check the text of a ``defaults.yaml``.

    Parameters
    ----------
    text : str
        The YAML text.
    file : str
        What the lines call the file.

    Returns
    -------
    tuple of str
        What is wrong, as ``file:line: what``.
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
        return (f"{file}:1: the file is a mapping, got {type(document).__name__}",)
    out = [
        f"{file}:{_line(document, key)}: field {key} is not known; allowed {', '.join(_TOP)}"
        for key in document
        if key not in _TOP
    ]
    block = document.get("trained_physics_coefficients")
    if not isinstance(block, CommentedMap):
        out.append(f"{file}:1: trained_physics_coefficients is missing")
        return tuple(out)
    out.extend(
        f"{file}:{_line(block, key)}: field {key} is not known; allowed {', '.join(_COEFFICIENTS)}"
        for key in block
        if key not in _COEFFICIENTS
    )
    for key, names in _COEFFICIENTS.items():
        if key not in block:
            out.append(f"{file}:{_line(document, 'trained_physics_coefficients')}: no {key}")
        else:
            out.extend(_numbers(block[key], names, key, f"{file}:{_line(block, key)}"))
    return tuple(out)


def _line(node: CommentedMap, key: str) -> int:
    data = node.lc.data or {}
    return int(data[key][0]) + 1 if key in data else int(node.lc.line) + 1


def _numbers(values: Any, names: Sequence[str], key: str, place: str) -> list[str]:
    """Check a list of coefficients: how many, and each of them."""
    if not isinstance(values, (list, tuple)):
        return [f"{place}: {key} is a list, got {values!r}"]
    out = []
    if len(values) != len(names):
        out.append(
            f"{place}: {key} holds {len(values)} coefficients; allowed {len(names)}, "
            "because the length selects the formula"
        )
    for index, value in enumerate(values):
        name = names[index] if index < len(names) else f"number {index + 1}"
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            out.append(f"{place}: {key}: {name} is no number, got {value!r}")
        elif not (math.isfinite(value) and value >= 0.0):
            out.append(f"{place}: {key}: {name} is {value}; allowed finite and >= 0")
    return out


def check_flags(text: str, file: str = "flags.txt") -> tuple[str, ...]:
    """Check a file of command-line flags.

    Parameters
    ----------
    text : str
        The flags as a shell would read them, ``#`` opening a comment.
    file : str
        What the lines call the file.

    Returns
    -------
    tuple of str
        What is wrong, as ``file: what``.
    """
    words = shlex.split(text, comments=True)
    given = dict(zip(words[::2], words[1::2], strict=False))
    out = []
    if len(words) % 2 or any(not name.startswith("--") for name in given):
        out.append(f"{file}: flags come in pairs of --name and value, got {words}")
    if given.get("--latency-model", "trained-physics") != "trained-physics":
        out.append(f"{file}: coefficients are only taken by --latency-model trained-physics")
    for flag, names in _FLAGS.items():
        if flag not in given:
            out.append(f"{file}: {flag} is missing; both lists of coefficients or neither")
            continue
        values: list[Any] = []
        for word in given[flag].split(","):
            try:
                values.append(float(word))
            except ValueError:
                values.append(word)
        out.extend(_numbers(values, names, flag, file))
    return tuple(out)


def check_hardware(text: str, file: str = "hardware_config.json") -> tuple[str, ...]:
    """Check the text of a ``hardware_config.json``.

    Parameters
    ----------
    text : str
        The JSON text.
    file : str
        What the lines call the file.

    Returns
    -------
    tuple of str
        What is wrong, as ``file: GPU: what``; the rules are those of loading and of the
        ``roofline`` backend.
    """
    try:
        document = json.loads(text)
    except ValueError as error:
        return (f"{file}: not readable as JSON: {error}",)
    if not isinstance(document, dict) or not document:
        return (f"{file}: an object of GPU types, got {type(document).__name__}",)
    out: list[str] = []
    for gpu in sorted(document):
        fields = document[gpu]
        if isinstance(fields, dict):
            out.extend(f"{file}: {gpu}: {what}" for what in _hardware(fields))
        else:
            out.append(f"{file}: {gpu}: an object of fields, got {fields!r}")
    return tuple(out)


def _hardware(fields: Mapping[str, Any]) -> list[str]:
    known = (*_POSITIVE, *_OPTIONAL, *_WORDS)
    out = []
    for key in sorted(set(fields) - set(known)):
        same = [name for name in known if name.lower() == key.lower()]
        hint = f"differs only in case from {same[0]}" if same else "is not known"
        out.append(f"key {key} {hint}")
    for key in (*_POSITIVE, *_OPTIONAL):
        value = fields.get(key)
        if value is None:
            if key in _POSITIVE:
                out.append(f"{key} is missing")
        elif isinstance(value, bool) or not isinstance(value, (int, float)):
            out.append(f"{key} is no number, got {value!r}")
        elif not math.isfinite(value) or value < 0.0 or (key in _POSITIVE and value == 0.0):
            out.append(f"{key} is {value}; allowed finite and > 0")
    return out
