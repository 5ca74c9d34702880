"""A kernel as the profile data sets that the PyPI package ``vidur`` trains its predictor on."""

from __future__ import annotations

import json
import lzma

import numpy as np

from kernelfit.export.base import (
    ExportedFile,
    ExportOptions,
    Files,
    NotExpressed,
    Setting,
    Target,
    comment,
    integers,
    provenance,
    setting,
)
from kernelfit.export.operators import operator_times, overlap_scales
from kernelfit.export.probes import agreements, kernel_times, probe_batches
from kernelfit.export.refused import NotExpressible
from kernelfit.export.vidur_check import check_files
from kernelfit.export.vidur_models import MACHINES, VidurModel, vidur_model
from kernelfit.export.vidur_models import TARGET as NAME
from kernelfit.export.vidur_tables import Grid, csv_text, tables_of
from kernelfit.kernel.fitted import FittedKernel

_SETTINGS = (
    Setting("model", "", "a class of your own in the package, of the model's shape"),
    Setting("device", "", "a40, a100, h100 or l40; the chip's by default"),
    Setting("network_device", "", "as a100_dgx; the chip's by default"),
    Setting("max_requests", "128", "decoding requests in the tables"),
    Setting("max_context", "8192", "longest context in the tables [tokens]"),
    Setting("max_chunk", "4096", "largest chunk of a prompt in the tables [tokens]"),
    Setting("granularity", "256", "step of the contexts [tokens]"),
)

_OWNER = "kernelfit"
_PREFIX = "--random_forrest_execution_time_predictor_config"


def _one(options: ExportOptions, name: str, least: int) -> int:
    return integers(name, setting(_SETTINGS, options, name), least)[0]


def grid_of(kernel: FittedKernel, options: ExportOptions) -> Grid:
    """Return where the tables have rows: the settings, within the pool's limits.

    Parameters
    ----------
    kernel : FittedKernel
        The kernel.
    options : ExportOptions
        The options.

    Returns
    -------
    Grid
        The grid.

    Raises
    ------
    InvalidArgument
        When a setting is no whole number of its kind.
    """
    resolution = kernel.plan.resolution
    longest = kernel.plan.pool.max_model_len
    context = _one(options, "max_context", 1)
    granularity = _one(options, "granularity", 1)
    context = context if longest is None else min(context, longest - 1)
    chunk = min(_one(options, "max_chunk", 32), resolution.max_num_batched_tokens)
    return Grid(
        most_tokens=resolution.max_num_batched_tokens,
        most_requests=min(_one(options, "max_requests", 1), resolution.max_num_seqs),
        most_context=max(granularity, context // granularity * granularity),
        most_chunk=max(32, chunk // 32 * 32),
        granularity=granularity,
    )


def _machine(kernel: FittedKernel, options: ExportOptions) -> tuple[str, str]:
    chip = kernel.plan.chip.name
    device, network = MACHINES.get(chip, ("", ""))
    device = setting(_SETTINGS, options, "device") or device
    network = setting(_SETTINGS, options, "network_device") or network
    if not (device and network):
        raise NotExpressible(
            NAME,
            "chip",
            chip,
            "the package knows no such device; allowed "
            + ", ".join(sorted(MACHINES))
            + ", or --set device=... --set network_device=...",
        )
    return device, network


def dataset_names(kernel: FittedKernel, options: ExportOptions) -> tuple[str, str]:
    """Return the names of the two data sets.

    Parameters
    ----------
    kernel : FittedKernel
        The kernel.
    options : ExportOptions
        The options.

    Returns
    -------
    (str, str)
        Compute and network, as ``owner/name``; the kernel's digest is part of the name,
        because the package caches what it trained by it.
    """
    short = kernel.digest.removeprefix("sha256:")[:12]
    return f"{_OWNER}/{options.stem}-{short}", f"{_OWNER}/{options.stem}-{short}-network"


def flags_text(kernel: FittedKernel, options: ExportOptions, model: VidurModel, grid: Grid) -> str:
    """Return the flags with which the package reads the tables and adds nothing of its own.

    Parameters
    ----------
    kernel : FittedKernel
        The kernel.
    options : ExportOptions
        The options.
    model : VidurModel
        What the package calls the model.
    grid : Grid
        Where the tables have rows.

    Returns
    -------
    str
        One flag a line below the provenance.
    """
    device, network = _machine(kernel, options)
    compute, links = dataset_names(kernel, options)
    resolution = kernel.plan.resolution
    most = max(grid.most_tokens, grid.most_context)
    flags = [
        f"--replica_config_model_name {model.name}",
        f"--replica_config_device {device}",
        f"--replica_config_network_device {network}",
        f"--replica_config_tensor_parallel_size {resolution.tensor_parallel_width}",
        "--replica_config_num_pipeline_stages 1",
        f"--cache_config_block_size {resolution.block_size}",
        "--execution_time_predictor_config_type random_forrest",
        f"{_PREFIX}_model_profiling_dataset {compute}",
        f"{_PREFIX}_network_profiling_dataset {links}",
        f"{_PREFIX}_kv_cache_prediction_granularity {grid.granularity}",
        f"{_PREFIX}_prediction_max_prefill_chunk_size {grid.most_chunk}",
        f"{_PREFIX}_prediction_max_batch_size {grid.most_requests}",
        f"{_PREFIX}_prediction_max_tokens_per_request {most}",
        f"{_PREFIX}_attention_decode_batching_overhead_fraction 0.0",
        f"{_PREFIX}_nccl_cpu_launch_overhead_ms 0.0",
        f"{_PREFIX}_nccl_cpu_skew_overhead_per_device_ms 0.0",
        f"{_PREFIX}_cache_dir .",
    ]
    head = "# run in this folder, with HF_HUB_OFFLINE=1 and PYTHONPATH of the package\n"
    return comment(NAME, kernel, options) + head + "\n".join(flags) + "\n"


def export(kernel: FittedKernel, options: ExportOptions) -> Files:
    """Write a kernel as the package's data sets, laid out as its hub's cache.

    Parameters
    ----------
    kernel : FittedKernel
        The kernel.
    options : ExportOptions
        The options.

    Returns
    -------
    tuple of ExportedFile
        Two data sets (``config.json`` and tables) below ``profiling_data``, and the flags.

    Raises
    ------
    NotExpressible
        For experts, attention other than full, models and chips that the package does not
        know, several kinds of layer, data-parallel ranks.
    """
    model = vidur_model(kernel, setting(_SETTINGS, options, "model"))
    device, network = _machine(kernel, options)
    grid = grid_of(kernel, options)
    tables = tables_of(kernel, model, grid)
    origin = {"kernelfit": provenance(NAME, kernel, options)}
    compute, links = dataset_names(kernel, options)
    revision = kernel.digest.removeprefix("sha256:")[:40]
    empty: dict[str, list[object]] = {
        name: [] for name in ("collective", "devices_per_node", "size")
    }
    sets = (
        (
            "compute",
            compute,
            {"model": model.name, "device_sku": device, **origin},
            {"mlp": tables.mlp, "attention": tables.attention},
        ),
        (
            "network",
            links,
            {"sku": network, **origin},
            {
                "all_reduce": tables.all_reduce,
                "send_recv": {**empty, "time_stats.send_recv.median": []},
            },
        ),
    )
    files = [ExportedFile("vidur-flags.txt", flags_text(kernel, options, model, grid))]
    for kind, name, config, contents in sets:
        base = f"profiling_data/{kind}/datasets--{name.replace('/', '--')}"
        files.append(ExportedFile(f"{base}/refs/main", revision))
        place = f"{base}/snapshots/{revision}"
        text = json.dumps(config, indent=2, sort_keys=True) + "\n"
        files.append(ExportedFile(f"{place}/config.json", text))
        files.extend(
            ExportedFile(f"{place}/{table}.csv.xz", lzma.compress(csv_text(columns).encode()))
            for table, columns in contents.items()
        )
    return tuple(files)


def missing(kernel: FittedKernel, options: ExportOptions) -> tuple[NotExpressed, ...]:
    """Return what the tables lose of a kernel.

    Parameters
    ----------
    kernel : FittedKernel
        The kernel.
    options : ExportOptions
        The options; they change nothing here.

    Returns
    -------
    tuple of NotExpressed
        How far the operations, added up, are from the step; then what is folded together.
    """
    del options
    batches = probe_batches(kernel)
    scales = overlap_scales(kernel, batches)
    parts = np.sum(list(operator_times(kernel, batches, scales).values()), axis=0)
    found = agreements(batches, kernel_times(kernel, batches), parts)
    out = [NotExpressed("overlap between operations", each.line()) for each in found]
    used = {part: value for part, value in scales.items() if value != 1.0}
    if used:
        words = ", ".join(f"{part} {value:.3f}" for part, value in used.items())
        out.append(NotExpressed("overlap_share", f"operations are multiplied by: {words}"))
    out.append(NotExpressed("head and host", "folded into the operation add of every layer"))
    return tuple(out)


TARGET = Target(
    name=NAME,
    title="Vidur (PyPI vidur): profile tables for its predictor, and the flags to run with",
    holds=(
        "projections, attention, passes, floors of dense layers, by tokens and context",
        "all-reduce by size, at the kernel's width",
        "head and host, folded into every layer",
    ),
    lacks=(
        "experts, latent, linear and windowed attention, layers of several kinds (refused)",
        "data-parallel ranks, several nodes, speculation (refused)",
        "models and devices that the package does not know (refused)",
        "overlap between operations: the package adds them up",
        "contexts of a batch one by one: it takes their mean, rounded up",
        "intervals, verdicts, draws",
    ),
    source=(
        "PyPI vidur 0.0.26: vidur/execution_time_predictor/sklearn_execution_time_predictor.py, "
        "vidur/entities/execution_time.py, vidur/config/model_config.py"
    ),
    export=export,
    check=check_files,
    missing=missing,
    settings=_SETTINGS,
)
"""The target."""
