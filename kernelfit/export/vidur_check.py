"""The loading rules of Vidur's profile data sets, applied strictly.

Source: PyPI vidur 0.0.26, ``SklearnExecutionTimePredictor``: which files are read, which
columns, which rows are kept for a model and a width, and that no table may be left empty.
"""

from __future__ import annotations

import csv
import io
import json
import lzma
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from kernelfit.export.base import Files
from kernelfit.export.vidur_models import DEVICES, NODES
from kernelfit.export.vidur_tables import MLP_OPERATIONS

Rows = list[dict[str, str]]

_SHAPE = ("n_head", "n_kv_head", "n_embd", "n_expanded_embd", "vocab_size")
_MLP_TIMES = tuple(f"time_stats.{name}.median" for name in MLP_OPERATIONS)
_ATTENTION = ("n_embd", "n_q_head", "n_kv_head", "block_size", "num_tensor_parallel_workers")
_KEYS = ("batch_size", "prefill_chunk_size", "kv_cache_size")
_LINK = ("num_workers", "devices_per_node", "size")
_PREFIX = "--random_forrest_execution_time_predictor_config_"
_OWN_COSTS = (
    "attention_decode_batching_overhead_fraction",
    "nccl_cpu_launch_overhead_ms",
    "nccl_cpu_skew_overhead_per_device_ms",
)


def check_files(files: Files) -> tuple[str, ...]:
    """Check the files of an export.

    Parameters
    ----------
    files : tuple of ExportedFile
        The two data sets and the flags.

    Returns
    -------
    tuple of str
        What is wrong, as ``file:row: what`` with the line of a table's row; empty where the
        package trains on them.
    """
    out: list[str] = []
    flags: dict[str, str] = {}
    for file in files:
        if file.path.endswith("-flags.txt"):
            flags, wrong = _flags(file.content.decode("utf-8"), file.path)
            out.extend(wrong)
    found: set[str] = set()
    for file in files:
        name = file.path.rpartition("/")[2]
        kind = "compute" if file.path.startswith("profiling_data/compute/") else "network"
        if name == "config.json":
            found.add(kind)
            out.extend(_config(file.content.decode("utf-8"), file.path, kind, flags))
        elif name.endswith(".csv.xz"):
            found.add(name)
            out.extend(_table(file.content, file.path, name, flags))
        elif name == "main" and not re.fullmatch("[0-9a-f]{40}", file.content.decode("utf-8")):
            out.append(f"{file.path}: a revision is 40 hexadecimal digits")
    needed = ("compute", "network", "mlp.csv.xz", "attention.csv.xz", "all_reduce.csv.xz")
    out.extend(f"{name}: is missing" for name in needed if name not in found)
    return tuple(out)


def _flags(text: str, file: str) -> tuple[dict[str, str], list[str]]:
    given: dict[str, str] = {}
    out = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line or line.startswith("#"):
            continue
        words = line.split()
        if len(words) != 2 or not words[0].startswith("--"):
            out.append(f"{file}:{number}: a flag and its value, got {line!r}")
        else:
            given[words[0]] = words[1]
    for name in _OWN_COSTS:
        value = given.get(_PREFIX + name)
        if value is None or float(value) != 0.0:
            out.append(f"{file}: {name} is {value}; allowed 0, or it is charged twice")
    return given, out


def _config(text: str, file: str, kind: str, flags: Mapping[str, str]) -> list[str]:
    try:
        config: dict[str, Any] = json.loads(text)
    except ValueError as error:
        return [f"{file}: not readable as JSON: {error}"]
    fields: dict[str, tuple[tuple[str, ...], str]] = {
        "model": ((), "--replica_config_model_name"),
        "device_sku": (DEVICES, "--replica_config_device"),
    }
    if kind == "network":
        fields = {"sku": (NODES, "--replica_config_network_device")}
    out = []
    for field, (allowed, flag) in fields.items():
        value = config.get(field)
        if not isinstance(value, str) or (allowed and value not in allowed):
            out.append(f"{file}: {field} is {value!r}; allowed {', '.join(allowed) or 'a name'}")
        elif flags and flags.get(flag) != value:
            out.append(f"{file}: {field} is {value!r} and {flag} {flags.get(flag)!r}")
    return out


def _table(data: bytes, file: str, name: str, flags: Mapping[str, str]) -> list[str]:
    try:
        text = lzma.decompress(data).decode("utf-8")
    except lzma.LZMAError as error:
        return [f"{file}: not readable as xz: {error}"]
    reader = csv.DictReader(io.StringIO(text))
    columns = tuple(reader.fieldnames or ())
    rows = list(reader)
    if name == "mlp.csv.xz":
        return _mlp(file, columns, rows, flags)
    if name == "attention.csv.xz":
        return _attention(file, columns, rows, flags)
    if name == "all_reduce.csv.xz":
        return _all_reduce(file, columns, rows, flags)
    return []


def _lacking(file: str, columns: Sequence[str], needed: Sequence[str]) -> list[str]:
    return [f"{file}:1: column {name} is missing" for name in needed if name not in columns]


def _mlp(file: str, columns: Sequence[str], rows: Rows, flags: Mapping[str, str]) -> list[str]:
    needed = (*_SHAPE, "use_gated_mlp", "num_tokens", "num_tensor_parallel_workers", *_MLP_TIMES)
    out = _lacking(file, columns, needed)
    if out:
        return out
    for line, row in enumerate(rows, 2):
        if row["use_gated_mlp"] not in {"True", "False"}:
            out.append(f"{file}:{line}: use_gated_mlp is True or False")
        out.extend(_whole(file, line, row, (*_SHAPE, "num_tokens"), 1))
        out.extend(_time(file, line, row, _MLP_TIMES))
    shapes = {tuple(row[name] for name in (*_SHAPE, "use_gated_mlp")) for row in rows}
    if len(shapes) > 1:
        out.append(f"{file}: rows of {len(shapes)} models; only one is kept")
    out.extend(_width(file, rows, "num_tensor_parallel_workers", flags))
    return out


def _attention(
    file: str, columns: Sequence[str], rows: Rows, flags: Mapping[str, str]
) -> list[str]:
    times = ("time_stats.attn_prefill.median", "time_stats.attn_decode.median")
    out = _lacking(file, columns, (*_ATTENTION, *_KEYS, *times))
    if out:
        return out
    kinds = {"decodes": 0, "prompts": 0}
    for line, row in enumerate(rows, 2):
        out.extend(_whole(file, line, row, _ATTENTION, 1))
        out.extend(_whole(file, line, row, _KEYS, 0))
        decode = row["prefill_chunk_size"] == "0"
        kinds["decodes" if decode else "prompts"] += 1
        out.extend(_time(file, line, row, (times[1] if decode else times[0],)))
    out.extend(
        f"{file}: {count} rows of {kind}; two at least are needed to train on"
        for kind, count in kinds.items()
        if count < 2
    )
    size = flags.get("--cache_config_block_size")
    if size and any(row["block_size"] != size for row in rows):
        out.append(f"{file}: a block_size other than the flag's {size} is left out")
    out.extend(_width(file, rows, "num_tensor_parallel_workers", flags))
    return out


def _all_reduce(
    file: str, columns: Sequence[str], rows: Rows, flags: Mapping[str, str]
) -> list[str]:
    time = "time_stats.all_reduce.median"
    out = _lacking(file, columns, ("collective", *_LINK, time))
    if out or flags.get("--replica_config_tensor_parallel_size", "1") == "1":
        return out
    for line, row in enumerate(rows, 2):
        if row["collective"] != "all_reduce":
            out.append(f"{file}:{line}: collective is {row['collective']!r}; allowed all_reduce")
        if row["num_workers"] != row["devices_per_node"]:
            out.append(f"{file}:{line}: devices_per_node differs from num_workers: left out")
        out.extend(_whole(file, line, row, _LINK, 1))
        out.extend(_time(file, line, row, (time,)))
    if len(rows) < 2:
        out.append(f"{file}: {len(rows)} rows; two at least are needed to train on")
    out.extend(_width(file, rows, "num_workers", flags))
    return out


def _width(file: str, rows: Rows, column: str, flags: Mapping[str, str]) -> list[str]:
    width = flags.get("--replica_config_tensor_parallel_size")
    if width and any(row[column] != width for row in rows):
        return [f"{file}: {column} other than the flag's {width} is left out"]
    return []


def _whole(
    file: str, line: int, row: Mapping[str, str], names: Sequence[str], least: int
) -> list[str]:
    return [
        f"{file}:{line}: {name} is {row[name]!r}; allowed whole numbers from {least}"
        for name in names
        if not (row[name] or "").isdigit() or int(row[name]) < least
    ]


def _time(file: str, line: int, row: Mapping[str, str], names: Sequence[str]) -> list[str]:
    out = []
    for name in names:
        try:
            value = float(row[name])
        except (TypeError, ValueError):
            value = math.nan
        if not (math.isfinite(value) and value >= 0.0):
            out.append(f"{file}:{line}: {name} is {row[name]!r}; allowed milliseconds >= 0")
    return out
