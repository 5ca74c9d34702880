"""A calibration against runs that it was not fitted on, nothing refitted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kernelfit.fit.calibration import Calibration
from kernelfit.fit.steps import Floats, RunSteps
from kernelfit.kernel.frozen import to_data
from kernelfit.validate.baselines import DERATE, roofline
from kernelfit.validate.intervals import bounds_rows, kernel_of
from kernelfit.validate.metrics import error_rows
from kernelfit.validate.spans import span_mean_s

SPLIT = "new_runs"
"""The split's name in the rows: the calibration is older than the runs."""


def predicted_s(run: RunSteps, calibration: Calibration) -> Floats:
    """Price a run's steps with a calibration's kernel.

    Parameters
    ----------
    run : RunSteps
        The run.
    calibration : Calibration
        The calibration of its GPU type.

    Returns
    -------
    ndarray, shape (n_steps,)
        What ``RunSteps.measured_s`` measures [s].
    """
    return span_mean_s(run, kernel_of(run, calibration))


def score_new_runs(
    runs: Sequence[RunSteps], calibration: Calibration
) -> dict[str, list[dict[str, Any]]]:
    """Score a calibration on runs, beside the datasheet.

    Parameters
    ----------
    runs : sequence of RunSteps
        Gated runs of the calibration's GPU type.
    calibration : Calibration
        The calibration.

    Returns
    -------
    dict
        ``validation`` and ``bounds``, lists of JSON-shaped rows; fractions, not percent.
    """
    candidates = (
        ("kernelfit", tuple(predicted_s(run, calibration) for run in runs)),
        ("datasheet", tuple(roofline(run, 1.0) for run in runs)),
        ("datasheet_derated", tuple(roofline(run, DERATE) for run in runs)),
    )
    rows = [
        to_data(row)
        for predictor, values in candidates
        for row in error_rows(
            runs, values, gpu=calibration.chip.name, predictor=predictor, split=SPLIT
        )
    ]
    return {
        "validation": rows,
        "bounds": [to_data(row) for row in bounds_rows(runs, calibration)],
    }
