"""What a change between two calibrations does to step times."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from kernelfit.fit.calibration import Calibration
from kernelfit.fit.steps import Floats, pool_label
from kernelfit.kernel.batch import Batch, RequestShape
from kernelfit.kernel.errors import InvalidArgument, KernelError
from kernelfit.kernel.fitted import FittedKernel
from kernelfit.kernel.limits import check_batch
from kernelfit.kernel.phase import PHASES
from kernelfit.kernel.plan import Plan
from kernelfit.validate.drift import (
    FEWEST_DRAWS,
    MOVED,
    SAME,
    TOLERANCE,
    UNKNOWN,
    Interval,
    interval,
)

WIDTHS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
CONTEXTS = (128, 512, 2048, 8192, 32768)
PROMPTS = (16, 64, 256, 1024, 4096, 16384)
COMPUTED = (0, 2048)
"""The grid: requests that decode, tokens in each one's KV, tokens of one prompt's chunk, and
tokens of it computed before."""


@dataclass(frozen=True, slots=True)
class Deployment:
    """One deployment under both calibrations.

    Attributes
    ----------
    before, after : FittedKernel
        Its kernel with either.
    """

    before: FittedKernel
    after: FittedKernel

    @property
    def model(self) -> str:
        """Name of the model."""
        return self.before.plan.model.name

    @property
    def pool(self) -> str:
        """Widths of the pool."""
        return pool_label(self.before.plan.pool)


@dataclass(frozen=True, slots=True)
class NotPriced:
    """A deployment that cannot be priced with both calibrations.

    Attributes
    ----------
    model, pool : str
        The deployment.
    reason : str
        Why.
    """

    model: str
    pool: str
    reason: str


@dataclass(frozen=True, slots=True)
class PredictionDrift:
    """Change of the predicted step time of one deployment and phase.

    Attributes
    ----------
    model, pool, phase : str
        Which steps.
    batches : int
        Batches of the grid inside both domains.
    median : Interval or None
        Median over the batches of after / before - 1 [1].
    worst : Interval or None
        The same of the batch with the largest change [1].
    worst_batch : str
        That batch in words.
    verdict : str
        ``moved`` where the interval of the median lies beyond the tolerance, ``unknown``
        where no batch lies inside both domains or one side has no draws.
    """

    model: str
    pool: str
    phase: str
    batches: int
    median: Interval | None
    worst: Interval | None
    worst_batch: str
    verdict: str


def seen_by_both(before: Calibration, after: Calibration) -> frozenset[tuple[str, str]]:
    """Return the deployments that both calibrations rest on.

    Parameters
    ----------
    before, after : Calibration
        The calibrations.

    Returns
    -------
    frozenset of (str, str)
        Model and widths of the pool.
    """
    one, other = ({(r.model, r.pool) for r in c.runs} for c in (before, after))
    return frozenset(one & other)


def pair_kernels(
    before: Calibration, after: Calibration, kernels: Sequence[FittedKernel]
) -> tuple[tuple[Deployment, ...], tuple[NotPriced, ...]]:
    """Price deployments with both calibrations.

    Parameters
    ----------
    before, after : Calibration
        The calibrations.
    kernels : sequence of FittedKernel
        Frozen kernels of any calibration; they say what the deployments are.

    Returns
    -------
    tuple of Deployment
        One per model and pool, in order of first appearance. A kernel that was frozen from
        one of the calibrations keeps its own terms there: a coefficient belongs to the laws
        that it was fitted with.
    tuple of NotPriced
        Deployments that one calibration cannot price, with the reason.
    """
    found: dict[tuple[object, ...], list[FittedKernel]] = {}
    for kernel in kernels:
        plan = kernel.plan
        found.setdefault((plan.model.name, plan.pool), []).append(kernel)
    sides = [(calibration, calibration.digest) for calibration in (before, after)]
    deployments: list[Deployment] = []
    refused: list[NotPriced] = []
    for alike in found.values():
        first = alike[0].plan
        try:
            deployments.append(Deployment(*(_priced(*side, alike) for side in sides)))
        except KernelError as error:
            refused.append(NotPriced(first.model.name, pool_label(first.pool), str(error)))
    return tuple(deployments), tuple(refused)


def _priced(calibration: Calibration, digest: str, alike: Sequence[FittedKernel]) -> FittedKernel:
    for kernel in alike:
        if kernel.fitted.calibration == digest:
            return kernel
    plan = alike[0].plan
    if plan.chip != calibration.chip:
        plan = Plan.of(plan.model, calibration.chip, plan.pool, plan.engine_version)
    return FittedKernel.from_plan(plan, calibration.fitted())


def _grid(phase: str) -> Iterator[tuple[str, Batch]]:
    decoding = [
        (f"{n} x {context:,}", (RequestShape(1, context, context),) * n)
        for n in WIDTHS
        for context in CONTEXTS
    ]
    prompts = [
        (
            f"prompt of {size:,}" + (f" after {done:,}" if done else ""),
            RequestShape(size, done, done + size + 1),
        )
        for size in PROMPTS
        for done in COMPUTED
    ]
    if phase == "decode":
        for words, requests in decoding:
            yield words, Batch(requests)
    elif phase == "prefill":
        for words, prompt in prompts:
            yield words, Batch((prompt,))
    else:
        for words, requests in decoding:
            for more, prompt in prompts:
                yield f"{words}, {more}", Batch((*requests, prompt))


def _inside(kernel: FittedKernel, batch: Batch) -> bool:
    totals = kernel.totals(batch)
    try:
        check_batch(kernel.plan, batch, totals)
    except InvalidArgument:
        return False
    return kernel.in_domain(totals)


def _times(kernel: FittedKernel, batches: Sequence[Batch]) -> tuple[Floats, Floats]:
    """Return fitted times, shape (n_batches,), and those of the draws, one row each."""
    totals = [kernel.totals(batch) for batch in batches]
    mean = np.asarray([kernel.mean_step_time(t) for t in totals])
    draws = kernel.draws
    if draws is None or draws.shares.size < FEWEST_DRAWS:
        return mean, np.empty((0, len(batches)))
    rows = [draws.mean_s(kernel.plan.basis.row(t), 1.0) for t in totals]
    return mean, np.column_stack(rows)


def prediction_drift(
    deployment: Deployment, tolerance: float = TOLERANCE
) -> tuple[PredictionDrift, ...]:
    """Compare the step times of a deployment under both calibrations.

    Parameters
    ----------
    deployment : Deployment
        The deployment.
    tolerance : float
        Change that is none [1].

    Returns
    -------
    tuple of PredictionDrift
        One per phase. Intervals come from every pair of draws, one of each calibration:
        the two are taken as independent, which is wide where both kept one prior.
    """
    return tuple(_phase(deployment, phase, tolerance) for phase in PHASES)


def _phase(deployment: Deployment, phase: str, tolerance: float) -> PredictionDrift:
    both = (deployment.before, deployment.after)
    kept = [(w, b) for w, b in _grid(phase) if all(_inside(kernel, b) for kernel in both)]
    place = (deployment.model, deployment.pool, phase)
    if not kept:
        return PredictionDrift(*place, 0, None, None, "", UNKNOWN)
    batches = [batch for _, batch in kept]
    (old, old_draws), (new, new_draws) = (_times(kernel, batches) for kernel in both)
    change = new / old - 1.0
    at = int(np.argmax(np.abs(np.log(new / old))))
    medians, worst = [], []
    for row in new_draws:
        drawn = row[None, :] / old_draws - 1.0
        medians.append(np.median(drawn, axis=1))
        worst.append(drawn[:, at])
    known = old_draws.shape[0] > 0 and new_draws.shape[0] > 0
    median = interval(np.concatenate(medians) if known else np.empty(0), float(np.median(change)))
    inside = median.low <= tolerance and median.high >= -tolerance
    return PredictionDrift(
        *place,
        len(kept),
        median,
        interval(np.concatenate(worst) if known else np.empty(0), float(change[at])),
        kept[at][0],
        UNKNOWN if not known else SAME if inside else MOVED,
    )
