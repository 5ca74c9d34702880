"""What one comparison is: a target's own step times beside the kernel's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kernelfit.kernel.batch import Batch
from kernelfit.kernel.fitted import FittedKernel

Times = Callable[[FittedKernel, Sequence[Batch]], Sequence[float | None]]
"""The target's step time of each batch [s]; None where it has none for such a batch."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """One row per kernel.

    Attributes
    ----------
    target : str
        Name of the target.
    what : str
        What the two times are.
    times : Times
        From the exported files alone, by the target's published formulas or a reader. A
        ``KernelError`` says that the kernel cannot be exported so.
    why : str
        Why they differ.
    own : Times or None
        What they are set beside; None takes the kernel's mean.
    """

    target: str
    what: str
    times: Times
    why: str
    own: Times | None = None
