"""Recorded data: conclusions about what the fit did not see, and which of them were right."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.accuracy.__main__ import load_runs
from benchmarks.accuracy.measure import gated
from kernelfit.documents.questions import Question
from kernelfit.fit.calibrate import Options, calibrate
from kernelfit.fit.calibration import Calibration
from kernelfit.fit.steps import RunSteps
from kernelfit.flips import Flag, find_flips
from kernelfit.flips.given import Recorded
from kernelfit.flips.measured import MeasuredShape, deployment_key, measured_shapes
from kernelfit.flips.pools import with_priors
from kernelfit.kernel.fitted import FittedKernel

TARGETS = (0.7, 0.8, 0.9, 0.95, 1.05, 1.1, 1.25, 1.5)
"""Targets asked about, over what was measured."""


def b300(shared: Path) -> list[str]:
    """Fit B300 on one and two GPUs, and conclude about four."""
    if not (shared / "data").is_dir():
        return ["  no public data here: left out"]
    runs = _runs(shared)
    kept, _ = gated(runs, lambda run: run.run.startswith("b300-qwen3-32b"))
    train = [run for run in kept if run.plan.pool.tp in (1, 2)]
    test = [run for run in kept if run.plan.pool.tp == 4]
    calibration = calibrate(train, [run.size for run in train], Options(draws=100))
    out = [
        f"  fitted on TP1 and TP2 of Qwen3-32B, {sum(r.size for r in train):,} steps; rule "
        f"{calibration.rule}"
    ]
    return [*out, *conclusions(calibration, test, train)]


def cpu(shared: Path) -> list[str]:
    """Fit the recording CPU without one model, and conclude about it; each model in turn."""
    del shared
    runs = _runs(Path("none"))
    kept, _ = gated(runs, lambda run: run.plan.chip.kind == "cpu")
    out = []
    for model in dict.fromkeys(run.plan.model.name for run in kept):
        test = [run for run in kept if run.plan.model.name == model]
        train = [run for run in kept if run.plan.model.name != model]
        calibration = calibrate(train, [run.size for run in train], Options(draws=60))
        out.append(f"  without {model}: rule {calibration.rule}")
        # Their contexts hardly repeat, so few steps make a shape.
        out += conclusions(calibration, test, train, fewest=8, error=0.1)
    return out


def _runs(shared: Path) -> list[RunSteps]:
    with tempfile.TemporaryDirectory() as work:
        return load_runs(shared, Path(work))[0]


def conclusions(
    calibration: Calibration,
    test: Sequence[RunSteps],
    train: Sequence[RunSteps],
    *,
    fewest: int = 20,
    error: float = 0.02,
) -> list[str]:
    """Ask about every decode shape measured often enough, and hold the answers to it."""
    shapes = [
        s
        for s in measured_shapes(test, calibration.inflation, fewest)
        if s.totals["requests"] == s.totals["decode_requests"] and s.error < error
    ]
    others = [
        s
        for s in measured_shapes(train, calibration.inflation, fewest)
        if s.totals["requests"] == s.totals["decode_requests"] and s.error < error
    ]
    if not shapes:
        return ["    no decode shape was measured often enough"]
    kernels = {deployment_key(run.plan): _kernel(calibration, run) for run in (*test, *train)}
    recorded = {calibration.digest: Recorded.of(calibration)}
    noise = {
        "noise_spread": calibration.noise.median_spread,
        "inflation": calibration.inflation,
        "recorded": recorded,
    }
    meets: Counter[tuple[str, str]] = Counter()
    settled: Counter[str] = Counter()
    errors = []
    for shape in shapes:
        requests, context = _of(shape)
        kernel = kernels[shape.key]
        questions = [
            Question(context, min(10.0, factor * shape.mean_s), (requests,)) for factor in TARGETS
        ]
        flags = _meets(find_flips([kernel], questions, **noise))
        after = _meets(find_flips([kernel], questions, measured=[shape], **noise))
        for question, flag, later in zip(questions, flags, after, strict=True):
            right = "yes" if shape.mean_s <= (question.target_s or 0.0) else "no"
            meets[flag.flag, "right" if flag.fitted == right else "wrong"] += 1
            if flag.flag != "agree":
                word = "right" if later.fitted == right else "wrong"
                settled[later.flag if later.flag != "agree" else f"settled and {word}"] += 1
        if flags:
            errors.append(float(flags[0].fitted_s or 0.0) / shape.mean_s - 1.0)
    out = [
        f"    {len(shapes)} measured decode shapes, median error of the fitted time "
        f"{np.median(np.abs(errors)):.3f}; {sum(meets.values())} questions",
        "    meets_token_latency: " + _counts(meets),
        "    once the shape itself is measured: "
        + ", ".join(f"{word} {n}" for word, n in sorted(settled.items())),
    ]
    wider = _wider(shapes, [*shapes, *others], kernels, noise)
    if wider:
        out.append("    wider_is_faster: " + _counts(wider))
    return out


def _kernel(calibration: Calibration, run: RunSteps) -> FittedKernel:
    plan = run.plan
    fitted = with_priors(calibration.fitted(), calibration.chip, plan.coefficients)
    return FittedKernel.from_plan(plan, fitted)


def _of(shape: MeasuredShape) -> tuple[int, int]:
    requests = round(shape.totals["requests"])
    return requests, max(1, round(shape.totals["decode_context_tokens"] / requests) - 1)


def _meets(flags: Sequence[Flag]) -> list[Flag]:
    return [flag for flag in flags if flag.conclusion == "meets_token_latency"]


def _wider(
    wanted: Sequence[MeasuredShape],
    known: Sequence[MeasuredShape],
    kernels: dict[object, FittedKernel],
    noise: dict[str, object],
) -> Counter[tuple[str, str]]:
    """Compare shapes that two widths of one model have both been measured at."""
    counts: Counter[tuple[str, str]] = Counter()
    for shape in wanted:
        wide = kernels[shape.key]
        requests, context = _of(shape)
        for other in known:
            narrow = kernels[other.key]
            same = narrow.plan.model.name == wide.plan.model.name
            if not same or 2 * narrow.plan.pool.tp != wide.plan.pool.tp:
                continue
            count, near = _of(other)
            if count != requests or abs(near - context) > 0.05 * context:
                continue
            flags = find_flips([narrow, wide], [Question(context, 10.0, (requests,))], **noise)
            found = [flag for flag in flags if flag.conclusion == "wider_is_faster"]
            right = "yes" if shape.mean_s <= other.mean_s else "no"
            for flag in found:
                counts[flag.flag, "right" if flag.fitted == right else "wrong"] += 1
    return counts


def _counts(counts: Counter[tuple[str, str]]) -> str:
    parts = []
    for flag in ("agree", "extrapolated", "uncertain", "measure"):
        right, wrong = counts[flag, "right"], counts[flag, "wrong"]
        if right + wrong:
            parts.append(f"{flag} {right + wrong} (right {right}, wrong {wrong})")
    return "; ".join(parts) or "none"
