"""What makes one pool better than another: what it is worth at its best batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kernelfit.documents.questions import OBJECTIVES
from kernelfit.flips.loads import Floats
from kernelfit.flips.views import Four, Views
from kernelfit.kernel.errors import InvalidArgument

SECONDS_PER_HOUR = 3600.0

UNITS: dict[str, str] = {
    "throughput_per_gpu": "output tokens/s/GPU",
    "cost_per_token": "price per million output tokens",
    "fewest_gpus": "GPUs",
}


@dataclass(frozen=True, slots=True)
class Stake:
    """One pool in a comparison.

    Attributes
    ----------
    gpus : int
        GPUs of one engine (a data-parallel rank).
    engines : int
        Engines of the pool.
    price_per_gpu_hour : float
        Price of one of its GPUs for an hour, in any currency; 1 where nobody asks.
    """

    gpus: int
    engines: int = 1
    price_per_gpu_hour: float = 1.0


@dataclass(frozen=True, slots=True)
class Goal:
    """What is wanted.

    Attributes
    ----------
    target_s, first_target_s : float
        Longest acceptable time per output token and to first token [s]; infinite for none.
    objective : str
        One of ``kernelfit.documents.questions.OBJECTIVES``.
    rate_per_s : float or None
        For ``fewest_gpus``: requests a second that must be served [1/s].
    concurrency : int or None
        For ``fewest_gpus`` without a rate: requests in flight that must be served.
    """

    target_s: float
    first_target_s: float = float("inf")
    objective: str = OBJECTIVES[0]
    rate_per_s: float | None = None
    concurrency: int | None = None

    def __post_init__(self) -> None:
        """Check the objective.

        Raises
        ------
        InvalidArgument
            When it is unknown, or the fewest GPUs for nothing are asked for.
        """
        if self.objective not in OBJECTIVES:
            raise InvalidArgument("objective", self.objective, ", ".join(OBJECTIVES))
        if self.objective == "fewest_gpus" and self.rate_per_s is None and not self.concurrency:
            raise InvalidArgument("objective", self.objective, "with a rate or a concurrency")

    def capacity(self, views: Views, stake: Stake) -> Four:
        """Return what a pool serves with 1, 2, 3, ... requests in flight per engine.

        Parameters
        ----------
        views : Views
            Its times.
        stake : Stake
            Its size.

        Returns
        -------
        tuple of ndarray
            In every view: output tokens per second of an engine, or, where the fewest GPUs
            are wanted, share of the demand that the whole pool serves.
        """
        rates = views.rates()
        if self.objective != "fewest_gpus":
            return rates
        if self.rate_per_s is not None:
            tokens = max(views.output_tokens, 1)
            scale = stake.engines / (tokens * self.rate_per_s)
        else:
            sizes = np.arange(1, views.fitted_s.size + 1, dtype=np.float64)
            part = sizes * stake.engines / float(self.concurrency or 1)
            return part, part, part, np.broadcast_to(part, views.draws_s.shape)
        return rates[0] * scale, rates[1] * scale, rates[2] * scale, rates[3] * scale

    def score(self, capacity: Floats, stake: Stake) -> Floats:
        """Return what a capacity is worth; more is better.

        Parameters
        ----------
        capacity : ndarray
            From ``capacity``, at the best batch; 0 where the targets are missed.
        stake : Stake
            The pool's size and price.

        Returns
        -------
        ndarray
            Tokens per second and GPU, tokens per second and price, or one over the GPUs
            that serve the demand; 0 for nothing.
        """
        if self.objective == "throughput_per_gpu":
            return np.asarray(capacity / stake.gpus)
        if self.objective == "cost_per_token":
            return np.asarray(capacity / (stake.gpus * stake.price_per_gpu_hour))
        with np.errstate(divide="ignore"):
            copies = np.ceil(1.0 / capacity - 1e-12)
        return np.asarray(
            np.where(capacity > 0.0, 1.0 / (stake.gpus * stake.engines * copies), 0.0)
        )

    def needed(self, other: float, stake: Stake) -> float:
        """Return the capacity at which a pool is worth as much as another.

        Parameters
        ----------
        other : float
            What the other is worth.
        stake : Stake
            The pool's size and price.

        Returns
        -------
        float
            In the unit of ``capacity`` [tokens/s, or 1]; infinite where it never is, 0 where
            nothing is needed.
        """
        if other <= 0.0:
            return 0.0
        if self.objective == "throughput_per_gpu":
            return other * stake.gpus
        if self.objective == "cost_per_token":
            return other * stake.gpus * stake.price_per_gpu_hour
        copies = np.floor(1.0 / (other * stake.gpus * stake.engines) + 1e-9)
        return 1.0 / float(copies) if copies >= 1.0 else np.inf

    def value(self, score: float) -> float | None:
        """Return a score in the unit that a person reads.

        Parameters
        ----------
        score : float
            From ``score``.

        Returns
        -------
        float or None
            In the unit that ``UNITS`` names; None where nothing is served.
        """
        if score <= 0.0:
            return None
        if self.objective == "throughput_per_gpu":
            return score
        if self.objective == "cost_per_token":
            return 1e6 / (score * SECONDS_PER_HOUR)
        return round(1.0 / score)

    @property
    def scales(self) -> bool:
        """Whether a pool that is faster serves more at the same batch."""
        return self.objective != "fewest_gpus" or self.rate_per_s is not None


def served(capacity: Floats, uses: Floats) -> tuple[Floats, Floats]:
    """Return the best capacity within the targets, over the last axis, and its batch.

    Parameters
    ----------
    capacity, uses : ndarray, shape (..., n_batches)
        What each batch serves, and the share of the targets that it uses [1].

    Returns
    -------
    tuple of ndarray, shape (...)
        Capacity, and requests; 0 where no batch meets the targets.
    """
    if capacity.shape[-1] == 0:
        none = np.zeros(capacity.shape[:-1])
        return none, none
    allowed = np.where(uses <= 1.0, capacity, 0.0)
    best = allowed.max(axis=-1)
    return best, np.where(best > 0.0, allowed.argmax(axis=-1) + 1.0, 0.0)


def scores_of(
    pools: Sequence[Views], stakes: Sequence[Stake], goal: Goal
) -> tuple[Floats, Floats, tuple[int, ...]]:
    """Return what every pool is worth in every view.

    Parameters
    ----------
    pools : sequence of Views
        Their times.
    stakes : sequence of Stake
        Their sizes.
    goal : Goal
        What is wanted.

    Returns
    -------
    ndarray, shape (n_pools, 3)
        Under Overlap, under NoOverlap, as fitted.
    ndarray, shape (n_pools, n_draws)
        Under as many draws as the pool with the fewest has; one without draws is taken as
        fitted.
    tuple of int
        Fitted best batch of each; 0 where it never meets the targets.
    """
    counts = [views.draws_s.shape[0] for views in pools if views.draws_s.shape[0]]
    count = min(counts, default=0)
    three = np.zeros((len(pools), 3))
    under = np.zeros((len(pools), count))
    batches = []
    for place, (views, stake) in enumerate(zip(pools, stakes, strict=True)):
        uses = views.uses(goal.target_s, goal.first_target_s)
        capacity = goal.capacity(views, stake)
        best = [served(c, u) for c, u in zip(capacity, uses, strict=True)]
        three[place] = [float(goal.score(c, stake)) for c, _ in best[:3]]
        batches.append(int(best[2][1]))
        if views.draws_s.shape[0]:
            under[place] = goal.score(best[3][0][:count], stake)
        else:
            under[place] = three[place, 2]
    return three, under, tuple(batches)
