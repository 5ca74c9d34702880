"""``fit: host`` in a run.yaml: steps that a fit leaves alone and a validation may use."""

from __future__ import annotations

from pathlib import Path

from tests.cli.run import kernelfit
from tests.cli.runs import CALIB, RUN, write_run

KEPT = RUN.replace("timing: device\n", "timing: device\nfit: host\n")
GIVEN = ("--calib", CALIB)


def test_a_fit_leaves_the_steps_alone_and_a_validation_takes_them(tmp_path: Path) -> None:
    write_run(tmp_path / "traces" / "fitted", seed=1)
    kept = write_run(tmp_path / "traces" / "kept", seed=2, document=KEPT)
    out = tmp_path / "out"
    words = ("--out", out, "--json", "--draws", "20", *GIVEN)
    outcome = kernelfit("fit", tmp_path / "traces", *words)
    assert outcome.code == 0
    said = outcome.json()
    assert [run["run"] for run in said["calibrations"][0]["runs"]] == ["fitted"]
    assert said["refused"] == [
        {"run": "kept", "reason": "its run.yaml keeps its steps for checking (fit: host)"}
    ]
    (calibration,) = (out / "calib" / "calibrations").glob("*.json")
    checked = kernelfit("validate", calibration, kept, "--out", tmp_path / "v", "--json", *GIVEN)
    assert checked.code == 0
    rows = [row for row in checked.json()["validation"] if row["phase"] == "all"]
    assert any(row["predictor"] == "kernelfit" and row["n"] > 100 for row in rows)


def test_another_word_is_refused(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", document=KEPT.replace("fit: host", "fit: steps"))
    outcome = kernelfit("fit", run, "--out", tmp_path / "out", *GIVEN)
    assert outcome.code == 2
    said = "run.yaml:9:6: fit is not in the vocabulary (got 'steps'); allowed all or host"
    assert said in outcome.err
