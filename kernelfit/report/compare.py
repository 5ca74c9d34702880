"""Two or more calibrations beside each other: GPU types, engine versions, days."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kernelfit.documents.canonical import dumps, write_atomic
from kernelfit.report import units
from kernelfit.report.figure import Drawing
from kernelfit.report.page import set_page
from kernelfit.report.plots_compare import ratios, shares
from kernelfit.report.sections import Section
from kernelfit.report.sides import Side
from kernelfit.report.tables_compare import (
    coefficient_table,
    deployment_table,
    error_table,
    sides_table,
)
from kernelfit.report.tables_use import bottlenecks
from kernelfit.report.words import listed, plural

SCHEMA = "kernelfit.compare/1"
PAGE, NUMBERS = "index.html", "compare.json"


def compare(sides: Sequence[Side]) -> dict[str, Any]:
    """Return a comparison as data.

    Parameters
    ----------
    sides : sequence of Side
        At least two; the first is what the others are held against.

    Returns
    -------
    dict
        Schema ``kernelfit.compare/1``, SI units; a ratio is a side's value over the first's,
        its interval from the ends of both.
    """
    first = sides[0]
    names = list(
        dict.fromkeys(
            str(entry["name"])
            for side in sides
            for entry in side.view["calibration"]["coefficients"]
        )
    )
    rows = []
    for name in names:
        base = first.coefficient(name)
        for side in sides:
            entry = side.coefficient(name)
            if entry is not None:
                rows.append(
                    {
                        "name": name,
                        "side": side.name,
                        "value": entry["value"],
                        "unit": entry["unit"],
                        "ci95": entry["ci95"],
                        "verdict": entry["verdict"],
                        "share_of_peak": entry.get("share_of_peak"),
                        "ratio": _ratio(base, entry) if side is not first else None,
                        "difference": _difference(base, entry) if side is not first else None,
                    }
                )
    return {
        "schema": SCHEMA,
        "sides": [_side(side) for side in sides],
        "coefficients": rows,
        "errors": [
            {"side": side.name, **{key: row[key] for key in _ERROR_KEYS}}
            for side in sides
            for row in side.view.get("validation") or ()
            if row["predictor"] == "kernelfit" and row["group"] == _whole(side)
        ],
        "deployments": _deployments(sides),
    }


_ERROR_KEYS = ("split", "phase", "n", "median_ape", "p90_ape", "bias")


def _whole(side: Side) -> str | None:
    """Return the group that stands for all steps: the sum, or the only one there is."""
    groups = {str(row["group"]) for row in side.view.get("validation") or ()}
    return "all" if "all" in groups else groups.pop() if len(groups) == 1 else None


def _side(side: Side) -> dict[str, Any]:
    calibration = side.view["calibration"]
    runs = calibration.get("runs") or ()
    return {
        "name": side.name,
        "gpu": side.view["gpu"],
        "digest": calibration["digest"],
        "runs": len(runs),
        "steps": sum(int(run["kept"]) for run in runs),
        "rule": (calibration.get("composition") or {}).get("rule"),
        "noise": (calibration.get("noise") or {}).get("median_spread"),
        "verdict": (side.view.get("verdict") or {}).get("sentence"),
        "version": side.view.get("version"),
    }


def _absolute(entry: Mapping[str, Any]) -> tuple[float, float, float] | None:
    """Return value and ends, a share of a peak as the rate it stands for."""
    low, high = entry.get("ci95") or (entry["value"], entry["value"])
    factor = float(entry["peak"]) if units.share_peak(entry) else 1.0
    found = tuple(float(each) * factor for each in (entry["value"], low, high))
    return (found[0], found[1], found[2]) if found[0] > 0 else None


def _ratio(
    base: Mapping[str, Any] | None, entry: Mapping[str, Any]
) -> dict[str, float | None] | None:
    one, other = (None if each is None else _absolute(each) for each in (base, entry))
    if one is None or other is None:
        return None
    return {
        "value": other[0] / one[0],
        "low": other[1] / one[2] if one[2] > 0 else None,
        "high": other[2] / one[1] if one[1] > 0 else None,
    }


def _difference(base: Mapping[str, Any] | None, entry: Mapping[str, Any]) -> str:
    """Say whether two coefficients differ beyond both intervals."""
    if base is None:
        return "appeared"
    if "prior" in (base["verdict"], entry["verdict"]):
        return "unknown"
    one, other = _absolute(base), _absolute(entry)
    if one is None or other is None:
        return "unknown"
    return "differs" if other[1] > one[2] or other[2] < one[1] else "same"


def _deployments(sides: Sequence[Side]) -> list[dict[str, Any]]:
    return [
        {
            "side": side.name,
            "model": entry["model"],
            "pool": entry["pool"],
            "context_tokens": entry["context_tokens"],
            "requests": [entry["requests"][0], entry["requests"][-1]],
            "fitted_s": [entry["fitted_s"][0], entry["fitted_s"][-1]],
            "bottlenecks": [list(change) for change in bottlenecks(entry)],
        }
        for side in sides
        for entry in side.view.get("breakdown") or ()
        if entry["requests"]
    ]


def write_comparison(sides: Sequence[Side], folder: Path) -> tuple[Path, ...]:
    """Write a comparison: page, figure and numbers.

    Parameters
    ----------
    sides : sequence of Side
        At least two; the first is what the others are held against.
    folder : Path
        Where to write; made when it does not exist.

    Returns
    -------
    tuple of Path
        Every file written, the page first.
    """
    document = compare(sides)
    drawings = [each for each in (ratios(sides, document), shares(sides)) if each is not None]
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for drawing in drawings:
        for suffix, content in ((".svg", drawing.svg), (".png", drawing.png)):
            write_atomic(folder / f"{drawing.id}{suffix}", content)
            written.append(folder / f"{drawing.id}{suffix}")
    write_atomic(folder / NUMBERS, dumps(document))
    write_atomic(folder / PAGE, _page(sides, document, drawings))
    return (folder / PAGE, folder / NUMBERS, *written)


def lead(document: Mapping[str, Any]) -> str:
    """Say in a sentence what differs.

    Parameters
    ----------
    document : mapping
        From :func:`compare`.

    Returns
    -------
    str
        The sentence.
    """
    first, *others = (str(side["name"]) for side in document["sides"])
    parts = []
    for name in others:
        rows = [row for row in document["coefficients"] if row["side"] == name]
        kinds = {
            kind: sum(row["difference"] == kind for row in rows)
            for kind in ("differs", "same", "unknown")
        }
        parts.append(
            f"against {first}, {kinds['differs']} of {plural(len(rows), 'coefficient')} of {name} "
            f"differ beyond both intervals, {kinds['same']} do not, and {kinds['unknown']} cannot "
            "be told because a side kept its prior"
        )
    text = "; ".join(parts)
    return text[:1].upper() + text[1:] + "."


def _page(sides: Sequence[Side], document: Mapping[str, Any], drawings: Sequence[Drawing]) -> str:
    parts = (
        Section("sides", "What is compared", tables=(sides_table(document),)),
        Section(
            "coefficients",
            "How fast each resource is",
            (
                "A ratio above 1 is a larger rate or a longer time than on "
                f"{sides[0].name}. It differs when the two 95 % intervals lie apart.",
            ),
            tuple(drawings),
            (coefficient_table(sides, document),),
        ),
        Section(
            "errors",
            "How far off each is",
            ("Median absolute error on held-out steps, all models and pools together.",),
            tables=(error_table(sides, document),),
        ),
        Section(
            "deployments",
            "What takes the time",
            ("Decode batches of the smallest and largest width, at each side's own context.",),
            tables=(deployment_table(document),),
        ),
    )
    return set_page(
        "simple.html.j2",
        parts,
        title=listed([side.name for side in sides]),
        eyebrow="kernelfit comparison",
        lead=lead(document),
        version=next((s["version"] for s in document["sides"] if s["version"]), ""),
        links=(("Numbers as JSON", NUMBERS),),
    )
