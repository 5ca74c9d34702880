"""Rates with which AIConfigurator's ``SOL`` mode comes nearest to a kernel.

The mode knows rates only: every operation takes the larger of computing and moving at the
file's peaks, and operations follow each other (seen with aiconfigurator-core 0.12.0 by doubling
each field: ``mem_bw``, the peak of the data type and ``intra_node_bw`` move a step, corrections
do not). What a kernel has beside rates (floors, ramps, the host) can only go into them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kernelfit.export.probes import kernel_times
from kernelfit.kernel.basis import Array
from kernelfit.kernel.batch import Batch
from kernelfit.kernel.catalog import definition
from kernelfit.kernel.costs import peak_of
from kernelfit.kernel.fitted import FittedKernel
from kernelfit.kernel.resources import Resource
from kernelfit.kernel.tables import table_of

KINDS: tuple[str, ...] = ("gemm", "weight", "link")
"""Shares of the peaks: of computing, of the memory's bandwidth, of the links'."""

_LEAST = 0.02
_KIND = {Resource.SM: 0, Resource.HBM: 1, Resource.NVLINK: 2, Resource.NIC: 2}


def peak_times(kernel: FittedKernel, batches: Sequence[Batch]) -> Array:
    """Return what every operation takes of every resource at the datasheet's peaks.

    Parameters
    ----------
    kernel : FittedKernel
        The kernel.
    batches : sequence of Batch
        The batches.

    Returns
    -------
    ndarray, shape (n_operations, 3, n_batches)
        Work over peak, in the order of ``KINDS``; of a collective its bytes [s].
    """
    plan = kernel.plan
    rows = plan.basis.rows(table_of([kernel.totals(batch) for batch in batches]))
    operations: dict[tuple[str, str], Array] = {}
    for term in plan.terms:
        if definition(term.coefficient).kind != "efficiency" or (term.group and term.form == 0):
            continue
        time = term.amount / peak_of(term.coefficient, term.resource, plan.chip)
        key = (term.stage, term.operator)
        taken = operations.setdefault(key, np.zeros((len(KINDS), len(batches))))
        taken[_KIND[term.resource]] += time * rows[:, term.function]
    return np.stack(list(operations.values()))


def sol_times(at_peak: Array, shares: Sequence[float] | Array) -> Array:
    """Return step times of the mode.

    Parameters
    ----------
    at_peak : ndarray, shape (n_operations, 3, n_batches)
        From ``peak_times`` [s].
    shares : sequence of float
        Shares of the peaks in the order of ``KINDS`` [1].

    Returns
    -------
    ndarray, shape (n_batches,)
        The larger of an operation's resources, added up [s].
    """
    scaled = at_peak / np.asarray(shares, dtype=np.float64)[None, :, None]
    return np.asarray(scaled.max(axis=1).sum(axis=0))


def nearest_shares(kernel: FittedKernel, batches: Sequence[Batch]) -> dict[str, float]:
    """Return the shares of the peaks with which the mode comes nearest to a kernel.

    Parameters
    ----------
    kernel : FittedKernel
        The kernel.
    batches : sequence of Batch
        Where they are to agree.

    Returns
    -------
    dict of str to float
        By ``KINDS`` [1]: least squares of the logarithm of the ratio, none above 1; 1 where
        the kernel has no such work.
    """
    from scipy.optimize import least_squares

    at_peak = peak_times(kernel, batches)
    step_s = kernel_times(kernel, batches)
    used = at_peak.sum(axis=(0, 2)) > 0.0

    def shares(free: Array) -> Array:
        out = np.ones(len(KINDS))
        out[used] = free
        return out

    solved = least_squares(
        lambda free: np.log(sol_times(at_peak, shares(free)) / step_s),
        np.full(int(used.sum()), 0.5),
        bounds=(_LEAST, 1.0),
    )
    found = shares(solved.x)
    return {kind: float(f"{value:.6g}") for kind, value in zip(KINDS, found, strict=True)}
