"""The committed calibration is what the committed traces give."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kernelfit.kernel import Batch, FittedKernel
from tests.cli.run import kernelfit

ROOT = Path(__file__).resolve().parents[1]
CALIBRATIONS = sorted((ROOT / "calib" / "calibrations").glob("*.json"))
KERNELS = sorted((ROOT / "calib" / "kernels").glob("*.json"))


def test_every_committed_kernel_loads_and_names_its_calibration() -> None:
    digests = {json.loads(p.read_text(encoding="utf-8"))["digest"] for p in CALIBRATIONS}
    assert CALIBRATIONS
    assert KERNELS
    for path in KERNELS:
        kernel = FittedKernel.load(path)
        assert kernel.fitted.calibration in digests
        estimate = kernel.step_time(Batch.decode(4, 256))
        assert 0.0 < estimate.overlap_s <= estimate.no_overlap_s


def test_the_report_shows_the_committed_calibration() -> None:
    for path in CALIBRATIONS:
        calibration = json.loads(path.read_text(encoding="utf-8"))
        report = json.loads(
            (ROOT / "reports" / path.stem / "report.json").read_text(encoding="utf-8")
        )
        shown = report["calibration"]
        assert shown["gpu"] == report["gpu"] == calibration["chip"]["name"]
        assert shown["digest"] == calibration["digest"]
        values = {c["name"]: c["value"] for c in calibration["coefficients"]}
        assert {c["name"]: c["value"] for c in shown["coefficients"]} == values


@pytest.mark.slow
def test_fitting_the_traces_again_gives_the_committed_numbers(tmp_path: Path) -> None:
    outcome = kernelfit("fit", ROOT / "traces", "--out", tmp_path, "--calib", ROOT / "calib")
    assert outcome.code == 0
    for path in CALIBRATIONS:
        old = json.loads(path.read_text(encoding="utf-8"))
        new = json.loads((tmp_path / "calib" / "calibrations" / path.name).read_text("utf-8"))
        assert new["rule"] == old["rule"]
        assert [r["kept"] for r in new["runs"]] == [r["kept"] for r in old["runs"]]
        for one, two in zip(old["coefficients"], new["coefficients"], strict=True):
            assert two["name"] == one["name"]
            # Another processor rounds sums differently; the numbers must not move for it.
            assert two["value"] == pytest.approx(one["value"], rel=0.01), one["name"]
            assert two["verdict"] == one["verdict"], one["name"]
