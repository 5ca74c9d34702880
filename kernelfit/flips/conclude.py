"""Conclusions about one pool, drawn from its times under every view."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kernelfit.flips.loads import Floats
from kernelfit.flips.views import Four, Views

Outcome = str | int

BATCH_TOLERANCE = 0.05
"""Largest batches this near to each other are the same conclusion: nobody resizes a
deployment for less [1]."""

SIMULATE = "needs arrivals"
"""The outcome where only arrival times could tell: a simulator that calls the kernel must."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One conclusion under every view.

    Attributes
    ----------
    overlap, no_overlap, fitted : str or int
        The conclusion under each bound and as fitted.
    differ : bool
        Whether the three are not all the same.
    probability : float or None
        Share of the draws that give the fitted conclusion [1]; None without draws.
    margin : float or None
        Relative change of the fitted time at which the conclusion changes [1]; None
        when no change of the time changes it.
    resolution : float or None
        Relative error of that batch's step time that leaves the conclusion open [1]; the
        margin, but for a count half the width of the band of counts that are the same.
    requests : int
        Requests of the batch that the conclusion hangs on; 0 when there is none.
    """

    overlap: Outcome
    no_overlap: Outcome
    fitted: Outcome
    differ: bool
    probability: float | None
    margin: float | None
    resolution: float | None
    requests: int


def agreement(agree: npt.NDArray[np.bool_]) -> float | None:
    """Return the share of draws that agree.

    Parameters
    ----------
    agree : ndarray of bool, shape (n_draws,)
        Whether each draw gives the fitted conclusion.

    Returns
    -------
    float or None
        Their share [1]; None without draws.
    """
    return float(agree.mean()) if agree.size else None


def yes_or_no(uses: Four, requests: int) -> Answer:
    """Say whether a batch keeps to what it may use.

    Parameters
    ----------
    uses : tuple of ndarray
        Share of the target that batches of 1, 2, 3, ... requests use, in every view [1].
    requests : int
        Requests in flight; the pool holds them.

    Returns
    -------
    Answer
        ``yes`` or ``no``; a time that is exactly the target meets it.
    """
    at = requests - 1
    three = [float(use[at]) for use in uses[:3]]
    fitted = three[2]
    margin = abs(1.0 / fitted - 1.0)
    words = ["yes" if use <= 1.0 else "no" for use in three]
    return Answer(
        overlap=words[0],
        no_overlap=words[1],
        fitted=words[2],
        differ=len(set(words)) > 1,
        probability=agreement((uses[3][:, at] <= 1.0) == (fitted <= 1.0)),
        margin=margin,
        resolution=margin,
        requests=requests,
    )


def meets(views: Views, requests: int, target_s: float) -> Answer:
    """Say whether requests in flight meet a target per output token.

    Parameters
    ----------
    views : Views
        Times of the pool at the load.
    requests : int
        Requests in flight; the pool holds them.
    target_s : float
        Longest acceptable time per output token [s].

    Returns
    -------
    Answer
        ``yes`` or ``no``; a step that takes exactly the target meets it.
    """
    return yes_or_no(views.uses(target_s), requests)


def at_every_percentile(
    least: Four, most: Four, target_s: float, requests: int, *, closed: bool = True
) -> Answer:
    """Say what holds for a percentile whatever the arrivals.

    Parameters
    ----------
    least, most : tuple of ndarray
        The shortest and longest time that any token can take, one batch, in every view [s].
    target_s : float
        Longest acceptable time [s].
    requests : int
        Requests in flight.
    closed : bool
        Whether no more than these requests can be there; without, no wait is the longest.

    Returns
    -------
    Answer
        ``no`` where even the shortest time misses the target, ``yes`` where even the longest
        meets it, else ``needs arrivals``.
    """

    def words(shortest: Floats, longest: Floats) -> list[str]:
        late = shortest > target_s
        fine = (longest <= target_s) & closed
        return ["no" if a else "yes" if b else SIMULATE for a, b in zip(late, fine, strict=True)]

    three = [words(a[:1], b[:1])[0] for a, b in zip(least[:3], most[:3], strict=True)]
    drawn = words(least[3][:, 0], most[3][:, 0])
    ends = [least[2][0], most[2][0]] if closed else [least[2][0]]
    margin = min(abs(target_s / float(time) - 1.0) for time in ends)
    return Answer(
        overlap=three[0],
        no_overlap=three[1],
        fitted=three[2],
        differ=len(set(three)) > 1,
        probability=agreement(np.asarray([word == three[2] for word in drawn], dtype=bool)),
        margin=margin,
        resolution=margin,
        requests=requests,
    )


def largest_batch(views: Views, target_s: float, first_target_s: float = math.inf) -> Answer:
    """Say how many requests can be in flight within the targets.

    Parameters
    ----------
    views : Views
        Times of the pool at the load, for every batch that it holds.
    target_s : float
        Longest acceptable time per output token [s].
    first_target_s : float
        Longest acceptable time to first token [s].

    Returns
    -------
    Answer
        Counts; 0 when no batch meets the targets. Counts within 5 % of each other are the
        same conclusion. The margin is the smallest relative change of all times that
        moves the count out of these 5 %.
    """
    uses = views.uses(target_s, first_target_s)
    counts = [int(_last(use <= 1.0)) for use in uses[:3]]
    best = counts[2]
    under = _last(uses[3] <= 1.0)
    low = math.ceil(best * (1.0 - BATCH_TOLERANCE) - 1e-9)
    high = math.floor(best / (1.0 - BATCH_TOLERANCE) + 1e-9)
    fitted = uses[2]
    held = fitted.size
    changes = []
    if best > 0:
        changes.append(1.0 / float(fitted[low - 1 :].min()) - 1.0)
    if high < held:
        changes.append(1.0 - 1.0 / float(fitted[high:].min()))
    return Answer(
        overlap=counts[0],
        no_overlap=counts[1],
        fitted=best,
        differ=not all(near(a, b) for a in counts for b in counts),
        probability=agreement((under >= low) & (under <= high)),
        margin=min(changes) if changes else None,
        resolution=sum(changes) / len(changes) if changes else None,
        requests=min(max(best, 1), held),
    )


def sustains(
    views: Views, rate_per_s: float, target_s: float, first_target_s: float = math.inf
) -> Answer:
    """Say whether an engine serves requests as fast as they come, within the targets.

    Parameters
    ----------
    views : Views
        Times of the pool at a load with prompts.
    rate_per_s : float
        Requests that the engine takes each second, in the long run [1/s].
    target_s, first_target_s : float
        Longest acceptable time per output token and to first token [s].

    Returns
    -------
    Answer
        ``yes`` where some number of requests in flight that meets the targets completes
        as many a second (Little's law). It says nothing of waiting. ``requests`` is the
        fewest that do it as fitted, or the number that comes nearest.
    """
    wanted = rate_per_s * views.output_tokens
    least = [
        np.maximum(use, wanted / rate)
        for use, rate in zip(views.uses(target_s, first_target_s), views.rates(), strict=True)
    ]
    best: Four = (
        least[0].min(keepdims=True),
        least[1].min(keepdims=True),
        least[2].min(keepdims=True),
        least[3].min(axis=1, keepdims=True),
    )
    answer = yes_or_no(best, 1)
    enough = np.flatnonzero(least[2] <= 1.0)
    requests = int(enough[0]) + 1 if enough.size else int(least[2].argmin()) + 1
    return Answer(
        answer.overlap,
        answer.no_overlap,
        answer.fitted,
        answer.differ,
        answer.probability,
        answer.margin,
        answer.resolution,
        requests,
    )


def near(one: int, other: int) -> bool:
    """Return whether two largest batches are the same conclusion.

    Parameters
    ----------
    one, other : int
        Requests.

    Returns
    -------
    bool
        Whether they lie within 5 % of the larger.
    """
    return abs(one - other) <= BATCH_TOLERANCE * max(one, other) + 1e-9


def _last(meets_target: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """Return the largest batch that meets the target, over the last axis; 0 for none."""
    sizes = np.arange(1, meets_target.shape[-1] + 1)
    return np.asarray(np.where(meets_target, sizes, 0).max(axis=-1, initial=0))
