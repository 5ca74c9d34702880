"""One pool seen four ways: Overlap, NoOverlap, as fitted, and under the calibration's draws."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kernelfit.flips.loads import Floats, decode_columns, limit_of
from kernelfit.kernel.fitted import FittedKernel
from kernelfit.kernel.pricing import Costs
from kernelfit.kernel.resources import Resource
from kernelfit.kernel.stage import HOST_STAGE, LAUNCH_STAGE

DRAWS_USED = 100
"""Draws behind a probability; enough to tell 5 % from 10 %."""

RESOURCES: tuple[str, ...] = tuple(resource.value for resource in Resource)
HOST = RESOURCES.index(Resource.HOST.value)


@dataclass(frozen=True, slots=True)
class Views:
    """Decode step times of one pool at one context, for batches of 1, 2, 3, ... requests.

    Attributes
    ----------
    overlap_s, no_overlap_s, fitted_s : ndarray, shape (n_batches,)
        Step time under each bound and as fitted [s]; none when not one request fits.
    draws_s : ndarray, shape (n_draws, n_batches)
        Fitted composition under each draw of the coefficients [s].
    """

    overlap_s: Floats
    no_overlap_s: Floats
    fitted_s: Floats
    draws_s: Floats


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


def drawn(kernel: FittedKernel) -> tuple[FittedKernel, ...]:
    """Return the kernel under the draws that probabilities are counted over.

    Parameters
    ----------
    kernel : FittedKernel
        The kernel.

    Returns
    -------
    tuple of FittedKernel
        At most ``DRAWS_USED``, evenly chosen; pools of one calibration get the same draws.
    """
    count = len(kernel.fitted.draws)
    if count == 0:
        return ()
    chosen = np.unique(np.linspace(0, count - 1, min(count, DRAWS_USED)).astype(int))
    return tuple(kernel.with_draw(int(index)) for index in chosen)


def look(
    kernel: FittedKernel, draws: Sequence[FittedKernel], contexts: Sequence[int]
) -> dict[int, Views]:
    """Price every batch that a pool can hold.

    Parameters
    ----------
    kernel : FittedKernel
        The pool's kernel.
    draws : sequence of FittedKernel
        The same under its draws, from ``drawn``.
    contexts : sequence of int
        Contexts asked about [tokens].

    Returns
    -------
    dict of int to Views
        By context.
    """
    most = [limit_of(kernel, context).requests for context in contexts]
    columns = decode_columns(
        np.concatenate([np.arange(1, n + 1) for n in most]) if most else np.zeros(0),
        np.repeat(np.asarray(contexts, dtype=np.float64), most),
        kernel.plan.basis.windows,
    )
    bounds = kernel.step_times(columns)
    fitted = kernel.mean_step_times(columns)
    under = np.empty((len(draws), fitted.size))
    for row, draw in zip(under, draws, strict=True):
        row[:] = draw.mean_step_times(columns)
    ends = np.cumsum(most)
    out = {}
    for context, n, end in zip(contexts, most, ends, strict=True):
        part = slice(int(end) - n, int(end))
        out[context] = Views(
            overlap_s=bounds["overlap_s"][part],
            no_overlap_s=bounds["no_overlap_s"][part],
            fitted_s=fitted[part],
            draws_s=under[:, part],
        )
    return out


def owed(
    kernel: FittedKernel, draws: Sequence[FittedKernel], columns: Mapping[str, Floats]
) -> Shares:
    """Say which resource the time of each batch is owed to.

    Parameters
    ----------
    kernel : FittedKernel
        The pool's kernel.
    draws : sequence of FittedKernel
        The same under its draws.
    columns : mapping of str to ndarray, shape (n_batches,)
        Totals of the batches.

    Returns
    -------
    Shares
        Time by resource.
    """
    rows = kernel.plan.basis.rows(columns)
    hidden = kernel.fitted.host_rule == "hidden"
    share = kernel.fitted.overlap_share
    parts = _parts(kernel, rows)
    under = np.empty((len(draws), *parts.device_s.shape[1:]))
    for row, draw in zip(under, draws, strict=True):
        row[:] = mixed(_parts(draw, rows), draw.fitted.overlap_share, hidden)
    return Shares(
        overlap_s=mixed(parts, 1.0, hidden=True),
        # The bound adds the host's time whether it can hide or not.
        no_overlap_s=mixed(parts, 0.0, hidden=False),
        fitted_s=mixed(parts, share, hidden),
        draws_s=under,
        device_s=parts.device_s,
        launch_s=parts.launch_s,
        host_s=parts.host_s,
        hidden=hidden,
        share=share,
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


def _parts(kernel: FittedKernel, rows: Floats) -> Parts:
    batches = rows.shape[0]
    stages = kernel.plan.stages
    alone = np.zeros((len(stages), batches, len(RESOURCES)))
    on_host = {LAUNCH_STAGE: np.zeros(batches), HOST_STAGE: np.zeros(batches)}
    for cell in kernel.cells:
        place = on_host.get(
            stages[cell.stage], alone[cell.stage, :, RESOURCES.index(cell.resource.value)]
        )
        place += _linear(cell.costs, rows)
        for one, other in cell.choices:
            place += np.maximum(_linear(one, rows), _linear(other, rows))
    largest = alone.max(axis=2, keepdims=True)
    sets = alone.argmax(axis=2)[..., None] == np.arange(len(RESOURCES))
    device = np.stack([alone.sum(axis=0), (largest * sets).sum(axis=0)])
    return Parts(device, on_host[LAUNCH_STAGE], on_host[HOST_STAGE])


def _linear(costs: Costs, rows: Floats) -> Floats:
    time = np.zeros(rows.shape[0])
    for function, cost in costs:
        time += cost * rows[:, function]
    return time
