"""Validation of one GPU type's calibration, as plain data for reports."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from kernelfit.fit.calibration import Calibration
from kernelfit.fit.choose import held_out
from kernelfit.fit.point import start_at
from kernelfit.fit.splits import ACROSS_GPUS, SPLITS
from kernelfit.fit.steps import Floats, RunSteps
from kernelfit.fit.transfer import predict_from_others
from kernelfit.fit.uncertainty import autocorrelation
from kernelfit.kernel.frozen import to_data
from kernelfit.kernel.tables import alike_windows
from kernelfit.validate.baselines import baseline_predictions
from kernelfit.validate.intervals import bounds_rows, coverage_rows, kernel_of
from kernelfit.validate.metrics import ErrorRow, error_rows

BREAKDOWN_REQUESTS: tuple[int, ...] = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256)
MOST_POINTS = 4000
CORRELATION_LAGS = 120

Progress = Callable[[str, int, int], None]


def validate(
    runs: Sequence[RunSteps],
    calibration: Calibration,
    progress: Progress | None = None,
    others: Sequence[tuple[Sequence[RunSteps], Calibration]] = (),
) -> dict[str, list[dict[str, Any]]]:
    """Score a calibration's law on every split, beside the baselines.

    Parameters
    ----------
    runs : sequence of RunSteps
        The gated runs that the calibration was fitted on; every split refits without
        what it holds out.
    calibration : Calibration
        The calibration.
    progress : callable, optional
        Called with a label, the number done and the number wanted.
    others : sequence of (sequence of RunSteps, Calibration)
        Gated runs and calibrations of other GPU types; with them the split that leaves
        this one out is scored, too.

    Returns
    -------
    dict
        ``validation``, ``coverage``, ``bounds``, ``points``, ``correlation`` and
        ``breakdown``, lists of JSON-shaped rows in SI units.
    """
    gpu = calibration.chip.name
    rows: list[dict[str, Any]] = []
    coverage: list[dict[str, Any]] = []
    points: list[dict[str, Any]] = []
    correlation: list[dict[str, Any]] = []
    start = start_at(calibration)
    for number, split in enumerate(SPLITS):
        predicted = held_out(runs, split, calibration.rule, start=start, given=calibration.priors)
        if any(np.isfinite(p).any() for p in predicted):
            candidates = (("kernelfit", predicted), *baseline_predictions(runs, split))
            for predictor, values in candidates:
                rows.extend(
                    to_data(row)
                    for row in error_rows(runs, values, gpu=gpu, predictor=predictor, split=split)
                )
            coverage.extend(
                to_data(row) for row in coverage_rows(runs, predicted, calibration, split)
            )
        if split == "time_block":
            points.append(point_columns(runs, predicted, calibration))
            correlation.extend(correlation_rows(runs, predicted, calibration))
        if progress is not None:
            progress("validate", number + 1, len(SPLITS))
    if others:
        rows.extend(to_data(row) for row in gpu_left_out(runs, others))
    return {
        "validation": rows,
        "coverage": coverage,
        "bounds": [to_data(row) for row in bounds_rows(runs, calibration)],
        "points": points,
        "correlation": correlation,
        "breakdown": [breakdown(run, calibration) for run in _one_per_group(runs)],
    }


def gpu_left_out(
    runs: Sequence[RunSteps], others: Sequence[tuple[Sequence[RunSteps], Calibration]]
) -> Iterator[ErrorRow]:
    """Score a GPU type's steps from other GPU types' runs, beside the baselines.

    Parameters
    ----------
    runs : sequence of RunSteps
        Gated runs of the GPU type that is left out.
    others : sequence of (sequence of RunSteps, Calibration)
        Gated runs of each other GPU type, and its calibration, which has seen no other
        runs.

    Yields
    ------
    ErrorRow
        One per predictor, group and phase that has steps.
    """
    gpu = runs[0].plan.chip.name
    everything = [*runs, *(run for seen, _ in others for run in seen)]
    predicted = predict_from_others(runs, [calibration for _, calibration in others])
    baselines = baseline_predictions(everything, ACROSS_GPUS, only=gpu)
    for predictor, values in (("kernelfit", predicted), *baselines):
        yield from error_rows(
            runs, values[: len(runs)], gpu=gpu, predictor=predictor, split=ACROSS_GPUS
        )


def _one_per_group(runs: Sequence[RunSteps]) -> tuple[RunSteps, ...]:
    return tuple({run.group: run for run in reversed(runs)}.values())[::-1]


def point_columns(
    runs: Sequence[RunSteps], predicted: Sequence[Floats], calibration: Calibration
) -> dict[str, Any]:
    """Return measured and held-out predicted times as columns for plots.

    Parameters
    ----------
    runs : sequence of RunSteps
        Gated runs of one GPU type.
    predicted : sequence of ndarray, shape (n_steps,)
        Held-out predictions per run [s].
    calibration : Calibration
        The calibration; its kernels give the bounds.

    Returns
    -------
    dict
        One list per column; at most 4,000 steps, evenly chosen over all runs.
    """
    total = sum(run.size for run in runs)
    stride = max(1, -(-total // MOST_POINTS))
    columns: dict[str, list[Any]] = {
        name: []
        for name in (
            "run",
            "model",
            "pool",
            "phase",
            "step",
            "measured_s",
            "predicted_s",
            "overlap_s",
            "no_overlap_s",
            "requests",
            "context_tokens",
            "tokens",
        )
    }
    for run, p in zip(runs, predicted, strict=True):
        times = kernel_of(run, calibration).step_times(run.totals)
        context = run.totals["decode_context_tokens"] + run.totals["prefill_context_tokens"]
        for i in range(0, run.size, stride):
            if not np.isfinite(p[i]):
                continue
            columns["run"].append(run.run)
            columns["model"].append(run.plan.model.name)
            columns["pool"].append(run.pool_label)
            columns["phase"].append(run.phase[i])
            columns["step"].append(int(run.step[i]))
            columns["measured_s"].append(float(run.measured_s[i]))
            columns["predicted_s"].append(float(p[i]))
            columns["overlap_s"].append(float(times["overlap_s"][i]))
            columns["no_overlap_s"].append(float(times["no_overlap_s"][i]))
            columns["requests"].append(int(run.totals["requests"][i]))
            columns["context_tokens"].append(int(context[i]))
            columns["tokens"].append(int(run.totals["tokens"][i]))
    return {"gpu": calibration.chip.name, "held_out": True, **columns}


def correlation_rows(
    runs: Sequence[RunSteps], predicted: Sequence[Floats], calibration: Calibration
) -> list[dict[str, Any]]:
    """Return how held-out errors correlate with those of later steps.

    Parameters
    ----------
    runs : sequence of RunSteps
        Gated runs of one GPU type.
    predicted : sequence of ndarray, shape (n_steps,)
        Held-out predictions per run [s].
    calibration : Calibration
        The calibration.

    Returns
    -------
    list of dict
        ``gpu``, ``run`` (``all`` first), ``n`` and ``correlation`` of ln(predicted /
        measured) at lags 0 to 120 steps [1].
    """
    named: list[tuple[str, Floats]] = []
    for run, p in zip(runs, predicted, strict=True):
        known = np.isfinite(p)
        if known.sum() > 1:
            named.append((run.run, np.log(p[known] / run.measured_s[known])))
    if not named:
        return []
    whole = np.concatenate([ratio for _, ratio in named])
    number = np.repeat(np.arange(len(named)), [ratio.size for _, ratio in named])
    parts = [("all", whole, number)]
    if len(named) > 1:
        parts += [(name, ratio, np.zeros(ratio.size, dtype=np.int64)) for name, ratio in named]
    return [
        {
            "gpu": calibration.chip.name,
            "run": name,
            "n": int(ratio.size),
            "correlation": [
                round(float(value), 4)
                for value in autocorrelation(ratio, of, min(CORRELATION_LAGS, ratio.size - 1))
            ],
        }
        for name, ratio, of in parts
    ]


def breakdown(run: RunSteps, calibration: Calibration) -> dict[str, Any]:
    """Return the time by resource of decode batches of growing width.

    Parameters
    ----------
    run : RunSteps
        A run of the deployment.
    calibration : Calibration
        The calibration.

    Returns
    -------
    dict
        Columns over the batch width, at the median context that the run has seen [s].
    """
    kernel = kernel_of(run, calibration)
    requests = run.totals["decode_requests"]
    decoding = requests > 0
    context = 256
    if decoding.any():
        context = int(np.median(run.totals["decode_context_tokens"][decoding] / requests[decoding]))
    most = kernel.resolved().max_num_seqs
    widths = np.asarray([b for b in BREAKDOWN_REQUESTS if b <= most], dtype=np.float64)
    table = {
        "requests": widths,
        "tokens": widths,
        "decode_requests": widths,
        "decode_context_tokens": widths * (context + 1),
        "decode_pairs": widths * (context + 1),
        "prefill_context_tokens": 0.0 * widths,
        "prefill_pairs": 0.0 * widths,
    }
    table |= alike_windows(table, kernel.plan.basis.windows)
    times = kernel.step_times(table)
    resources = [name for name in ("sm", "hbm", "nvlink", "nic", "host") if f"{name}_s" in times]
    return {
        "gpu": calibration.chip.name,
        "model": run.plan.model.name,
        "pool": run.pool_label,
        "context_tokens": context,
        "requests": [int(b) for b in widths],
        "per_resource_s": {name: times[f"{name}_s"].tolist() for name in resources},
        "overlap_s": times["overlap_s"].tolist(),
        "no_overlap_s": times["no_overlap_s"].tolist(),
        "fitted_s": kernel.mean_step_times(table).tolist(),
    }
