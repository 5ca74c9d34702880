"""A kernel projected onto the formula of inference-sim's ``trained-physics`` backend."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kernelfit.export.inference_sim_law import BETAS, SimShape, bases_us, step_time_us
from kernelfit.export.probes import Agreement, agreements, kernel_times, probe_batches
from kernelfit.export.refused import NotExpressible
from kernelfit.kernel.basis import Array
from kernelfit.kernel.batch import Batch
from kernelfit.kernel.dtypes import dtype_bytes
from kernelfit.kernel.fitted import FittedKernel
from kernelfit.kernel.model import LayerKind

TARGET = "inference-sim"

TIE = 1e-6
"""Weight of the kernel's own values against the squared relative errors, per batch [1]: it
decides only between betas whose bases no batch of the deployment tells apart."""


@dataclass(frozen=True, slots=True)
class Projection:
    """Coefficients of the formula, and how far it is from the kernel with them.

    Attributes
    ----------
    shape : SimShape
        What the formula reads of the model and the deployment.
    alphas : tuple of float
        Queueing and completion of a request, and an output token's processing [us].
    betas : tuple of float
        In the order of ``BETAS``.
    used : tuple of bool
        Whether the beta's basis is ever above zero in this deployment.
    agreement : tuple of Agreement
        All batches, then by phase.
    """

    shape: SimShape
    alphas: tuple[float, ...]
    betas: tuple[float, ...]
    used: tuple[bool, ...]
    agreement: tuple[Agreement, ...]


def shape_of(kernel: FittedKernel) -> SimShape:
    """Return what the formula reads of a kernel's model and deployment.

    Parameters
    ----------
    kernel : FittedKernel
        The kernel.

    Returns
    -------
    SimShape
        The counts that the simulator takes from ``config.json`` and its flags.

    Raises
    ------
    NotExpressible
        Where the formula prices something else than the deployment: several kinds of layer,
        latent, linear or windowed attention, several nodes or data-parallel ranks,
        speculation, and widths that the simulator refuses.
    """
    plan, resolution = kernel.plan, kernel.plan.resolution
    kind = _only_kind(plan.model.layers)
    tp = resolution.tensor_parallel_width
    a, e = kind.attention, kind.experts
    for field, got, fine, reason in (
        ("dp", resolution.data_parallel_width, 1, "it takes the batch of the whole group"),
        ("nodes", resolution.nodes_spanned, 1, "a kernel knows no hop latency of its fabric"),
        (
            "num_speculative_tokens",
            resolution.decode_query_tokens - 1,
            0,
            "it reads the context once for all verified tokens; another law",
        ),
        ("num_kv_heads % tp", a.kv_heads % tp, 0, "its loader wants TP to divide the KV heads"),
        ("num_heads % tp", a.heads % tp, 0, "its loader wants TP to divide the heads"),
    ):
        if got != fine:
            raise NotExpressible(TARGET, field, got, f"{reason}; allowed {fine}")
    weight = dtype_bytes(plan.model.weight_dtype)
    peak = "fp8" if weight == 1.0 and _has_fp8(kernel) else "bf16"
    return SimShape(
        layers=plan.model.layer_count,
        hidden=plan.model.hidden,
        heads=a.heads,
        kv_heads=a.kv_heads,
        intermediate=e.intermediate if e else kind.mlp.intermediate if kind.mlp else 0,
        experts=e.experts if e else 0,
        per_token=e.per_token if e else 0,
        shared_intermediate=e.shared_intermediate if e else 0,
        weight_bytes=weight,
        activation_bytes=dtype_bytes(plan.model.dtype),
        tp=tp,
        expert_parallel=resolution.expert_parallel_width > 1,
        sends_rows=resolution.all2all_backend not in {"none", "naive", "allgather_reducescatter"},
        peak_flop_per_s=plan.chip.peak(peak),
        hbm_bytes_per_s=plan.chip.hbm_bytes_per_s,
    )


def _only_kind(layers: Sequence[LayerKind]) -> LayerKind:
    """Return the only kind of layer, of full attention."""
    for kind in layers:
        if kind.attention.kind != "full":
            raise NotExpressible(
                TARGET,
                "attention",
                kind.attention.kind,
                "it prices every layer as grouped-query attention over the whole context; "
                "allowed full",
            )
    if len(layers) != 1:
        names = tuple(kind.name for kind in layers)
        raise NotExpressible(
            TARGET, "layers", names, "it prices one kind of layer (or Llama 4's alternation)"
        )
    return layers[0]


def _has_fp8(kernel: FittedKernel) -> bool:
    return any(name == "fp8" for name, _ in kernel.plan.chip.peak_flop_per_s)


def own_values(kernel: FittedKernel, shape: SimShape) -> Array:
    """Return the betas as the kernel's own coefficients would put them.

    Parameters
    ----------
    kernel : FittedKernel
        The kernel.
    shape : SimShape
        What the formula reads.

    Returns
    -------
    ndarray, shape (11,)
        Inverse efficiencies for the shares [1], the fixed costs per layer, request and step
        for the overheads [us]; 0 where the kernel has no such cost.
    """
    plan = kernel.plan
    values = {c.name: c.value for c in kernel.fitted.coefficients}

    def inverse(prefix: str) -> float:
        found = [values[n] for n in plan.coefficients if n.startswith(prefix)]
        return 1.0 / found[0] if found else 1.0

    def time_us(name: str) -> float:
        return 1e6 * values[name] if name in plan.coefficients else 0.0

    link = next((n for n in plan.coefficients if n.startswith("allreduce") and "eff" in n), "")
    ratio = 0.0
    if link and plan.chip.nvlink_bytes_per_s:
        ratio = shape.hbm_bytes_per_s / (plan.chip.nvlink_bytes_per_s * values[link])
    launch = kernel.forms.times(kernel.totals(Batch.decode(1, 1)))[2:4]
    out = np.zeros(len(BETAS))
    out[[0, 1]] = inverse("gemm_eff")
    out[2] = inverse("hbm_weight_eff")
    out[[3, 10]] = ratio
    out[4] = time_us("layer_floor_s")
    out[5] = time_us("schedule_request_s") + time_us("launch_request_s")
    out[6] = 1e6 * float(sum(launch))
    out[[8, 9]] = inverse("hbm_kv_eff")
    return out


def project(kernel: FittedKernel, batches: Sequence[Batch] | None = None) -> Projection:
    """Fit the formula's coefficients to a kernel's step times.

    Parameters
    ----------
    kernel : FittedKernel
        The kernel.
    batches : sequence of Batch, optional
        Where the two are to agree; the probe batches of the kernel's domain by default.

    Returns
    -------
    Projection
        Non-negative least squares of the relative errors.

    Raises
    ------
    NotExpressible
        As ``shape_of``.

    Notes
    -----
    Within one deployment of a dense model the bases of ``beta3``, ``beta5`` and ``beta7`` are
    constants: only their sum is known from the kernel's step times. It is shared out as close
    as possible to the kernel's own values.
    """
    from scipy.optimize import nnls

    shape = shape_of(kernel)
    chosen = tuple(batches) if batches is not None else probe_batches(kernel)
    kernel_s = kernel_times(kernel, chosen)
    bases = bases_us(shape, chosen) / (1e6 * kernel_s)[:, None]
    length = np.sqrt((bases**2).sum(axis=0))
    used = length > 0.0
    own = own_values(kernel, shape)[used]
    weights = np.sqrt(TIE) * length[used]
    rows = np.vstack([bases[:, used], np.diag(weights)])
    wanted = np.concatenate([np.ones(len(chosen)), weights * own])
    betas = np.zeros(len(BETAS))
    betas[used] = nnls(rows, wanted)[0]
    rounded = tuple(float(f"{value:.9g}") for value in betas)
    target_s = np.asarray([step_time_us(shape, rounded, b) for b in chosen]) * 1e-6
    alphas = (
        kernel.admission_overhead(0),
        kernel.completion_overhead(),
        kernel.output_token_overhead(),
    )
    return Projection(
        shape,
        tuple(float(f"{1e6 * value:.9g}") for value in alphas),
        rounded,
        tuple(bool(flag) for flag in used),
        agreements(chosen, kernel_s, target_s),
    )
