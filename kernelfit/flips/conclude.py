"""Conclusions about one pool, drawn from its step times under every view."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kernelfit.flips.loads import Floats
from kernelfit.flips.views import HOST, RESOURCES, Shares, Views

Outcome = str | int

BATCH_TOLERANCE = 0.05
"""Largest batches this near to each other are the same conclusion: nobody resizes a
deployment for less [1]."""


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
        Relative change of the fitted step time at which the conclusion changes [1]; None
        when no change of the step time changes it.
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


def meets(views: Views, requests: int, target_s: float) -> Answer:
    """Say whether a steady decode batch meets a target.

    Parameters
    ----------
    views : Views
        Step times of the pool at the context.
    requests : int
        Requests that decode together; the pool holds them.
    target_s : float
        Longest acceptable time per output token [s].

    Returns
    -------
    Answer
        ``yes`` or ``no``; a step that takes exactly the target meets it.
    """
    at = requests - 1
    fitted = float(views.fitted_s[at])
    margin = abs(target_s / fitted - 1.0)
    words = ["yes" if times[at] <= target_s else "no" for times in _three(views)]
    return Answer(
        overlap=words[0],
        no_overlap=words[1],
        fitted=words[2],
        differ=len(set(words)) > 1,
        probability=agreement((views.draws_s[:, at] <= target_s) == (fitted <= target_s)),
        margin=margin,
        resolution=margin,
        requests=requests,
    )


def largest_batch(views: Views, target_s: float) -> Answer:
    """Say how many requests can decode together within a target.

    Parameters
    ----------
    views : Views
        Step times of the pool at the context, for every batch that it holds.
    target_s : float
        Longest acceptable time per output token [s].

    Returns
    -------
    Answer
        Counts; 0 when no batch meets the target. Counts within 5 % of each other are the
        same conclusion. The margin is the smallest relative change of all step times that
        moves the count out of these 5 %.
    """
    counts = [int(_last(times <= target_s)) for times in _three(views)]
    best = counts[2]
    under = _last(views.draws_s <= target_s)
    low = math.ceil(best * (1.0 - BATCH_TOLERANCE) - 1e-9)
    high = math.floor(best / (1.0 - BATCH_TOLERANCE) + 1e-9)
    held = views.fitted_s.size
    changes = []
    if best > 0:
        changes.append(target_s / float(views.fitted_s[low - 1 :].min()) - 1.0)
    if high < held:
        changes.append(1.0 - target_s / float(views.fitted_s[high:].min()))
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


def relieve(shares: Shares, at: int, requests: int) -> Answer:
    """Say which resource to relieve first.

    Parameters
    ----------
    shares : Shares
        Time by resource of some batches.
    at : int
        Which of them.
    requests : int
        Its requests.

    Returns
    -------
    Answer
        Names of resources. The margin is how far the step time lies from the nearest one,
        between the two bounds, at which another resource leads; where one resource leads
        between the bounds, it is the lead over the next as a share of its own time.
    """
    tops = [int(s[at].argmax()) for s in (shares.overlap_s, shares.no_overlap_s, shares.fitted_s)]
    names = [RESOURCES[top] for top in tops]
    margin = _lead(shares, at, tops[2])
    return Answer(
        overlap=names[0],
        no_overlap=names[1],
        fitted=names[2],
        differ=len(set(names)) > 1,
        probability=agreement(shares.draws_s[:, at].argmax(axis=1) == tops[2]),
        margin=margin,
        resolution=margin,
        requests=requests,
    )


def _lead(shares: Shares, at: int, top: int) -> float:
    fitted = float(shares.fitted_s[at].sum())
    launch, waited = float(shares.launch_s[at]), float(shares.host_s[at])
    ahead = launch if shares.hidden else 0.0
    none, full = shares.device_s[0, at].copy(), shares.device_s[1, at].copy()
    whole = (float(none.sum()), float(full.sum()))
    device = (1.0 - shares.share) * whole[0] + shares.share * whole[1]
    races = []
    if ahead:
        # What runs ahead leads where it outlasts the device; otherwise it is out of the race.
        races.append((whole[0] - ahead, whole[1] - ahead))
    if ahead <= device:
        # Host time that is waited for is the same whatever overlaps on the device.
        none[HOST] = full[HOST] = waited + launch - ahead
        races += [(none[top] - none[r], full[top] - full[r]) for r in _others(top)]
    distances = []
    for before, after in races:
        if before != after and 0.0 <= before / (before - after) <= 1.0:
            share = before / (before - after)
            between = (1.0 - share) * whole[0] + share * whole[1]
            time = max(between, ahead) + waited + launch - ahead
            distances.append(abs(time - fitted) / fitted)
    if distances:
        return min(distances)
    parts = np.sort(shares.fitted_s[at])
    second = float(parts[-2])
    if ahead > device:
        second = device
    return (float(parts[-1]) - second) / float(parts[-1])


def _others(*leading: int) -> list[int]:
    return [r for r in range(len(RESOURCES)) if r not in leading]


def telling_batch(shares: Shares, fitted_s: Floats, draws_s: Floats, at: int) -> int:
    """Return the batch whose step time says most about which resource leads in another.

    Parameters
    ----------
    shares : Shares
        Time by resource of some batches.
    fitted_s : ndarray, shape (n_batches,)
        Their fitted step times [s].
    draws_s : ndarray, shape (n_draws, n_batches)
        Their step times under the draws [s].
    at : int
        The batch whose leading resource is in doubt.

    Returns
    -------
    int
        Index of the batch whose step time follows the lead most closely over the draws
        (largest absolute correlation): the total of the doubtful batch itself may be known
        well while its parts are not.
    """
    parts = shares.draws_s[:, at]
    first, second = np.argsort(shares.fitted_s[at])[[-1, -2]]
    lead = parts[:, first] - parts[:, second]
    times = draws_s / fitted_s
    lead = lead - lead.mean()
    times = times - times.mean(axis=0)
    scale = np.sqrt((times**2).sum(axis=0) * (lead**2).sum())
    follows = np.abs(lead @ times) / np.where(scale > 0.0, scale, np.inf)
    return int(follows.argmax())


def _three(views: Views) -> tuple[Floats, Floats, Floats]:
    return views.overlap_s, views.no_overlap_s, views.fitted_s


def _last(meets_target: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """Return the largest batch that meets the target, over the last axis; 0 for none."""
    sizes = np.arange(1, meets_target.shape[-1] + 1)
    return np.asarray(np.where(meets_target, sizes, 0).max(axis=-1, initial=0))
