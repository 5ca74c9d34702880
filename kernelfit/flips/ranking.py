"""Which of several pools is best, each at its best batch within the targets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kernelfit.flips.conclude import Answer, agreement
from kernelfit.flips.loads import Floats
from kernelfit.flips.objective import Goal, Stake, scores_of
from kernelfit.flips.views import Views

NONE = "none"
"""The outcome when no pool meets the targets."""


@dataclass(frozen=True, slots=True)
class Ranked:
    """One pool's place.

    Attributes
    ----------
    pool : str
        Its label.
    overlap, no_overlap, fitted : float or None
        What it is worth in each view, in the unit of the objective; None where it never
        meets the targets.
    requests : int
        Its best batch as fitted; 0 for none.
    """

    pool: str
    overlap: float | None
    no_overlap: float | None
    fitted: float | None
    requests: int


@dataclass(frozen=True, slots=True)
class Ranking:
    """The best pool under every view.

    Attributes
    ----------
    answer : Answer
        Labels of pools, or ``none``; ``requests`` belongs to the pool to measure.
    measure : int
        Which pool to measure: of those that lead in some view or draw, the one whose
        worth is known least; the fastest when none ever meets the targets.
    batches : tuple of int
        Fitted best batch of each pool; 0 when it never meets the targets.
    order : tuple of Ranked
        Every pool, the best as fitted first.
    best : tuple of (float or None)
        What the best pool is worth under Overlap, under NoOverlap and as fitted.
    """

    answer: Answer
    measure: int
    batches: tuple[int, ...]
    order: tuple[Ranked, ...]
    best: tuple[float | None, float | None, float | None]


def rank_pools(
    pools: Sequence[Views], stakes: Sequence[Stake], labels: Sequence[str], goal: Goal
) -> Ranking:
    """Rank pools by an objective within the targets.

    Parameters
    ----------
    pools : sequence of Views
        Times of each pool at the load; at least one batch fits in one of them.
    stakes : sequence of Stake
        GPUs, engines and price of each pool.
    labels : sequence of str
        Name of each pool.
    goal : Goal
        Targets and objective.

    Returns
    -------
    Ranking
        Each pool runs its best batch within the targets. A view holds for all pools at
        once, and so does a draw: pools of one calibration share their coefficients. Of
        equals the first leads. The margin is the smallest relative change of one pool's
        fitted step times that changes the winner: how much slower it must become, or how
        much faster another one.
    """
    scores, under, batches = scores_of(pools, stakes, goal)
    places = _leaders(scores)
    leads = _leaders(under)
    names = [labels[place] if place >= 0 else NONE for place in places]
    leading = sorted({int(place) for place in (*places, *leads)} - {-1})
    measure = _least_known(scores, under, leading) if leading else _fastest(pools)
    changes = [
        room(views, stake, goal, float(np.delete(scores[:, 2], place).max(initial=0.0)))
        for place, (views, stake) in enumerate(zip(pools, stakes, strict=True))
    ]
    finite = [change for change, _ in changes if np.isfinite(change)]
    resolution = changes[measure][0]
    answer = Answer(
        overlap=names[0],
        no_overlap=names[1],
        fitted=names[2],
        differ=len(set(places.tolist())) > 1,
        probability=agreement(leads == places[2]),
        margin=min(finite) if finite else None,
        resolution=resolution if np.isfinite(resolution) else None,
        requests=changes[measure][1],
    )
    values = [[goal.value(float(score)) for score in row] for row in scores]
    order = sorted(range(len(pools)), key=lambda place: -scores[place, 2])
    best = [goal.value(float(score)) for score in scores.max(axis=0)]
    return Ranking(
        answer,
        measure,
        batches,
        tuple(
            Ranked(labels[p], values[p][0], values[p][1], values[p][2], batches[p]) for p in order
        ),
        (best[0], best[1], best[2]),
    )


def _leaders(scores: Floats) -> npt.NDArray[np.int64]:
    """Return the leading pool of each column, -1 where no pool serves anything."""
    return np.where(scores.max(axis=0, initial=0.0) > 0.0, scores.argmax(axis=0), -1)


def _fastest(pools: Sequence[Views]) -> int:
    return min(
        (place for place, views in enumerate(pools) if views.fitted_s.size),
        key=lambda place: float(pools[place].fitted_s.min()),
    )


def _least_known(scores: Floats, under: Floats, leading: Sequence[int]) -> int:
    # A pool that meets the targets in one view only is known least of all.
    with np.errstate(divide="ignore", invalid="ignore"):
        bounds = np.nan_to_num(np.log(scores[:, 0] / scores[:, 1]), nan=0.0, posinf=np.inf)
        spread = under.std(axis=1) / under.mean(axis=1) if under.shape[1] else np.zeros(len(scores))
    width = np.maximum(np.abs(bounds), np.nan_to_num(spread, nan=0.0))
    return max(leading, key=lambda pool: float(width[pool]))


def room(views: Views, stake: Stake, goal: Goal, other: float) -> tuple[float, int]:
    """Return by how much a pool's step times must change for its place to change.

    Parameters
    ----------
    views : Views
        Its times.
    stake : Stake
        Its size and price.
    goal : Goal
        What is wanted.
    other : float
        What the best of the others is worth.

    Returns
    -------
    float
        Relative change [1]; infinite where none does.
    int
        The batch that its place hangs on; 0 where it holds none.

    Notes
    -----
    With all its steps scaled by f, batch b leads while ``f use`` stays within 1 and its
    capacity, divided by f, is enough; the last batch to do both is the one that decides.
    Beyond 1 the pool leads and f is how much slower it may become.
    """
    if views.fitted_s.size == 0:
        return np.inf, 0
    needed = goal.needed(other, stake)
    uses = views.uses(goal.target_s, goal.first_target_s)[2]
    with np.errstate(divide="ignore"):
        allowed = 1.0 / uses
    capacity = goal.capacity(views, stake)[2]
    if goal.scales:
        with np.errstate(divide="ignore"):
            allowed = np.minimum(allowed, capacity / needed if needed > 0.0 else np.inf)
    else:
        allowed = np.where(capacity >= needed, allowed, 0.0)
    if np.isfinite(allowed.max()):
        return abs(float(allowed.max()) - 1.0), int(allowed.argmax()) + 1
    # Nothing is asked of it and nobody competes: its largest batch stands for it.
    return np.inf, int(views.fitted_s.size)
