"""inference-sim, Vidur and LLMServingSim beside the kernel, by their rules re-implemented."""

from __future__ import annotations

import csv
import io
import lzma
import re
from collections.abc import Sequence

from benchmarks.exports.comparison import Comparison
from kernelfit.export import inference_sim, llmservingsim, vidur
from kernelfit.export.base import ExportOptions, Files
from kernelfit.export.inference_sim_fit import shape_of
from kernelfit.export.inference_sim_law import step_time_us
from kernelfit.export.llmservingsim_check import load_profile
from kernelfit.export.operators import operator_times, overlap_scales
from kernelfit.export.probes import kernel_times, probe_batches
from kernelfit.export.vidur_tables import MLP_OPERATIONS
from kernelfit.kernel.batch import Batch
from kernelfit.kernel.fitted import FittedKernel

OPTIONS = ExportOptions("kernel.json")


def inference_sim_times(kernel: FittedKernel, batches: Sequence[Batch]) -> list[float | None]:
    """Return the simulator's step times from the exported flags."""
    flags = inference_sim.TARGET.export(kernel, OPTIONS)[1].content.decode()
    found = re.search(r"--beta-coeffs (\S+)", flags)
    assert found is not None
    betas = [float(word) for word in found[1].split(",")]
    shape = shape_of(kernel)
    return [1e-6 * step_time_us(shape, betas, batch) for batch in batches]


def llmservingsim_times(kernel: FittedKernel, batches: Sequence[Batch]) -> list[float | None]:
    """Return the simulator's step times from the exported bundle, without collectives."""
    files = llmservingsim.TARGET.export(kernel, OPTIONS)
    profile = load_profile(files, kernel.plan.model.layer_count)
    return [1e-9 * profile.step_ns(batch) for batch in batches]


def without_collectives(kernel: FittedKernel, batches: Sequence[Batch]) -> list[float | None]:
    """Return the kernel's step times less its collectives."""
    scales = overlap_scales(kernel, probe_batches(kernel))
    link_s = operator_times(kernel, batches, scales)["link"]
    return list(kernel_times(kernel, batches) - link_s)


def _rows(files: Files, name: str) -> list[dict[str, str]]:
    (file,) = [each for each in files if each.path.endswith(f"/{name}.csv.xz")]
    return list(csv.DictReader(io.StringIO(lzma.decompress(file.content).decode())))


def _up(value: int, step: int) -> int:
    return -(-value // step) * step


def vidur_times(kernel: FittedKernel, batches: Sequence[Batch]) -> list[float | None]:
    """Return the package's step times by its roundings, with the rows in the forests' place."""
    files = vidur.TARGET.export(kernel, OPTIONS)
    granularity = vidur.grid_of(kernel, OPTIONS).granularity
    times = [f"time_stats.{name}.median" for name in MLP_OPERATIONS]
    layer = {int(r["num_tokens"]): sum(float(r[t]) for t in times) for r in _rows(files, "mlp")}
    hidden = kernel.plan.model.hidden
    link = {
        int(r["size"]) // hidden // 2: 2 * float(r["time_stats.all_reduce.median"])
        for r in _rows(files, "all_reduce")
    }
    decode, prompt = {}, {}
    for row in _rows(files, "attention"):
        context = int(row["kv_cache_size"])
        if row["prefill_chunk_size"] == "0":
            time = float(row["time_stats.attn_decode.median"])
            decode[int(row["batch_size"]), context] = time
        else:
            time = float(row["time_stats.attn_prefill.median"])
            prompt[int(row["prefill_chunk_size"]), context] = time

    def step_ms(batch: Batch) -> float:
        tokens = _up(batch.tokens(), 8)
        out = layer[tokens] + (link[tokens] if link else 0.0)
        decodes = [r.computed for r in batch.requests if r.scheduled == 1]
        if decodes:
            mean = sum(decodes) // len(decodes)
            out += decode[len(decodes), _up(mean, granularity)]
        for r in batch.requests:
            if r.scheduled > 1:
                out += prompt[_up(r.scheduled, 32), _up(r.computed, granularity)]
        return out * kernel.plan.model.layer_count

    out: list[float | None] = []
    for batch in batches:
        try:
            out.append(1e-3 * step_ms(batch))
        except KeyError:
            # Beyond the tables, where the package stops with the same error.
            out.append(None)
    return out


COMPARISONS: tuple[Comparison, ...] = (
    Comparison(
        "inference-sim",
        "its formula with the exported eleven betas, beside the kernel's mean",
        inference_sim_times,
        "the formula adds what overlaps, knows no ramp of small multiplications, and takes a "
        "prompt's whole length as the context of its every chunk",
    ),
    Comparison(
        "vidur",
        "its roundings and sums over the exported rows, beside the kernel's mean",
        vidur_times,
        "operations follow each other, contexts are rounded up to 256, tokens to 8, and a step of "
        "few tokens is charged the launches and the head of decodes, whatever it holds",
    ),
    Comparison(
        "llmservingsim",
        "its lookups in the exported bundle, beside the kernel's mean less its collectives",
        llmservingsim_times,
        "operations follow each other, and several prompts are looked up as one with their "
        "tokens and contexts added: four times four pairs where there are four",
        without_collectives,
    ),
)
"""Those whose rules can be applied without the program; the programs' own answers are printed
by ``benchmarks.exports.aiconfigurator`` and ``benchmarks.exports.vidur``."""
