"""One page over a folder of reports: which calibrations there are, and how good each is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernelfit.documents.canonical import write_atomic
from kernelfit.report import units
from kernelfit.report.page import set_page
from kernelfit.report.sections import Section
from kernelfit.report.tables import Cell, Column, Table
from kernelfit.report.words import plural

PAGE = "index.html"
_REPORT, _COMPARISON = "kernelfit.report/1", "kernelfit.compare/1"


def write_overview(folder: Path) -> Path | None:
    """Write the page over the reports of a folder.

    Parameters
    ----------
    folder : Path
        Holds a folder per GPU type, as ``fit`` writes them, and comparisons.

    Returns
    -------
    Path or None
        The page; None where the folder holds no report.
    """
    reports, comparisons = found(folder)
    if not reports:
        return None
    steps = sum(int(run["kept"]) for view in reports.values() for run in _runs(view))
    parts = [
        Section("reports", "Calibrations", tables=(_reports(reports),)),
        Section("comparisons", "Comparisons", tables=(_comparisons(comparisons),)),
    ]
    text = set_page(
        "simple.html.j2",
        parts,
        title="Reports",
        eyebrow="kernelfit",
        lead=f"{plural(len(reports), 'calibration')} from {plural(steps, 'step')}.",
        version=next((str(view["version"]) for view in reports.values()), ""),
        links=(),
    )
    write_atomic(folder / PAGE, text)
    return folder / PAGE


def found(folder: Path) -> tuple[dict[str, Mapping[str, Any]], dict[str, Mapping[str, Any]]]:
    """Return the reports and comparisons of a folder.

    Parameters
    ----------
    folder : Path
        The folder.

    Returns
    -------
    tuple of dict
        The numbers of each report and of each comparison, by the name of its folder.
    """
    reports: dict[str, Mapping[str, Any]] = {}
    comparisons: dict[str, Mapping[str, Any]] = {}
    for path in sorted(folder.glob("*/*.json")):
        if path.name not in ("report.json", "compare.json"):
            continue
        try:
            data = json.loads(path.read_text("utf8"))
        except ValueError:
            continue
        if not isinstance(data, dict):
            continue
        if data.get("schema") == _REPORT:
            reports[path.parent.name] = data
        elif data.get("schema") == _COMPARISON:
            comparisons[path.parent.name] = data
    return reports, comparisons


def _runs(view: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return list(view["calibration"].get("runs") or ())


def _reports(reports: Mapping[str, Mapping[str, Any]]) -> Table:
    columns = (
        Column("GPU type"),
        Column("Verdict"),
        Column("Worst median error, held out [%]", numeric=True),
        Column("Noise floor [%]", numeric=True),
        Column("Identified", numeric=True),
        Column("Coefficients", numeric=True),
        Column("Models", numeric=True),
        Column("Steps", numeric=True),
        Column("Digest"),
    )
    rows = []
    for name, view in reports.items():
        facts = {fact["label"]: fact["value"] for fact in view["verdict"]["facts"]}
        entries = view["calibration"]["coefficients"]
        identified = sum(entry["verdict"] == "identified" for entry in entries)
        noise = (view["calibration"].get("noise") or {}).get("median_spread")
        error = facts.get("Median error, held out")
        models = len({str(run["model"]) for run in _runs(view)})
        steps = sum(int(run["kept"]) for run in _runs(view))
        rows.append(
            (
                Cell(str(view["gpu"]), str(view["gpu"]), link=f"{name}/{PAGE}"),
                Cell(str(view["verdict"]["sentence"]), str(view["verdict"]["level"])),
                Cell(units.percent(error), error),
                Cell(units.percent(noise), noise),
                Cell(units.count(identified), identified),
                Cell(units.count(len(entries)), len(entries)),
                Cell(units.count(models), models),
                Cell(units.count(steps), steps),
                Cell(str(view["calibration"]["digest"]), kind="code"),
            )
        )
    return Table("reports-table", "Calibrations, one a GPU type", columns, tuple(rows), "")


def _comparisons(comparisons: Mapping[str, Mapping[str, Any]]) -> Table:
    columns = (Column("Comparison"), Column("Sides"))
    rows = tuple(
        (
            Cell(name, name, link=f"{name}/{PAGE}"),
            Cell(", ".join(str(side["name"]) for side in data["sides"])),
        )
        for name, data in comparisons.items()
    )
    empty = "No comparison stands here; kernelfit report --compare A B writes one."
    return Table("comparisons-table", "Comparisons", columns, rows, empty)
