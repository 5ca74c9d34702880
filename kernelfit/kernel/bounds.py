"""The two bounds of a step, and how host work joins the device's."""

from __future__ import annotations

import numpy as np

from kernelfit.kernel.basis import Array
from kernelfit.kernel.estimate import StepEstimate
from kernelfit.kernel.forms import Times
from kernelfit.kernel.pricing import CellTimes
from kernelfit.kernel.resources import Resource


def hidden_host(device_s: Array, times: CellTimes) -> Array:
    """Join device and host time where host work that runs ahead hides.

    Parameters
    ----------
    device_s : ndarray, shape (n_steps,)
        Device time [s].
    times : CellTimes
        The host's times [s].

    Returns
    -------
    ndarray, shape (n_steps,)
        ``max(device, launch) + host`` [s].
    """
    return np.asarray(np.maximum(device_s, times.launch_s) + times.host_s)


def added_host(device_s: Array, times: CellTimes) -> Array:
    """Join device and host time where nothing hides.

    Parameters
    ----------
    device_s : ndarray, shape (n_steps,)
        Device time [s].
    times : CellTimes
        The host's times [s].

    Returns
    -------
    ndarray, shape (n_steps,)
        ``device + launch + host`` [s].
    """
    return np.asarray(device_s + times.launch_s + times.host_s)


def estimate(times: Times, resources: tuple[Resource, ...]) -> StepEstimate:
    """Turn the times of one batch into its two bounds.

    Parameters
    ----------
    times : Times
        From ``Forms.times`` [s].
    resources : tuple of Resource
        The resources in their order there, then the host.

    Returns
    -------
    StepEstimate
        Under ``overlap``, host work that runs ahead hides behind the device; under
        ``no_overlap`` it is always added.
    """
    overlap, summed, launch, host, spent = times
    least = (overlap if overlap > launch else launch) + host  # noqa: FURB136
    most = summed + launch + host
    longest = max(spent)
    # Host time that hides behind the device is nobody's bottleneck.
    judged = host if launch <= summed else launch + host
    bottleneck = _HOST if judged > longest else resources[spent.index(longest)]
    # Both are of one length by construction, and asking costs a tenth of the call.
    per_resource = tuple(zip(resources, [*spent, launch + host]))  # noqa: B905
    # Rounding may put one an ulp above the other.
    return StepEstimate(least if least < most else most, most, bottleneck, per_resource)  # noqa: FURB136


_HOST = Resource.HOST


def mean_s(times: Times, share: float, host_rule: str) -> float:
    """Return the time of one batch with a share of the possible overlap.

    Parameters
    ----------
    times : Times
        From ``Forms.times`` [s].
    share : float
        Share of the possible overlap that happens [1].
    host_rule : str
        See ``Fitted``.

    Returns
    -------
    float
        Step time [s].
    """
    overlap, summed, launch, host, _ = times
    device = summed - share * (summed - overlap)
    return (device + launch if host_rule == "added" else max(device, launch)) + host
