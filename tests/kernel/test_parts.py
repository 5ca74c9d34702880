"""The parts of a step add up to what the step time says."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelfit.kernel import Batch, FittedKernel, RequestShape
from kernelfit.kernel.errors import InvalidArgument
from kernelfit.kernel.parts import step_parts

ROOT = Path(__file__).resolve().parents[2]
KERNELS = sorted((ROOT / "calib" / "kernels").glob("*.json"))
BATCHES = (
    Batch.decode(1, 16),
    Batch.decode(32, 128),
    Batch((RequestShape(256, 0, 256),)),
    Batch((RequestShape(1, 64, 32), RequestShape(100, 28, 200), RequestShape(1, 500, 20))),
)


@pytest.mark.parametrize("path", KERNELS, ids=lambda path: path.stem)
@pytest.mark.parametrize("batch", BATCHES)
def test_parts_add_up(path: Path, batch: Batch) -> None:
    kernel = FittedKernel.load(path)
    parts = step_parts(kernel.plan, kernel.fitted.values(), batch, kernel.totals(batch))
    step = kernel.step_time(batch)
    for resource, time_s in step.per_resource_s:
        found = sum(part.time_s for part in parts if part.resource is resource)
        assert found == pytest.approx(time_s, rel=1e-9, abs=1e-15)
    # The longest resource of each device stage, plus what the host adds.
    device = {part.stage for part in parts} - {"host", "launch"}
    longest = 0.0
    for stage in device:
        by_resource: dict[object, float] = {}
        for part in parts:
            if part.stage == stage:
                by_resource[part.resource] = by_resource.get(part.resource, 0.0) + part.time_s
        longest += max(by_resource.values())
    assert longest <= step.overlap_s * (1 + 1e-9)
    assert {part.coefficient for part in parts} <= set(kernel.plan.coefficients)


def test_a_batch_beyond_the_pool_has_no_parts() -> None:
    kernel = FittedKernel.load(KERNELS[0])
    batch = Batch.decode(65, 16)
    with pytest.raises(InvalidArgument, match="65"):
        step_parts(kernel.plan, kernel.fitted.values(), batch, kernel.totals(batch))


def test_fewer_sms_stretch_their_part_alone() -> None:
    kernel = FittedKernel.load(ROOT / "tests" / "golden" / "kernels" / "kernel-v2.json")
    whole = Batch.decode(8, 128)
    half = Batch(whole.requests, sm_budget=kernel.plan.chip.sm_count // 2)
    one, two = (
        step_parts(kernel.plan, kernel.fitted.values(), batch, kernel.totals(batch))
        for batch in (whole, half)
    )
    assert len(one) == len(two) > 3
    for before, after in zip(one, two, strict=True):
        factor = 2.0 if before.resource.value == "sm" else 1.0
        assert after.time_s == pytest.approx(factor * before.time_s)
