"""Planted fleets: four models on one, two and four GPUs, eager or with graphs."""

from __future__ import annotations

import math
from dataclasses import replace

from kernelfit.fit.calibrate import Options, calibrate
from kernelfit.fit.calibration import Calibration
from kernelfit.fit.steps import RunSteps
from kernelfit.kernel import Pool
from tests.fit.simulate import TRUTH, simulate
from tests.kernel.builders import CHIP, EAGER, dense, mixture

MODELS = (
    dense("wide", hidden=4096, layers=8, heads=32, kv_heads=8, intermediate=12288),
    dense("full", hidden=2048, layers=12, heads=16, kv_heads=16, intermediate=5632),
    dense("deep", hidden=1024, layers=48, heads=8, kv_heads=4, intermediate=2816),
    mixture("moe", hidden=2048, layers=16, experts=64, per_token=4, intermediate=1024),
)
GRAPHS = replace(
    EAGER,
    enforce_eager=False,
    async_scheduling=True,
    cudagraph_mode="FULL_AND_PIECEWISE",
    cudagraph_capture_sizes=(1, 2, 4, *range(8, 129, 8)),
)
PLACES = ((0, 1), (1, 1), (2, 1), (3, 1), (0, 2), (2, 2), (3, 2), (0, 4), (2, 4), (3, 4))
"""Model and tensor-parallel width of each run."""


def fleet(
    pool: Pool = EAGER,
    *,
    seed: int = 0,
    share: float = 0.0,
    steps: int = 900,
    timing: str = "device",
    places: tuple[tuple[int, int], ...] = PLACES,
) -> list[RunSteps]:
    """Runs with 2 % noise and 3 % outliers."""
    return [
        simulate(
            f"{MODELS[model].name}-{tp}",
            MODELS[model],
            CHIP,
            replace(pool, tp=tp),
            seed=1000 * seed + index,
            share=share,
            steps=steps,
            timing=timing,
        )
        for index, (model, tp) in enumerate(places)
    ]


def fit(data: list[RunSteps], **options: object) -> Calibration:
    """Fit with few draws."""
    chosen = Options(**{"draws": 30, **options})  # type: ignore[arg-type]
    return calibrate(data, [run.size for run in data], chosen)


def check(calibration: Calibration) -> list[str]:
    """Hold every identified coefficient against what was planted; returns their names.

    Within 2 %, or, where the logs say less than that, within three standard deviations of
    what it claims; and no more than a seventh of them may need that.
    """
    names, wide = [], []
    for c, e in zip(calibration.coefficients, calibration.evidence, strict=True):
        if c.verdict != "identified":
            continue
        names.append(c.name)
        off = abs(math.log(c.value / TRUTH[c.name]))
        if off > 0.02:
            wide.append(c.name)
            assert off < 3.0 * max(e.data_spread or 0.0, e.bootstrap_cv), (c, e)
    assert len(wide) <= len(names) / 7, wide
    return names


def silently_wrong(calibration: Calibration) -> list[str]:
    """Identified coefficients that are off by more than 5 % and deny it."""
    return [
        c.name
        for c in calibration.coefficients
        if c.verdict == "identified"
        and abs(c.value / TRUTH[c.name] - 1.0) > 0.05
        and not c.ci95[0] <= TRUTH[c.name] <= c.ci95[1]
    ]
