"""``kernelfit diff``: words, exit status, JSON, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from statistics import NormalDist

import numpy as np
import pytest

from kernelfit.documents.canonical import dumps
from kernelfit.fit.calibration import Calibration, Evidence, Noise, RunUsed
from kernelfit.kernel.catalog import Coefficient
from kernelfit.kernel.fitted import FittedKernel
from kernelfit.kernel.handover import Range
from tests.cli.kernels import frozen_kernel
from tests.cli.run import GOLDEN, kernelfit

SAMPLES = [NormalDist().inv_cdf((i + 0.5) / 40) for i in range(40)]
KERNEL = frozen_kernel()
EVIDENCE = Evidence(0.03, 1.5, 0.03, 0.0, 0.9, 0.1, ())


def calibration(**changes: float) -> Calibration:
    """Every coefficient of the kernel, known to 3 % but for one that kept its prior."""
    coefficients, columns = [], []
    for at, c in enumerate(KERNEL.fitted.coefficients):
        value = changes.get(c.name, 1.0) * c.value
        scatter = value * np.exp(0.03 * np.roll(SAMPLES, 7 * at))
        verdict = "prior" if c.name == "schedule_request_s" else "identified"
        ends = (float(np.quantile(scatter, 0.025)), float(np.quantile(scatter, 0.975)))
        coefficients.append(Coefficient(c.name, value, c.unit, c.scope, "measured", verdict, ends))
        columns.append(scatter)
    return Calibration(
        chip=KERNEL.plan.chip,
        coefficients=tuple(coefficients),
        evidence=(EVIDENCE,) * len(coefficients),
        rule="sum",
        overlap_share=0.0,
        scores=(),
        scale=0.02,
        lag1=0.1,
        inflation=1.2,
        block_steps=20,
        condition=50.0,
        runs=(RunUsed("run-a", "Llama-3.1-8B", "tp1", 1000, 990),),
        noise=Noise(0.01, 0.03, 10, 100),
        domain=(Range("requests", 1.0, 64.0), Range("tokens", 1.0, 2048.0)),
        draw_names=tuple(c.name for c in coefficients),
        draws=tuple(tuple(float(v) for v in row) for row in np.column_stack(columns)),
        draw_shares=(0.0,) * 40,
        residuals=KERNEL.fitted.residuals,
        seed=0,
        converged=True,
        warnings=(),
    )


def write(folder: Path, made: Calibration, *, kernel: bool = False) -> Path:
    """Write a calibration and, where wanted, the kernel beside it."""
    path = folder / "calib" / "calibrations" / "h100-sxm.json"
    path.parent.mkdir(parents=True)
    path.write_text(dumps(made.to_document()), encoding="utf-8")
    if kernel:
        beside = folder / "calib" / "kernels" / "k.json"
        beside.parent.mkdir(parents=True)
        plan = KERNEL.plan
        frozen = FittedKernel.from_plan(plan, made.fitted())
        beside.write_text(frozen.to_json(), encoding="utf-8")
    return path


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    """Weights read at 0.8 of what they were; the second has lost its kernels."""
    before = write(tmp_path / "old", calibration(), kernel=True)
    return before, write(tmp_path / "new", calibration(hbm_weight_eff=0.8))


def test_the_text_is_what_was_reviewed(
    pair: tuple[Path, Path], request: pytest.FixtureRequest
) -> None:
    outcome = kernelfit("diff", *pair)
    assert outcome.code == 1
    assert outcome.err == ""
    golden = GOLDEN / "diff-moved.txt"
    if request.config.getoption("--update-golden"):
        golden.write_text(outcome.out, encoding="utf-8")
    assert outcome.out == golden.read_text(encoding="utf-8")
    assert outcome.out.isascii()


def test_json_says_what_moved_and_what_that_does(pair: tuple[Path, Path]) -> None:
    outcome = kernelfit("diff", *pair, "--json")
    assert outcome.code == 1
    said = outcome.json()
    assert said["schema"] == "kernelfit.diff/1"
    assert said["verdict"] == "moved"
    by_name = {row["name"]: row for row in said["coefficients"]}
    assert [name for name, row in by_name.items() if row["verdict"] == "moved"] == [
        "hbm_weight_eff"
    ]
    assert by_name["schedule_request_s"]["verdict"] == "unknown"
    assert by_name["hbm_weight_eff"]["ratio"]["value"] == pytest.approx(0.8)
    # Two spreads of 3 %: exp(+-1.96 x 0.0424).
    assert by_name["hbm_weight_eff"]["ratio"]["low"] == pytest.approx(0.8 * 0.920, rel=0.01)
    decode = next(row for row in said["predictions"] if row["phase"] == "decode")
    assert decode["verdict"] == "moved"
    # Small batches are weights and little else: at 0.8 of the rate they take up to 1.25 times.
    assert 0.05 < decode["median"]["value"] < 0.25
    assert decode["median"]["low"] > 0.0
    assert said["composition"]["verdict"] == "same"


def test_the_exit_status(pair: tuple[Path, Path], tmp_path: Path) -> None:
    assert kernelfit("diff", pair[0], pair[0]).code == 0
    assert kernelfit("diff", *pair, "--exit-zero").code == 0
    assert kernelfit("diff", pair[0], tmp_path / "none.json").code == 2


def test_kernels_may_be_named(tmp_path: Path) -> None:
    before, after = (write(tmp_path / name, calibration()) for name in ("a", "b"))
    silent = kernelfit("diff", before, after)
    assert silent.code == 0
    assert "--kernel names one" in silent.err
    named = tmp_path / "k.json"
    named.write_text(KERNEL.to_json(), encoding="utf-8")
    said = kernelfit("diff", before, after, "--kernel", named, "--json").json()
    assert {row["phase"] for row in said["predictions"]} == {"decode", "mixed", "prefill"}
    assert said["verdict"] == "same"


def test_two_gpu_types_need_across(tmp_path: Path) -> None:
    one = calibration()
    other = replace(one, chip=replace(one.chip, name="H200-SXM", hbm_bytes_per_s=4.8e12))
    before, after = write(tmp_path / "a", one), write(tmp_path / "b", other)
    refused = kernelfit("diff", before, after)
    assert (refused.code, refused.out) == (2, "")
    assert "another GPU type" in refused.err
    assert "--across" in refused.err
    shown = kernelfit("diff", before, after, "--across")
    assert shown.code == 0
    assert "the datasheets differ in hbm_bytes_per_s" in shown.out


def test_a_file_that_was_changed_is_refused(pair: tuple[Path, Path]) -> None:
    document = json.loads(pair[1].read_text(encoding="utf-8"))
    document["overlap_share"] = 0.1
    pair[1].write_text(json.dumps(document), encoding="utf-8")
    outcome = kernelfit("diff", *pair)
    assert (outcome.code, outcome.out) == (2, "")
    assert "digest" in outcome.err
