"""The profile tables that Vidur's predictor is trained on, from a kernel's operations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from kernelfit.export.operators import HEAD, HOST, operator_times, overlap_scales, shares_of
from kernelfit.export.probes import probe_batches
from kernelfit.export.vidur_models import VidurModel
from kernelfit.kernel.basis import Array
from kernelfit.kernel.batch import Batch, RequestShape
from kernelfit.kernel.fitted import FittedKernel

TOKENS_STEP = 8
"""The predictor rounds a batch's tokens up to multiples of this [tokens]."""
CHUNK_STEP = 32
"""And a prompt's chunk to multiples of this [tokens]."""

MLP_OPERATIONS: tuple[str, ...] = (
    "attn_pre_proj",
    "attn_post_proj",
    "mlp_up_proj",
    "mlp_down_proj",
    "mlp_act",
    "input_layernorm",
    "post_attention_layernorm",
    "attn_rope",
    "add",
)
"""Operations of the table of a layer without its attention."""


@dataclass(frozen=True, slots=True)
class Grid:
    """Where the tables have rows.

    Attributes
    ----------
    most_tokens : int
        Largest batch [tokens].
    most_requests : int
        Largest number of decoding requests.
    most_context : int
        Longest context [tokens].
    most_chunk : int
        Largest chunk of a prompt [tokens].
    granularity : int
        Step of the contexts [tokens]; the predictor rounds contexts up to it.
    """

    most_tokens: int
    most_requests: int
    most_context: int
    most_chunk: int
    granularity: int


@dataclass(frozen=True, slots=True)
class Tables:
    """The three tables, column by column.

    Attributes
    ----------
    mlp, attention, all_reduce : mapping of str to sequence
        Columns of equal length; times in [ms].
    """

    mlp: Mapping[str, Sequence[object]]
    attention: Mapping[str, Sequence[object]]
    all_reduce: Mapping[str, Sequence[object]]


def tables_of(kernel: FittedKernel, model: VidurModel, grid: Grid) -> Tables:
    """Return the tables of a kernel.

    Parameters
    ----------
    kernel : FittedKernel
        A kernel of a dense model.
    model : VidurModel
        What the package calls the model.
    grid : Grid
        Where there are rows.

    Returns
    -------
    Tables
        With the times of one layer, as the package adds layers up.

    Notes
    -----
    The multiplications by weights fall to the projections by their elements. Elementwise
    passes are the input norm. ``add`` carries the layer's floor and a layer's part of the
    head and of what the host adds, for which the package has no operation of its own: those of
    as many decodes as tokens up to ``most_requests``, of one prompt beyond.
    """
    scales = overlap_scales(kernel, probe_batches(kernel))
    layers = kernel.plan.model.layer_count
    tokens = _tokens(grid)
    batches = [_any_batch(count, grid.most_requests) for count in tokens]
    parts = {
        name: 1e3 * times / layers
        for name, times in operator_times(kernel, batches, scales).items()
    }
    share = shares_of(kernel, kernel.plan.model.layers[0])
    nothing = np.zeros(len(tokens))
    times = {
        "attn_pre_proj": parts["gemm"] * share.query_key_value,
        "attn_post_proj": parts["gemm"] * share.output,
        "mlp_up_proj": parts["gemm"] * share.up,
        "mlp_down_proj": parts["gemm"] * share.down,
        "mlp_act": nothing,
        "input_layernorm": parts["passes"],
        "post_attention_layernorm": nothing,
        "attn_rope": nothing,
        "add": parts["floor"] + parts[HEAD] + parts[HOST],
    }
    tp = kernel.plan.resolution.tensor_parallel_width
    rows = len(tokens)
    mlp: dict[str, Sequence[object]] = {
        "n_head": [model.heads] * rows,
        "n_kv_head": [model.kv_heads] * rows,
        "n_embd": [model.hidden] * rows,
        "n_expanded_embd": [model.intermediate] * rows,
        "vocab_size": [model.vocab] * rows,
        "use_gated_mlp": [model.gated] * rows,
        "num_tokens": tokens,
        "num_tensor_parallel_workers": [tp] * rows,
    }
    mlp |= {f"time_stats.{name}.median": _column(times[name]) for name in MLP_OPERATIONS}
    return Tables(
        mlp, _attention(kernel, model, grid, scales), _all_reduce(tp, model, tokens, parts["link"])
    )


def _tokens(grid: Grid) -> list[int]:
    last = -(-grid.most_tokens // TOKENS_STEP) * TOKENS_STEP
    return list(range(TOKENS_STEP, last + 1, TOKENS_STEP))


def _any_batch(tokens: int, most_requests: int) -> Batch:
    """Return a batch of so many tokens: decodes as far as they go, beyond them one prompt."""
    if tokens <= most_requests:
        return Batch.decode(tokens, 1)
    return Batch((RequestShape(tokens, 0, tokens),))


def _attention(
    kernel: FittedKernel, model: VidurModel, grid: Grid, scales: Mapping[str, float]
) -> dict[str, Sequence[object]]:
    """Return attention alone: decodes by requests and context, prompts by chunk and context."""
    contexts = range(0, grid.most_context + 1, grid.granularity)
    chunks = range(CHUNK_STEP, grid.most_chunk + 1, CHUNK_STEP)
    decodes = list(product(range(1, grid.most_requests + 1), contexts))
    prompts = list(product(chunks, contexts))
    batches = [Batch.decode(requests, context) for requests, context in decodes]
    batches += [Batch((RequestShape(c, before, before + c),)) for c, before in prompts]
    layers = kernel.plan.model.layer_count
    times = 1e3 * operator_times(kernel, batches, scales)["attention"] / layers
    rows, first = len(batches), len(decodes)
    return {
        "n_embd": [model.hidden] * rows,
        "n_q_head": [model.heads] * rows,
        "n_kv_head": [model.kv_heads] * rows,
        "block_size": [kernel.plan.resolution.block_size] * rows,
        "num_tensor_parallel_workers": [kernel.plan.resolution.tensor_parallel_width] * rows,
        "batch_size": [requests for requests, _ in decodes] + [1] * len(prompts),
        "prefill_chunk_size": [0] * first + [chunk for chunk, _ in prompts],
        "kv_cache_size": [context for _, context in decodes] + [before for _, before in prompts],
        "time_stats.attn_prefill.median": [""] * first + _column(times[first:]),
        "time_stats.attn_decode.median": _column(times[:first]) + [""] * len(prompts),
        "time_stats.attn_kv_cache_save.median": ["0"] * rows,
    }


def _all_reduce(
    tp: int, model: VidurModel, tokens: list[int], link_ms: Array
) -> dict[str, Sequence[object]]:
    """Return one all-reduce of two in a layer; no rows without tensor parallelism."""
    rows = len(tokens) if tp > 1 else 0
    return {
        "collective": ["all_reduce"] * rows,
        "num_workers": [tp] * rows,
        "devices_per_node": [tp] * rows,
        "size": [count * model.hidden * 2 for count in tokens[:rows]],
        "time_stats.all_reduce.median": _column(link_ms[:rows] / 2.0),
    }


def _column(times: Array) -> list[str]:
    return [f"{value:.9g}" for value in times]


def csv_text(columns: Mapping[str, Sequence[object]]) -> str:
    """Return a table as comma-separated text.

    Parameters
    ----------
    columns : mapping of str to sequence
        Columns of equal length.

    Returns
    -------
    str
        A line of names, then one line per row.
    """
    lines = [",".join(columns)]
    lines += [",".join(map(str, row)) for row in zip(*columns.values(), strict=True)]
    return "\n".join(lines) + "\n"
