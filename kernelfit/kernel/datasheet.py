"""The baseline: datasheet peaks, nothing fitted."""

from __future__ import annotations

from kernelfit.kernel.base import PricedKernel
from kernelfit.kernel.catalog import definition
from kernelfit.kernel.chip import Chip
from kernelfit.kernel.estimate import CoefficientOrigin
from kernelfit.kernel.model import Model
from kernelfit.kernel.plan import Plan
from kernelfit.kernel.pool import Pool
from kernelfit.kernel.pricing import cells_of


def datasheet_values(names: tuple[str, ...], derate: float = 1.0) -> dict[str, float]:
    """Return the values of coefficients that a datasheet alone gives.

    Parameters
    ----------
    names : tuple of str
        Coefficient names.
    derate : float
        Share of every peak that is assumed to be reached [1]; 1 takes the datasheet at
        its word.

    Returns
    -------
    dict of str to float
        Efficiencies equal ``derate``; times and ``m_half`` are 0, not charged.
    """
    kinds = {name: definition(name).kind for name in names}
    return {name: derate if kind == "efficiency" else 0.0 for name, kind in kinds.items()}


class DatasheetKernel(PricedKernel):
    """A kernel priced at datasheet peaks.

    Parameters
    ----------
    model : Model
        The model.
    chip : Chip
        The GPU type.
    pool : Pool
        The pool.
    engine_version : str
        The engine's version; it decides defaults.
    derate : float
        Share of every peak that is assumed to be reached [1].

    Raises
    ------
    Refusal
        When the pool cannot be priced truthfully.
    InvalidArgument
        When a width does not divide the model.
    """

    __slots__ = ()

    def __init__(
        self,
        model: Model,
        chip: Chip,
        pool: Pool,
        engine_version: str = "",
        derate: float = 1.0,
    ) -> None:
        plan = Plan.of(model, chip, pool, engine_version)
        values = datasheet_values(plan.coefficients, derate)
        method = "vendor_spec" if derate == 1.0 else "assumed"
        origins = tuple(
            CoefficientOrigin(name, "datasheet", method if value else "not_charged", chip.name)
            for name, value in values.items()
        )
        super().__init__(plan, cells_of(plan, values), origins)
