"""A report on disk: the page, its figures and its numbers."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernelfit.documents.canonical import compact, dumps, write_atomic
from kernelfit.report.page import page
from kernelfit.report.plots_fit import all_fit
from kernelfit.report.plots_steps import all_steps
from kernelfit.report.select import one_gpu
from kernelfit.report.verdict import verdict

PAGE, NUMBERS, POINTS = "index.html", "report.json", "points.json"


def write_report(result: Mapping[str, Any], gpu: str, folder: Path) -> tuple[Path, ...]:
    """Write the report on one GPU type.

    Parameters
    ----------
    result : mapping
        The result document of a fit: JSON-shaped, SI units, fractions not percent.
    gpu : str
        The GPU type.
    folder : Path
        Where to write; made when it does not exist.

    Returns
    -------
    tuple of Path
        Every file written, the page first. The same input gives the same bytes.

    Raises
    ------
    NoCalibration
        When the result has no calibration of the GPU type.
    """
    return _draw(one_gpu(result, gpu), folder)


def redraw(folder: Path) -> tuple[Path, ...]:
    """Draw a report again from its own numbers, without the traces.

    Parameters
    ----------
    folder : Path
        A folder that :func:`write_report` wrote.

    Returns
    -------
    tuple of Path
        Every file written, the page first.
    """
    view = json.loads((folder / NUMBERS).read_text("utf8"))
    view["points"] = json.loads((folder / POINTS).read_text("utf8"))
    return _draw(view, folder)


def _draw(view: Mapping[str, Any], folder: Path) -> tuple[Path, ...]:
    """Write figures first and the page last, so that it never names a missing file."""
    judged = {**view, "verdict": verdict(view)}
    drawings = [*all_fit(judged), *all_steps(judged)]
    judged["figures"] = [drawing.id for drawing in drawings]
    folder.mkdir(parents=True, exist_ok=True)
    stale = set(_figures(folder)) - set(judged["figures"])
    written: list[Path] = []

    def put(name: str, content: str | bytes) -> None:
        write_atomic(folder / name, content)
        written.append(folder / name)

    for drawing in drawings:
        put(f"{drawing.id}.svg", drawing.svg)
        put(f"{drawing.id}.png", drawing.png)
    put(POINTS, compact(judged["points"]) + "\n")
    put(NUMBERS, dumps({key: value for key, value in judged.items() if key != "points"}))
    put(PAGE, page(judged, drawings))
    # An earlier report may have drawn more; what the page no longer shows goes last.
    for name in sorted(stale):
        for suffix in (".svg", ".png"):
            (folder / f"{name}{suffix}").unlink(missing_ok=True)
    return (written[-1], *written[:-1])


def _figures(folder: Path) -> list[str]:
    """Return the figures that the report already in a folder names."""
    try:
        names = json.loads((folder / NUMBERS).read_text("utf8"))["figures"]
    except (OSError, ValueError, KeyError, TypeError):
        return []
    return [str(name) for name in names if re.fullmatch(r"[a-z0-9-]+", str(name))]
