"""A kernel for inference-sim's ``trained-physics`` backend, and a hardware entry for it."""

from __future__ import annotations

import json

from kernelfit.export.base import (
    ExportedFile,
    ExportOptions,
    Files,
    NotExpressed,
    Setting,
    Target,
    comment,
    provenance,
    setting,
)
from kernelfit.export.inference_sim_check import check_files
from kernelfit.export.inference_sim_fit import TARGET as NAME
from kernelfit.export.inference_sim_fit import Projection, project
from kernelfit.export.inference_sim_law import BASES, BETAS
from kernelfit.export.probes import probe_batches
from kernelfit.kernel.batch import Batch
from kernelfit.kernel.fitted import FittedKernel
from kernelfit.kernel.phase import phase_of
from kernelfit.kernel.resources import Resource

# As the simulator's own hardware_config.json spells them.
_GPUS = {"H100-SXM": "H100", "H200-SXM": "H200", "A100-SXM-80GB": "A100-SXM", "L40S": "L40S"}

_SETTINGS = (Setting("gpu", "", "name of the GPU in hardware_config.json; its own by default"),)

_ALPHAS = (
    ("alpha0", "before a request is queued [us]", "admission_request_s"),
    ("alpha1", "after the last token of a request [us]", "completion_s"),
    ("alpha2", "every output token [us]", "output_call_s + output_token_s"),
)


def _gpu(kernel: FittedKernel, options: ExportOptions) -> str:
    name = kernel.plan.chip.name
    return setting(_SETTINGS, options, "gpu") or _GPUS.get(name, name)


def _why_zero(index: int, found: Projection) -> str:
    if found.used[index]:
        return "0: fitted, the other betas carry it"
    return "0: nothing of this deployment to multiply"


def defaults_text(kernel: FittedKernel, options: ExportOptions, found: Projection) -> str:
    """Return the text of the ``defaults.yaml``.

    Parameters
    ----------
    kernel : FittedKernel
        The kernel.
    options : ExportOptions
        The options.
    found : Projection
        The kernel's projection.

    Returns
    -------
    str
        YAML with the provenance, the errors of the projection and a word on every number.
    """
    lines = [comment(NAME, kernel, options).rstrip("\n")]
    pool = kernel.deployment()
    lines.append(f"# holds for: {kernel.plan.model.name}, tp {pool.tp}; not for other widths or")
    lines.append("#   models, although the simulator applies the one set to all of them")
    lines.extend(f"# projection {each.line()}" for each in found.agreement)
    lines.append("trained_physics_coefficients:")
    lines.append("  alpha_coeffs:")
    scopes = {c.name: c.scope for c in kernel.fitted.coefficients}
    scope = scopes.get("completion_s", scopes.get("admission_request_s", "front end"))
    for value, (name, what, source) in zip(found.alphas, _ALPHAS, strict=True):
        why = f"0: {source} is not_charged, step logs hold no front-end times"
        found_in = f" = {source}, {scope}" if value else f"; {why}"
        lines.append(f"    - {value!r}  # {name}: {what}{found_in}")
    lines.append("  beta_coeffs:")
    for index, (name, basis) in enumerate(zip(BETAS, BASES, strict=True)):
        value = found.betas[index]
        why = "" if value else f"; {_why_zero(index, found)}"
        lines.append(f"    - {value!r}  # {name}: {basis}{why}")
    return "\n".join(lines) + "\n"


def flags_text(kernel: FittedKernel, options: ExportOptions, found: Projection) -> str:
    """Return the same coefficients as flags.

    Parameters
    ----------
    kernel : FittedKernel
        The kernel.
    options : ExportOptions
        The options.
    found : Projection
        The kernel's projection.

    Returns
    -------
    str
        One line of flags below the provenance.
    """
    alphas = ",".join(repr(value) for value in found.alphas)
    betas = ",".join(repr(value) for value in found.betas)
    line = (
        f"--latency-model trained-physics --hardware {_gpu(kernel, options)} "
        f"--tp {found.shape.tp} --alpha-coeffs {alphas} --beta-coeffs {betas}"
    )
    return comment(NAME, kernel, options) + line + "\n"


def utilisation(kernel: FittedKernel, batch: Batch) -> float:
    """Return the share of the 16-bit peak at which a batch's FLOP are done.

    Parameters
    ----------
    kernel : FittedKernel
        The kernel.
    batch : Batch
        The batch.

    Returns
    -------
    float
        FLOP over the peak and the time on the SMs [1].
    """
    totals = kernel.totals(batch)
    row = kernel.plan.basis.row(totals)
    flop = sum(
        term.amount * row[term.function]
        for term in kernel.plan.terms
        if term.resource is Resource.SM and "_eff_" in term.coefficient
    )
    seconds = dict(kernel.totals_time(totals).per_resource_s)[Resource.SM]
    return float(flop / (kernel.plan.chip.peak("bf16") * seconds))


def hardware_text(kernel: FittedKernel, options: ExportOptions) -> str:
    """Return the text of the ``hardware_config.json``.

    Parameters
    ----------
    kernel : FittedKernel
        The kernel.
    options : ExportOptions
        The options.

    Returns
    -------
    str
        One GPU: datasheet peaks, and utilisations of the largest prompt and of the middle
        decode among the probe batches.
    """
    chip = kernel.plan.chip
    batches = probe_batches(kernel)
    prompts = [b for b in batches if phase_of(b) == "prefill"] or list(batches)
    decodes = [b for b in batches if phase_of(b) == "decode"] or list(batches)
    largest = max(prompts, key=lambda b: b.tokens())
    middle = decodes[len(decodes) // 2]
    peaks = dict(chip.peak_flop_per_s)
    source = "; ".join(f"{k}: {v}" for k, v in provenance(NAME, kernel, options).items())
    entry = {
        "TFlopsPeak": peaks["bf16"] / 1e12,
        "TFlopsFP8": peaks.get("fp8", 0.0) / 1e12,
        "BwPeakTBs": chip.hbm_bytes_per_s / 1e12,
        "mfuPrefill": float(f"{utilisation(kernel, largest):.4g}"),
        "mfuDecode": float(f"{utilisation(kernel, middle):.4g}"),
        "MemoryGiB": round(chip.hbm_bytes / 2**30, 3),
        "_comment": (
            f"{source}. Peaks are the datasheet's. mfuPrefill: share of the peak reached on the "
            f"SMs by a prompt of {largest.tokens()} tokens; mfuDecode: by "
            f"{middle.tokens()} decodes."
        ),
    }
    return json.dumps({_gpu(kernel, options): entry}, indent=2) + "\n"


def export(kernel: FittedKernel, options: ExportOptions) -> Files:
    """Write a kernel for inference-sim.

    Parameters
    ----------
    kernel : FittedKernel
        The kernel.
    options : ExportOptions
        The options.

    Returns
    -------
    tuple of ExportedFile
        ``defaults.yaml``, the same as flags, and ``hardware_config.json``.

    Raises
    ------
    NotExpressible
        Where the simulator's formula prices something else than the deployment.
    """
    found = project(kernel)
    return (
        ExportedFile(f"{options.stem}-defaults.yaml", defaults_text(kernel, options, found)),
        ExportedFile(f"{options.stem}-flags.txt", flags_text(kernel, options, found)),
        ExportedFile(f"{options.stem}-hardware_config.json", hardware_text(kernel, options)),
    )


def missing(kernel: FittedKernel, options: ExportOptions) -> tuple[NotExpressed, ...]:
    """Return what the formula loses of a kernel.

    Parameters
    ----------
    kernel : FittedKernel
        The kernel.
    options : ExportOptions
        The options; they change nothing here.

    Returns
    -------
    tuple of NotExpressed
        The error of the projection, all and by phase, then the parts without a place.
    """
    del options
    found = project(kernel)
    out = [NotExpressed("step time", f"projection {each.line()}") for each in found.agreement]
    kind = kernel.plan.model.layers[0].attention
    if kind.head_dim != found.shape.head_dim:
        out.append(
            NotExpressed(
                "head_dim",
                f"the simulator takes hidden / heads = {found.shape.head_dim}, the model has "
                f"{kind.head_dim}; the betas make up for it",
            )
        )
    if kernel.front_end.admission_token_s:
        out.append(
            NotExpressed(
                "admission_token_s",
                "its alpha before queueing knows no prompt length; the part per token is left out",
            )
        )
    if kernel.front_end.output_call_s:
        out.append(
            NotExpressed(
                "output_call_s",
                "its alpha charges every token as if it were alone in its call; others of the same "
                "step share this part",
            )
        )
    if kernel.plan.resolution.cache_dtype.startswith("fp8"):
        out.append(
            NotExpressed("cache_dtype", "its formula reads two bytes per element; beta2b is less")
        )
    return tuple(out)


TARGET = Target(
    name=NAME,
    title="inference-sim: trained_physics_coefficients, flags, hardware_config.json",
    holds=(
        "the step time, projected onto eleven betas",
        "front-end times as three alphas",
        "datasheet peaks and utilisations of the roofline backend",
    ),
    lacks=(
        "the larger of resources per layer: the formula adds",
        "graphs, padding to captured sizes and the floor of collectives",
        "several deployments: one set of coefficients serves every model and width",
        "latent, linear and windowed attention, layers of several kinds (refused)",
        "data-parallel ranks, several nodes, speculation (refused)",
        "intervals, verdicts, draws",
    ),
    source=(
        "https://github.com/inference-sim/inference-sim: "
        "sim/latency/trained_physics_model.go, cmd/default_config.go, sim/latency/config.go"
    ),
    export=export,
    check=check_files,
    missing=missing,
    settings=_SETTINGS,
)
"""The target."""
