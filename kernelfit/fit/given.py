"""What is known about a GPU type's coefficients before its steps are seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kernelfit.kernel.catalog import METHODS, definition
from kernelfit.kernel.definitions import MOST
from kernelfit.kernel.errors import InvalidArgument


@dataclass(frozen=True, slots=True)
class GivenPrior:
    """A prior that the user gave in place of the catalogue's.

    Attributes
    ----------
    name : str
        The coefficient, with its data type where it has one.
    value : float
        Its value in ``unit``; the median of the prior.
    unit : str
        ``1``, ``s`` or ``tokens``.
    spread : float
        One standard deviation of the natural logarithm of the value [1].
    method : str
        Evidence, one of ``METHODS``.
    source : str
        Where it comes from.
    chip : str
        Name of the GPU type that it is about.
    file : str
        Name of the file that it stands in.
    """

    name: str
    value: float
    unit: str
    spread: float
    method: str
    source: str
    chip: str
    file: str

    def __post_init__(self) -> None:
        """Check the prior.

        Raises
        ------
        InvalidArgument
            When there is no such coefficient, the unit is not its own, the value or the
            spread is not positive and finite, or a share beats its peak.
        """
        entry = definition(self.name)
        if self.unit != entry.unit:
            raise InvalidArgument(f"{self.name}.unit", self.unit, entry.unit)
        most = MOST.get(self.name, 1.0) if entry.kind == "efficiency" else float("inf")
        if not 0.0 < self.value <= most or self.value == float("inf"):
            allowed = "positive and finite" if most == float("inf") else f"above 0, at most {most}"
            raise InvalidArgument(f"{self.name}.value", self.value, allowed)
        if not 0.0 < self.spread < float("inf"):
            raise InvalidArgument(f"{self.name}.spread", self.spread, "positive and finite")
        if self.method not in METHODS:
            raise InvalidArgument(f"{self.name}.method", self.method, ", ".join(METHODS))


def by_name(given: Sequence[GivenPrior]) -> Mapping[str, GivenPrior]:
    """Return the prior of each coefficient.

    Parameters
    ----------
    given : sequence of GivenPrior
        Priors of one GPU type.

    Returns
    -------
    mapping of str to GivenPrior
        Where two are about one coefficient, the later one.
    """
    return {prior.name: prior for prior in given}


def of_chip(given: Sequence[GivenPrior], chip: str) -> tuple[GivenPrior, ...]:
    """Return the priors that are about a GPU type.

    Parameters
    ----------
    given : sequence of GivenPrior
        Priors of any GPU types.
    chip : str
        Name of the GPU type; case does not matter.

    Returns
    -------
    tuple of GivenPrior
        In the same order.
    """
    return tuple(prior for prior in given if prior.chip.casefold() == chip.casefold())
