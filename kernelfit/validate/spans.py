"""What a kernel says of the very span that a run's durations cover."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from kernelfit.fit.steps import Floats, RunSteps
from kernelfit.kernel.bounds import added_host, hidden_host
from kernelfit.kernel.fitted import FittedKernel
from kernelfit.kernel.pricing import CellTimes, price_many


def span_times(run: RunSteps, kernel: FittedKernel) -> tuple[CellTimes, Floats]:
    """Price a run's steps as its durations cover them.

    Parameters
    ----------
    run : RunSteps
        The run.
    kernel : FittedKernel
        The kernel of its deployment.

    Returns
    -------
    CellTimes
        Times inside the duration: the whole step, or for ``device`` durations the step
        without its scheduling [s].
    ndarray, shape (n_steps,)
        Scheduling outside the duration, where the run measured it beside [s]; else 0.
    """
    times = price_many(kernel.plan, kernel.cells, run.totals)
    if run.timing != "device":
        return times, np.zeros(run.size)
    values = kernel.fitted.values()
    schedule_s = values["schedule_step_s"] + values["schedule_request_s"] * run.totals["requests"]
    outside_s = np.where(np.isfinite(run.host_s), schedule_s, 0.0)
    if kernel.plan.resolution.async_scheduling:
        return replace(times, launch_s=times.launch_s - schedule_s), outside_s
    return replace(times, host_s=times.host_s - schedule_s), outside_s


def span_mean_s(run: RunSteps, kernel: FittedKernel) -> Floats:
    """Return the fitted time of what ``RunSteps.measured_s`` measures.

    Parameters
    ----------
    run : RunSteps
        The run.
    kernel : FittedKernel
        The kernel of its deployment.

    Returns
    -------
    ndarray, shape (n_steps,)
        Fitted times [s].
    """
    times, outside_s = span_times(run, kernel)
    share = kernel.fitted.overlap_share
    device_s = times.no_overlap_s - share * (times.no_overlap_s - times.overlap_s)
    join = added_host if kernel.fitted.host_rule == "added" else hidden_host
    return np.asarray(join(device_s, times) + outside_s)


def span_bounds_s(run: RunSteps, kernel: FittedKernel) -> tuple[Floats, Floats]:
    """Return both bounds of what ``RunSteps.measured_s`` measures.

    Parameters
    ----------
    run : RunSteps
        The run.
    kernel : FittedKernel
        The kernel of its deployment.

    Returns
    -------
    ndarray, shape (n_steps,)
        Overlap bound [s].
    ndarray, shape (n_steps,)
        NoOverlap bound [s].
    """
    times, outside_s = span_times(run, kernel)
    low = hidden_host(times.overlap_s, times) + outside_s
    high = added_host(times.no_overlap_s, times) + outside_s
    return np.asarray(low), np.asarray(high)
