"""A calibration as a BLIS ``CoefficientSet``.

The set selects by name and scope and the last applicable entry wins, so a scenario that
lists this set last uses its values and keeps every other one it had.
"""

from __future__ import annotations

import io
import math
from collections.abc import Mapping
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.scalarstring import FoldedScalarString

from kernelfit.export.base import Export, NotExpressed
from kernelfit.export.blis_names import MISSING, UNKNOWN, Place, place_of

_PER_US = 1e6

# Chips whose name in the BLIS catalogue is not simply ours in lower case.
_CATALOGUE = {
    "a100-sxm-80gb": "a100-sxm",
    "h100-sxm": "h100",
    "h200-sxm": "h200",
}


def blis_chip_name(gpu: str) -> str:
    """Return the name under which BLIS's catalogue knows a GPU type.

    Parameters
    ----------
    gpu : str
        Name of a chip document.

    Returns
    -------
    str
        The catalogue's name; the same in lower case where no other is known.
    """
    return _CATALOGUE.get(gpu.lower(), gpu.lower())


def export_blis(
    calibration: Mapping[str, Any],
    chip_name: str,
    *,
    set_name: str | None = None,
    only_identified: bool = False,
) -> Export:
    """Write a calibration as a BLIS ``CoefficientSet``.

    Only what the step logs identified is published as ``measured`` and ``fitted``. A
    coefficient that kept its prior carries the prior's own evidence, and one that is
    weak or stands at a bound is ``assumed``.

    Parameters
    ----------
    calibration : mapping
        One calibration of a fit's result (SI units).
    chip_name : str
        The chip as the catalogue spells it; it becomes the scope of every entry.
    set_name : str, optional
        Name of the set; ``kernelfit-<chip_name>`` when not given.
    only_identified : bool
        Publish nothing that the logs did not identify, so that other sets keep theirs.

    Returns
    -------
    Export
        The YAML text, and what the format or its cost laws have no place for.

    Raises
    ------
    ValueError
        When a value is not finite, or when nothing at all can be expressed.
    """
    entries = CommentedSeq()
    missing: list[NotExpressed] = []
    for coefficient in calibration["coefficients"]:
        name = str(coefficient["name"])
        place = place_of(name)
        reason = _obstacle(coefficient, place, only_identified)
        if place is None or reason is not None:
            missing.append(NotExpressed(name, reason or UNKNOWN))
            continue
        entry, notes = _entry(coefficient, place, calibration, chip_name)
        entries.append(CommentedMap({place.name: entry}))
        missing.extend(NotExpressed(name, note) for note in notes)
    composition = calibration.get("composition") or {}
    if composition.get("rule") is not None:
        missing.append(
            NotExpressed(
                "composition",
                "BLIS prices both bounds and its simulator picks one; "
                "a fitted rule or share of overlap has no entry",
            )
        )
    if not entries:
        raise ValueError("no coefficient of this calibration has a place in a CoefficientSet")
    document = CommentedMap()
    document["kind"] = "CoefficientSet"
    document["name"] = set_name or f"kernelfit-{chip_name}"
    document["coefficients"] = entries
    yaml = YAML(typ="rt", pure=True)
    yaml.width = 96
    yaml.indent(mapping=2, sequence=4, offset=2)
    out = io.StringIO()
    yaml.dump(document, out)
    return Export(out.getvalue(), tuple(missing))


def _obstacle(
    coefficient: Mapping[str, Any], place: Place | None, only_identified: bool
) -> str | None:
    """Return why a coefficient cannot be published, or None."""
    name, value = str(coefficient["name"]), float(coefficient["value"])
    if not math.isfinite(value):
        raise ValueError(f"coefficient {name}: value {value} is not finite")
    if place is None:
        return next((why for known, why in MISSING.items() if name.startswith(known)), UNKNOWN)
    if only_identified and coefficient["verdict"] != "identified":
        return f"not identified by the step logs ({coefficient['verdict']})"
    if value == 0.0:
        return (
            "a zero may only be published as not_charged, which says that the cost does not "
            "exist; the logs only say that they do not show it"
        )
    if place.times_peak and not coefficient.get("peak"):
        return "the format wants a rate and the calibration states no datasheet peak"
    return None


def _entry(
    coefficient: Mapping[str, Any], place: Place, calibration: Mapping[str, Any], chip: str
) -> tuple[CommentedMap, tuple[str, ...]]:
    """Build one entry, and the notes on what it could not carry."""
    factor = place.factor
    if place.times_peak:
        factor = float(coefficient["peak"]) / _PER_US
    value = _rounded(float(coefficient["value"]) * factor)
    verdict = str(coefficient["verdict"])
    method = _method(coefficient)
    notes: list[str] = []
    entry = CommentedMap()
    entry["value"] = value
    entry["units"] = place.units
    entry["method"] = method
    entry["fitted"] = verdict == "identified"
    scope = CommentedMap()
    scope["hardware"] = _flow([chip])
    scope.fa.set_flow_style()
    entry["scope"] = scope
    interval = coefficient.get("ci95")
    if interval is not None:
        low, high = (_rounded(float(edge) * factor) for edge in interval)
        if math.isfinite(low) and math.isfinite(high) and low <= value <= high:
            entry["ci95"] = _flow([low, high])
        else:
            notes.append(f"its ci95 [{low:g}, {high:g}] does not hold the value {value:g}")
    source = CommentedMap(_source(coefficient, calibration, method))
    source.fa.set_flow_style()
    entry["sources"] = CommentedSeq([source])
    if method == "copied":
        entry["copied_from"] = str((coefficient.get("prior") or {}).get("source") or "not stated")
    entry["rationale"] = FoldedScalarString(_rationale(coefficient, place))
    return entry, tuple(notes)


def _method(coefficient: Mapping[str, Any]) -> str:
    """Only identified is measured; a kept prior keeps its own evidence."""
    verdict, method = coefficient["verdict"], str(coefficient["method"])
    if verdict == "identified":
        return "measured"
    if verdict == "prior" and method in {"vendor_spec", "literature", "copied"}:
        return method
    return "assumed"


def _source(
    coefficient: Mapping[str, Any], calibration: Mapping[str, Any], method: str
) -> dict[str, str]:
    """Return the citation: the step logs, or where the prior came from."""
    if coefficient["verdict"] == "prior":
        kind = {"vendor_spec": "datasheet", "literature": "publication"}.get(method, "model")
        cite = str((coefficient.get("prior") or {}).get("source") or "prior without a source")
        return {"kind": kind, "cite": cite, "role": "primary"}
    runs = calibration.get("runs") or ()
    kept = sum(int(run["kept"]) for run in runs)
    cite = (
        f"kernelfit calibration {calibration['digest']} of {calibration['gpu']}: "
        f"{kept} steps of {len(runs)} runs"
    )
    role = "primary" if coefficient["verdict"] == "identified" else "supporting"
    return {"kind": "model", "cite": cite, "role": role}


def _rationale(coefficient: Mapping[str, Any], place: Place) -> str:
    """Say in words what the verdict rests on."""
    verdict = str(coefficient["verdict"])
    evidence = coefficient.get("evidence") or {}
    meaning = str(coefficient.get("meaning") or "").strip().rstrip(".")
    parts = [f"{meaning}." if meaning else ""]
    if verdict == "identified":
        parts.append("Fitted jointly with the other coefficients of the chip from step times.")
    elif verdict == "weak":
        parts.append("The step logs move this value but do not pin it; the interval is wide.")
    elif verdict == "at_bound":
        parts.append("The fit stands at a bound of the allowed range, so take it as a limit.")
    else:
        parts.append("The step logs do not identify this value, so the prior was kept.")
    alias = [str(name) for name in coefficient.get("alias") or ()]
    if alias:
        parts.append(f"Not separable in these logs from {', '.join(alias)}.")
    if evidence.get("vif") is not None:
        parts.append(f"Variance inflation {float(evidence['vif']):.3g}.")
    if evidence.get("bound_share") is not None:
        parts.append(f"At a bound in {float(evidence['bound_share']):.1%} of the resamples.")
    if place.note:
        parts.append(place.note)
    return " ".join(part for part in parts if part)


def _rounded(value: float) -> float:
    """Drop the digits that only the change of unit brought in."""
    return float(f"{value:.12g}")


def _flow(items: list[Any]) -> CommentedSeq:
    """Return a sequence that prints on one line."""
    seq = CommentedSeq(items)
    seq.fa.set_flow_style()
    return seq
