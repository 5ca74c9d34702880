"""The page in a real browser: quiet, offline, sorted, filtered, pointed at, on a phone."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kernelfit.report.compare import write_comparison
from kernelfit.report.overview import write_overview
from tests.report.browser import chromium, open_page, screenshot, size
from tests.report.conftest import RESULTS
from tests.report.test_compare import sides


@pytest.fixture(scope="module")
def pages(reports: dict[str, Path]) -> dict[str, Path]:
    """The page of every kind of report."""
    return {name: folder / "index.html" for name, folder in reports.items()}


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One browser for all tests of this file."""
    with chromium(tmp_path_factory.mktemp("profile")) as started:
        yield started


def column(driver: Any, table: str, index: int) -> list[str]:
    """Return the visible cells of a column."""
    return list(
        driver.execute_script(
            "return [...document.getElementById(arguments[0]).tBodies[0].rows]"
            ".filter(row => !row.hidden).map(row => row.cells[arguments[1]].dataset.value"
            " ?? row.cells[arguments[1]].textContent)",
            table,
            index,
        )
    )


@pytest.mark.parametrize("name", sorted(RESULTS))
@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_is_quiet_and_asks_for_nothing(
    name: str, width: int, pages: dict[str, Path], driver: Any
) -> None:
    size(driver, width)
    loud, asked = open_page(driver, pages[name])
    assert loud == []
    assert [url for url in asked if not url.startswith("data:")] == [pages[name].as_uri()]
    # What is wider than the window scrolls in its own box, never the page.
    wide = driver.execute_script("return document.documentElement.scrollWidth")
    assert wide <= width


def test_every_figure_is_drawn(pages: dict[str, Path], driver: Any) -> None:
    size(driver, 1280)
    open_page(driver, pages["rich"])
    driver.execute_script("document.querySelectorAll('details').forEach(d => d.open = true)")
    boxes = driver.execute_script(
        "return [...document.querySelectorAll('figure')].map(f => [f.id,"
        " f.querySelector('svg').getBoundingClientRect().width,"
        " f.querySelector('svg').getBoundingClientRect().height,"
        " f.querySelectorAll('svg path, svg use').length])"
    )
    assert len(boxes) == 19
    for name, wide, high, marks in boxes:
        assert wide > 200, name
        assert high > 80, name
        assert marks > 10, name


def test_a_click_sorts_and_another_turns_it_round(pages: dict[str, Path], driver: Any) -> None:
    size(driver, 1280)
    open_page(driver, pages["rich"])
    table, index = "errors-time-block", 3
    before = [float(text) for text in column(driver, table, index)]
    button = driver.find_element("css selector", f"#{table} thead th:nth-child({index + 1}) button")
    driver.execute_script("arguments[0].click()", button)
    assert [float(text) for text in column(driver, table, index)] == sorted(before)
    assert before != sorted(before)
    driver.execute_script("arguments[0].click()", button)
    assert [float(text) for text in column(driver, table, index)] == sorted(before, reverse=True)
    head = driver.find_element("css selector", f"#{table} thead th:nth-child({index + 1})")
    assert head.get_attribute("aria-sort") == "descending"


def test_a_filter_keeps_the_rows_that_hold_every_word(pages: dict[str, Path], driver: Any) -> None:
    size(driver, 1280)
    open_page(driver, pages["rich"])
    table = "errors-time-block"
    field = driver.find_element("css selector", f"input[aria-controls={table}]")
    total = len(column(driver, table, 0))
    field.send_keys("MODEL-B decode")
    assert column(driver, table, 0) == ["model-b"]
    assert column(driver, table, 1) == ["decode"]
    said = driver.execute_script("return arguments[0].parentElement.textContent", field)
    assert f"1 of {total} rows" in said
    field.clear()
    field.send_keys("no such row")
    assert column(driver, table, 0) == []
    field.clear()
    field.send_keys(" ")
    assert len(column(driver, table, 0)) == total


def test_a_pointer_and_the_arrow_keys_tell_values(pages: dict[str, Path], driver: Any) -> None:
    size(driver, 1280)
    open_page(driver, pages["rich"])
    # One place of the coefficient figure, in the coordinates of the window.
    driver.execute_script(
        "const svg = document.querySelector('#coefficients-figure svg');"
        "const [x, y] = JSON.parse(svg.parentElement.querySelector('script').textContent)[0];"
        "svg.scrollIntoView();"
        "const at = new DOMPoint(x, y).matrixTransform(svg.getScreenCTM());"
        "svg.dispatchEvent(new PointerEvent('pointermove', {clientX: at.x, clientY: at.y}));"
    )
    told = driver.find_element("css selector", "#told")
    assert told.is_displayed()
    assert told.text.startswith("gemm_eff_bf16: 692.3 TFLOP/s [682.4, 702.2], 70.0 % of the peak")
    # The ring lies on the mark that was drawn there, not beside it.
    gap = driver.execute_script(
        "const svg = document.querySelector('#coefficients-figure svg');"
        "const box = svg.querySelector('.ring').getBoundingClientRect();"
        "const x = box.left + box.width / 2, y = box.top + box.height / 2;"
        "return Math.min(...[...svg.querySelectorAll('use')].map(use => {"
        " const b = use.getBoundingClientRect();"
        " return Math.hypot(b.left + b.width / 2 - x, b.top + b.height / 2 - y); }))"
    )
    assert gap < 1.5
    svg = driver.find_element("css selector", "#breakdown-1-figure svg")
    svg.send_keys("\ue014")  # the right arrow
    assert told.text.startswith("1 request: fitted ")
    svg.send_keys("\ue014")
    assert told.text.startswith("2 requests: fitted ")
    svg.send_keys("\ue00c")  # escape
    assert not told.is_displayed()


def test_without_script_everything_is_there(
    pages: dict[str, Path], driver: Any, tmp_path: Path
) -> None:
    size(driver, 1280)
    driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        loud, _ = open_page(driver, pages["rich"])
        assert loud == []
        assert driver.find_elements("css selector", "thead button, .filter") == []
        assert len(driver.find_elements("css selector", "figure svg")) == 19
        summary = driver.find_element("css selector", "#basis summary")
        summary.send_keys("\ue007")  # enter
        assert driver.find_element("css selector", "#runs tbody th").is_displayed()
    finally:
        driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def test_landmarks_and_names_for_a_screen_reader(pages: dict[str, Path], driver: Any) -> None:
    size(driver, 1280)
    open_page(driver, pages["rich"])
    nodes = driver.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]

    def named(role: str) -> list[str]:
        return [
            str(node.get("name", {}).get("value", ""))
            for node in nodes
            if node.get("role", {}).get("value") == role and not node.get("ignored")
        ]

    assert len(named("main")) == len(named("banner")) == len(named("contentinfo")) == 1
    assert "Sections" in named("navigation")
    assert all(named("table"))
    assert len(named("table")) >= 8
    images = named("image") + named("img")
    assert len(images) >= 12
    assert all(len(name) > 40 for name in images)
    assert named("columnheader")
    assert named("rowheader")


def test_dark_and_printed(pages: dict[str, Path], driver: Any) -> None:
    size(driver, 1280, scheme="dark")
    open_page(driver, pages["rich"])
    assert _contrast(driver, "body") > 10
    assert _contrast(driver, "figcaption") > 4.5
    assert _contrast(driver, "caption") > 4.5
    dark = screenshot(driver)
    size(driver, 1280)
    open_page(driver, pages["rich"])
    assert _contrast(driver, "body") > 10
    assert _contrast(driver, "figcaption") > 4.5
    assert screenshot(driver) != dark
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    assert not driver.find_element("css selector", "nav").is_displayed()
    assert not driver.find_element("css selector", ".filter").is_displayed()
    # What is folded on a screen is part of the paper.
    high = driver.execute_script("return document.getElementById('runs').offsetHeight")
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    assert high > 50


def _contrast(driver: Any, selector: str) -> float:
    """Return the contrast of an element's text with the page, as WCAG counts it."""
    ink, ground = driver.execute_script(
        "const rgb = (text) => text.match(/[\\d.]+/g).slice(0, 3).map(Number);"
        "return [rgb(getComputedStyle(document.querySelector(arguments[0])).color),"
        " rgb(getComputedStyle(document.body).backgroundColor)]",
        selector,
    )

    def light(rgb: list[float]) -> float:
        parts = [c / 255 / 12.92 if c <= 10 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in rgb]
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]

    high, low = sorted((light(ink), light(ground)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_comparisons_and_the_index_are_quiet_too(
    pages: dict[str, Path], driver: Any, tmp_path: Path
) -> None:
    write_comparison(sides(), tmp_path / "versions")
    shutil.copytree(pages["good"].parent, tmp_path / "h100-sxm")
    index = write_overview(tmp_path)
    assert index is not None
    for page in (tmp_path / "versions" / "index.html", index):
        for width in (1280, 390):
            size(driver, width)
            loud, asked = open_page(driver, page)
            assert loud == []
            assert [url for url in asked if not url.startswith("data:")] == [page.as_uri()]
            assert driver.execute_script("return document.documentElement.scrollWidth") <= width
    driver.find_element("link text", "H100-SXM").click()
    assert driver.title.startswith("H100-SXM")
