"""A kernel's step time taken apart by operation, for targets that price one at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kernelfit.export.probes import kernel_times
from kernelfit.export.refused import NotExpressible
from kernelfit.kernel.basis import Array
from kernelfit.kernel.batch import Batch
from kernelfit.kernel.costs import unit_cost_s
from kernelfit.kernel.fitted import FittedKernel
from kernelfit.kernel.layers import LayerKind
from kernelfit.kernel.stage import HEAD_STAGE, HOST_STAGE, LAUNCH_STAGE, OPERATORS, Term
from kernelfit.kernel.tables import table_of

HEAD = "head"
HOST = "host"
PARTS: tuple[str, ...] = (*OPERATORS, HEAD, HOST)
"""The operations of the layers, then the head and the host."""


def operator_times(
    kernel: FittedKernel, batches: Sequence[Batch], scales: Mapping[str, float] | None = None
) -> dict[str, Array]:
    """Return the time of every operation over a step.

    Parameters
    ----------
    kernel : FittedKernel
        The kernel.
    batches : sequence of Batch
        The batches.
    scales : mapping of str to float, optional
        What each part is multiplied by [1], from ``overlap_scales``; 1 by default.

    Returns
    -------
    dict of str to ndarray, shape (n_batches,)
        One entry per name in ``PARTS``, all layers together [s]: the sum of its resources.
        Unscaled, the parts add up to the kernel's step time without any overlap. ``host`` is
        what the host adds to the device: only what it waits for where launches hide.
    """
    columns = table_of([kernel.totals(batch) for batch in batches])
    rows = kernel.plan.basis.rows(columns)
    out = {part: np.zeros(len(batches)) for part in PARTS}
    grouped: dict[str, list[Term]] = {}
    for term in kernel.plan.terms:
        if term.stage not in {LAUNCH_STAGE, HOST_STAGE}:
            part = HEAD if term.stage == HEAD_STAGE else term.operator
            grouped.setdefault(part, []).append(term)
    for part, terms in grouped.items():
        scale = 1.0 if scales is None else scales.get(part, 1.0)
        out[part] = scale * _summed(kernel, terms, rows)
    launched = _host(kernel, rows, LAUNCH_STAGE)
    device = sum((out[part] for part in PARTS), np.zeros(len(batches)))
    hides = kernel.fitted.host_rule != "added"
    ahead = np.maximum(launched - device, 0.0) if hides else launched
    out[HOST] = ahead + _host(kernel, rows, HOST_STAGE)
    return out


def overlap_scales(kernel: FittedKernel, batches: Sequence[Batch]) -> dict[str, float]:
    """Return what each operation is multiplied by so that all of them add up best.

    Parameters
    ----------
    kernel : FittedKernel
        The kernel.
    batches : sequence of Batch
        Where they are to add up to the kernel's step time.

    Returns
    -------
    dict of str to float
        One factor per part of the device [1], all exactly 1 where nothing overlaps. A target
        that adds operations up has no overlap between them, so the fitted share of it is taken
        off the operations themselves: least squares of the relative errors, where none loses
        more than that share of its time.
    """
    plain = operator_times(kernel, batches)
    device = tuple(part for part in PARTS if part != HOST)
    if kernel.fitted.overlap_share == 0.0:
        return dict.fromkeys(device, 1.0)
    from scipy.optimize import lsq_linear

    step_s = kernel_times(kernel, batches)
    used = [part for part in device if plain[part].any()]
    columns = np.stack([plain[part] / step_s for part in used], axis=1)
    weights = np.full(len(used), np.sqrt(_TIE * len(batches)))
    wanted = 1.0 - plain[HOST] / step_s
    rows = np.vstack([columns, np.diag(weights)])
    hidden = kernel.fitted.overlap_share
    solved = lsq_linear(rows, np.concatenate([wanted, weights]), (1.0 - hidden, 1.0), tol=1e-12)
    found = {part: float(f"{factor:.9g}") for part, factor in zip(used, solved.x, strict=True)}
    return {part: found.get(part, 1.0) for part in device}


_TIE = 1e-4
"""Weight of a factor of 1 against the squared relative errors, per batch [1]: small parts keep
their own time, because taking it off hardly helps the sum."""


def _host(kernel: FittedKernel, rows: Array, stage: str) -> Array:
    terms = [term for term in kernel.plan.terms if term.stage == stage]
    return _summed(kernel, terms, rows)


def _summed(kernel: FittedKernel, terms: Sequence[Term], rows: Array) -> Array:
    """Return the time of some terms, the longer of two forms where there are two."""
    values = {c.name: c.value for c in kernel.fitted.coefficients}
    out = np.zeros(rows.shape[0])
    forms: dict[tuple[str, str, str, int], Array] = {}
    for term in terms:
        time = term.amount * unit_cost_s(term.coefficient, values, kernel.plan.chip)
        key = (term.stage, term.resource.value, term.group, term.form)
        forms[key] = forms.get(key, np.zeros(rows.shape[0])) + time * rows[:, term.function]
    for (stage, resource, group, form), times in forms.items():
        if form == 0:
            other = forms.get((stage, resource, group, 1)) if group else None
            out += times if other is None else np.maximum(times, other)
    return out


@dataclass(frozen=True, slots=True)
class Shares:
    """How one dense layer's multiplications by weights fall to its matrices.

    Attributes
    ----------
    query_key_value, output, up, down : float
        Shares of the layer's matrix elements on one rank [1]; they add up to 1. Every term
        of the multiplications is proportional to the elements, so the times are shared
        alike.
    """

    query_key_value: float
    output: float
    up: float
    down: float


def dense_layer(
    target: str, kernel: FittedKernel, experts: str = "its tables price dense layers"
) -> LayerKind:
    """Return the only kind of layer of a dense model with full attention.

    Parameters
    ----------
    target : str
        The target, for the message.
    kernel : FittedKernel
        The kernel.
    experts : str
        Why it cannot hold experts, for the message.

    Returns
    -------
    LayerKind
        The kind.

    Raises
    ------
    NotExpressible
        Where the model has experts, several kinds of layer, or attention other than full, or
        where its matrices differ in data type, or the pool has data-parallel ranks or several
        nodes.
    """
    model, resolution = kernel.plan.model, kernel.plan.resolution
    kinds = model.layers
    if any(kind.experts is not None for kind in kinds):
        raise NotExpressible(target, "experts", True, f"{experts}; allowed models without")
    for kind in kinds:
        if kind.attention.kind != "full":
            raise NotExpressible(
                target,
                "attention",
                kind.attention.kind,
                "its attention tables are keyed by whole contexts of grouped-query attention; "
                "allowed full",
            )
    if len(kinds) != 1:
        raise NotExpressible(
            target, "layers", tuple(k.name for k in kinds), "its tables hold one kind of layer"
        )
    (kind,) = kinds
    own = {kind.attention.weight_dtype, kind.mlp.weight_dtype if kind.mlp else None}
    if len({dtype or model.weight_dtype for dtype in own}) != 1:
        raise NotExpressible(
            target,
            "weight_dtype",
            sorted(map(str, own)),
            "parts in several data types share no rate; allowed one data type for the whole layer",
        )
    for field, got in (
        ("dp", resolution.data_parallel_width),
        ("nodes", resolution.nodes_spanned),
        ("decode_query_tokens", resolution.decode_query_tokens),
    ):
        if got != 1:
            raise NotExpressible(target, field, got, "its tables hold one replica; allowed 1")
    return kind


def shares_of(kernel: FittedKernel, kind: LayerKind) -> Shares:
    """Return how a layer's multiplications fall to its matrices.

    Parameters
    ----------
    kernel : FittedKernel
        The kernel.
    kind : LayerKind
        Its kind of layer, with an MLP.

    Returns
    -------
    Shares
        From the matrices' sizes on one rank; KV heads floor at one.
    """
    tp = kernel.plan.resolution.tensor_parallel_width
    hidden, a = kernel.plan.model.hidden, kind.attention
    query = (2 if a.output_gate else 1) * a.heads / tp
    kv = 2.0 * max(1.0, a.kv_heads / tp)
    wide = 0 if kind.mlp is None else kind.mlp.intermediate / tp
    up = (2 if kind.mlp is not None and kind.mlp.gated else 1) * wide
    sizes = np.asarray(
        [(query + kv) * a.head_dim, a.heads / tp * a.head_dim, up, wide], dtype=np.float64
    )
    whole = sizes * hidden / (sizes.sum() * hidden)
    return Shares(*(float(value) for value in whole))
