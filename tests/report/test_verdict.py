"""The verdict follows from the numbers, and changes with them."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from kernelfit.report.select import NoCalibration, one_gpu
from kernelfit.report.verdict import verdict
from tests.report.rich import rich_result
from tests.report.samples import bad_result, small_result, validation


def judge(result: dict[str, Any]) -> dict[str, Any]:
    """Judge the one GPU type of a result."""
    return verdict(one_gpu(result, "H100-SXM"))


def test_good_fit() -> None:
    found = judge(small_result())
    assert found["level"] == "good"
    assert found["sentence"] == (
        "Good to use inside its domain: the median error on held-out steps is 2.1 %; "
        "no baseline does better; steps with the same work scatter by 1.2 % at the median; "
        "3 of 3 coefficients are identified."
    )


def test_nothing_validated() -> None:
    found = judge(bad_result())
    assert found["level"] == "unproven"
    assert found["sentence"] == (
        "Not validated: no held-out step says how far these numbers can be trusted; "
        "0 of 3 coefficients are identified (1 weak, 1 kept from a prior and 1 at a bound)."
    )


@pytest.mark.parametrize(
    ("median", "baseline", "level"),
    [
        (0.05, 0.4, "good"),
        (0.0501, 0.4, "care"),
        (0.15, 0.4, "care"),
        (0.1501, 0.4, "poor"),
        (0.04, 0.03, "care"),
        (0.04, 0.04, "good"),
    ],
)
def test_level_by_error_and_baseline(median: float, baseline: float, level: str) -> None:
    result = small_result()
    result["validation"] = validation(
        [
            ("kernelfit", "time_block", "m-8b", "all", 200, median, 0.0),
            ("datasheet", "time_block", "m-8b", "all", 200, baseline, 0.0),
        ]
    )
    assert judge(result)["level"] == level


@pytest.mark.parametrize(("far", "level"), [(0.10, "good"), (0.11, "care")])
def test_a_model_it_never_saw_counts(far: float, level: str) -> None:
    result = small_result()
    result["validation"] += validation(
        [("kernelfit", "leave_one_model_out", "m-8b", "all", 200, far, 0.0)]
    )
    found = judge(result)
    assert found["level"] == level
    assert f"and {100 * far:.1f} % for a model it never saw" in found["sentence"]


def test_range_over_models_and_facts() -> None:
    found = judge(rich_result(steps=40))
    # By construction: 0.02 x (0.9 .. 1.3) and 0.06 x (0.9 .. 1.3).
    assert "is 1.8 to 2.6 % by group, and 5.4 to 7.8 % for a model" in found["sentence"]
    facts = {fact["label"]: fact for fact in found["facts"]}
    assert facts["Median error, held out"]["text"] == "2.6 %"
    assert facts["Median error, held out"]["detail"] == "worst group: model-e; goal 5.0 %"
    assert facts["Identified coefficients"]["text"] == "6 of 10"


def test_a_baseline_that_wins_somewhere_is_named() -> None:
    result = small_result()
    result["validation"] = validation(
        [("kernelfit", "time_block", group, "all", 200, 0.04, 0.0) for group in ("a", "b", "c")]
        + [
            ("random_forest", "time_block", group, "all", 200, median, 0.0)
            for group, median in (("a", 0.03), ("all", 0.03), ("b", 0.05), ("c", 0.06))
        ]
    )
    assert "a baseline does better in 1 of 3 groups" in judge(result)["sentence"]


def test_a_solver_that_stopped_early_is_said() -> None:
    result = small_result()
    result["calibrations"][0]["converged"] = False
    found = judge(result)
    assert found["level"] == "care"
    assert found["sentence"].endswith("the solver stopped before it met its tolerance.")


def test_bounds_may_be_counts_or_shares() -> None:
    counts, shares = small_result(), small_result()
    shares["bounds"][0].update(below=0.05, inside=0.85, above=0.1, inside_with_noise=0.95)
    texts = [
        next(fact["text"] for fact in judge(each)["facts"] if fact["label"].startswith("Between"))
        for each in (counts, shares)
    ]
    assert texts == ["85.0 %", "85.0 %"]


def test_only_what_concerns_the_gpu() -> None:
    result = small_result()
    other = copy.deepcopy(result["calibrations"][0])
    other.update(gpu="L40S", runs=[{**other["runs"][0], "run": "run-z"}])
    result["calibrations"].append(other)
    result["gates"].append({"id": "warm-up", "run": "run-z", "rows": 3, "rule": "first steps"})
    result["validation"] += [{**result["validation"][0], "gpu": "L40S"}]
    result["ingest"].append({**result["ingest"][0], "file": "traces/run-z"})
    view = one_gpu(result, "H100-SXM")
    assert [gate["run"] for gate in view["gates"]] == ["run-a"]
    assert len(view["validation"]) == 4
    assert [entry["file"] for entry in view["ingest"]] == ["run-a"]
    with pytest.raises(NoCalibration, match=r"'B200'.*H100-SXM, L40S"):
        one_gpu(result, "B200")
