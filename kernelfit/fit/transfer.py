"""What one calibration says beforehand about another: a later one, or another GPU type's.

Shares of a datasheet peak are what engines make of a chip, and carry over to another;
times per counted thing are of one chip and host and carry over by their order only.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from kernelfit.documents.priors import PriorValue
from kernelfit.fit.calibration import Calibration
from kernelfit.fit.design import coefficient_names
from kernelfit.fit.given import GivenPrior
from kernelfit.fit.point import price_run
from kernelfit.fit.priors import build_priors
from kernelfit.fit.solve import START_SCALE, Solution, host_rule_of
from kernelfit.fit.steps import Floats, RunSteps
from kernelfit.kernel.catalog import Coefficient, definition
from kernelfit.kernel.chip import Chip

KNOWN: tuple[str, ...] = ("identified", "weak")
"""Verdicts of coefficients that the logs of a calibration say something about."""

LEAST_SPREAD = 0.1
"""A calibration's own interval counts for no less than this [1]: it holds what resampling
shows, and not what another week, machine or engine brings."""

LATER_SPREAD = 0.2
"""What another set of runs on the same GPU type adds, in quadrature [1]."""

ALONE_SPREAD = 0.4
"""What a kernel timed alone leaves open about the same kernel in a step, in quadrature [1].
Of 0, 0.2 and 0.4, the one with which priors from operator tables lower the errors of runs,
pools and models left out on A100 and H100; with 0 they raise most of them."""

ACROSS_SPREAD: Mapping[str, float] = MappingProxyType(
    {"efficiency": 0.3, "m_half": 0.7, "time": 0.7}
)
"""What another GPU type adds, in quadrature, by kind of coefficient [1]: assumed; a factor of
1.3 for shares of a peak, of 2 for the rest."""


def interval_spread(coefficient: Coefficient) -> float:
    """Return one standard deviation of a coefficient from its interval.

    Parameters
    ----------
    coefficient : Coefficient
        The coefficient, with a 95 % interval.

    Returns
    -------
    float
        Of the natural logarithm: half the interval's width over 1.96, at least 0.1 [1].
    """
    low, high = coefficient.ci95
    if low <= 0.0:
        return math.inf
    return max(0.5 * math.log(high / low) / 1.96, LEAST_SPREAD)


def given_in(values: Sequence[PriorValue], chip: str, file: str) -> tuple[GivenPrior, ...]:
    """Return what a document of priors says about a GPU type beforehand.

    Parameters
    ----------
    values : sequence of PriorValue
        The document's priors.
    chip : str
        Name of the GPU type that it is about.
    file : str
        Name of its file.

    Returns
    -------
    tuple of GivenPrior
        With the spread stated, and where measurements of kernels alone stand behind it,
        0.4 in quadrature.
    """
    return tuple(
        GivenPrior(
            name=v.name,
            value=v.value,
            unit=v.unit,
            spread=math.hypot(v.spread, ALONE_SPREAD) if v.rows else v.spread,
            method=v.method,
            source=v.source,
            chip=chip,
            file=file,
        )
        for v in values
    )


def given_by(calibration: Calibration, file: str) -> tuple[GivenPrior, ...]:
    """Return what an earlier calibration says about its GPU type beforehand.

    Parameters
    ----------
    calibration : Calibration
        The earlier calibration.
    file : str
        Name of its file.

    Returns
    -------
    tuple of GivenPrior
        Its identified and weak coefficients, evidence ``copied``; the spread is that of
        the interval and 0.2 for other runs, in quadrature.
    """
    return tuple(
        GivenPrior(
            name=c.name,
            value=c.value,
            unit=c.unit,
            spread=math.hypot(interval_spread(c), LATER_SPREAD),
            method="copied",
            source=f"calibration {calibration.digest} of {calibration.chip.name}, {c.verdict}",
            chip=calibration.chip.name,
            file=file,
        )
        for c in calibration.coefficients
        if c.verdict in KNOWN and math.isfinite(interval_spread(c))
    )


def carried(others: Sequence[Calibration], chip: Chip) -> tuple[GivenPrior, ...]:
    """Return what calibrations of other GPU types say about one beforehand.

    Parameters
    ----------
    others : sequence of Calibration
        Calibrations of other GPU types.
    chip : Chip
        The GPU type that none of them is of.

    Returns
    -------
    tuple of GivenPrior
        The geometric mean of every coefficient that some of them know, each in its own
        unit: a share stays a share, of the new chip's peak. The spread joins the mean
        interval, the scatter among the GPU types and ``ACROSS_SPREAD``.

    Raises
    ------
    ValueError
        When one of them is of this GPU type.
    """
    if any(other.chip.name.casefold() == chip.name.casefold() for other in others):
        raise ValueError(f"others: got a calibration of {chip.name}; allowed: other GPU types")
    found: dict[str, list[tuple[str, Coefficient]]] = {}
    for other in others:
        for c in other.coefficients:
            if c.verdict in KNOWN and math.isfinite(interval_spread(c)):
                found.setdefault(c.name, []).append((other.chip.name, c))
    out = []
    for name, known in found.items():
        logs = np.log([c.value for _, c in known])
        entry = definition(name)
        own = float(np.mean([interval_spread(c) for _, c in known]))
        scatter = float(np.std(logs, ddof=1)) if logs.size > 1 else 0.0
        out.append(
            GivenPrior(
                name=name,
                value=float(np.exp(np.mean(logs))),
                unit=entry.unit,
                spread=math.hypot(own, scatter, ACROSS_SPREAD[entry.kind]),
                method="copied",
                source=f"calibrations of {', '.join(gpu for gpu, _ in known)}",
                chip=chip.name,
                file="",
            )
        )
    return tuple(out)


def usual_composition(others: Sequence[Calibration]) -> tuple[str, float]:
    """Return how resources combine on other GPU types.

    Parameters
    ----------
    others : sequence of Calibration
        Calibrations of other GPU types, at least one.

    Returns
    -------
    str
        The commonest rule; of equally common ones, that of the most steps.
    float
        Mean share of overlap of those with that rule [1].
    """
    weight: dict[str, tuple[int, int]] = {}
    for other in others:
        count, steps = weight.get(other.rule, (0, 0))
        weight[other.rule] = (count + 1, steps + sum(run.kept for run in other.runs))
    rule = max(weight, key=lambda name: weight[name])
    return rule, float(np.mean([o.overlap_share for o in others if o.rule == rule]))


def predict_from_others(
    runs: Sequence[RunSteps], others: Sequence[Calibration]
) -> tuple[Floats, ...]:
    """Price a GPU type's steps with what other GPU types taught and its own datasheet.

    Parameters
    ----------
    runs : sequence of RunSteps
        Runs of one GPU type; their times are not looked at.
    others : sequence of Calibration
        Calibrations of other GPU types, at least one.

    Returns
    -------
    tuple of ndarray, shape (n_steps,)
        Predictions per run [s]. What no other GPU type knows keeps the catalogue's prior.
    """
    chip = runs[0].plan.chip
    names = coefficient_names(runs)
    priors = build_priors(names, chip, carried(others, chip))
    rule, share = usual_composition(others)
    cost = np.clip(priors.centre, priors.low, priors.high)
    solution = Solution(cost, share, START_SCALE, True, 0)
    return tuple(price_run(run, names, solution, host_rule_of(rule)) for run in runs)
