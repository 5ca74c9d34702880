"""Error figures of predictions against measurements."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from kernelfit.fit.steps import Floats, RunSteps, phase_mask

PHASES: tuple[str, ...] = ("all", "decode", "mixed", "prefill")


@dataclass(frozen=True, slots=True)
class ErrorRow:
    """Errors of one predictor on one group of steps.

    Attributes
    ----------
    gpu, predictor, split, group, phase : str
        What was predicted, by what, and how it was held out.
    n : int
        Steps.
    median_ape, mape, p90_ape : float
        Median, mean and 90th percentile of |predicted / measured - 1| [1].
    bias : float
        Median of predicted / measured - 1 [1]; positive where predictions are slow.
    """

    gpu: str
    predictor: str
    split: str
    group: str
    phase: str
    n: int
    median_ape: float
    mape: float
    p90_ape: float
    bias: float


def error_rows(
    runs: Sequence[RunSteps],
    predicted: Sequence[Floats],
    *,
    gpu: str,
    predictor: str,
    split: str,
) -> Iterator[ErrorRow]:
    """Yield the errors of every group and phase, and of all groups together.

    Parameters
    ----------
    runs : sequence of RunSteps
        The runs.
    predicted : sequence of ndarray, shape (n_steps,)
        Predictions per run [s]; NaN steps were not held out and do not count.
    gpu : str
        The GPU type.
    predictor : str
        What predicted.
    split : str
        How the steps were held out.

    Yields
    ------
    ErrorRow
        One per group and phase that has steps.
    """
    groups = tuple(dict.fromkeys(run.group for run in runs))
    for group in ("all", *groups):
        chosen = [
            (run, p) for run, p in zip(runs, predicted, strict=True) if group in ("all", run.group)
        ]
        for phase in PHASES:
            ratio = np.concatenate(
                [(p / run.measured_s)[phase_mask(run.phase, phase)] - 1.0 for run, p in chosen]
            )
            ratio = ratio[np.isfinite(ratio)]
            if ratio.size:
                error = np.abs(ratio)
                yield ErrorRow(
                    gpu=gpu,
                    predictor=predictor,
                    split=split,
                    group=group,
                    phase=phase,
                    n=int(ratio.size),
                    median_ape=float(np.median(error)),
                    mape=float(np.mean(error)),
                    p90_ape=float(np.quantile(error, 0.9)),
                    bias=float(np.median(ratio)),
                )
