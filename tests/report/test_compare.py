"""Comparisons and the page over a folder of reports."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path

import pytest

from kernelfit.report.compare import compare, lead, write_comparison
from kernelfit.report.overview import write_overview
from kernelfit.report.select import one_gpu
from kernelfit.report.sides import Side
from kernelfit.report.verdict import verdict
from kernelfit.report.write import write_report
from tests.cli.run import kernelfit
from tests.cli.runs import ROOT
from tests.report.golden import check_golden
from tests.report.pages import Page
from tests.report.rich import rich_result
from tests.report.samples import PEAK_BYTES_PER_S, bad_result, small_result


def sides() -> list[Side]:
    """Return the good fit, one that is 10 % slower on one rate, and one that kept priors."""
    first = one_gpu(small_result(), "H100-SXM")
    second = copy.deepcopy(first)
    second["calibration"]["coefficients"][0] |= {"value": 0.63, "ci95": [0.621, 0.639]}
    second["calibration"]["coefficients"][1] |= {"value": 0.801, "ci95": [0.796, 0.806]}
    third = one_gpu(bad_result(), "H100-SXM")
    views = (first, second, third)
    names = ("0.31", "0.32", "priors")
    return [
        Side(name, {**view, "verdict": verdict(view)})
        for name, view in zip(names, views, strict=True)
    ]


def test_ratios_and_differences() -> None:
    rows = {(row["name"], row["side"]): row for row in compare(sides())["coefficients"]}
    slower = rows["gemm_eff_bf16", "0.32"]
    # 0.63 / 0.7, with the ends 0.621 / 0.71 and 0.639 / 0.69.
    assert slower["ratio"]["value"] == pytest.approx(0.9)
    assert slower["ratio"]["low"] == pytest.approx(0.621 / 0.71)
    assert slower["ratio"]["high"] == pytest.approx(0.639 / 0.69)
    assert slower["difference"] == "differs"
    assert rows["hbm_weight_eff", "0.32"]["difference"] == "same"
    assert rows["hbm_weight_eff", "priors"]["difference"] == "unknown"
    assert rows["gemm_eff_bf16", "0.31"]["ratio"] is None
    assert "1 of 3 coefficients of 0.32 differ" in lead(compare(sides()))


def test_rates_of_two_gpu_types_compare_as_rates_not_as_shares() -> None:
    first, second, _ = sides()
    other = copy.deepcopy(dict(second.view))
    # The same share of twice the peak is twice the rate.
    other["calibration"]["coefficients"][1] |= {
        "value": 0.8,
        "ci95": [0.795, 0.805],
        "peak": 2 * PEAK_BYTES_PER_S,
    }
    rows = compare([first, Side("big", other)])["coefficients"]
    (row,) = (r for r in rows if (r["name"], r["side"]) == ("hbm_weight_eff", "big"))
    assert row["ratio"]["value"] == pytest.approx(2.0)
    assert row["difference"] == "differs"


def test_the_page_of_a_comparison(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    written = write_comparison(sides(), tmp_path)
    assert {path.name for path in written} == {path.name for path in tmp_path.iterdir()}
    text = written[0].read_text("utf8")
    page = Page(text)
    assert not re.search(r"https?:|<link|@import", text)
    assert len(page.ids) == len(set(page.ids))
    assert len(page.figures) == 2
    assert set(page.tables) >= {"sides-table", "coefficient-table", "error-table"}
    for name, table in page.tables.items():
        assert table.caption, name
        assert table.scopes.count("row") == len(table.rows), name
    stored = json.loads((tmp_path / "compare.json").read_text("utf8"))
    assert stored["schema"] == "kernelfit.compare/1"
    for tag in ("svg", "style", "script"):
        text = re.sub(rf"<{tag}(?: [^>]*)?>.*?</{tag}>", f"<{tag}/>", text, flags=re.DOTALL)
    check_golden("page-compare.html", text, request)


def test_the_page_over_a_folder(tmp_path: Path) -> None:
    assert write_overview(tmp_path) is None
    write_report(small_result(), "H100-SXM", tmp_path / "h100-sxm")
    write_comparison(sides(), tmp_path / "versions")
    (tmp_path / "stray").mkdir()
    (tmp_path / "stray" / "report.json").write_text("no json", encoding="utf-8")
    path = write_overview(tmp_path)
    assert path == tmp_path / "index.html"
    page = Page(path.read_text("utf8"))
    assert [row[0][0] for row in page.tables["reports-table"].rows] == ["H100-SXM"]
    links = {value for tag, name, value in page.references if tag == "a" and value[0] != "#"}
    assert links == {"h100-sxm/index.html", "versions/index.html"}
    assert all((tmp_path / link).is_file() for link in links)


def test_the_verb_compares_reports_and_calibrations(tmp_path: Path) -> None:
    report = ROOT / "reports" / "epyc-milan-core"
    calibration = ROOT / "calib" / "calibrations" / "epyc-milan-core.json"
    words = ("report", "--compare", report, calibration, "--out", tmp_path / "out")
    dry = kernelfit(*words, "--dry-run")
    assert dry.code == 0
    assert not (tmp_path / "out").exists()
    said = kernelfit(*words, "--json")
    assert said.code == 0
    assert str(tmp_path / "out" / "index.html") in said.json()["files"]
    stored = json.loads((tmp_path / "out" / "compare.json").read_text("utf8"))
    # The same calibration twice: nothing differs.
    assert {row["difference"] for row in stored["coefficients"]} <= {None, "same", "unknown"}
    for bad in (("report", "--compare", report), ("report", "--compare", "--index", report)):
        assert kernelfit(*bad).code == 2
    empty = kernelfit("report", "--index", tmp_path / "out")
    assert empty.code == 2
    assert "holds no report" in empty.err


def test_figures_of_a_comparison_of_rich_results(tmp_path: Path) -> None:
    rich = one_gpu(rich_result(steps=40, models=2), "H100-SXM")
    first = Side("a", {**rich, "verdict": verdict(rich)})
    written = write_comparison([first, Side("b", first.view)], tmp_path)
    assert {"ratios.svg", "shares.png"} <= {path.name for path in written}
    assert Page(written[0].read_text("utf8")).tables["deployment-table"].rows
