"""Kernels to export, and batches to compare them on."""

from __future__ import annotations

import random
from collections.abc import Iterator

from kernelfit.export.base import ExportOptions
from kernelfit.kernel import Batch, FittedKernel, RequestShape
from tests.kernel.builders import DEPLOYED, fitted

OPTIONS = ExportOptions("sample.json", "0.1.0")
VALUES = {
    "gemm_eff_bf16": 0.8,
    "gemm_m_half_bf16": 120.0,
    "attention_eff_bf16": 0.4,
    "hbm_weight_eff": 0.8,
    "hbm_kv_eff": 0.7,
    "layer_floor_s": 1e-5,
    "launch_graph_s": 7e-6,
    "launch_layer_s": 1e-4,
}
"""Round values of what the tests work out by hand; the rest stands at its prior."""


def kernels() -> dict[str, FittedKernel]:
    """One kernel per law and way of running, with a share of overlap and two draws."""
    draws = ({"hbm_weight_eff": 0.7}, {"hbm_weight_eff": 0.9})
    given = fitted(0.3, draws, **VALUES)
    return {name: deployed.kernel(given) for name, deployed in DEPLOYED.items()}


def random_batches(count: int, seed: int = 0) -> Iterator[Batch]:
    """Decode, prefill and mixed batches that every sample's pool accepts."""
    rng = random.Random(seed)
    for _ in range(count):
        decoding = rng.choice((0, 1, 3, rng.randint(1, 200)))
        shapes = []
        for _ in range(decoding):
            computed = rng.randint(1, 8000)
            shapes.append(RequestShape(1, computed, rng.randint(1, computed)))
        for _ in range(rng.randint(0 if decoding else 1, 3)):
            prompt = rng.randint(2, 2000)
            computed = rng.choice((0, rng.randint(0, 3000)))
            shapes.append(RequestShape(prompt, computed, prompt + computed))
        if rng.random() < 0.15:
            # Several tokens of a speculating request.
            shapes = [RequestShape(4, 100 + k, 50) for k in range(rng.randint(1, 40))]
        rng.shuffle(shapes)
        threshold = rng.choice((1, 1, 4))
        yield Batch(tuple(shapes), threshold)
