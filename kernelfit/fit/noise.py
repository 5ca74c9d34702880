"""The noise floor: how far steps of the same shape scatter."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from kernelfit.fit.calibration import Noise
from kernelfit.fit.steps import RunSteps
from kernelfit.kernel.totals import TOTAL_FIELDS

NEAR = 0.02
"""Context within this share of each other counts as the same shape [1]."""

SMALLEST_GROUP = 4


def noise_floor(runs: Sequence[RunSteps]) -> Noise:
    """Measure how far steps of the same deployment and shape scatter.

    Parameters
    ----------
    runs : sequence of RunSteps
        Gated runs of one GPU type.

    Returns
    -------
    Noise
        Groups share model, pool, tokens and requests, and have context and pairs within
        2 % of each other; groups of fewer than 4 steps are left out. Zero groups give
        NaN-free zeros and ``groups = 0``.
    """
    groups: dict[tuple[object, ...], list[float]] = defaultdict(list)
    step = np.log1p(NEAR)
    for run in runs:
        columns = [run.totals[name] for name in TOTAL_FIELDS]
        measured = run.measured_s
        for i in range(run.size):
            shape = tuple(
                int(column[i])
                if name in ("requests", "tokens", "decode_requests")
                else round(float(np.log1p(column[i])) / step)
                for name, column in zip(TOTAL_FIELDS, columns, strict=True)
            )
            groups[(run.group, *shape)].append(float(measured[i]))
    deviations: list[float] = []
    used = 0
    for values in groups.values():
        if len(values) >= SMALLEST_GROUP:
            used += 1
            array = np.asarray(values)
            deviations.extend(np.abs(array / np.median(array) - 1.0))
    if not deviations:
        return Noise(0.0, 0.0, 0, 0)
    return Noise(
        float(np.median(deviations)),
        float(np.quantile(deviations, 0.9)),
        used,
        len(deviations),
    )
