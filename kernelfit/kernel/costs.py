"""What one unit of work costs under a coefficient, from datasheet peaks."""

from __future__ import annotations

from kernelfit.kernel.catalog import TYPED, definition
from kernelfit.kernel.chip import Chip
from kernelfit.kernel.resources import Resource


def peak_of(coefficient: str, resource: Resource, chip: Chip) -> float:
    """Return the datasheet peak that an efficiency divides.

    Parameters
    ----------
    coefficient : str
        Name of an efficiency or of ``gemm_m_half``.
    resource : Resource
        What its work lands on.
    chip : Chip
        The GPU type.

    Returns
    -------
    float
        Peak rate [FLOP/s or byte/s].
    """
    if resource is Resource.SM:
        return chip.peak(coefficient.rpartition("_")[2])
    if resource is Resource.HBM:
        return chip.hbm_bytes_per_s
    return chip.nic_bytes_per_s if resource is Resource.NIC else chip.nvlink_bytes_per_s


def unit_cost_s(coefficient: str, values: dict[str, float], chip: Chip) -> float:
    """Return what one unit of work costs under a coefficient.

    Parameters
    ----------
    coefficient : str
        The coefficient that prices the work.
    values : dict of str to float
        Value of every coefficient in its own unit.
    chip : Chip
        The GPU type.

    Returns
    -------
    float
        Seconds per FLOP, per byte or per count [s].
    """
    kind = definition(coefficient).kind
    if kind == "time":
        return values[coefficient]
    if kind == "m_half":
        eff = f"gemm_eff_{coefficient.rpartition('_')[2]}"
        return values[coefficient] * unit_cost_s(eff, values, chip)
    resource = resource_of(coefficient)
    return 1.0 / (peak_of(coefficient, resource, chip) * values[coefficient])


def resource_of(coefficient: str) -> Resource:
    """Return the resource that an efficiency or envelope coefficient belongs to.

    Parameters
    ----------
    coefficient : str
        Name of an efficiency or of ``gemm_m_half``.

    Returns
    -------
    Resource
        ``sm`` for typed coefficients, ``hbm`` by prefix, ``nic`` across nodes, else
        ``nvlink``.
    """
    if coefficient.rpartition("_")[0] in TYPED:
        return Resource.SM
    if coefficient.startswith("hbm"):
        return Resource.HBM
    return Resource.NIC if coefficient.startswith("internode") else Resource.NVLINK
