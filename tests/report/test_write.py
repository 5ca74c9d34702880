"""The page: complete, offline, small, equal to its numbers, and the same every time."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from kernelfit.report.words import SPLITS
from kernelfit.report.write import redraw, write_report
from tests.report.conftest import RESULTS
from tests.report.golden import check_golden
from tests.report.pages import Page
from tests.report.samples import bad_result, small_result

LARGEST_PAGE_BYTES = 2_000_000


@pytest.fixture(params=sorted(RESULTS))
def report(request: pytest.FixtureRequest, reports: dict[str, Path]) -> Path:
    """One report after the other."""
    return reports[request.param]


def page_of(folder: Path) -> Page:
    """Read the page of a report."""
    return Page((folder / "index.html").read_text("utf8"))


def numbers_of(folder: Path) -> dict[str, Any]:
    """Read the numbers of a report."""
    numbers: dict[str, Any] = json.loads((folder / "report.json").read_text("utf8"))
    return numbers


def test_the_page_loads_nothing(report: Path) -> None:
    text = (report / "index.html").read_text("utf8")
    assert len(text.encode("utf8")) < LARGEST_PAGE_BYTES
    page = Page(text)
    checked = 0
    for tag, name, value in page.references:
        checked += 1
        assert "//" not in value.split(",")[0], (tag, name, value[:80])
        if tag != "a" and name != "style":
            assert value.startswith(("#", "data:image/png;base64,")), (tag, name, value[:80])
        assert re.findall(r"url\((?!#)", value) == []
    assert checked >= 10
    assert not re.search(r"@import|url\((?![#\"']?#)|https?:|<link|<iframe|<base", text)


def test_ids_are_unique_and_every_anchor_lands(report: Path) -> None:
    page = page_of(report)
    assert len(page.ids) == len(set(page.ids))
    known = set(page.ids)
    anchors = [
        value[1:]
        for _, name, value in page.references
        if name.endswith("href") and value.startswith("#")
    ]
    anchors += [
        target
        for _, name, value in page.references
        if name == "style"
        for target in re.findall(r"url\(#([^)]+)\)", value)
    ]
    assert len(anchors) >= 10
    assert [anchor for anchor in anchors if anchor not in known] == []
    files = {value for tag, _, value in page.references if tag == "a" and not value.startswith("#")}
    assert {name for name in files if not (report / name).is_file()} == set()
    assert "report.json" in files


def test_every_figure_is_on_the_page_and_in_the_folder(report: Path) -> None:
    page, names = page_of(report), numbers_of(report)["figures"]
    assert len(page.figures) == len(names)
    assert set(page.figures) <= {"img"}
    assert all(len(label) > 40 for label in page.labels)
    for name in names:
        assert f"{name}-figure" in page.ids
        assert (report / f"{name}.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
        root = ET.parse(report / f"{name}.svg").getroot()
        assert root.tag.endswith("svg")
        text = " ".join(
            "".join(node.itertext()) for node in root.iter() if node.tag.endswith("text")
        )
        assert "n = " in text, name
        assert "[" in text or "step of the run" in text or "requests" in text, name


def test_figures_of_a_rich_result(reports: dict[str, Path]) -> None:
    assert set(numbers_of(reports["rich"])["figures"]) == {
        "coefficients",
        "errors-time-block",
        "errors-leave-one-run-out",
        "errors-leave-one-model-out",
        *(f"breakdown-{place}" for place in range(1, 8)),
        "measured-against-predicted",
        "signed-error-batch",
        "signed-error-context",
        "signed-error-tokens",
        "residuals",
        "autocorrelation",
        "bounds",
        "coverage",
    }


def test_tables_can_be_read_without_seeing_them(report: Path) -> None:
    page = page_of(report)
    assert "coefficients" in page.tables
    for name, table in page.tables.items():
        assert table.caption, name
        assert table.rows, name
        assert set(table.scopes) == {"col", "row"}, name
        assert table.scopes.count("row") == len(table.rows), name
        assert all(len(row) == len(table.heads) for row in table.rows), name
        assert all(head.strip() for head in table.heads), name


def test_numbers_on_the_page_are_the_numbers_of_the_json(report: Path) -> None:
    page, numbers = page_of(report), numbers_of(report)
    entries = numbers["calibration"]["coefficients"]
    rows = page.tables["coefficients"].rows
    assert len(rows) == len(entries) >= 3
    for row, entry in zip(rows, entries, strict=True):
        assert row[0][1] == entry["name"]
        assert float(str(row[1][1])) == entry["value"]
        assert float(str(row[3][1])) == entry["ci95"][0]
        assert row[5][1] == entry["verdict"]
        if entry["share_of_peak"] is not None:
            assert float(str(row[4][1])) == entry["share_of_peak"]
    compared = 0
    for split in SPLITS:
        table = page.tables.get(f"errors-{split.replace('_', '-')}")
        ours = {
            (row["group"], row["phase"]): row
            for row in numbers["validation"]
            if row["split"] == split and row["predictor"] == "kernelfit"
        }
        assert (table is None) == (not ours)
        for row in table.rows if table else ():
            entry = ours[str(row[0][1]), str(row[1][1])]
            found = [float(str(row[place][1])) for place in range(2, 7)]
            assert found == [entry[key] for key in ("n", "median_ape", "mape", "p90_ape", "bias")]
            compared += 1
    assert compared == sum(row["predictor"] == "kernelfit" for row in numbers["validation"])


def test_coverage_of_every_split_is_on_the_page(report: Path) -> None:
    rows = numbers_of(report)["coverage"]
    table = page_of(report).tables.get("coverage")
    shown = sorted(
        float(str(value)) for row in (table.rows if table else ()) for _, value in row[4:] if value
    )
    assert shown == sorted(float(row["covered"]) for row in rows)


def test_gates_add_up_over_the_runs(report: Path) -> None:
    gates = numbers_of(report)["gates"]
    table = page_of(report).tables.get("gates")
    shown = {str(row[0][1]): int(str(row[1][1])) for row in table.rows} if table else {}
    assert shown == {
        name: sum(gate["rows"] for gate in gates if gate["id"] == name)
        for name in {gate["id"] for gate in gates}
    }


def test_verdict_is_on_the_page(report: Path) -> None:
    text = (report / "index.html").read_text("utf8")
    assert numbers_of(report)["verdict"]["sentence"] in text.replace("\N{NO-BREAK SPACE}", " ")


def test_a_result_with_nothing_says_so(reports: dict[str, Path]) -> None:
    text = (reports["bad"] / "index.html").read_text("utf8")
    for sentence in (
        "Nothing was validated: no steps were held out.",
        "No gate dropped a step.",
        "No measured step was held against the bounds.",
        "No other rule of composition was scored.",
        "No breakdown over batch size was computed.",
        "No prediction interval was checked against held-out steps.",
        "No conclusion was asked for, so none can flip.",
        "The calibration states no domain",
        "No kernel was frozen from this fit.",
        "The result holds no single steps",
        "No batch shape occurred often enough",
    ):
        assert sentence in text
    assert "rank 2 of 3" in text
    assert numbers_of(reports["bad"])["figures"] == ["coefficients"]


@pytest.mark.parametrize("name", ["good", "bad"])
def test_golden_page(name: str, reports: dict[str, Path], request: pytest.FixtureRequest) -> None:
    """The structure of the page, figures, style and script left out."""
    text = (reports[name] / "index.html").read_text("utf8")
    for tag in ("svg", "style", "script"):
        text = re.sub(rf"<{tag}(?: [^>]*)?>.*?</{tag}>", f"<{tag}/>", text, flags=re.DOTALL)
    check_golden(f"page-{name}.html", text, request)


def test_same_input_same_bytes_and_redraw(reports: dict[str, Path], tmp_path: Path) -> None:
    kept = {path.name: path.read_bytes() for path in reports["good"].iterdir()}
    assert len(kept) == 3 + 2 * len(numbers_of(reports["good"])["figures"])
    write_report(small_result(), "H100-SXM", tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == kept
    for path in tmp_path.iterdir():
        if path.suffix in {".svg", ".png", ".html"}:
            path.unlink()
    redraw(tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == kept


def test_a_changed_number_changes_the_page(reports: dict[str, Path], tmp_path: Path) -> None:
    changed = small_result()
    changed["points"][0]["predicted_s"][2] *= 1.1
    write_report(changed, "H100-SXM", tmp_path)
    same = {
        path.name
        for path in tmp_path.iterdir()
        if path.read_bytes() == (reports["good"] / path.name).read_bytes()
    }
    assert not same & {"index.html", "points.json", "measured-against-predicted.svg"}
    assert {"coefficients.svg", "breakdown-1.png"} <= same
    # What the changed report no longer draws goes, what is not its own stays.
    (tmp_path / "notes.svg").write_text("mine", encoding="utf-8")
    write_report(bad_result(), "H100-SXM", tmp_path)
    assert not (tmp_path / "breakdown-1.png").exists()
    assert (tmp_path / "coefficients.png").is_file()
    assert (tmp_path / "notes.svg").is_file()


def test_names_cannot_break_out_of_the_page(tmp_path: Path) -> None:
    # Dollar signs with an unclosed formula between would stop the plotting library.
    attack = "<script>alert('x')</script>\"&$\\frac{x$"
    result = small_result()
    calibration = result["calibrations"][0]
    calibration["runs"][0]["run"] = attack
    calibration["warnings"] = [attack]
    calibration["coefficients"][0]["meaning"] = attack
    calibration["coefficients"][0]["name"] = attack
    result["points"][0]["run"] = [attack] * 4
    for row in (*result["validation"], *result["bounds"]):
        row["group"] = attack
    result["breakdown"][0]["model"] = attack
    result["command"] = attack
    write_report(result, "H100-SXM", tmp_path)
    text = (tmp_path / "index.html").read_text("utf8")
    assert text.count("<script>") == 1
    assert "&lt;script&gt;" in text
    assert page_of(tmp_path).tables["runs"].rows[0][0][0] == attack
