"""The two bounds of a step, and how host work joins the device's."""

from __future__ import annotations

import numpy as np

from kernelfit.kernel.basis import Array
from kernelfit.kernel.estimate import StepEstimate
from kernelfit.kernel.pricing import CellTimes
from kernelfit.kernel.resources import Resource


def hidden_host(device_s: float | Array, times: CellTimes) -> float | Array:
    """Join device and host time where host work that runs ahead hides.

    Parameters
    ----------
    device_s : float or ndarray, shape (n_steps,)
        Device time [s].
    times : CellTimes
        The host's times [s].

    Returns
    -------
    float or ndarray, shape (n_steps,)
        ``max(device, launch) + host`` [s].
    """
    launch = times.launch_s
    if isinstance(device_s, float) and isinstance(launch, float):
        return (max(launch, device_s)) + times.host_s
    return np.maximum(device_s, launch) + times.host_s


def added_host(device_s: float | Array, times: CellTimes) -> float | Array:
    """Join device and host time where nothing hides.

    Parameters
    ----------
    device_s : float or ndarray, shape (n_steps,)
        Device time [s].
    times : CellTimes
        The host's times [s].

    Returns
    -------
    float or ndarray, shape (n_steps,)
        ``device + launch + host`` [s].
    """
    return device_s + times.launch_s + times.host_s


def estimate(times: CellTimes) -> StepEstimate:
    """Turn the cell times of one batch into its two bounds.

    Parameters
    ----------
    times : CellTimes
        Floats from ``price`` [s].

    Returns
    -------
    StepEstimate
        Under ``overlap``, host work that runs ahead hides behind the device; under
        ``no_overlap`` it is always added.
    """
    overlap = float(hidden_host(times.overlap_s, times))
    no_overlap = float(added_host(times.no_overlap_s, times))
    bottleneck, most = Resource.HOST, -1.0
    for resource, time in times.per_resource_s:
        # Host time that hides behind the device is nobody's bottleneck.
        if resource is Resource.HOST and times.launch_s <= times.no_overlap_s:
            judged = float(times.host_s)
        else:
            judged = float(time)
        if judged > most:
            bottleneck, most = resource, judged
    return StepEstimate(
        # Rounding may put one an ulp above the other.
        overlap_s=min(no_overlap, overlap),
        no_overlap_s=no_overlap,
        bottleneck=bottleneck,
        per_resource_s=times.per_resource_s,  # type: ignore[arg-type]
    )
