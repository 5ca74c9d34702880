"""A plan: everything of a deployment that depends on neither batch nor coefficients."""

from __future__ import annotations

from dataclasses import dataclass, field

from kernelfit.kernel.basis import Basis
from kernelfit.kernel.chip import Chip
from kernelfit.kernel.laws import basis_of, build_terms
from kernelfit.kernel.model import Model
from kernelfit.kernel.pool import Pool
from kernelfit.kernel.resolution import resolve
from kernelfit.kernel.resolved import Resolution
from kernelfit.kernel.stage import Term


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything of a deployment that does not depend on the batch or on coefficients.

    Attributes
    ----------
    model : Model
        The model.
    chip : Chip
        The GPU type.
    pool : Pool
        The pool as stated.
    engine_version : str
        The engine's version.
    resolution : Resolution
        What will run.
    basis : Basis
        The functions of a batch.
    terms : tuple of Term
        The terms of the step time.
    stages : tuple of str
        Names of the stages, in order of first use; follows from the terms.
    """

    model: Model
    chip: Chip
    pool: Pool
    engine_version: str
    resolution: Resolution
    basis: Basis
    terms: tuple[Term, ...]
    stages: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        """Name the stages."""
        stages = tuple(dict.fromkeys(term.stage for term in self.terms))
        object.__setattr__(self, "stages", stages)

    @staticmethod
    def of(model: Model, chip: Chip, pool: Pool, engine_version: str) -> Plan:
        """Resolve a pool and lay out its terms.

        Parameters
        ----------
        model : Model
            The model.
        chip : Chip
            The GPU type.
        pool : Pool
            The pool as stated.
        engine_version : str
            The engine's version.

        Returns
        -------
        Plan
            The plan.

        Raises
        ------
        Refusal
            When the pool cannot be priced truthfully.
        InvalidArgument
            When a width does not divide the model.
        """
        resolution = resolve(pool, model, chip, engine_version)
        basis = basis_of(model, resolution)
        terms = build_terms(model, resolution, basis, chip)
        return Plan(model, chip, pool, engine_version, resolution, basis, terms)

    @property
    def coefficients(self) -> tuple[str, ...]:
        """Names of the coefficients that the terms use, in order of first use."""
        return tuple(dict.fromkeys(term.coefficient for term in self.terms))
