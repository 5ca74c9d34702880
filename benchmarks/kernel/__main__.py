"""Print the speed of the kernel."""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable

from benchmarks.kernel import plain, setup
from kernelfit.kernel import BatchTotals, KernelError

BARS_US = {
    "step_time 1": 10.0,
    "step_time 256": 60.0,
    "totals_time": 5.0,
    "step_times": 0.5,
}
"""Most microseconds a call may take; per step for ``step_times``."""


def least_us(work: Callable[[], object], repeats: int, seconds: float = 0.02) -> float:
    """Return the least time of a call [us], over repeats of many calls each."""
    start = time.perf_counter()
    work()
    calls = max(1, int(seconds / max(time.perf_counter() - start, 1e-7)))
    best = math.inf
    for _ in range(repeats):
        start = time.perf_counter()
        for _ in range(calls):
            work()
        best = min(best, (time.perf_counter() - start) / calls)
    return best * 1e6


def measured(name: str, us: float, loop_us: float | None = None) -> str:
    """Return a line of the table."""
    bar = BARS_US.get(name)
    verdict = "" if bar is None else f"{bar:9.1f}  {'met' if us < bar else 'MISSED'}"
    loop = "" if loop_us is None else f"{loop_us:12.1f}{loop_us / us:8.1f}x"
    return f"  {name:24s}{us:10.2f}{loop:21s}{verdict}"


def main() -> None:
    """Measure every deployment and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kernel", description=main.__doc__)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--only", help="one of " + ", ".join(d[0] for d in setup.DEPLOYMENTS))
    asked = parser.parse_args()
    repeats = asked.repeats
    for what, model, chip, pool in setup.DEPLOYMENTS:
        if asked.only not in (None, what):
            continue
        try:
            kernel = setup.kernel_of(model, chip, pool)
        except KernelError as error:
            print(f"\n{what}: {model} on {chip} is refused: {error}")
            continue
        basis, layers = kernel.plan.basis, plain.layers_of(kernel)
        print(
            f"\n{what}: {model} on {chip}, tp={pool.tp}, ep={pool.enable_expert_parallel}; "
            f"{len(kernel.plan.terms)} terms, {len(kernel.cells)} cells, "
            f"{kernel.plan.model.layer_count} layers, {setup.DRAWS} draws"
        )
        print(f"  {'call':24s}{'us':>10s}{'loop us':>12s}{'ratio':>9s}{'bar':>9s}")
        batches = [(f"step_time {n}", setup.decodes(n)) for n in (1, 32, 256)]
        batches.append(("step_time 256 mixed", setup.mixed(256)))
        for name, batch in batches:
            both = plain.step_time(basis, layers, batch)
            answer = kernel.step_time(batch)
            if not all(
                math.isclose(a, b, rel_tol=1e-9)
                for a, b in zip(both, (answer.overlap_s, answer.no_overlap_s), strict=True)
            ):
                raise SystemExit(f"{name}: the loop says {both}, the kernel {answer}")
            us = least_us(lambda b=batch: kernel.step_time(b), repeats)
            loop = least_us(lambda b=batch: plain.step_time(basis, layers, b), repeats)
            print(measured(name, us, loop))
        batch = setup.decodes(256)
        totals = kernel.totals(batch)
        chunked = kernel.totals(setup.mixed(256))
        windows = basis.windows
        for name, work in (
            ("totals_time", lambda: kernel.totals_time(totals)),
            ("totals_time mixed", lambda: kernel.totals_time(chunked)),
            ("mean_step_time", lambda: kernel.mean_step_time(totals)),
            ("BatchTotals.of 256", lambda: BatchTotals.of(batch.requests, 1, windows)),
            ("totals + totals", lambda: totals + chunked),
            ("calibrated_step_time 32", lambda: kernel.calibrated_step_time(batches[1][1])),
        ):
            print(measured(name, least_us(work, repeats)))
        table = setup.table(kernel, asked.steps)
        for name, many in (
            ("step_times", kernel.step_times),
            ("mean_step_times", kernel.mean_step_times),
        ):
            us = least_us(lambda f=many: f(table), repeats, 0.1) / asked.steps
            print(measured(name, us))


if __name__ == "__main__":
    main()
