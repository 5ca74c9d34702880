"""The loading rules of LLMServingSim's profile bundles, applied strictly.

Source: casys-kaist/LLMServingSim 2, ``serving/core/trace_generator.py`` and
``profiler/README.md`` (columns), ``profiler/models/*.yaml`` (operations of a layer).
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Sequence

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from kernelfit.export.base import Files
from kernelfit.export.llmservingsim_law import EPILOGUE, HEAD, LAYER, PROLOGUE, Profile

_COLUMNS = {
    "dense.csv": ("layer", "tokens"),
    "per_sequence.csv": ("layer", "sequences"),
    "attention.csv": ("layer", "prefill_chunk", "kv_prefill", "n_decode", "kv_decode"),
}


def check_files(files: Files) -> tuple[str, ...]:
    """Check the files of an export.

    Parameters
    ----------
    files : tuple of ExportedFile
        A bundle.

    Returns
    -------
    tuple of str
        What is wrong, as ``file:row: what``; empty where the simulator finds and reads all of
        it.
    """
    out: list[str] = []
    family = ""
    for file in files:
        if file.path.endswith("/meta.yaml"):
            family, wrong = _meta(file.content.decode("utf-8"), file.path)
            out.extend(wrong)
    if not any(file.path.endswith("/meta.yaml") for file in files):
        out.append("meta.yaml: is missing")
    found = set()
    for file in files:
        place = re.fullmatch(r"perf/[^/]+/.+/[^/]+/tp(\d+)/([a-z_]+\.csv)", file.path)
        if place:
            found.add(place[2])
            out.extend(_table(file.content.decode("utf-8"), file.path, place[2], family))
        elif not file.path.endswith("/meta.yaml"):
            out.append(f"{file.path}: the simulator reads perf/HARDWARE/MODEL/VARIANT/tpN/*.csv")
    out.extend(f"{name}: is missing" for name in _COLUMNS if name not in found)
    return tuple(out)


def _meta(text: str, file: str) -> tuple[str, list[str]]:
    try:
        meta = YAML(typ="safe", pure=True).load(text)
    except YAMLError as error:
        return "", [f"{file}: not readable as YAML: {str(error).splitlines()[0]}"]
    if not isinstance(meta, dict):
        return "", [f"{file}: a bundle's meta is a mapping"]
    out = []
    family = str(meta.get("architecture"))
    if family not in LAYER:
        out.append(f"{file}: architecture is {family!r}; allowed {', '.join(LAYER)}")
    engine = meta.get("engine_effective")
    for field in ("max_num_batched_tokens", "max_num_seqs"):
        value = engine.get(field) if isinstance(engine, dict) else None
        if not isinstance(value, int) or value < 1:
            out.append(f"{file}: engine_effective.{field} is {value!r}; allowed whole numbers")
    return family, out


def _table(text: str, file: str, name: str, family: str) -> list[str]:
    if name not in _COLUMNS:
        return [f"{file}: not read for a dense model; allowed {', '.join(_COLUMNS)}"]
    reader = csv.DictReader(io.StringIO(text))
    given = tuple(reader.fieldnames or ())
    needed = (*_COLUMNS[name], "time_us")
    out = [f"{file}:1: column {column} is missing" for column in needed if column not in given]
    if out:
        return out
    layers = set()
    seen = set()
    for line, row in enumerate(reader, 2):
        layers.add(row["layer"])
        key = tuple(row[column] for column in _COLUMNS[name])
        if key in seen:
            out.append(f"{file}:{line}: a second row for {', '.join(key)}; the last would win")
        seen.add(key)
        out.extend(_row(file, line, row, _COLUMNS[name][1:]))
    wanted = _wanted(name, family)
    out.extend(f"{file}: no rows of {layer}" for layer in wanted if layer not in layers)
    out.extend(f"{file}: {layer} is in no catalogue" for layer in sorted(layers - set(wanted)))
    return out


def _wanted(name: str, family: str) -> tuple[str, ...]:
    if name == "attention.csv":
        return ("attention",)
    if name == "per_sequence.csv":
        return HEAD
    names = (*PROLOGUE, *LAYER.get(family, LAYER["llama"]), *EPILOGUE)
    return tuple(dict.fromkeys(names))


def _row(file: str, line: int, row: dict[str, str], axes: Sequence[str]) -> list[str]:
    out = [
        f"{file}:{line}: {axis} is {row[axis]!r}; allowed whole numbers"
        for axis in axes
        if not (row[axis] or "").isdigit()
    ]
    try:
        value = float(row["time_us"])
    except (TypeError, ValueError):
        value = math.nan
    if not (math.isfinite(value) and value >= 0.0):
        out.append(f"{file}:{line}: time_us is {row['time_us']!r}; allowed microseconds >= 0")
    return out


def load_profile(files: Files, layers: int) -> Profile:
    """Read a bundle as the simulator does.

    Parameters
    ----------
    files : tuple of ExportedFile
        A bundle without faults.
    layers : int
        Layers of the model, which the simulator takes from its configuration.

    Returns
    -------
    Profile
        The tables in whole nanoseconds, at least 1; a later row replaces an earlier one.
    """
    curves: dict[str, dict[str, dict[int, int]]] = {"dense.csv": {}, "per_sequence.csv": {}}
    attention = {}
    family = ""
    for file in files:
        name = file.path.rpartition("/")[2]
        text = file.content.decode("utf-8")
        if name == "meta.yaml":
            family, _ = _meta(text, file.path)
            continue
        for row in csv.DictReader(io.StringIO(text)):
            time = max(1, round(1e3 * float(row["time_us"])))
            if name == "attention.csv":
                chunk, before, decodes, context = (int(row[a]) for a in _COLUMNS[name][1:])
                attention[chunk, before, decodes, context] = time
            else:
                key = int(row[_COLUMNS[name][1]])
                curves[name].setdefault(row["layer"], {})[key] = time
    return Profile(family, layers, curves["dense.csv"], curves["per_sequence.csv"], attention)
