"""What a target's own formulas make of an export, beside the kernel it came from."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from benchmarks.exports import first_half
from benchmarks.exports.__main__ import row
from benchmarks.exports.comparison import Comparison, Times
from benchmarks.exports.first_half import DEVICE, OVERLAP, SUM
from kernelfit.kernel import Batch, FittedKernel, RequestShape
from tests.export.samples import VALUES, kernels, random_batches
from tests.kernel.builders import CHIP, EAGER, dense, fitted

# Where the laws agree: what BLIS has no entry for costs next to nothing.
BARE = VALUES | {
    "attention_head_s": 1e-15,
    "hbm_activation_eff": 0.8,
    "launch_step_s": 1e-15,
    "launch_request_s": 1e-15,
    "schedule_step_s": 1e-15,
    "schedule_request_s": 1e-15,
}
WIDE = dense(hidden=4096, layers=8, heads=32, kv_heads=8, intermediate=14336)


def ratios(
    theirs: Times, ours: Times, kernel: FittedKernel, batches: Sequence[Batch]
) -> list[float]:
    """Ratio of two series of times, for the batches that both have one of."""
    pairs = zip(theirs(kernel, batches), ours(kernel, batches), strict=True)
    return [a / b for a, b in pairs if a is not None and b is not None]


@pytest.fixture
def bare() -> FittedKernel:
    """A dense model without what BLIS has no entry for."""
    return FittedKernel.of(WIDE, CHIP, EAGER, "0.32.0", fitted(**BARE))


@pytest.mark.parametrize(("edge", "within"), [(SUM, 0.05), (DEVICE, 0.05), (OVERLAP, 0.2)])
def test_blis_prices_decodes_as_the_kernel_where_their_laws_agree(
    edge: int, within: float, bare: FittedKernel
) -> None:
    batches = [Batch.decode(n, c) for n in (1, 2, 8, 32, 64, 128) for c in (64, 512, 4096)]
    got = ratios(first_half._blis(edge), first_half._bound(edge), bare, batches)
    assert len(got) == 18
    # What remains: the pairs' FLOP, which BLIS does not count: per token in the KV 4 FLOP for
    # each of 32 x 128 elements at 0.4 of 100 TFLOP/s, against 4096 bytes at 0.7 of 1 TB/s, 7 %.
    # Under overlap, its launches never hide, and its floor lies on the memory, not on the SMs.
    assert max(abs(r - 1.0) for r in got) < within


def test_blis_prices_full_prefills_as_the_kernel_where_their_laws_agree(bare: FittedKernel) -> None:
    batches = [Batch((RequestShape(s, c, s + c),)) for s in (4096, 8192) for c in (0, 4096)]
    got = ratios(first_half._blis(DEVICE), first_half._bound(DEVICE), bare, batches)
    # What remains: BLIS multiplies every token by the head, the kernel one of the prompt.
    head = 2 * 4096 * 32000 / (2 * 4096 * (4096 * 2.5 + 3 * 14336) * 8)
    assert all(1.0 < r < 1.0 + 1.2 * head for r in got), got


def test_what_blis_cannot_express_is_what_it_lacks() -> None:
    """A dearer host per request makes the kernel longer, and BLIS as it was."""
    batches = [Batch.decode(n, 512) for n in (1, 16, 256)]
    cheap = FittedKernel.of(WIDE, CHIP, EAGER, "0.32.0", fitted(**BARE))
    dear = FittedKernel.of(
        WIDE, CHIP, EAGER, "0.32.0", fitted(**(BARE | {"launch_request_s": 1e-3}))
    )
    blis = first_half._blis(SUM)
    assert blis(cheap, batches) == pytest.approx(blis(dear, batches))
    more = np.subtract(
        first_half._bound(SUM)(dear, batches), first_half._bound(SUM)(cheap, batches)
    )
    assert more == pytest.approx([1e-3, 16e-3, 256e-3])


@pytest.mark.parametrize("name", ["dense", "graphs", "moe", "mla", "alternating", "hybrid"])
def test_the_grid_is_exact_at_its_points_and_within_its_stairs_between(name: str) -> None:
    kernel = kernels()[name]
    on = [Batch.decode(n, c) for n in (1, 2, 64, 256) for c in (128, 1024, 8192)]
    on += [Batch((RequestShape(s, c, s + c),)) for s in (16, 512) for c in (0, 2048)]
    at = first_half._grid(kernel, on)
    assert at == [kernel.mean_step_time(kernel.totals(batch)) for batch in on]
    between = first_half._grid(kernel, [Batch.decode(48, 700)])[0]
    low, high = (kernel.mean_step_time(kernel.totals(Batch.decode(n, c)))
                 for n, c in ((32, 512), (64, 1024)))  # fmt: skip
    assert between is not None
    assert low < between < high
    assert first_half._grid(kernel, [Batch.decode(1, 100)]) == [None]


def test_every_comparison_is_a_line_with_its_reasons() -> None:
    kernel = kernels()["dense"]
    batches = list(random_batches(20))
    for comparison in first_half.COMPARISONS:
        said = row(comparison, kernel, batches)
        assert "batches, ratio median" in said or said.startswith(("not expressed", "no batch"))
        assert comparison.why
    plain = Comparison("plain", "", first_half._plain, "")
    assert row(plain, kernel, batches).startswith("  20 batches, ratio median 1.0000, off by")
