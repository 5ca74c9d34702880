"""How many operations a layer launches, which floors and eager launches go with."""

from __future__ import annotations

from kernelfit.kernel.model import LayerKind

NATIVE_NORM_LAUNCHES = 7


def _norm(chip_kind: str) -> int:
    return NATIVE_NORM_LAUNCHES if chip_kind == "cpu" else 1


def plain_launches(chip_kind: str) -> int:
    """Return the operations of a plain dense layer, to which others are compared.

    Parameters
    ----------
    chip_kind : str
        ``gpu`` or ``cpu``.

    Returns
    -------
    int
        Two norms and eight other operations.
    """
    return 2 * _norm(chip_kind) + 8


def launches(kind: LayerKind, chip_kind: str) -> int:
    """Return the operations that one layer launches without a graph.

    Parameters
    ----------
    kind : LayerKind
        The kind of layer.
    chip_kind : str
        ``gpu`` or ``cpu``.

    Returns
    -------
    int
        Operations: projections, rotary embedding, cache write, attention, the MLP's
        three or the router, top-k and experts, and the norms.

    Notes
    -----
    A norm is one fused operation on a GPU. vLLM's CPU back end runs it as separate tensor
    operations (its start-up line says ``rms_norm=['native']``). In 0.32.0
    (``vllm/ir/ops/layernorm.py``) those are square, mean, addition, root, two products
    and the residual's addition: seven. A head norm has no residual, so six; it is
    charged seven all the same: of such a layer's 36 launches, two are one too many.

    Latent attention projects in five operations and normalises two latents; linear
    attention has two projections in, a convolution, gates, the recurrence, a gated norm
    and the projection out.
    """
    norm = _norm(chip_kind)
    a = kind.attention
    if a.latent is not None:
        count = 4 * norm + 8
    elif a.linear is not None:
        count = 3 * norm + 6
    else:
        count = 2 * norm + 5
    if a.qk_norm:
        count += 2 * norm
    if kind.mlp is not None:
        count += 3
    if kind.experts is not None:
        count += 6 if kind.experts.shared_intermediate else 3
    return count
