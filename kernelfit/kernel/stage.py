"""Terms of a law, and the stage that collects them."""

from __future__ import annotations

from dataclasses import dataclass

from kernelfit.kernel.basis import FIXED
from kernelfit.kernel.resources import Resource

HEAD_STAGE = "head"
LAUNCH_STAGE = "launch"
"""Host work that runs ahead of the device and hides behind it."""
HOST_STAGE = "host"
"""Host work that the device waits for."""


@dataclass(frozen=True, slots=True)
class Term:
    """One product of work and unit cost.

    Attributes
    ----------
    stage : str
        The stage it belongs to; terms of a stage can overlap across resources.
    resource : Resource
        What the work lands on.
    coefficient : str
        The coefficient that prices it.
    function : int
        Index of its function of the batch in the basis.
    amount : float
        Constant of the deployment, all layers of the stage together; FLOP, bytes or
        a count per unit of the function.
    group : str
        Empty for a plain term. Terms of one group are two forms of the same work, and
        the form that takes longer counts: ``max(floor + bytes/transition, bytes/rate)``.
    form : int
        0 or 1, which of the two forms.
    """

    stage: str
    resource: Resource
    coefficient: str
    function: int
    amount: float
    group: str = ""
    form: int = 0


def at(name: str) -> int:
    """Return the index of a basis function that every model has.

    Parameters
    ----------
    name : str
        One of ``kernelfit.kernel.basis.FIXED``.

    Returns
    -------
    int
        Its index.
    """
    return FIXED.index(name)


class Stage:
    """Collects the terms of one stage; equal terms add up.

    Parameters
    ----------
    name : str
        The stage.
    count : int
        Layers that the stage stands for; every amount is multiplied by it.
    """

    def __init__(self, name: str, count: int = 1) -> None:
        self.name = name
        self.count = count
        self._terms: dict[tuple[Resource, str, int, str, int], float] = {}

    def add(
        self,
        resource: Resource,
        coefficient: str,
        function: int,
        amount: float,
        group: str = "",
        form: int = 0,
    ) -> None:
        """Add work of one layer.

        Parameters
        ----------
        resource : Resource
            What it lands on.
        coefficient : str
            What prices it.
        function : int
            Index of its function of the batch.
        amount : float
            Work of one layer per unit of the function.
        group : str
            See ``Term``.
        form : int
            See ``Term``.
        """
        if amount:
            key = (resource, coefficient, function, group, form)
            self._terms[key] = self._terms.get(key, 0.0) + amount * self.count

    def gemm(
        self, dtype: str, rows: int, parameters: float, element_bytes: float, fill: int = 0
    ) -> None:
        """Add a multiplication by a weight matrix, and reading that matrix.

        Parameters
        ----------
        dtype : str
            Data type that it computes in.
        rows : int
            Basis function of the rows that are multiplied.
        parameters : float
            Elements of the matrix on one rank.
        element_bytes : float
            Size of one element, its scales included [bytes].
        fill : int
            Basis function of how often the matrix is started; once a step by default.
        """
        self.add(Resource.SM, f"gemm_eff_{dtype}", rows, 2.0 * parameters)
        self.add(Resource.SM, f"gemm_m_half_{dtype}", fill, 2.0 * parameters)
        self.add(Resource.HBM, "hbm_weight_eff", fill, parameters * element_bytes)

    def collective(
        self,
        op: str,
        resource: Resource,
        function: int,
        nbytes: float,
        times: float = 1.0,
        label: str = "",
    ) -> None:
        """Add a collective: ``max(floor + bytes / transition, bytes / rate)``.

        Parameters
        ----------
        op : str
            One of ``kernelfit.kernel.catalog.COLLECTIVE_OPS``.
        resource : Resource
            The link.
        function : int
            Basis function that the bytes are proportional to.
        nbytes : float
            Bytes that one rank moves over the link per unit of the function [bytes].
        times : float
            How often the collective runs in a layer, each time with ``nbytes``.
        label : str
            Tells collectives of one kind and different sizes apart.
        """
        group = op + label
        self.add(resource, f"{op}_floor_s", at("one"), times, group, 0)
        self.add(resource, f"{op}_transition_eff", function, times * nbytes, group, 0)
        self.add(resource, f"{op}_eff", function, times * nbytes, group, 1)

    def finish(self) -> tuple[Term, ...]:
        """Return the stage's terms.

        Returns
        -------
        tuple of Term
            In the order of first use.
        """
        return tuple(
            Term(self.name, resource, coefficient, function, amount, group, form)
            for (resource, coefficient, function, group, form), amount in self._terms.items()
        )
