"""The tables of the terminal: golden files for a good fit and for bad ones."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from kernelfit.report.text import (
    coefficient_table,
    error_table,
    flip_table,
    gate_table,
    scatter,
)
from tests.report.golden import check_golden
from tests.report.samples import bad_result, small_result

TABLES: dict[str, Callable[[dict[str, Any]], str]] = {
    "coefficients": coefficient_table,
    "errors": error_table,
    "gates": gate_table,
    "flips": flip_table,
    "scatter": scatter,
}


@pytest.mark.parametrize("table", sorted(TABLES))
@pytest.mark.parametrize("fit", ["good", "bad"])
def test_golden(fit: str, table: str, request: pytest.FixtureRequest) -> None:
    result = small_result() if fit == "good" else bad_result()
    text = TABLES[table](result)
    assert text.isascii()
    assert text.endswith("\n")
    assert not any(line.endswith(" ") for line in text.splitlines())
    check_golden(f"{table}-{fit}.txt", text, request)


def test_two_gpu_types_are_told_apart() -> None:
    result = small_result()
    second = copy.deepcopy(result["calibrations"][0])
    second["gpu"] = "A100-SXM-80GB"
    result["calibrations"].append(second)
    text = coefficient_table(result)
    assert text.splitlines()[0] == "H100-SXM"
    assert "\nA100-SXM-80GB\n" in text
    assert text.count("hbm_weight_eff") == 2


@pytest.mark.parametrize("table", ["coefficients", "errors", "scatter"])
def test_no_calibration_is_a_sentence(table: str) -> None:
    assert TABLES[table]({"calibrations": []}) == "No GPU type was calibrated.\n"


def test_scatter_places_equal_times_on_the_diagonal() -> None:
    result = small_result()
    points = result["points"][0]
    points["predicted_s"] = list(points["measured_s"])
    body = [line.split("|", 1)[1] for line in scatter(result).splitlines() if "|" in line]
    marks = [
        (column, row)
        for row, line in enumerate(body)
        for column, mark in enumerate(line)
        if mark in "dmp"
    ]
    assert len(marks) == 4
    for column, row in marks:
        # The grid is 61 by 17: on the diagonal the row follows from the column.
        assert abs((16 - row) - column * 16 / 60) <= 1


def test_scatter_capital_from_ten_steps() -> None:
    result = small_result()
    points = result["points"][0]
    for key, values in points.items():
        if isinstance(values, list):
            points[key] = values[:1] * 9 + values[3:]
    assert "D" not in scatter(result).splitlines()[-4]
    for key, values in points.items():
        if isinstance(values, list):
            points[key] = values[:1] * 10 + values[9:]
    assert "D" in scatter(result)
    assert "n = 11;" in scatter(result)


def test_a_phase_that_the_log_does_not_tell_is_drawn() -> None:
    result = small_result()
    result["points"][0]["phase"] = [None] * 4
    assert "x phase unknown" in scatter(result)


def test_flips_to_measure_come_first() -> None:
    result = small_result()
    result["flips"]["flags"].reverse()
    lines = flip_table(result).splitlines()
    assert "measure" in lines[2]
    assert "agree" in lines[3]
    assert lines[4].startswith("measure: 200 decode steps")
