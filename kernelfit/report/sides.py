"""A calibration that is held against others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Side:
    """One calibration of a comparison.

    Attributes
    ----------
    name : str
        What it is called on the page, unique.
    view : mapping
        What a report knows of it; at least ``gpu`` and ``calibration``.
    """

    name: str
    view: Mapping[str, Any]

    def coefficient(self, name: str) -> Mapping[str, Any] | None:
        """Return a coefficient, or None where the side has none of the name.

        Parameters
        ----------
        name : str
            Its name.

        Returns
        -------
        mapping or None
            The coefficient.
        """
        entries: Sequence[Mapping[str, Any]] = self.view["calibration"]["coefficients"]
        return next((entry for entry in entries if entry["name"] == name), None)
