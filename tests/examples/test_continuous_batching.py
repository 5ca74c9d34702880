"""The example engine loses no request, no token and no second."""

from __future__ import annotations

import importlib.util
import random
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from kernelfit.kernel import FittedKernel

ROOT = Path(__file__).resolve().parents[2]
KERNELS = sorted((ROOT / "calib" / "kernels").glob("*.json"))


@pytest.fixture(scope="module")
def example() -> ModuleType:
    path = ROOT / "examples" / "continuous_batching.py"
    spec = importlib.util.spec_from_file_location("continuous_batching", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def requests_of(example: ModuleType, count: int, rate: float) -> list:
    choose, now, out = random.Random(5), 0.0, []
    for _ in range(count):
        now += choose.expovariate(rate)
        out.append(example.Request(now, choose.randint(1, 3000), choose.randint(1, 40)))
    return out


def check(requests: list, steps: list, again: int) -> None:
    assert all(r.emitted == r.output for r in requests)
    assert all(r.arrival_s < r.first_s <= r.done_s for r in requests)
    # Each token but the last of a request is computed once; evicted ones again.
    needed = sum(r.prompt + r.output - 1 for r in requests)
    computed = sum(shape.scheduled for _, _, shapes in steps for shape in shapes)
    assert computed == needed + again
    ends = [start + seconds for start, seconds, _ in steps]
    assert all(seconds > 0 for _, seconds, _ in steps)
    arrivals = {r.arrival_s for r in requests}
    # A step begins where the last one ended, or, after an idle time, where a request arrives.
    for before, (start, _, _) in zip(ends, steps[1:], strict=False):
        assert start == before or (start > before and start in arrivals)
    assert {r.done_s for r in requests} <= set(ends)


@pytest.mark.parametrize("path", KERNELS, ids=lambda path: path.stem)
def test_requests_tokens_and_time_add_up(example: ModuleType, path: Path) -> None:
    kernel = FittedKernel.load(path)
    limits = kernel.resolved()
    for rate in (0.05, 50.0):
        requests = requests_of(example, 40, rate)
        steps = example.simulate(kernel, requests, 1 << 40)
        check(requests, steps, again=0)
        for _, _, shapes in steps:
            assert len(shapes) <= limits.max_num_seqs
            assert sum(s.scheduled for s in shapes) <= limits.max_num_batched_tokens


def test_who_makes_way_for_others_computes_its_tokens_again(example: ModuleType) -> None:
    kernel = FittedKernel.load(KERNELS[0])
    page = kernel.resolved().block_size
    pages = kernel.sequence_variable_bytes(1)
    # Two requests that fill three pages each at the end, in room for four.
    requests = [example.Request(0.0, 2 * page - 3, 10) for _ in range(2)]
    steps = example.simulate(kernel, requests, 4 * pages)
    # Both decode until the first needs its third page: 2 * page tokens are computed then,
    # and the second starts over when the first has gone.
    check(requests, steps, again=2 * page)
    assert requests[0].done_s < requests[1].done_s
    ample = [example.Request(0.0, 2 * page - 3, 10) for _ in range(2)]
    check(ample, example.simulate(kernel, ample, 6 * pages), again=0)


def test_the_script_prints_the_same_every_time() -> None:
    command = [sys.executable, "examples/continuous_batching.py"]
    first, second = (
        subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    )
    assert first == second
    assert first.startswith("100 requests, ")
    assert "time to first token p50" in first
