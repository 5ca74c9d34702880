"""What a resolution starts from, and the record of what it changed."""

from __future__ import annotations

from dataclasses import dataclass

from kernelfit.kernel.chip import Chip
from kernelfit.kernel.model import Model
from kernelfit.kernel.pool import Pool
from kernelfit.kernel.resolved import Override
from kernelfit.kernel.rules import Version, generation


@dataclass(frozen=True, slots=True)
class Asked:
    """A pool, what it serves and what it runs on.

    Attributes
    ----------
    pool : Pool
        What the deployment asks for.
    model : Model
        The model.
    chip : Chip
        The GPU type.
    version : tuple of int
        The release whose rules hold.
    """

    pool: Pool
    model: Model
    chip: Chip
    version: Version

    @property
    def ranks(self) -> int:
        """Ranks of the pool, over all its replicas."""
        return self.pool.tp * self.pool.dp

    @property
    def pool_gpus(self) -> int:
        """GPUs of a node that the pool may use."""
        return self.pool.gpus_per_node or self.chip.gpus_per_node

    @property
    def has_experts(self) -> bool:
        """Whether any layer is a mixture of experts."""
        return any(kind.experts is not None for kind in self.model.layers)

    @property
    def on_cpu(self) -> bool:
        """Whether it runs on a CPU."""
        return self.chip.kind == "cpu"

    @property
    def generation(self) -> str:
        """The GPU's generation; empty where it is not known, and on a CPU."""
        return "" if self.on_cpu else generation(self.chip.name)

    def has(self, attention: str) -> bool:
        """Return whether any layer has one kind of attention.

        Parameters
        ----------
        attention : str
            For example ``linear``.

        Returns
        -------
        bool
            True when one has.
        """
        return any(kind.attention.kind == attention for kind in self.model.layers)


class OverrideLog:
    """Collects overrides while a pool is resolved."""

    def __init__(self) -> None:
        self.overrides: list[Override] = []

    def override(self, field: str, requested: object, resolved: object, reason: str) -> None:
        """Record a setting that runs differently.

        Parameters
        ----------
        field : str
            The setting.
        requested : object
            What was asked; None where nothing was.
        resolved : object
            What runs.
        reason : str
            Why.
        """
        asked = "unstated" if requested is None else str(requested)
        self.overrides.append(Override(field, asked, str(resolved), reason))

    def default(self, field: str, resolved: object, reason: str) -> None:
        """Record a setting that was not stated.

        Parameters
        ----------
        field : str
            The setting.
        resolved : object
            What runs.
        reason : str
            Whose default it is.
        """
        self.override(field, None, resolved, f"assumed: {reason}")
