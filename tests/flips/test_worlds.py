"""Simulated GPUs with known answers: what flips is flagged, and what is clear is not."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from kernelfit.fit.calibrate import Options, calibrate
from kernelfit.flips import Flag, find_flips
from kernelfit.flips.given import Recorded
from kernelfit.flips.measured import MeasuredShape
from tests.flips.worlds import (
    Case,
    World,
    best_cases,
    load_cases,
    make_world,
    meets_cases,
    wider_cases,
)


def judged(world: World, counts: tuple[int, int, int, int], steps: int) -> Counter[str]:
    """Ask and count; every doubtful one is measured until it no longer is."""
    runs = world.runs(steps=steps)
    calibration = calibrate(runs, [r.size for r in runs], Options(draws=20, rule="share"))
    recorded = {calibration.digest: Recorded.of(calibration)}
    rng = np.random.default_rng(world.seed)

    def ask(case: Case, measured: list[MeasuredShape]) -> Flag:
        flags = find_flips(
            case.kernels,
            [case.question],
            noise_spread=calibration.noise.median_spread,
            inflation=calibration.inflation,
            recorded=recorded,
            measured=measured,
        )
        return next(flag for flag in flags if flag.conclusion == case.conclusion)

    found: Counter[str] = Counter()
    makers = (meets_cases, load_cases, wider_cases, best_cases)
    for make, count in zip(makers, counts, strict=True):
        for case in make(world, calibration, count, rng):
            flag = ask(case, [])
            clear = case.clear > 0.1
            if case.overlap != case.no_overlap and clear:
                found["flips"] += 1
                found["flips flagged"] += flag.flag == "measure"
            if case.overlap == case.no_overlap and clear:
                found["clear"] += 1
                found["false alarms"] += flag.flag == "measure"
            found["wrong and agreed"] += flag.flag == "agree" and flag.fitted != case.right
            if flag.flag != "measure":
                continue
            by_label = {f"tp{k.plan.pool.tp}": k.plan for k in case.kernels}
            shapes: list[MeasuredShape] = []
            for _ in range(6):
                if flag.proposed is None:
                    break
                plan = by_label[flag.proposed.pool]
                shapes.append(world.measure(plan.model, plan.pool, flag.proposed, rng))
                flag = ask(case, shapes)
            found["measured"] += 1
            found["settled"] += flag.flag == "agree"
            found["settled wrong"] += flag.flag == "agree" and flag.fitted != case.right
    return found


def test_flips_of_a_planted_gpu_are_found_and_settled() -> None:
    found = judged(make_world(1), (30, 10, 6, 2), steps=300)
    assert found["flips"] >= 4
    assert found["flips flagged"] == found["flips"]
    assert found["clear"] >= 15
    assert found["false alarms"] == 0
    assert found["wrong and agreed"] == 0
    assert found["measured"] >= 8
    assert found["settled"] >= 0.85 * found["measured"]
    assert found["settled wrong"] <= 0.05 * found["measured"]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 2, 3, 7])
def test_of_planted_gpus_with_any_overlap(seed: int) -> None:
    found = judged(make_world(seed), (60, 25, 15, 6), steps=500)
    assert found["flips flagged"] == found["flips"]
    assert found["false alarms"] == 0
    assert found["wrong and agreed"] <= 1
    assert found["settled"] >= 0.85 * found["measured"]
