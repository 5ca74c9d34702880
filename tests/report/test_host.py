"""Host work on the page and on the terminal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kernelfit.report import tables_basis, tables_fit
from kernelfit.report.select import one_gpu
from kernelfit.report.text import coarse_table, host_words
from kernelfit.report.write import write_report
from tests.report.golden import check_golden
from tests.report.pages import Page
from tests.report.samples import coefficient, small_result

SCOPE = "EPYC-Milan; vllm 0.32.0; BPE of 32,000 words"


def part(kind: str, counted: str, linear: bool, bins: bool = True) -> dict[str, Any]:
    return {
        "kind": kind,
        "events": 12345,
        "fitted": 12000,
        "scale": 0.153,
        "lag1": 0.4,
        "inflation": 2.5,
        "block_events": 20,
        "mean_ratio": 1.07,
        "low": 1.0,
        "high": 30000.0,
        "linearity": {
            "counted": counted,
            "linear": linear,
            "worst_gap": 0.03 if linear else 0.24,
            "p_value": 0.4 if linear else 1e-9,
            "bins": [{"low": 1, "high": 9, "events": 99, "gap": 0.0, "error": 0.1}] * bins,
        },
    }


def with_host() -> dict[str, Any]:
    result = small_result()
    calibration = result["calibrations"][0]
    calibration["inside_step"] = ["Scheduling and updating (schedule_step_s identified): alone."]
    calibration["coefficients"].append(
        coefficient("admission_token_s", 1.42e-6, "s", [1.3e-6, 1.5e-6], scope=SCOPE)
    )
    calibration["front_end"] = {
        "scope": SCOPE,
        "others": ["another tokeniser"],
        "runs": ["run-a"],
        "parts": [
            part("admission", "prompt_tokens", linear=False),
            part("output", "outputs", linear=True),
            part("completion", "output_tokens", linear=True, bins=False),
        ],
        "gates": [
            {"id": "events_idle", "run": "run-a", "events": 7, "rule": "a call without a new token"}
        ],
    }
    return result


def test_golden(request: pytest.FixtureRequest) -> None:
    text = host_words(with_host())
    assert text.isascii()
    check_golden("host.txt", text, request)


def test_the_page_tells_host_work_and_its_shape(tmp_path: Path) -> None:
    write_report(with_host(), "H100-SXM", tmp_path)
    text = (tmp_path / "index.html").read_text("utf8")
    assert "host" in Page(text).ids
    for word in (
        "What the host takes",
        SCOPE,
        "no, off by up to 24.0 %",
        "another tokeniser",
        "1.42",
    ):
        assert word.replace(" %", "\N{NO-BREAK SPACE}%") in text or word in text, word
    assert "12,345" in text
    assert "events_idle" in text.replace("<wbr>", "")


def test_what_was_not_recorded_is_said_or_left_out(tmp_path: Path) -> None:
    result = with_host()
    result["calibrations"][0]["front_end"] = None
    assert "no front end was recorded, so it is not charged" in host_words(result)
    # A result from before host work was told has no such section.
    assert host_words(small_result()) == ""
    write_report(small_result(), "H100-SXM", tmp_path)
    assert "What the host takes" not in (tmp_path / "index.html").read_text("utf8")


def with_requests() -> dict[str, Any]:
    result = with_host()
    term = {
        "parts": ["admission_request_s", "output_call_s"],
        "value": 4.26e-3,
        "ci95": [3.6e-3, 4.37e-3],
        "verdict": "identified",
        "requests": 88,
        "basis": "time to first token less queue and prefill",
    }
    slope = {**term, "parts": ["admission_token_s"], "value": -2e-7, "ci95": [-1e-6, 9e-7]}
    result["coarse"] = [
        {
            "run": "spans-a",
            "reader": "otel-requests",
            "observer": "engine",
            "gpu": None,
            "kernel": False,
            "terms": [term, {**slope, "verdict": "prior"}],
            "unknown": ["completion_s: no request-level time covers it"],
            "gates": [],
        },
        {
            "run": "elsewhere",
            "reader": "guidellm",
            "observer": "client",
            "gpu": "A100-SXM-80GB",
            "kernel": False,
            "terms": [{**term, "value": 9.99e-3, "ci95": [9e-3, 11e-3]}],
            "unknown": [],
            "gates": [],
        },
    ]
    return result


def test_golden_of_requests(request: pytest.FixtureRequest) -> None:
    text = coarse_table(with_requests())
    assert text.isascii()
    check_golden("coarse.txt", text, request)
    assert coarse_table(small_result()) == ""


def test_the_page_shows_the_sources_of_its_own_gpu_type(tmp_path: Path) -> None:
    write_report(with_requests(), "H100-SXM", tmp_path)
    text = (tmp_path / "index.html").read_text("utf8")
    assert "admission_request_s + output_call_s" in text.replace("<wbr>", "")
    assert "spans-a" in text
    assert "elsewhere" not in text


def test_shares_of_host_events_are_no_shares_of_the_step() -> None:
    """Each kind of host work is whole in itself; added to the steps it gave 389 %."""
    result = with_host()
    steps = [row for row in result["calibrations"][0]["coefficients"] if row["scope"] != SCOPE]
    for row in result["calibrations"][0]["coefficients"]:
        row["evidence"] = {"time_share": 1.0 if row["scope"] == SCOPE else 1.0 / len(steps)}
    view = one_gpu(result, result["calibrations"][0]["gpu"])
    shares = [row[2].value for row in tables_basis.evidence(view).rows]
    assert sum(float(share) for share in shares if share is not None) == pytest.approx(1.0)
    notes = {row[0].text: row for row in tables_fit.coefficients(view).rows}
    assert "100.0 % of its events' time" in str(notes["admission_token_s"])
