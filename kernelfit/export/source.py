"""What an export reads: a calibration as a result shows it, or the file that a fit wrote."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_ENVELOPE = ("kind", "schema_version", "digest")


def summary_of(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a calibration in the form that results show and exports read.

    Parameters
    ----------
    document : mapping
        An entry of a result's ``calibrations``, which is returned as it is, or the document
        of a calibration (``kind: Calibration``).

    Returns
    -------
    mapping
        The entry: ``gpu``, ``digest``, ``composition``, ``coefficients`` and the rest.

    Raises
    ------
    InvalidArgument
        When a calibration's document lacks a field or holds an unknown one.
    """
    if document.get("kind") != "Calibration":
        return document
    from kernelfit.fit.calibration import Calibration
    from kernelfit.kernel.frozen import from_data

    body = {key: value for key, value in document.items() if key not in _ENVELOPE}
    if body.get("condition", 0.0) is None:
        # Beyond any number: the document writes none for it.
        body["condition"] = float("inf")
    return from_data(Calibration, body).summary()
