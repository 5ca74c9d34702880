"""LLMServingSim's profile tables of a kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kernelfit.export.llmservingsim_law import EPILOGUE, LAYER, PROLOGUE, Point, Profile
from kernelfit.export.operators import HEAD, HOST, operator_times, overlap_scales, shares_of
from kernelfit.export.probes import probe_batches
from kernelfit.kernel.basis import Array
from kernelfit.kernel.batch import Batch, RequestShape
from kernelfit.kernel.fitted import FittedKernel


@dataclass(frozen=True, slots=True)
class Axes:
    """Where the tables have rows.

    Attributes
    ----------
    tokens : tuple of int
        Batches [tokens].
    sequences : tuple of int
        Sequences of a batch.
    chunks : tuple of int
        Prompt tokens of a batch, 0 first [tokens].
    decodes : tuple of int
        Decodes of a batch, 0 first.
    contexts : tuple of int
        Contexts, 0 first [tokens].
    """

    tokens: tuple[int, ...]
    sequences: tuple[int, ...]
    chunks: tuple[int, ...]
    decodes: tuple[int, ...]
    contexts: tuple[int, ...]


def axes_of(kernel: FittedKernel, most_context: int) -> Axes:
    """Return where a kernel's tables have rows.

    Parameters
    ----------
    kernel : FittedKernel
        The kernel.
    most_context : int
        Longest context [tokens].

    Returns
    -------
    Axes
        Both sides of every captured size, since the time is a staircase there and the
        simulator interpolates, and doubling steps elsewhere up to the pool's limits; prompt
        tokens in steps of the root of two, since attention is a square in them.
    """
    resolution = kernel.plan.resolution
    most_tokens, most_requests = resolution.max_num_batched_tokens, resolution.max_num_seqs
    sizes = [s for s in resolution.capture_sizes if s <= most_tokens]
    steps = {s + up for s in sizes for up in (0, 1)} | set(_doubling(1, most_tokens, 2.0))
    chunks = _doubling(16, most_tokens, 2.0**0.5)
    return Axes(
        tokens=tuple(sorted(s for s in steps if s <= most_tokens)),
        sequences=tuple(_doubling(1, most_requests, 2.0)),
        chunks=(0, *chunks),
        decodes=(0, *_doubling(1, most_requests, 2.0)),
        contexts=(0, *_doubling(16, most_context, 2.0)),
    )


def _doubling(first: int, last: int, factor: float) -> list[int]:
    out, value = [], float(first)
    while round(value) < last:
        out.append(round(value))
        value *= factor
    return [*dict.fromkeys(out), last]


def profile_of(kernel: FittedKernel, family: str, axes: Axes) -> Profile:
    """Return the tables of a kernel.

    Parameters
    ----------
    kernel : FittedKernel
        A kernel of a dense model.
    family : str
        ``llama`` or ``qwen3``.
    axes : Axes
        Where there are rows.

    Returns
    -------
    Profile
        Elementwise passes are the two norms of a layer, the layer's floor is ``act_fn``, the
        host is the sampler; what has no time of its own is the least that the simulator
        takes, 1 ns. Collectives are not in tables.
    """
    scales = overlap_scales(kernel, probe_batches(kernel))
    layers = kernel.plan.model.layer_count
    share = shares_of(kernel, kernel.plan.model.layers[0])
    by_tokens = [_tokens_batch(count, axes.sequences[-1]) for count in axes.tokens]
    parts = operator_times(kernel, by_tokens, scales)
    gemm, least = parts["gemm"] / layers, np.zeros(len(axes.tokens))
    named = {
        "qkv_proj": gemm * share.query_key_value,
        "o_proj": gemm * share.output,
        "gate_up_proj": gemm * share.up,
        "down_proj": gemm * share.down,
        "layernorm": parts["passes"] / layers / 2.0,
        "act_fn": parts["floor"] / layers,
    }
    names = dict.fromkeys((*PROLOGUE, *LAYER[family], *EPILOGUE))
    heads = operator_times(kernel, [Batch.decode(n, 1) for n in axes.sequences], scales)
    points = [
        (c, b, n, k)
        for c in axes.chunks
        for n in axes.decodes
        for b in (axes.contexts if c else (0,))
        for k in (axes.contexts if n else (0,))
        if c or n
    ]
    attention = operator_times(kernel, [_point_batch(p) for p in points], scales)["attention"]
    return Profile(
        family,
        layers,
        {name: _curve(axes.tokens, named.get(name, least)) for name in names},
        {
            "lm_head": _curve(axes.sequences, heads[HEAD]),
            "sampler": _curve(axes.sequences, heads[HOST]),
        },
        dict(zip(points, _nanoseconds(attention / layers), strict=True)),
    )


def _tokens_batch(tokens: int, most_requests: int) -> Batch:
    decodes = min(tokens, most_requests)
    left = tokens - decodes
    requests = Batch.decode(decodes, 1).requests
    if left:
        requests = (RequestShape(left + 1, 0, left + 1), *requests[1:])
    return Batch(requests)


def _point_batch(point: Point) -> Batch:
    chunk, before, decodes, context = point
    requests = Batch.decode(decodes, context).requests if decodes else ()
    if chunk:
        requests = (RequestShape(chunk, before, before + chunk), *requests)
    return Batch(requests)


def _nanoseconds(times_s: Array) -> list[int]:
    return [max(1, round(1e9 * float(value))) for value in times_s]


def _curve(keys: Sequence[int], times_s: Array) -> dict[int, int]:
    return dict(zip(keys, _nanoseconds(times_s), strict=True))
