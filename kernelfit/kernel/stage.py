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


OPERATORS: tuple[str, ...] = ("gemm", "attention", "experts", "passes", "link", "floor")
"""Operations of a layer: multiplications by weights, attention, the routed experts,
elementwise passes, collectives, and what is fixed per layer."""


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
    operator : str
        The operation within the stage that it belongs to: operations follow each other,
        while the resources of one operation work at the same time.
    """

    stage: str
    resource: Resource
    coefficient: str
    function: int
    amount: float
    group: str = ""
    form: int = 0
    operator: str = ""


def operator_of(coefficient: str) -> str:
    """Return the operation that a coefficient's work belongs to where nothing else is said.

    Parameters
    ----------
    coefficient : str
        The coefficient.

    Returns
    -------
    str
        One of ``OPERATORS``; empty for host work.
    """
    for prefix, operator in _OPERATOR_OF:
        if coefficient.startswith(prefix):
            return operator
    return ""


_OPERATOR_OF: tuple[tuple[str, str], ...] = (
    ("gemm", "gemm"),
    ("hbm_weight", "gemm"),
    ("hbm_expert", "experts"),
    ("hbm_kv", "attention"),
    ("hbm_activation", "passes"),
    ("attention", "attention"),
    ("recurrent", "attention"),
    ("expert", "experts"),
    ("layer_floor", "floor"),
    ("all", "link"),
    ("reducescatter", "link"),
    ("internode", "link"),
    ("nvlink", "link"),
)


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
        self._terms: dict[tuple[Resource, str, int, str, int, str], float] = {}

    def add(
        self,
        resource: Resource,
        coefficient: str,
        function: int,
        amount: float,
        group: str = "",
        form: int = 0,
        operator: str = "",
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
        operator : str
            See ``Term``; the coefficient's own where empty.
        """
        if amount:
            where = operator or operator_of(coefficient)
            key = (resource, coefficient, function, group, form, where)
            self._terms[key] = self._terms.get(key, 0.0) + amount * self.count

    def gemm(
        self,
        weight: tuple[str, float],
        rows: int,
        parameters: float,
        fill: int = 0,
        operator: str = "gemm",
        read: str = "hbm_weight_eff",
        rows_share: float = 1.0,
    ) -> None:
        """Add a multiplication by a weight matrix, and reading that matrix.

        Parameters
        ----------
        weight : (str, float)
            Data type that it computes in, and the size of one element, its scales
            included [bytes].
        rows : int
            Basis function of the rows that are multiplied.
        parameters : float
            Elements of the matrix on one rank.
        fill : int
            Basis function of how often the matrix is started; once a step by default.
        operator : str
            The operation that it is part of.
        read : str
            The coefficient that prices reading the matrix.
        rows_share : float
            Share of the rows that this rank multiplies [1].
        """
        dtype, element_bytes = weight
        flop = 2.0 * parameters
        self.add(Resource.SM, f"gemm_eff_{dtype}", rows, flop * rows_share, operator=operator)
        self.add(Resource.SM, f"gemm_m_half_{dtype}", fill, flop, operator=operator)
        self.add(Resource.HBM, read, fill, parameters * element_bytes, operator=operator)

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
            Term(self.name, resource, coefficient, function, amount, group, form, operator)
            for (
                resource,
                coefficient,
                function,
                group,
                form,
                operator,
            ), amount in self._terms.items()
        )
