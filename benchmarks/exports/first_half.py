"""Plain JSON, BLIS, the grid and the mock engine beside the kernel."""

from __future__ import annotations

import bisect
import importlib.util
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType

from benchmarks.exports import blis_law
from benchmarks.exports.comparison import Comparison
from kernelfit.export import blis, grid, mock, plain
from kernelfit.export.base import ExportOptions
from kernelfit.export.blis_names import blis_chip_name
from kernelfit.export.mock_check import Mock
from kernelfit.export.refused import NotExpressible
from kernelfit.kernel.batch import Batch
from kernelfit.kernel.catalog import definition
from kernelfit.kernel.fitted import FittedKernel
from kernelfit.kernel.resources import Resource

OPTIONS = ExportOptions("kernel.json", "benchmark")
OVERLAP, SUM, DEVICE = range(3)
"""What of a step is compared: both bounds, and the sum without the host's time."""
_READER = Path(__file__).resolve().parents[2] / "examples" / "read_plain.py"


def _reader() -> ModuleType:
    spec = importlib.util.spec_from_file_location("read_plain", _READER)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _plain(kernel: FittedKernel, batches: Sequence[Batch]) -> list[float | None]:
    read = _reader().step_times
    document = json.loads(plain.TARGET.export(kernel, OPTIONS)[0].content)
    return [
        read(document, [(r.scheduled, r.computed) for r in b.requests], b.decode_threshold)[2]
        for b in batches
    ]


def _shape(batch: Batch) -> tuple[int, int, int, int] | None:
    """Return decodes and their context, and the one chunk and what came before it."""
    decodes = [r for r in batch.requests if r.scheduled == 1]
    chunks = [r for r in batch.requests if r.scheduled > 1]
    if len(chunks) > 1 or len({r.computed for r in decodes}) > 1:
        return None
    context = decodes[0].computed if decodes else 0
    return (
        (len(decodes), context, chunks[0].scheduled, chunks[0].computed)
        if chunks
        else (len(decodes), context, 0, 0)
    )


def _between(axis: Sequence[int], x: int) -> list[tuple[int, float]] | None:
    """Return the two values of an axis around x with their weights; None beyond it."""
    if not axis or not axis[0] <= x <= axis[-1]:
        return None
    right = bisect.bisect_left(axis, x)
    if axis[right] == x:
        return [(axis[right], 1.0)]
    low, high = axis[right - 1], axis[right]
    share = (x - low) / (high - low)
    return [(low, 1.0 - share), (high, share)]


_AXES = {
    "decode": ("decode_requests", "decode_context"),
    "prefill": ("prefill_tokens", "prefill_computed"),
    "mixed": ("decode_requests", "decode_context", "prefill_tokens"),
}


def _grid(kernel: FittedKernel, batches: Sequence[Batch]) -> list[float | None]:
    rows = grid.read_grid(grid.TARGET.export(kernel, OPTIONS)[0].content.decode())
    out: list[float | None] = []
    for batch in batches:
        shape = _shape(batch)
        if shape is None:
            out.append(None)
            continue
        requests, context, chunk, computed = shape
        kind = "mixed" if requests and chunk else "prefill" if chunk else "decode"
        if kind == "mixed" and computed:
            out.append(None)
            continue
        at = {
            "decode_requests": requests,
            "decode_context": context,
            "prefill_tokens": chunk,
            "prefill_computed": computed,
        }
        names = _AXES[kind]
        table = {tuple(row[n] for n in names): row["mean_s"] for row in rows if row["kind"] == kind}
        corners: list[tuple[tuple[int, ...], float]] = [((), 1.0)]
        for place, name in enumerate(names):
            near = _between(sorted({key[place] for key in table}), at[name])
            corners = [
                ((*key, value), weight * w) for key, weight in corners for value, w in near or ()
            ]
        known = corners and all(key in table for key, _ in corners)
        out.append(sum(table[key] * w for key, w in corners) if known else None)
    return out


def _mock(kernel: FittedKernel, batches: Sequence[Batch]) -> list[float | None]:
    latencies = Mock.read(mock.TARGET.export(kernel, OPTIONS)[0].content.decode())
    out: list[float | None] = []
    for batch in batches:
        shape = _shape(batch)
        if shape is None or shape[3]:
            out.append(None)
        elif shape[2]:
            out.append(latencies.first_token_s(shape[2], shape[0] + 1))
        else:
            out.append(latencies.next_token_s(shape[0]))
    return out


def _blis(edge: int) -> Callable[[FittedKernel, Sequence[Batch]], list[float | None]]:
    def times(kernel: FittedKernel, batches: Sequence[Batch]) -> list[float | None]:
        if kernel.plan.resolution.data_parallel_width > 1:
            raise NotExpressible("blis", "dp", 2, "the law here is of one data-parallel rank")
        text = blis.TARGET.export(kernel, OPTIONS)[0].content.decode()
        catalogue = blis_chip_name(kernel.plan.chip.name)
        return [pair[edge] for pair in blis_law.times(text, kernel, catalogue, list(batches))]

    return times


def _bound(edge: int) -> Callable[[FittedKernel, Sequence[Batch]], list[float | None]]:
    def times(kernel: FittedKernel, batches: Sequence[Batch]) -> list[float | None]:
        steps = [kernel.totals_time(kernel.totals(batch)) for batch in batches]
        if edge == DEVICE:
            return [
                sum(time for resource, time in step.per_resource_s if resource is not Resource.HOST)
                for step in steps
            ]
        return [step.overlap_s if edge == OVERLAP else step.no_overlap_s for step in steps]

    return times


def _us(*coefficients: str) -> str:
    return f"{sum(1e6 * definition(name).prior for name in coefficients):g} us"


_HOST = (
    f"no host work per step ({_us('launch_step_s', 'schedule_step_s')}) and request "
    f"({_us('launch_request_s', 'schedule_request_s')})"
)
_DEVICE = (
    "no padding to captured sizes, no cost of attention per request, no floor "
    f"({_us('expert_floor_s')}) and no ramp of its own for each touched expert, the weights' rate "
    "for experts and elementwise passes; the head priced for every token, experts' FLOP not "
    "divided by the width"
)

COMPARISONS = (
    Comparison("plain", "example reader / mean", _plain, "nothing is left out"),
    Comparison(
        "grid",
        "linear between its points / mean",
        _grid,
        "exact at its points; between them captured sizes are stairs, touched experts and pairs "
        "are curves",
    ),
    Comparison(
        "mock",
        "its formulas / mean",
        _mock,
        "one line over the prompt and one over the load, no context; one factor stretches both "
        "phases, while a prompt is only delayed by what the decodes beside it cost",
    ),
    Comparison(
        "blis", "its sum / kernel's sum, devices only", _blis(DEVICE), _DEVICE, _bound(DEVICE)
    ),
    Comparison("blis", "its sum / kernel's sum", _blis(SUM), f"{_HOST}; {_DEVICE}", _bound(SUM)),
    Comparison(
        "blis",
        "its overlap / kernel's overlap",
        _blis(OVERLAP),
        f"its host never hides; {_HOST}; {_DEVICE}",
        _bound(OVERLAP),
    ),
    Comparison(
        "blis",
        "its sum / mean",
        _blis(SUM),
        f"its simulator takes the sum, the calibration a share of the overlap; {_HOST}; {_DEVICE}",
    ),
)
