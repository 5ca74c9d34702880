"""Columns of steps on their way from a block of lines into a life."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kernelfit.logs.columns import Floats, Ints

Bools = NDArray[np.bool_]

STAMP_KINDS = ("printed", "dated_ms", "container")
"""Kinds of times beside a line: vLLM's own, a record's with a date, a container's."""


@dataclass(slots=True)
class Rows:
    """Steps of a block, in the order of their lines.

    Attributes
    ----------
    place : ndarray of int64
        Which line of the block each is.
    engine, pid : ndarray of int64
        Data-parallel rank, and the process that printed it; -1 where not stated.
    counts : ndarray of int64, shape (5, rows)
        Iteration, context requests and tokens, generation requests and tokens.
    elapsed_s, usage : ndarray of float64
        The printed time [s] and share of the KV cache in use [1].
    when : ndarray of float64, shape (rows, 2)
        The stamp as ``stamp_s`` returns it; NaN where there is none.
    kind : ndarray of int64
        Position of the stamp's kind in ``STAMP_KINDS``.
    """

    place: Ints
    engine: Ints
    pid: Ints
    counts: Ints
    elapsed_s: Floats
    usage: Floats
    when: Floats
    kind: Ints

    @property
    def count(self) -> int:
        """Number of rows."""
        return int(self.place.size)

    def take(self, chosen: Ints | Bools | slice) -> Rows:
        """Return some of the rows.

        Parameters
        ----------
        chosen : ndarray or slice
            A mask, positions or a range.

        Returns
        -------
        Rows
            The same columns, shorter.
        """
        return Rows(
            self.place[chosen],
            self.engine[chosen],
            self.pid[chosen],
            self.counts[:, chosen],
            self.elapsed_s[chosen],
            self.usage[chosen],
            self.when[chosen],
            self.kind[chosen],
        )

    @staticmethod
    def joined(parts: list[Rows]) -> Rows:
        """Return the rows of several shapes in the order of their lines.

        Parameters
        ----------
        parts : list of Rows
            At least one.

        Returns
        -------
        Rows
            All rows.
        """
        if len(parts) == 1:
            return parts[0]
        names = Rows.__slots__
        whole = Rows(
            *(
                np.concatenate([getattr(p, n) for p in parts], axis=1 if n == "counts" else 0)
                for n in names
            )
        )
        return whole.take(np.argsort(whole.place, kind="stable"))
