"""Which resource to relieve first, and the batch whose time tells most about it."""

from __future__ import annotations

import numpy as np

from kernelfit.flips.conclude import Answer, agreement
from kernelfit.flips.loads import Floats
from kernelfit.flips.owed import HOST, RESOURCES, Parts, Shares, mixed
from kernelfit.flips.settle import CERTAINTY


def relieve(
    shares: Shares, at: int, requests: int, measured: tuple[float, float] | None = None
) -> Answer:
    """Say which resource to relieve first.

    Parameters
    ----------
    shares : Shares
        Time by resource of some batches.
    at : int
        Which of them.
    requests : int
        Its requests.
    measured : (float, float), optional
        Measured time of the step [s] and its relative error [1]: of the mixes between the
        bounds it leaves only those that take as long.

    Returns
    -------
    Answer
        Names of resources. The margin is how far the step time lies from the nearest one,
        between the two bounds, at which another resource leads; where one resource leads
        between the bounds, it is the lead over the next as a share of its own time.
    """
    if measured is None:
        three = (shares.overlap_s[at], shares.no_overlap_s[at], shares.fitted_s[at])
    else:
        mean_s, error = measured
        three = (
            _of_time(shares, at, mean_s * (1.0 - CERTAINTY * error)),
            _of_time(shares, at, mean_s * (1.0 + CERTAINTY * error)),
            _of_time(shares, at, mean_s),
        )
    tops = [int(parts.argmax()) for parts in three]
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


def _of_time(shares: Shares, at: int, time_s: float) -> Floats:
    """Return the parts of a step under the mix of the bounds that takes as long."""
    parts = Parts(
        shares.device_s[:, at : at + 1], shares.launch_s[at : at + 1], shares.host_s[at : at + 1]
    )
    whole = [float(parts.device_s[k].sum()) for k in (0, 1)]
    waited = float(shares.host_s[at]) + (0.0 if shares.hidden else float(shares.launch_s[at]))
    possible = whole[0] - whole[1]
    share = (whole[0] + waited - time_s) / possible if possible > 0.0 else 0.0
    return np.asarray(mixed(parts, min(max(share, 0.0), 1.0), shares.hidden)[0])


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
