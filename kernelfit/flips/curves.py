"""Latency against batch for one pool and load, as plain rows for a figure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kernelfit.documents.questions import Question
from kernelfit.fit.steps import Floats
from kernelfit.flips.given import concerns
from kernelfit.flips.loads import candidates
from kernelfit.flips.measured import Anchors, MeasuredShape
from kernelfit.flips.pricing import Pricer
from kernelfit.flips.steady import Load
from kernelfit.flips.views import look
from kernelfit.kernel.fitted import FittedKernel

MOST_POINTS = 96
"""Batch sizes of a curve; more cannot be told apart on a page."""


def curve_rows(
    kernels: Sequence[FittedKernel],
    questions: Sequence[Question],
    names: Sequence[str] | None = None,
    measured: Sequence[MeasuredShape] = (),
) -> list[dict[str, Any]]:
    """Return time per output token against requests in flight.

    Parameters
    ----------
    kernels : sequence of FittedKernel
        The pools.
    questions : sequence of Question
        What is asked; each pair of pool and load gives one curve with every target.
    names : sequence of str, optional
        Names of the pools; without, their widths.
    measured : sequence of MeasuredShape
        Measured steps; those among the decode steps of a load are its points.

    Returns
    -------
    list of dict
        JSON-shaped: ``gpu``, ``model``, ``pool``, ``load``, ``requests``, and for each of
        them ``overlap_s``, ``no_overlap_s``, ``fitted_s``, ``low_s``, ``high_s`` (95 % of
        the draws; the fitted time without draws); ``targets_s``; ``points``, a list of
        ``requests``, ``time_s`` and ``error_s``. The curves are those of the calibration
        alone: they do not pass through the points. Times in [s].
    """
    rows = []
    for pool in candidates(kernels, names):
        mine = [q for q in questions if concerns(q, pool)]
        if not mine:
            continue
        pricer = Pricer.of(pool.kernel)
        anchors = Anchors.of(pool.kernel.plan, measured)
        for load in dict.fromkeys(Load.of(q) for q in mine):
            seen = look(pricer, load)
            if not seen.size:
                continue
            at = _places(seen.size)
            low, high = _interval(seen.views.draws_s[:, at], seen.views.fitted_s[at])
            shapes = () if anchors is None else anchors.on_line(seen.steady, chunk=False)
            targets = {q.target_s for q in mine if Load.of(q) == load and q.target_s is not None}
            rows.append(
                {
                    "gpu": pool.gpu,
                    "model": pool.model,
                    "pool": pool.label,
                    "load": load.text,
                    "requests": [int(place) + 1 for place in at],
                    "overlap_s": seen.views.overlap_s[at].tolist(),
                    "no_overlap_s": seen.views.no_overlap_s[at].tolist(),
                    "fitted_s": seen.views.fitted_s[at].tolist(),
                    "low_s": low.tolist(),
                    "high_s": high.tolist(),
                    "targets_s": sorted(targets),
                    # A point is a decode step; with prompts between, the curve is none.
                    "points": []
                    if load.prompt_tokens
                    else [
                        {
                            "requests": shape.totals["requests"],
                            "time_s": shape.mean_s,
                            "error_s": shape.mean_s * shape.error,
                        }
                        for shape in shapes
                    ],
                }
            )
    return rows


def _places(size: int) -> list[int]:
    if size <= MOST_POINTS:
        return list(range(size))
    spaced = np.unique(np.round(np.geomspace(1, size, MOST_POINTS)).astype(int)) - 1
    return [int(place) for place in spaced]


def _interval(draws_s: Floats, fitted_s: Floats) -> tuple[Floats, Floats]:
    if not draws_s.size:
        return fitted_s, fitted_s
    low, high = np.quantile(draws_s, [0.025, 0.975], axis=0)
    return np.minimum(low, fitted_s), np.maximum(high, fitted_s)
