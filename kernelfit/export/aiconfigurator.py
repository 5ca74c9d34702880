"""A kernel as the ``system.yaml`` of AIConfigurator and AISimulate."""

from __future__ import annotations

from collections.abc import Mapping

from kernelfit.export.aiconfigurator_check import check_files
from kernelfit.export.aiconfigurator_rates import KINDS, nearest_shares, peak_times, sol_times
from kernelfit.export.base import (
    ExportedFile,
    ExportOptions,
    Files,
    NotExpressed,
    Setting,
    Target,
    comment,
    setting,
)
from kernelfit.export.probes import agreements, kernel_times, probe_batches
from kernelfit.export.refused import NotExpressible
from kernelfit.kernel.fitted import FittedKernel
from kernelfit.kernel.launches import plain_launches

NAME = "aiconfigurator"

_SYSTEMS = {
    "A100-SXM-80GB": ("a100_sxm", 80),
    "H100-SXM": ("h100_sxm", 90),
    "H200-SXM": ("h200_sxm", 90),
    "L40S": ("l40s", 89),
    "B200": ("b200_sxm", 100),
    "B300": ("b300_sxm", 103),
}
"""Name of the system, and compute capability (NVIDIA, CUDA GPU compute capability)."""

_SETTINGS = (
    Setting("system", "", "name of the system, the file's stem; the package's own by default"),
    Setting("data_dir", "", "operator tables, relative to the systems folder; data/<system>"),
    Setting("nccl_version", "2.27.3", "whose NCCL tables are read"),
)

_FLOPS = {"bf16": "bfloat16_tc_flops", "int8": "int8_tc_flops", "fp8": "fp8_tc_flops"}


def _system(kernel: FittedKernel, options: ExportOptions) -> tuple[str, int]:
    chip = kernel.plan.chip.name
    if chip not in _SYSTEMS:
        known = ", ".join(sorted(_SYSTEMS))
        reason = f"the package keeps operator tables of its own systems only; allowed {known}"
        raise NotExpressible(NAME, "chip", chip, reason)
    name, capability = _SYSTEMS[chip]
    return setting(_SETTINGS, options, "system") or name, capability


def activation_share(kernel: FittedKernel) -> float:
    """Return the share of the memory's bandwidth that elementwise passes reach.

    Parameters
    ----------
    kernel : FittedKernel
        The kernel.

    Returns
    -------
    float
        ``hbm_activation_eff`` [1].
    """
    return {c.name: c.value for c in kernel.fitted.coefficients}["hbm_activation_eff"]


def constant_s(kernel: FittedKernel) -> float:
    """Return the constant of one memory operation.

    Parameters
    ----------
    kernel : FittedKernel
        The kernel.

    Returns
    -------
    float
        The floor of a layer over what a plain layer launches [s].
    """
    values = {c.name: c.value for c in kernel.fitted.coefficients}
    if "layer_floor_s" not in kernel.plan.coefficients:
        return 0.0
    return values["layer_floor_s"] / plain_launches(kernel.plan.chip.kind)


def plain(value: float) -> str:
    """Return a number as every YAML reader takes it.

    Parameters
    ----------
    value : float
        The number.

    Returns
    -------
    str
        Whole where it is whole, else decimal digits without an exponent: PyYAML reads ``3e-06``
        as text.
    """
    if value == int(value):
        return str(int(value))
    return f"{value:.12f}".rstrip("0")


def system_text(kernel: FittedKernel, options: ExportOptions, achieved: bool) -> str:
    """Return the text of a ``system.yaml``.

    Parameters
    ----------
    kernel : FittedKernel
        The kernel.
    options : ExportOptions
        The options.
    achieved : bool
        Whether the rates are those with which the ``SOL`` mode, which reads no corrections,
        comes nearest to the kernel, or the datasheet's beside corrections, for the modes with
        tables.

    Returns
    -------
    str
        The YAML, with the provenance and a word on every correction.
    """
    chip = kernel.plan.chip
    name, capability = _system(kernel, options)
    taken = dict.fromkeys(KINDS, 1.0)
    heading = _heading(name, achieved)
    if achieved:
        batches = probe_batches(kernel)
        taken = nearest_shares(kernel, batches)
        times = sol_times(peak_times(kernel, batches), [taken[kind] for kind in KINDS])
        near = agreements(batches, kernel_times(kernel, batches), times)
        heading += tuple(f"# nearest: {each.line()}" for each in near)
    lines = [comment(NAME, kernel, options).rstrip("\n"), *heading]
    folder = setting(_SETTINGS, options, "data_dir") or f"data/{name}"
    lines += [f"data_dir: {folder}", "gpu:"]
    lines.append(_entry("mem_bw", chip.hbm_bytes_per_s * taken["weight"], "byte/s"))
    correction = activation_share(kernel) / taken["weight"]
    lines.append(
        _entry("mem_bw_empirical_scaling_factor", correction, "hbm_activation_eff of the kernel")
    )
    lines.append(
        _entry(
            "mem_empirical_constant_latency",
            constant_s(kernel),
            f"s; layer_floor_s over {plain_launches(chip.kind)} launches of a layer",
        )
    )
    lines.append(_entry("mem_capacity", chip.hbm_bytes, "byte"))
    for dtype, field in _FLOPS.items():
        peaks = dict(chip.peak_flop_per_s)
        if dtype in peaks:
            lines.append(_entry(field, peaks[dtype] * taken["gemm"], "FLOP/s"))
    lines.append(_entry("sm_version", capability, "compute capability"))
    lines.append("node:")
    lines.append(_entry("num_gpus_per_node", chip.gpus_per_node, "GPUs"))
    lines.append(_entry("inter_node_bw", chip.nic_bytes_per_s, "byte/s, one direction"))
    link = chip.nvlink_bytes_per_s or chip.pcie_bytes_per_s
    lines.append(_entry("intra_node_bw", link * taken["link"], "byte/s, one direction"))
    lines.append(_entry("pcie_bw", chip.pcie_bytes_per_s, "byte/s, one direction"))
    lines.append(_entry("p2p_latency", 1e-5, "s; the package's own, no step log holds it"))
    lines += ["misc:", "  nccl_mem:", *_communicators(kernel)]
    graphs = kernel.fixed_bytes().cuda_graph_bytes
    lines.append(_entry("other_mem", graphs, "byte; the kernel's graphs"))
    version = setting(_SETTINGS, options, "nccl_version")
    lines.append(f"  nccl_version: '{version}'")
    return "\n".join(lines) + "\n"


def _heading(name: str, achieved: bool) -> tuple[str, ...]:
    """Say where the file goes and what it is for."""
    where = f"# place: the systems folder, as {name}.yaml or under a name of its own"
    if achieved:
        return (
            where,
            "# use: database_mode SOL; rates with which the mode comes nearest to the kernel",
        )
    return (where, "# use: the modes with tables; GEMM, attention and links stay the tables' own")


def _entry(name: str, value: float, word: str) -> str:
    return f"  {name}: {plain(value)}  # {word}"


def _communicators(kernel: FittedKernel) -> list[str]:
    """Return the memory of the communicators by width, the kernel's own for all of them."""
    width = kernel.plan.resolution.tensor_parallel_width
    own = kernel.fixed_bytes().comm_buffers_bytes if width > 1 else 0
    return [f"    {tp}: {own if tp > 1 else 0}" for tp in (1, 2, 4, 8)]


def export(kernel: FittedKernel, options: ExportOptions) -> Files:
    """Write a kernel as two system files.

    Parameters
    ----------
    kernel : FittedKernel
        The kernel.
    options : ExportOptions
        The options.

    Returns
    -------
    tuple of ExportedFile
        ``<system>.yaml`` for the modes with tables and ``<system>_achieved.yaml`` for ``SOL``.

    Raises
    ------
    NotExpressible
        When the package keeps no tables of the chip.
    """
    name, _ = _system(kernel, options)
    return tuple(
        ExportedFile(f"{name}{suffix}.yaml", system_text(kernel, options, achieved))
        for suffix, achieved in (("", False), ("_achieved", True))
    )


def missing(kernel: FittedKernel, options: ExportOptions) -> tuple[NotExpressed, ...]:
    """Return the coefficients of a kernel that a system file has no place for.

    Parameters
    ----------
    kernel : FittedKernel
        The kernel.
    options : ExportOptions
        The options; they change nothing here.

    Returns
    -------
    tuple of NotExpressed
        In the order of the kernel's coefficients.
    """
    del options
    out = []
    for name in kernel.plan.coefficients:
        reason = next((why for start, why in _MISSING.items() if name.startswith(start)), None)
        if reason is not None:
            out.append(NotExpressed(name, reason))
    return tuple(out)


_ACHIEVED = "with tables the package takes its own measurements; for SOL it is part of the rates"
_MISSING: Mapping[str, str] = {
    "gemm_m_half": "its roofline has no ramp of small batches",
    "gemm_eff": _ACHIEVED,
    "hbm_weight_eff": _ACHIEVED,
    "hbm_expert_eff": "experts are read at the rate of all memory",
    "hbm_kv_eff": "attention is its table's, or at the rate of all memory",
    "attention": "attention is its table's, or at the one peak",
    "recurrent": "no field",
    "expert": "no field",
    "allreduce": "a rate only in the file for SOL; no floor and no transition",
    "allgather": "no field of its own",
    "reducescatter": "no field of its own",
    "alltoall": "no field of its own",
    "internode": "no field of its own",
    "launch": "no host time",
    "schedule": "no host time",
}

TARGET = Target(
    name=NAME,
    title="AIConfigurator and AISimulate: system.yaml with its corrections, and one for SOL",
    holds=(
        "mem_bw_empirical_scaling_factor and mem_empirical_constant_latency",
        "datasheet rates, memory of graphs and communicators",
        "in a second file: rates with which the SOL mode comes nearest to the step",
    ),
    lacks=(
        "anything of the host: launches, graphs, scheduling",
        "floors and ramps of multiplications, attention and links: tables of its own",
        "overlap, intervals, verdicts, draws",
    ),
    source=(
        "PyPI aiconfigurator-core 0.12.0: aiconfigurator_core/systems/*.yaml, "
        "sdk/system_spec.py, and its compiled engine"
    ),
    export=export,
    check=check_files,
    missing=missing,
    settings=_SETTINGS,
)
"""The target."""
