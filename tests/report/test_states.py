"""The words and the page for fits that went wrong in one way each."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from typing import Any

import pytest

from kernelfit.report.notebook import result_html
from kernelfit.report.page import page
from kernelfit.report.select import one_gpu
from kernelfit.report.text import coefficient_table, verdict_text, warning_text
from kernelfit.report.verdict import verdict
from tests.report.golden import check_golden
from tests.report.pages import Page
from tests.report.samples import small_result

Result = dict[str, Any]


def at_bound(result: Result) -> None:
    entry = result["calibrations"][0]["coefficients"][0]
    entry |= {"value": 1.0, "ci95": [0.93, 1.0], "verdict": "at_bound", "share_of_peak": 1.0}
    entry["evidence"]["bound_share"] = 0.74


def rank_deficient(result: Result) -> None:
    calibration = result["calibrations"][0]
    one, two = calibration["coefficients"][1:3]
    one |= {"verdict": "prior", "method": "literature", "alias": [two["name"]], "ci95": [0.3, 1.0]}
    two |= {"verdict": "weak", "alias": [one["name"]], "ci95": [0.0, 0.0031]}
    one["evidence"]["vif"] = None
    calibration["warnings"] = [
        f"{one['name']}, {two['name']} cannot be told from each other in these runs; only their "
        "sum is known"
    ]


def not_converged(result: Result) -> None:
    calibration = result["calibrations"][0]
    calibration["converged"] = False
    calibration["warnings"] = ["the solver stopped after 12 evaluations"]


def nothing_held_out(result: Result) -> None:
    for key in ("validation", "points", "coverage", "bounds"):
        result[key] = []


def worse_than_a_baseline(result: Result) -> None:
    for row in result["validation"]:
        if row["predictor"] == "datasheet":
            row["median_ape"] = 0.011


STATES: dict[str, Callable[[Result], None]] = {
    state.__name__.replace("_", "-"): state
    for state in (at_bound, rank_deficient, not_converged, nothing_held_out, worse_than_a_baseline)
}


def result_of(name: str) -> Result:
    """Return the good fit, gone wrong in one way."""
    result = copy.deepcopy(small_result())
    STATES[name](result)
    return result


@pytest.mark.parametrize("name", sorted(STATES))
def test_what_the_terminal_says(name: str, request: pytest.FixtureRequest) -> None:
    result = result_of(name)
    view = one_gpu(result, "H100-SXM")
    text = verdict_text(view) + "\n" + coefficient_table(result) + warning_text(view)
    assert text.isascii()
    assert "Good to use" not in text or name == "rank-deficient"
    check_golden(f"state-{name}.txt", text, request)


@pytest.mark.parametrize("name", sorted(STATES))
def test_the_page_is_whole_and_says_so(name: str) -> None:
    result = result_of(name)
    view = one_gpu(result, "H100-SXM")
    text = page({**view, "verdict": verdict(view)}, []).replace("\N{NO-BREAK SPACE}", " ")
    assert Page(text).tables["coefficients"].rows
    sentence = " ".join(verdict_text(one_gpu(result, "H100-SXM")).split()).partition(": ")[2]
    assert sentence in re.sub(r"\s+", " ", text)
    for warning in result["calibrations"][0]["warnings"]:
        assert warning in text
    assert sentence in re.sub(r"\s+", " ", result_html(result))
