"""The main job as a function: the same as the command, and frames where a table is wanted."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import kernelfit
from kernelfit.documents.problems import InputError
from kernelfit.library import FitResult
from tests.cli.run import kernelfit as command
from tests.cli.run import snapshot
from tests.cli.runs import CALIB, ROOT, write_run


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with one run."""
    folder = tmp_path_factory.mktemp("traces")
    write_run(folder / "a", seed=4)
    return folder


@pytest.fixture(scope="module")
def result(traces: Path) -> FitResult:
    """Return what the library finds in it."""
    return kernelfit.fit(traces, calib=CALIB, draws=20)


def test_the_library_does_what_the_command_does(
    result: FitResult, traces: Path, tmp_path: Path
) -> None:
    words = ("fit", traces, "--out", tmp_path / "one", "--calib", CALIB, "--draws", "20")
    assert command(*words).code == 0
    written = result.write(tmp_path / "two")
    one, two = snapshot(tmp_path / "one" / "calib"), snapshot(tmp_path / "two" / "calib")
    assert one == two
    assert written[-1] == tmp_path / "two" / "reports" / "h100-sxm" / "index.html"
    assert written[-1].is_file()
    # The store was not asked for, so it is not kept.
    assert not (tmp_path / "two" / ".kernelfit").exists()


def test_frames_hold_the_numbers_of_the_document(result: FitResult) -> None:
    (calibration,) = result.document["calibrations"]
    coefficients = result.coefficients()
    assert list(coefficients["name"]) == [c["name"] for c in calibration["coefficients"]]
    assert list(coefficients["value"]) == [c["value"] for c in calibration["coefficients"]]
    assert (coefficients["low"] <= coefficients["value"]).all()
    errors = result.errors()
    assert len(errors) == len(result.document["validation"])
    assert {"kernelfit", "datasheet"} <= set(errors["predictor"])
    steps = result.steps()
    assert (steps["overlap_s"] <= steps["no_overlap_s"]).all()
    assert len(steps) == len(result.document["points"][0]["measured_s"])
    assert len(result.flips()) == len(result.document["flips"]["flags"])
    assert set(result.gates().columns) >= {"id", "run", "rows"}


def test_kernels_are_ready(result: FitResult) -> None:
    (kernel,) = result.kernels.values()
    estimate = kernel.step_time(kernelfit.Batch.decode(requests=8, context=512))
    assert 0 < estimate.overlap_s <= estimate.no_overlap_s
    assert repr(kernel).startswith("FittedKernel(Llama-3.1-8B on H100-SXM, tp 1, ")
    assert len(repr(kernel)) < 120


def test_a_result_shows_itself(result: FitResult) -> None:
    html = result._repr_html_()
    assert html.count("<table") == 2
    assert "gemm_eff_bf16" in html
    assert "<script" not in html
    assert "//" not in html.replace("</", "")
    text = repr(result)
    assert text.startswith("H100-SXM: ")
    assert "gemm_eff_bf16" in text


def test_a_result_is_read_back_from_its_report() -> None:
    read = kernelfit.read_result(ROOT / "reports" / "epyc-milan-core")
    stored = json.loads((ROOT / "reports" / "epyc-milan-core" / "report.json").read_text("utf-8"))
    assert read.gpus == ("epyc-milan-core",)
    assert len(read.errors()) == len(stored["validation"])
    assert len(read.steps()) > 1000
    assert "epyc-milan-core" in read._repr_html_()


def test_mistakes_raise_every_problem(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        kernelfit.fit(tmp_path / "nothing", calib=CALIB)
    with pytest.raises(TypeError, match="no such fact: gpus; allowed gpu, model"):
        kernelfit.fit(tmp_path, gpus="H100")
    with pytest.raises(AttributeError, match="no attribute 'fti'"):
        _ = kernelfit.fti


def test_fit_can_be_called_whatever_was_imported_before() -> None:
    code = (
        "import kernelfit\n{}assert callable(kernelfit.fit)\n"
        "from kernelfit import fit\nassert callable(fit)\n"
        "from kernelfit.fit import pipeline\nimport kernelfit.fit.solve as solve\n"
        "assert callable(kernelfit.fit) and pipeline.fit_gpus and solve\n"
    )
    for first in ("", "import kernelfit.fit.pipeline\n", "import kernelfit.cli.main_job\n"):
        subprocess.run([sys.executable, "-c", code.format(first)], check=True)


def test_importing_the_package_does_no_work() -> None:
    code = (
        "import sys; import kernelfit; print(sorted(m for m in sys.modules if "
        "m.startswith('kernelfit') or m in ('numpy', 'pandas', 'typer')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['kernelfit']"
