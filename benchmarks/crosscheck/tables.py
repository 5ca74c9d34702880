"""NVIDIA's operator tables as columns in SI units."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.crosscheck.fits import Array
from kernelfit.documents.chips import find_chip
from kernelfit.kernel.chip import Chip

ROOT = Path(__file__).resolve().parents[2]
CHIPS: dict[str, str] = {
    "h100_sxm": "h100-sxm",
    "a100_sxm": "a100-sxm-80gb",
    "b300_sxm": "b300",
}
"""Folders of the tables, and the chip documents they belong to."""

GEMM_TYPES: dict[str, tuple[str, float]] = {
    # table's name: compute type, bytes of one weight with its scales
    "bfloat16": ("bf16", 2.0),
    "fp8": ("fp8", 1.0),
    "fp8_block": ("fp8", 1.0 + 4.0 / 128**2),
    "nvfp4": ("fp4", 0.5 + 1.0 / 16),
}
CACHE_BYTES = {"bfloat16": 2.0, "fp8": 1.0}
NCCL_BYTES = {"half": 2.0, "int8": 1.0}


def chip_of(folder: str) -> Chip:
    """Return the chip that a folder's tables were measured on."""
    return find_chip(CHIPS[folder], ROOT / "calib" / "chips")


def versions(root: Path, folder: str, kind: str) -> str:
    """Return the engine version that a folder's tables of a kind come from."""
    return next((root / folder).glob(f"{kind}-*")).name.removeprefix(f"{kind}-")


def _read(root: Path, folder: str, kind: str, name: str) -> pd.DataFrame:
    path = next((root / folder).glob(f"{kind}/{name}.parquet"), None)
    return pd.DataFrame() if path is None else pd.read_parquet(path)


def _floats(table: pd.DataFrame, **columns: str) -> dict[str, Array]:
    return {name: table[old].to_numpy(np.float64, copy=True) for name, old in columns.items()}


def gemms(root: Path, folder: str) -> dict[str, dict[str, Array]]:
    """Return the matrix multiplications by the table's data type."""
    table = _read(root, folder, "gemm-vllm-*", "gemm_perf")
    out = {}
    for dtype, rows in table.groupby("gemm_dtype", sort=True):
        columns = _floats(rows, m="m", n="n", k="k", time_s="latency")
        columns["time_s"] /= 1e3
        out[str(dtype)] = columns
    return out


def attention(root: Path, folder: str, phase: str) -> dict[str, Array]:
    """Return attention of one phase, ``context`` or ``generation``.

    Pairs and context count each sequence's own window; the new token is part of the
    context.
    """
    table = _read(root, folder, "attention-vllm-*", f"{phase}_attention_perf")
    if "window_size" not in table:
        table["window_size"] = 0
    columns = _floats(
        table,
        batch="batch_size",
        scheduled="isl",
        heads="num_heads",
        kv_heads="num_key_value_heads",
        head_dim="head_dim",
        window="window_size",
        time_s="latency",
    )
    columns["time_s"] /= 1e3
    columns["cache_bytes"] = table["kv_cache_dtype"].map(CACHE_BYTES).to_numpy(np.float64)
    window = np.where(columns["window"] > 0, columns["window"], np.inf)
    s = columns["scheduled"]
    if phase == "generation":
        context = np.minimum(table["step"].to_numpy(np.float64) + 1.0, window)
        pairs = context
    else:
        context = s
        head = np.minimum(s, window)
        pairs = head * (head + 1.0) / 2.0 + np.where(s > window, (s - head) * head, 0.0)
    columns["context"] = context
    columns["pair_flop"] = columns["batch"] * pairs * 4.0 * columns["heads"] * columns["head_dim"]
    width = 2.0 * columns["kv_heads"] * columns["head_dim"] * columns["cache_bytes"]
    columns["kv_bytes"] = columns["batch"] * (context + s) * width
    columns["starts"] = columns["batch"] * columns["kv_heads"]
    io = 2.0 * columns["heads"] + 2.0 * columns["kv_heads"]
    columns["io_bytes"] = columns["batch"] * s * io * columns["head_dim"] * 2.0
    return columns


def collectives(root: Path, folder: str) -> dict[str, dict[str, Array]]:
    """Return collectives inside a node, by the kernel's name of the operation.

    ``link_bytes`` is what one rank moves over its link: 2 (n - 1) / n of the message for
    an all-reduce, (n - 1) / n for the others, whose message is the whole tensor.
    """
    out = {}
    custom = _read(root, folder, "comm-vllm-*", "custom_allreduce_perf")
    custom = custom[custom["backend"] == "vllm_graph"].assign(size=2.0, op="allreduce_custom")
    nccl = _read(root, folder, "comm-nccl-*", "nccl_perf")
    names = {
        "all_reduce": "allreduce_nccl",
        "all_gather": "allgather",
        "reduce_scatter": "reducescatter",
        "alltoall": "alltoall",
    }
    nccl = nccl.assign(size=nccl["nccl_dtype"].map(NCCL_BYTES), op=nccl["op_name"].map(names))
    table = pd.concat([custom, nccl])
    for op, rows in table.groupby("op", sort=True):
        columns = _floats(rows, ranks="num_gpus", message="message_size", time_s="latency")
        columns["time_s"] /= 1e3
        columns["message"] *= rows["size"].to_numpy(np.float64)
        ranks = columns["ranks"]
        times = 2.0 if str(op).startswith("allreduce") else 1.0
        columns["link_bytes"] = times * (ranks - 1.0) / ranks * columns["message"]
        out[str(op)] = columns
    return out


def exchanges(root: Path, folder: str) -> dict[str, dict[str, Array]]:
    """Return the exchanges of experts' rows, by back end and phase.

    A token is sent once to each rank that holds one of its ``topk`` experts, under uniform
    routing, and (n - 1) / n of that goes over the link, as the kernel counts it. The table's
    unit is a microsecond.
    """
    table = _read(root, folder, "comm-vllm-*", "moe_a2a_perf")
    out: dict[str, dict[str, Array]] = {}
    if table.empty:
        return out
    for (backend, phase), rows in table.groupby(["comm_backend", "phase"], sort=True):
        columns = _floats(
            rows,
            ranks="ep_size",
            tokens="num_tokens",
            hidden="hidden_size",
            topk="topk",
            time_s="latency",
        )
        columns["time_s"] /= 1e6
        ranks = columns["ranks"]
        copies = ranks * (1.0 - (1.0 - 1.0 / ranks) ** columns["topk"])
        columns["message"] = columns["tokens"] * copies * columns["hidden"] * 2.0
        columns["link_bytes"] = columns["message"] * (ranks - 1.0) / ranks
        out[f"{backend} {phase}"] = columns
    return out
