"""What a gate is, and what it says it has done."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kernelfit.fit.gates.evidence import Evidence
from kernelfit.fit.steps import Bools


@dataclass(frozen=True, slots=True)
class Gate:
    """One rule.

    Attributes
    ----------
    id : str
        Short name.
    rule : str
        The rule in one sentence.
    drops : callable
        From the evidence of a run to a mask of the steps that the rule drops.
    notes : callable, optional
        From the evidence to a mask of steps that the rule speaks about and keeps.
    """

    id: str
    rule: str
    drops: Callable[[Evidence], Bools]
    notes: Callable[[Evidence], Bools] | None = None


@dataclass(frozen=True, slots=True)
class GateCount:
    """What one gate dropped from one run.

    Attributes
    ----------
    id : str
        The gate.
    run : str
        The run.
    rows : int
        Steps dropped by this gate and by none before it; 0 where it only notes
        something.
    rule : str
        The gate's rule.
    examples : tuple of int
        Up to three step indices.
    repaired : int
        Steps that it kept with another duration.
    """

    id: str
    run: str
    rows: int
    rule: str
    examples: tuple[int, ...]
    repaired: int = 0
