"""Row 8: planted coefficients, priced by the tests' own plain loops."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.accuracy.rows import Line
from kernelfit.fit.calibrate import Options, calibrate

ROOT = Path(__file__).resolve().parents[2]


def row_8(seeds: tuple[int, ...] = (0, 1)) -> list[Line]:
    """Every identified coefficient within 2 %; none silently wrong."""
    sys.path.insert(0, str(ROOT))
    from tests.fit.simulate import TRUTH, simulate
    from tests.kernel.builders import CHIP, EAGER, dense, mixture

    out = []
    for seed in seeds:
        runs = [
            simulate(
                f"{model.name}-tp{tp}",
                model,
                CHIP,
                replace(EAGER, tp=tp),
                seed=100 * seed + index,
                steps=1500,
                timing="step",
            )
            for index, (model, tp) in enumerate(
                [(dense(), 1), (dense(), 2), (dense(layers=8), 4), (mixture(), 1), (mixture(), 2)]
            )
        ]
        found = calibrate(runs, [r.size for r in runs], Options(draws=60, seed=seed))
        worst, name, silent = 0.0, "", []
        identified = 0
        for c, evidence in zip(found.coefficients, found.evidence, strict=True):
            if c.name not in TRUTH:
                continue
            off = abs(c.value / TRUTH[c.name] - 1.0)
            if c.verdict == "identified" and not evidence.alias:
                identified += 1
                if off > worst:
                    worst, name = off, c.name
                if off > 0.05 and not c.ci95[0] <= TRUTH[c.name] <= c.ci95[1]:
                    silent.append(c.name)
        steps = int(np.sum([r.size for r in runs]))
        note = f"{identified} identified of {len(found.coefficients)}; worst {name}"
        out.append(
            Line(
                "8",
                f"seed {seed}: largest error of an identified one",
                worst,
                0.02,
                "unscaled Huber / BVLS: 100 % off without a warning",
                steps=steps,
                note=note,
            )
        )
        out.append(
            Line(
                "8",
                f"seed {seed}: silently wrong",
                float(len(silent)),
                0.0,
                steps=steps,
                note=", ".join(silent),
            )
        )
    return out
