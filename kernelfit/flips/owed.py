"""Which resource the time of a step is owed to, under every view."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from kernelfit.flips.loads import Floats
from kernelfit.flips.pricing import Draws
from kernelfit.kernel.fitted import FittedKernel
from kernelfit.kernel.resources import Resource
from kernelfit.kernel.stage import HOST_STAGE, LAUNCH_STAGE

RESOURCES: tuple[str, ...] = tuple(resource.value for resource in Resource)
HOST = RESOURCES.index(Resource.HOST.value)


@dataclass(frozen=True, slots=True)
class Shares:
    """Which resource a step's time is owed to, for each view.

    A stage's time under Overlap is owed to the resource that sets its maximum alone; under
    NoOverlap every resource owes its own time. The fitted step mixes the two by the fitted
    share of overlap. Where host and device hide behind each other, the shorter of the two
    is owed by nobody, so that the parts always add up to the time of the step.

    Attributes
    ----------
    overlap_s, no_overlap_s, fitted_s : ndarray, shape (n_batches, n_resources)
        Time owed to each of ``RESOURCES`` [s].
    draws_s : ndarray, shape (n_draws, n_batches, n_resources)
        The same under each draw, as fitted [s].
    device_s : ndarray, shape (2, n_batches, n_resources)
        Device parts under NoOverlap and Overlap, from which any share of overlap mixes [s].
    launch_s : ndarray, shape (n_batches,)
        Host time that runs ahead of the device [s].
    host_s : ndarray, shape (n_batches,)
        Host time that the device waits for [s].
    hidden : bool
        Whether host time that runs ahead hides behind the device.
    share : float
        Fitted share of overlap [1].
    """

    overlap_s: Floats
    no_overlap_s: Floats
    fitted_s: Floats
    draws_s: Floats
    device_s: Floats
    launch_s: Floats
    host_s: Floats
    hidden: bool
    share: float


def owed(kernel: FittedKernel, columns: Mapping[str, Floats]) -> Shares:
    """Say which resource the time of each batch is owed to.

    Parameters
    ----------
    kernel : FittedKernel
        The pool's kernel.
    columns : mapping of str to ndarray, shape (n_batches,)
        Totals of the batches.

    Returns
    -------
    Shares
        Time by resource.
    """
    draws = Draws.of(kernel, fitted=True)
    hidden = kernel.fitted.host_rule == "hidden"
    parts = _parts(kernel, draws, kernel.plan.basis.rows(columns))
    first = Parts(parts.device_s[:, 0], parts.launch_s[0], parts.host_s[0])
    under = [
        mixed(Parts(parts.device_s[:, i], parts.launch_s[i], parts.host_s[i]), share, hidden)
        for i, share in enumerate(draws.shares.tolist())
    ]
    return Shares(
        overlap_s=mixed(first, 1.0, hidden=True),
        # The bound adds the host's time whether it can hide or not.
        no_overlap_s=mixed(first, 0.0, hidden=False),
        fitted_s=under[0],
        draws_s=np.stack(under)[1:],
        device_s=first.device_s,
        launch_s=first.launch_s,
        host_s=first.host_s,
        hidden=hidden,
        share=kernel.fitted.overlap_share,
    )


@dataclass(frozen=True, slots=True, eq=False)
class Parts:
    """Time of some batches by what it is spent on.

    Attributes
    ----------
    device_s : ndarray, shape (2, n_batches, n_resources)
        Device parts under NoOverlap and Overlap [s].
    launch_s, host_s : ndarray, shape (n_batches,)
        Host time that runs ahead, and host time that the device waits for [s].
    """

    device_s: Floats
    launch_s: Floats
    host_s: Floats


def mixed(parts: Parts, share: float, hidden: bool) -> Floats:
    """Mix the two bounds by a share of overlap.

    Parameters
    ----------
    parts : Parts
        Times of the batches.
    share : float
        Share of overlap [1].
    hidden : bool
        Whether host time that runs ahead hides behind the device.

    Returns
    -------
    ndarray, shape (n_batches, n_resources)
        Time owed to each resource [s].
    """
    owed_s: Floats = (1.0 - share) * parts.device_s[0] + share * parts.device_s[1]
    launch = parts.launch_s
    if hidden:
        behind = launch > owed_s.sum(axis=1)
        owed_s[behind] = 0.0
        launch = np.where(behind, launch, 0.0)
    owed_s[:, HOST] = launch + parts.host_s
    return owed_s


def _parts(kernel: FittedKernel, draws: Draws, rows: Floats) -> Parts:
    """Return the parts of every draw: arrays with the draws' axis before the batches'."""
    stages = kernel.plan.stages
    functions = np.ascontiguousarray(rows.T)
    shape = (draws.count, rows.shape[0])
    alone = np.zeros((len(stages), *shape, len(RESOURCES)))
    on_host = {LAUNCH_STAGE: np.zeros(shape), HOST_STAGE: np.zeros(shape)}
    for index, cell in enumerate(kernel.cells):
        times = draws.linear[:, index] @ functions
        for place, one, other in draws.chosen:
            if place == index:
                times += np.maximum(one @ functions, other @ functions)
        if stages[cell.stage] in on_host:
            on_host[stages[cell.stage]] += times
        else:
            alone[cell.stage, :, :, RESOURCES.index(cell.resource.value)] += times
    largest = alone.max(axis=3, keepdims=True)
    sets = alone.argmax(axis=3)[..., None] == np.arange(len(RESOURCES))
    device = np.stack([alone.sum(axis=0), (largest * sets).sum(axis=0)])
    return Parts(device, on_host[LAUNCH_STAGE], on_host[HOST_STAGE])
