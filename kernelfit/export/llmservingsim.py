"""A kernel as a profile bundle of LLMServingSim."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping

from kernelfit.export.base import (
    ExportedFile,
    ExportOptions,
    Files,
    NotExpressed,
    Setting,
    Target,
    comment,
    integers,
    setting,
)
from kernelfit.export.llmservingsim_check import check_files
from kernelfit.export.llmservingsim_law import Profile
from kernelfit.export.llmservingsim_tables import axes_of, profile_of
from kernelfit.export.operators import dense_layer
from kernelfit.export.refused import NotExpressible
from kernelfit.kernel.fitted import FittedKernel

NAME = "llmservingsim"

_SETTINGS = (
    Setting("hardware", "", "folder of the hardware; the chip's name by default"),
    Setting("model", "", "the model as in configs/model, org/name; its own name by default"),
    Setting("family", "", "llama or qwen3; by the norms of queries and keys"),
    Setting("max_context", "16384", "longest context in the tables [tokens]"),
)

_SHORT = {"bf16": "bf16", "fp16": "fp16", "fp32": "fp32", "fp8": "fp8"}


def family_of(kernel: FittedKernel, options: ExportOptions) -> str:
    """Return the simulator's catalogue of layers for a model.

    Parameters
    ----------
    kernel : FittedKernel
        The kernel.
    options : ExportOptions
        The options.

    Returns
    -------
    str
        ``llama`` or ``qwen3``.

    Raises
    ------
    NotExpressible
        For experts, attention other than full, biases and MLPs without a gate, and an
        unknown family.
    """
    kind = dense_layer(
        NAME,
        kernel,
        "its moe.csv is keyed by tokens and activated experts of one rank, which its own router "
        "draws; a kernel prices the expectation over uniform routing",
    )
    if kind.mlp is None or not kind.mlp.gated:
        raise NotExpressible(
            NAME, "mlp.gated", False, "its dense catalogues have a gate; allowed gated MLPs"
        )
    own = "qwen3" if kind.attention.qk_norm else "llama"
    family = setting(_SETTINGS, options, "family") or own
    if family not in {"llama", "qwen3"}:
        raise NotExpressible(NAME, "family", family, "allowed llama, qwen3")
    return family


def variant_of(kernel: FittedKernel) -> str:
    """Return the name of the variant's folder, from the types of weights and cache.

    Parameters
    ----------
    kernel : FittedKernel
        The kernel.

    Returns
    -------
    str
        As ``bf16`` or ``bf16-kvfp8``.

    Raises
    ------
    NotExpressible
        When the simulator has no short name for the weights' type.
    """
    weight, cache = kernel.plan.model.weight_dtype, kernel.plan.resolution.cache_dtype
    if weight not in _SHORT:
        raise NotExpressible(NAME, "weight_dtype", weight, f"allowed {', '.join(_SHORT)}")
    return _SHORT[weight] + ("-kvfp8" if cache.startswith("fp8") else "")


def _csv(columns: str, rows: Iterable[tuple[object, ...]]) -> str:
    out = io.StringIO()
    out.write(columns + "\n")
    for row in rows:
        out.write(",".join(map(str, row)) + "\n")
    return out.getvalue()


def _us(nanoseconds: int) -> str:
    return f"{nanoseconds / 1e3:.3f}".rstrip("0").rstrip(".")


def tables_text(profile: Profile) -> dict[str, str]:
    """Return the three tables as text.

    Parameters
    ----------
    profile : Profile
        The tables.

    Returns
    -------
    dict of str to str
        ``dense.csv``, ``per_sequence.csv``, ``attention.csv``; times in microseconds.
    """

    def curves(given: Mapping[str, Mapping[int, int]]) -> Iterable[tuple[object, ...]]:
        for name in sorted(given):
            for key, time in given[name].items():
                yield name, key, _us(time)

    points = ((*("attention", *point), 1, _us(time)) for point, time in profile.attention.items())
    header = "layer,prefill_chunk,kv_prefill,n_decode,kv_decode,decode_q_len,time_us"
    return {
        "dense.csv": _csv("layer,tokens,time_us", curves(profile.dense)),
        "per_sequence.csv": _csv("layer,sequences,time_us", curves(profile.per_sequence)),
        "attention.csv": _csv(header, points),
    }


def link_of(kernel: FittedKernel) -> tuple[float, float] | None:
    """Return a link for the simulator's cluster configuration.

    Parameters
    ----------
    kernel : FittedKernel
        The kernel.

    Returns
    -------
    (float, float) or None
        Bandwidth [GB/s] and latency of a hop [ns], the floor of an all-reduce over the
        ``2 (tp - 1)`` hops of a ring; None without tensor parallelism.
    """
    tp = kernel.plan.resolution.tensor_parallel_width
    values = {c.name: c.value for c in kernel.fitted.coefficients}
    names = [n for n in kernel.plan.coefficients if n.startswith("allreduce")]
    rates = [n for n in names if n.endswith("_eff") and not n.endswith("_transition_eff")]
    floors = [n for n in names if n.endswith("_floor_s")]
    if tp == 1 or not (rates and floors):
        return None
    rate = kernel.plan.chip.nvlink_bytes_per_s * values[rates[0]]
    return rate / 1e9, 1e9 * values[floors[0]] / (2 * (tp - 1))


def meta_text(kernel: FittedKernel, options: ExportOptions, family: str) -> str:
    """Return the text of the bundle's ``meta.yaml``.

    Parameters
    ----------
    kernel : FittedKernel
        The kernel.
    options : ExportOptions
        The options.
    family : str
        The catalogue of layers.

    Returns
    -------
    str
        What was profiled: no GPU run, a kernel; no date.
    """
    resolution = kernel.plan.resolution
    tp = resolution.tensor_parallel_width
    lines = [comment(NAME, kernel, options).rstrip("\n")]
    link = link_of(kernel)
    if link is not None:
        lines.append(
            f"# cluster: link_bw {link[0]:.6g} GB/s, link_latency {link[1]:.6g} ns; the "
            "simulator's collectives take them, no table does"
        )
    lines += [
        "profiler_version: 1.0.0",
        f"vllm_version: '{kernel.plan.engine_version}'",
        f"gpu: {kernel.plan.chip.name}",
        f"hardware: {_hardware(kernel, options)}",
        f"architecture: {family}",
        f"model: {_model(kernel, options)}",
        f"variant: {variant_of(kernel)}",
        f"tp_degrees: [{tp}]",
        "engine_effective:",
        f"  tensor_parallel_size: {tp}",
        f"  max_num_batched_tokens: {resolution.max_num_batched_tokens}",
        f"  max_num_seqs: {resolution.max_num_seqs}",
        f"  block_size: {resolution.block_size}",
        f"  enforce_eager: {str(resolution.graph_mode == 'NONE').lower()}",
        "engine_resolved:",
        "  per_tp:",
        f"    '{tp}':",
        f"      block_size: {resolution.block_size}",
        "skew_fit:",
        "  enabled: false",
    ]
    return "\n".join(lines) + "\n"


def _hardware(kernel: FittedKernel, options: ExportOptions) -> str:
    return setting(_SETTINGS, options, "hardware") or kernel.plan.chip.name


def _model(kernel: FittedKernel, options: ExportOptions) -> str:
    return setting(_SETTINGS, options, "model") or kernel.plan.model.name


def export(kernel: FittedKernel, options: ExportOptions) -> Files:
    """Write a kernel as a profile bundle.

    Parameters
    ----------
    kernel : FittedKernel
        The kernel.
    options : ExportOptions
        The options.

    Returns
    -------
    tuple of ExportedFile
        ``perf/<hardware>/<model>/<variant>/`` with ``meta.yaml`` and the tables of the
        kernel's width, to be put below ``profiler/``.

    Raises
    ------
    NotExpressible
        As ``family_of`` and ``variant_of``.
    InvalidArgument
        When a setting is no number of its kind.
    """
    family, variant = family_of(kernel, options), variant_of(kernel)
    longest = integers("max_context", setting(_SETTINGS, options, "max_context"), 16)[-1]
    profile = profile_of(kernel, family, axes_of(kernel, longest))
    base = f"perf/{_hardware(kernel, options)}/{_model(kernel, options)}/{variant}"
    tp = kernel.plan.resolution.tensor_parallel_width
    files = [ExportedFile(f"{base}/meta.yaml", meta_text(kernel, options, family))]
    files.extend(
        ExportedFile(f"{base}/tp{tp}/{name}", text) for name, text in tables_text(profile).items()
    )
    return tuple(files)


def missing(kernel: FittedKernel, options: ExportOptions) -> tuple[NotExpressed, ...]:
    """Return what the bundle loses of a kernel.

    Parameters
    ----------
    kernel : FittedKernel
        The kernel.
    options : ExportOptions
        The options; they change nothing here.

    Returns
    -------
    tuple of NotExpressed
        Collectives, overlap and the graph's staircase of the host.
    """
    del options
    out = []
    link = link_of(kernel)
    if link is not None:
        out.append(
            NotExpressed(
                "collectives",
                "no table holds them: put the link into the cluster's configuration, "
                f"link_bw {link[0]:.6g} GB/s and link_latency {link[1]:.6g} ns",
            )
        )
    share = kernel.fitted.overlap_share
    if share:
        reason = f"operations follow each other there; the fitted share {share:g} scales them"
        out.append(NotExpressed("overlap_share", reason))
    return tuple(out)


TARGET = Target(
    name=NAME,
    title="LLMServingSim 2: a profile bundle (dense, per-sequence and attention tables)",
    holds=(
        "projections, passes and floors by tokens, head and host by sequences",
        "attention by prompt tokens, their context, decodes and theirs",
    ),
    lacks=(
        "collectives: the simulator takes a link from its cluster configuration",
        "experts, latent, linear and windowed attention, MLPs without a gate (refused)",
        "data-parallel ranks, several nodes, speculation (refused)",
        "several prompts in a step one by one: it adds their tokens and contexts",
        "overlap between operations, intervals, verdicts, draws",
    ),
    source=(
        "https://github.com/casys-kaist/LLMServingSim: profiler/README.md, "
        "serving/core/trace_generator.py, profiler/models/llama.yaml and qwen3.yaml"
    ),
    export=export,
    check=check_files,
    missing=missing,
    settings=_SETTINGS,
)
"""The target."""
