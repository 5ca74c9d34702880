"""Which of several pools serves most output tokens per GPU within a target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kernelfit.flips.conclude import Answer, agreement
from kernelfit.flips.loads import Floats
from kernelfit.flips.views import Views

NONE = "none"
"""The outcome when no pool meets the target."""


@dataclass(frozen=True, slots=True)
class Ranking:
    """The best pool under every view.

    Attributes
    ----------
    answer : Answer
        Labels of pools, or ``none``; ``requests`` belongs to the pool to measure.
    measure : int
        Which pool to measure: of those that lead in some view or draw, the one whose
        throughput is known least; the fastest when none ever meets the target.
    batches : tuple of int
        Fitted best batch of each pool; 0 when it never meets the target.
    overlap_gpu_tokens_per_s, no_overlap_gpu_tokens_per_s, fitted_gpu_tokens_per_s : float
        Output tokens per second and GPU of the best pool in each view [tokens/s].
    """

    answer: Answer
    measure: int
    batches: tuple[int, ...]
    overlap_gpu_tokens_per_s: float
    no_overlap_gpu_tokens_per_s: float
    fitted_gpu_tokens_per_s: float


def rank_pools(
    pools: Sequence[Views], gpus: Sequence[int], labels: Sequence[str], target_s: float
) -> Ranking:
    """Rank pools by output tokens per second and GPU within a target.

    Parameters
    ----------
    pools : sequence of Views
        Step times of each pool at the context; at least one batch fits in one of them.
    gpus : sequence of int
        GPUs of one engine of each pool.
    labels : sequence of str
        Name of each pool.
    target_s : float
        Longest acceptable time per output token [s].

    Returns
    -------
    Ranking
        Each pool runs its best batch within the target. A view holds for all pools at
        once, and so does a draw: pools of one calibration share their coefficients. The
        margin is the smallest relative change of one pool's fitted step times that changes
        the winner: how much slower it must become, or how much faster another one.
    """
    three = [
        [_serve(times, n, target_s) for times in (v.overlap_s, v.no_overlap_s, v.fitted_s)]
        for v, n in zip(pools, gpus, strict=True)
    ]
    rates = np.array([[float(rate) for rate, _ in row] for row in three])
    batches = tuple(int(row[2][1]) for row in three)
    places = _leaders(rates)
    count = min((len(v.draws_s) for v in pools if len(v.draws_s)), default=0)
    under = np.stack([_draw_rates(v, n, target_s, count) for v, n in zip(pools, gpus, strict=True)])
    leads = _leaders(under)
    names = [labels[place] if place >= 0 else NONE for place in places]
    leading = sorted({int(place) for place in (*places, *leads)} - {-1})
    measure = _least_known(rates, under, leading) if leading else _fastest(pools)
    changes = [
        _change(v.fitted_s, n, target_s, float(np.delete(rates[:, 2], place).max(initial=0.0)))
        for place, (v, n) in enumerate(zip(pools, gpus, strict=True))
    ]
    answer = Answer(
        overlap=names[0],
        no_overlap=names[1],
        fitted=names[2],
        differ=len(set(places.tolist())) > 1,
        probability=agreement(leads == places[2]),
        margin=min(change for change, _ in changes),
        resolution=changes[measure][0],
        requests=changes[measure][1],
    )
    best = [float(rate) for rate in rates.max(axis=0)]
    return Ranking(answer, measure, batches, best[0], best[1], best[2])


def _serve(step_s: Floats, gpus: int, target_s: float) -> tuple[Floats, npt.NDArray[np.int64]]:
    """Best rate over the batches (last axis) within the target, and its batch; 0 for none."""
    sizes = np.arange(1, step_s.shape[-1] + 1)
    if sizes.size == 0:
        return np.zeros(step_s.shape[:-1]), np.zeros(step_s.shape[:-1], dtype=np.int64)
    rates = np.where(step_s <= target_s, sizes / (step_s * gpus), 0.0)
    best = rates.max(axis=-1)
    return best, np.where(best > 0.0, rates.argmax(axis=-1) + 1, 0)


def _draw_rates(views: Views, gpus: int, target_s: float, count: int) -> Floats:
    """Best rate under each draw; a pool without draws is taken as fitted."""
    if len(views.draws_s) == 0:
        return np.full(count, _serve(views.fitted_s, gpus, target_s)[0])
    return _serve(views.draws_s[:count], gpus, target_s)[0]


def _leaders(rates: Floats) -> npt.NDArray[np.int64]:
    """Return the leading pool of each column, -1 where no pool serves anything."""
    return np.where(rates.max(axis=0, initial=0.0) > 0.0, rates.argmax(axis=0), -1)


def _fastest(pools: Sequence[Views]) -> int:
    return min(
        (place for place, views in enumerate(pools) if views.fitted_s.size),
        key=lambda place: float(pools[place].fitted_s.min()),
    )


def _least_known(rates: Floats, under: Floats, leading: Sequence[int]) -> int:
    # A pool that meets the target in one view only is known least of all.
    with np.errstate(divide="ignore", invalid="ignore"):
        bounds = np.nan_to_num(np.log(rates[:, 0] / rates[:, 1]), nan=0.0, posinf=np.inf)
        spread = under.std(axis=1) / under.mean(axis=1) if under.shape[1] else np.zeros(len(rates))
    width = np.maximum(np.abs(bounds), np.nan_to_num(spread, nan=0.0))
    return max(leading, key=lambda pool: float(width[pool]))


def _change(step_s: Floats, gpus: int, target_s: float, other: float) -> tuple[float, int]:
    """Relative change of a pool's step times that changes whether it leads, and the batch.

    With all its steps scaled by f, batch b leads while ``f step`` meets the target and
    ``b / (f step gpus)`` beats the other pools; the last batch to do both is the one that
    its place hangs on. Beyond 1 the pool leads and f is how much slower it may become.
    """
    if step_s.size == 0:
        return np.inf, 0
    room = target_s / step_s
    if other > 0.0:
        sizes = np.arange(1, step_s.size + 1)
        room = np.minimum(room, sizes / (step_s * gpus * other))
    return abs(float(room.max()) - 1.0), int(room.argmax()) + 1
