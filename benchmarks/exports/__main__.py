"""Print, for each target and kernel, how far the target's step times are from the kernel's."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Sequence

from benchmarks.exports import first_half, second_half
from benchmarks.exports.comparison import Comparison
from benchmarks.exports.kernels import kernels
from kernelfit.export.probes import kernel_times, probe_batches, words_of
from kernelfit.kernel.batch import Batch
from kernelfit.kernel.errors import KernelError
from kernelfit.kernel.fitted import FittedKernel

COMPARISONS: tuple[Comparison, ...] = (
    *first_half.COMPARISONS,
    *second_half.COMPARISONS,
)


def row(comparison: Comparison, kernel: FittedKernel, batches: Sequence[Batch]) -> str:
    """Return one line: batches, median and worst of the ratio's distance from 1."""
    try:
        theirs = comparison.times(kernel, batches)
    except KernelError as error:
        return f"not expressed: {error}"
    ours: Sequence[float | None]
    ours = (
        comparison.own(kernel, batches) if comparison.own else list(kernel_times(kernel, batches))
    )
    ratios = [
        (their / our, batch)
        for their, our, batch in zip(theirs, ours, batches, strict=True)
        if their is not None and our is not None
    ]
    if not ratios:
        return "no batch that it has a time for"
    errors = [abs(ratio - 1.0) for ratio, _ in ratios]
    worst, at = max(ratios, key=lambda each: abs(each[0] - 1.0))
    signed = statistics.median(ratio for ratio, _ in ratios)
    return (
        f"{len(ratios):4d} batches, ratio median {signed:.4f}, off by median "
        f"{statistics.median(errors):.2%}, worst {max(errors):.2%} (ratio {worst:.3f} at "
        f"{words_of(at)})"
    )


def main(names: Sequence[str]) -> int:
    """Print the table; names of targets choose some of them."""
    probed = {name: (kernel, probe_batches(kernel)) for name, kernel in kernels().items()}
    for comparison in COMPARISONS:
        if names and comparison.target not in names:
            continue
        print(f"{comparison.target}: {comparison.what}")
        for name, (kernel, batches) in probed.items():
            print(f"  {name}: {row(comparison, kernel, batches)}")
        print(f"  why: {comparison.why}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
