"""``show``: what files hold, and the nearest name of what was mistyped."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.golden import check_words
from tests.cli.kernels import frozen_kernel, write_kernel
from tests.cli.run import kernelfit
from tests.cli.runs import ROOT

CALIBRATION = ROOT / "calib" / "calibrations" / "epyc-milan-core.json"


def test_a_calibration_as_its_own_numbers() -> None:
    said = kernelfit("show", CALIBRATION, "--json").json()
    stored = json.loads(CALIBRATION.read_text(encoding="utf-8"))
    assert said["kind"] == "Calibration"
    assert {c["name"]: c["value"] for c in said["coefficients"]} == {
        c["name"]: c["value"] for c in stored["coefficients"]
    }
    assert said["digest"] == stored["digest"]


def test_a_kernel_shows_the_coefficients_that_it_uses(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    path = write_kernel(tmp_path)
    said = kernelfit("show", path, "--json").json()
    assert [c["name"] for c in said["coefficients"]] == list(frozen_kernel().plan.coefficients)
    words = kernelfit("show", path)
    assert (words.code, words.err) == (0, "")
    check_words("show-kernel.txt", words.out, request, {"FOLDER": tmp_path})


def test_a_reports_numbers() -> None:
    path = ROOT / "reports" / "epyc-milan-core" / "report.json"
    outcome = kernelfit("show", path)
    assert outcome.code == 0
    assert "Use with care" in outcome.out


def test_one_coefficient_in_full_and_the_nearest_name() -> None:
    outcome = kernelfit("show", CALIBRATION, "--coefficient", "schedule_step_s")
    assert outcome.code == 0
    for word in ("meaning", "95 % interval", "verdict", "prior", "time share"):
        assert word in outcome.out
    mistyped = kernelfit("show", CALIBRATION, "--coefficient", "shedule_step")
    assert (mistyped.code, mistyped.out) == (2, "")
    assert "did you mean schedule_step_s?" in mistyped.err


def test_what_cannot_be_shown(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text('{"kind": "Chip"}', encoding="utf-8")
    outcome = kernelfit("show", path)
    assert outcome.code == 2
    assert "holds nothing that can be shown (got 'Chip')" in outcome.err
    assert kernelfit("show").code == 2
    assert kernelfit("show", path, "--schema", "fit").code == 2
