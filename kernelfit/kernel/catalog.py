"""Coefficients: one number with its evidence, and what a name stands for."""

from __future__ import annotations

from dataclasses import dataclass

from kernelfit.kernel.definitions import COLLECTIVE_OPS, DEFINITIONS, LEGACY, TYPED, Definition
from kernelfit.kernel.errors import InvalidArgument
from kernelfit.kernel.front_end_definitions import FRONT_END

__all__ = [
    "COLLECTIVE_OPS",
    "DEFINITIONS",
    "FRONT_END",
    "LEGACY",
    "METHODS",
    "TYPED",
    "VERDICTS",
    "Coefficient",
    "Definition",
    "definition",
]

METHODS: tuple[str, ...] = (
    "measured",
    "literature",
    "vendor_spec",
    "copied",
    "assumed",
    "not_charged",
)
VERDICTS: tuple[str, ...] = ("identified", "weak", "prior", "at_bound")


def definition(name: str) -> Definition:
    """Return what a coefficient is.

    Parameters
    ----------
    name : str
        A coefficient's name, with its data type where it has one.

    Returns
    -------
    Definition
        The entry of ``DEFINITIONS``, ``FRONT_END`` or ``LEGACY``.

    Raises
    ------
    InvalidArgument
        When there is no such coefficient.
    """
    for entry in (*DEFINITIONS, *FRONT_END, *LEGACY):
        if name == entry.name and entry.name not in TYPED:
            return entry
        if entry.name in TYPED and name.rpartition("_")[0] == entry.name:
            return entry
    allowed = ", ".join(d.name for d in (*DEFINITIONS, *FRONT_END))
    raise InvalidArgument("coefficient", name, allowed)


@dataclass(frozen=True, slots=True)
class Coefficient:
    """One number of a law, with its evidence.

    Attributes
    ----------
    name : str
        Its name, see ``DEFINITIONS`` and ``FRONT_END``.
    value : float
        Its value in ``unit``.
    unit : str
        ``1``, ``s`` or ``tokens``.
    scope : str
        What it holds for.
    method : str
        Its evidence, one of ``METHODS``.
    verdict : str
        How well the data pin it, one of ``VERDICTS``.
    ci95 : tuple of (float, float)
        95 % interval in ``unit``; it holds ``value``.
    """

    name: str
    value: float
    unit: str
    scope: str
    method: str
    verdict: str
    ci95: tuple[float, float]

    def __post_init__(self) -> None:
        """Check the number.

        Raises
        ------
        InvalidArgument
            When it is not positive and finite, or lies outside its interval.
        """
        low, high = self.ci95
        if not 0.0 < self.value < float("inf"):
            raise InvalidArgument(f"{self.name}.value", self.value, "positive and finite")
        if not low <= self.value <= high < float("inf"):
            raise InvalidArgument(f"{self.name}.ci95", self.ci95, "an interval around the value")
        if self.method not in METHODS:
            raise InvalidArgument(f"{self.name}.method", self.method, ", ".join(METHODS))
        if self.verdict not in VERDICTS:
            raise InvalidArgument(f"{self.name}.verdict", self.verdict, ", ".join(VERDICTS))
