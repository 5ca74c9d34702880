"""Print the speed of the kernel."""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from functools import partial

from benchmarks.kernel import plain, setup
from kernelfit.kernel import Batch, BatchTotals, FittedKernel, KernelError

BARS_US = {"step_time 1": 10.0, "step_time 256": 60.0, "totals_time": 5.0, "step_times": 0.5}
"""Most microseconds a call may take; per step for ``step_times``."""

SAMPLE_S = 1e-3
ROUNDS = 10


def least_us(work: Callable[[], object], repeats: int) -> float:
    """Return the least time of a call [us], over samples that are short and many."""
    work()
    start = time.perf_counter()
    work()
    calls = max(1, int(SAMPLE_S / max(time.perf_counter() - start, 1e-7)))
    best = math.inf
    for _ in range(repeats):
        start = time.perf_counter()
        for _ in range(calls):
            work()
        best = min(best, (time.perf_counter() - start) / calls)
    return best * 1e6


def least_of_all(works: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Return the least time of each call [us].

    They take turns: a shared machine is disturbed for seconds at a time, and then it should
    not be one of them that bears it.
    """
    best = dict.fromkeys(works, math.inf)
    for _ in range(ROUNDS):
        for name, work in works.items():
            best[name] = min(best[name], least_us(work, max(1, repeats // ROUNDS)))
    return best


def interpreter_ns(repeats: int) -> float:
    """Return the least time of one multiplication and addition in a plain loop [ns].

    It tells how fast the machine was in this run: some 30 ns where it is undisturbed.
    """
    values = tuple(float(n) for n in range(1000))

    def loop() -> float:
        total = 0.0
        for value in values:
            total += value * 1.5
        return total

    return least_us(loop, repeats)


def line(name: str, us: float, loop_us: float | None = None) -> None:
    """Print a line of the table."""
    bar = BARS_US.get(name)
    verdict = "" if bar is None else f"{bar:8.1f}  {'met' if us < bar else 'MISSED'}"
    loop = "" if loop_us is None else f"{loop_us:12.1f}{loop_us / us:8.1f}x"
    print(f"  {name:24s}{us:10.2f}{loop:21s}{verdict}")


def check(name: str, both: tuple[float, float], kernel: FittedKernel, batch: Batch) -> None:
    """Refuse to time two things that do not agree."""
    answer = kernel.step_time(batch)
    pairs = zip(both, (answer.overlap_s, answer.no_overlap_s), strict=True)
    if not all(math.isclose(a, b, rel_tol=1e-9) for a, b in pairs):
        raise SystemExit(f"{name}: the loop says {both}, the kernel {answer}")


def measure(kernel: FittedKernel, repeats: int, steps: int) -> None:
    """Measure one deployment and print."""
    basis, layers = kernel.plan.basis, plain.layers_of(kernel)
    batches = [(f"step_time {n}", setup.decodes(n)) for n in (1, 32, 256)]
    batches.append(("step_time 256 mixed", setup.mixed(256)))
    loops: dict[str, Callable[[], object]] = {}
    works: dict[str, Callable[[], object]] = {}
    for name, batch in batches:
        check(name, plain.step_time(basis, layers, batch), kernel, batch)
        loops[name] = partial(plain.step_time, basis, layers, batch)
        works[name] = partial(kernel.step_time, batch)
    one, few, many, chunked = (batch for _, batch in batches)
    totals, mixed = kernel.totals(many), kernel.totals(chunked)
    works |= {
        "totals_time": partial(kernel.totals_time, totals),
        "totals_time mixed": partial(kernel.totals_time, mixed),
        "mean_step_time": partial(kernel.mean_step_time, totals),
        "BatchTotals.of 1": partial(BatchTotals.of, one.requests, 1, basis.windows),
        "BatchTotals.of 256": partial(BatchTotals.of, many.requests, 1, basis.windows),
        "BatchTotals.of mixed": partial(BatchTotals.of, chunked.requests, 1, basis.windows),
        "totals + totals": lambda: totals + mixed,
        "calibrated_step_time 32": partial(kernel.calibrated_step_time, few),
    }
    table = setup.table(kernel, steps)
    vectors = {
        "step_times": partial(kernel.step_times, table),
        "mean_step_times": partial(kernel.mean_step_times, table),
    }
    loop_us = least_of_all(loops, repeats)
    print(f"  {'call':24s}{'us':>10s}{'loop us':>12s}{'ratio':>9s}{'bar':>8s}")
    for name, us in least_of_all(works, repeats).items():
        line(name, us, loop_us.get(name))
    for name, us in least_of_all(vectors, repeats // 10).items():
        line(name, us / steps)


def main() -> None:
    """Measure every deployment and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kernel", description=main.__doc__)
    parser.add_argument("--repeats", type=int, default=200)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--only", help="one of " + ", ".join(d[0] for d in setup.DEPLOYMENTS))
    asked = parser.parse_args()
    print(f"a step of a plain loop: {interpreter_ns(asked.repeats):.0f} ns")
    for what, model, chip, pool in setup.DEPLOYMENTS:
        if asked.only not in (None, what):
            continue
        print(f"\n{what}: {model} on {chip}, tp={pool.tp}, ep={pool.enable_expert_parallel}")
        try:
            kernel = setup.kernel_of(model, chip, pool)
        except KernelError as error:
            print(f"  refused: {error}")
            continue
        print(
            f"  {len(kernel.plan.terms)} terms in {len(kernel.cells)} cells, "
            f"{kernel.plan.model.layer_count} layers, {setup.DRAWS} draws"
        )
        measure(kernel, asked.repeats, asked.steps)
    print(f"\na step of a plain loop: {interpreter_ns(asked.repeats):.0f} ns")


if __name__ == "__main__":
    main()
