"""Plain JSON of a calibration: every number, SI units, a published schema."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

from kernelfit.documents.canonical import dumps
from kernelfit.export.base import Export, NotExpressed

SCHEMA = "kernelfit.plain/1"

_CALIBRATION = (
    "gpu",
    "digest",
    "composition",
    "coefficients",
    "runs",
    "noise",
    "domain",
    "autocorrelation",
    "condition",
    "scale",
    "converged",
    "seed",
    "draws",
    "warnings",
)
_COEFFICIENT = (
    "name",
    "value",
    "unit",
    "ci95",
    "verdict",
    "method",
    "scope",
    "peak",
    "peak_unit",
    "share_of_peak",
    "prior",
    "alias",
    "evidence",
    "meaning",
)
_KERNEL = ("file", "pool", "model", "gpu", "digest")


def plain_schema() -> dict[str, Any]:
    """Return the JSON Schema of the plain export.

    Returns
    -------
    dict
        A JSON Schema, draft 2020-12.
    """
    text = resources.files("kernelfit.export").joinpath("schemas", "plain-1.json").read_text("utf8")
    schema: dict[str, Any] = json.loads(text)
    return schema


def export_plain(
    calibration: Mapping[str, Any],
    *,
    version: str = "",
    kernels: Sequence[Mapping[str, Any]] = (),
    only_identified: bool = False,
) -> Export:
    """Write a calibration as plain canonical JSON.

    Parameters
    ----------
    calibration : mapping
        One calibration of a fit's result; rates and times in SI units, fractions not
        percent.
    version : str
        Version of kernelfit that made it.
    kernels : sequence of mappings
        Frozen kernels made from it: ``file``, ``pool``, ``model``, ``gpu``, ``digest``.
    only_identified : bool
        Leave out the coefficients that the logs did not identify.

    Returns
    -------
    Export
        The JSON text, and the fields that schema version 1 has no place for.

    Raises
    ------
    ValueError
        When a number is not finite: JSON has no such number.
    """
    missing: list[NotExpressed] = []
    document: dict[str, Any] = {"schema": SCHEMA, "version": version}
    document.update(_known(calibration, _CALIBRATION, "", missing))
    coefficients = []
    for entry in calibration.get("coefficients", ()):
        name = str(entry.get("name"))
        if only_identified and entry.get("verdict") != "identified":
            missing.append(
                NotExpressed(name, f"not identified by the step logs ({entry.get('verdict')})")
            )
            continue
        coefficients.append(_known(entry, _COEFFICIENT, f"{name}.", missing))
    document["coefficients"] = coefficients
    document["kernels"] = [_known(kernel, _KERNEL, "kernels.", missing) for kernel in kernels]
    return Export(dumps(document), tuple(missing))


def _known(
    source: Mapping[str, Any],
    keys: tuple[str, ...],
    where: str,
    missing: list[NotExpressed],
) -> dict[str, Any]:
    """Keep the keys that the schema knows and name the others."""
    missing.extend(
        NotExpressed(f"{where}{key}", f"no such field in {SCHEMA}")
        for key in source
        if key not in keys
    )
    return {key: source[key] for key in keys if key in source}
