"""Kernels of four deployments at the coefficients' priors, and batches to price."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np

from kernelfit.documents.chips import find_chip
from kernelfit.documents.models import find_model
from kernelfit.documents.problems import Place
from kernelfit.kernel import Batch, BatchTotals, FittedKernel, Pool, RequestShape
from kernelfit.kernel.basis import Array
from kernelfit.kernel.catalog import Coefficient, definition
from kernelfit.kernel.handover import Fitted, Range, Residuals
from kernelfit.kernel.plan import Plan
from kernelfit.kernel.tables import table_of

CALIB = Path(__file__).resolve().parents[2] / "calib"
ENGINE_VERSION = "0.32.0"
DRAWS = 100

_LIMITS = {"max_num_seqs": 1024, "max_num_batched_tokens": 16384}
DEPLOYMENTS: tuple[tuple[str, str, str, Pool], ...] = (
    ("dense", "qwen3-32b", "h100-sxm", Pool(tp=4, **_LIMITS)),
    ("moe", "qwen3-30b-a3b", "h100-sxm", Pool(tp=1, **_LIMITS)),
    ("mla", "deepseek-v3", "b300", Pool(tp=8, enable_expert_parallel=True, **_LIMITS)),
    ("hybrid", "qwen3.5-35b-a3b", "b300", Pool(tp=1, **_LIMITS)),
    ("window", "gpt-oss-120b", "b300", Pool(tp=1, **_LIMITS)),
)
"""``(what, model, chip, pool)``."""


def kernel_of(model: str, chip: str, pool: Pool) -> FittedKernel:
    """Return a kernel whose coefficients are their priors, with draws around them."""
    place = Place("the benchmark")
    gpu = find_chip(chip, CALIB / "chips", place)
    plan = Plan.of(find_model(model, CALIB / "models", place), gpu, pool, ENGINE_VERSION)
    names = plan.coefficients
    entries = [definition(name) for name in names]
    drawn = np.exp(np.random.default_rng(7).normal(0.0, 0.1, (DRAWS, len(names))))
    values = drawn * np.array([entry.prior for entry in entries])
    for index, entry in enumerate(entries):
        if entry.kind == "efficiency":
            values[:, index] = np.minimum(values[:, index], 1.0)
    fitted = Fitted(
        calibration="priors",
        coefficients=tuple(
            Coefficient(name, e.prior, e.unit, gpu.name, e.method, "prior", (e.prior, e.prior))
            for name, e in zip(names, entries, strict=True)
        ),
        overlap_share=0.5,
        draw_names=names,
        draws=tuple(tuple(float(v) for v in row) for row in values),
        residuals=(Residuals("decode", 1000, tuple(np.linspace(-0.2, 0.2, 101).tolist())),),
        domain=(Range("requests", 1.0, 1024.0), Range("tokens", 1.0, 16384.0)),
    )
    return FittedKernel.from_plan(plan, fitted)


def decodes(requests: int) -> Batch:
    """Return decoding requests of different lengths."""
    choose = random.Random(requests)
    shapes = tuple(RequestShape(1, choose.randrange(200, 8000), 200) for _ in range(requests))
    return Batch(shapes)


def mixed(requests: int) -> Batch:
    """Return a batch of which every sixteenth request is a chunk of a prompt."""
    choose = random.Random(requests)
    return Batch(
        tuple(
            RequestShape(256, choose.randrange(0, 4000), 8000)
            if index % 16 == 0
            else RequestShape(1, choose.randrange(200, 8000), 200)
            for index in range(requests)
        )
    )


def table(kernel: FittedKernel, steps: int) -> dict[str, Array]:
    """Return the columns of many steps: decodes, and chunks of prompts beside them."""
    windows = kernel.plan.basis.windows
    some: list[BatchTotals] = []
    for requests in range(1, 257):
        some.append(BatchTotals.of(decodes(requests).requests, 1, windows))
        if requests <= 192:
            some.append(BatchTotals.of(mixed(requests).requests, 1, windows))
    pick = np.random.default_rng(3).integers(0, len(some), steps)
    return {name: values[pick] for name, values in table_of(some).items()}
