"""``kernelfit fit --prior``: what is taken, what is recorded, what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelfit.documents.priors import load_priors
from tests.cli.run import Outcome, kernelfit
from tests.cli.runs import CALIB, write_run

NEARLY = ("--draws", "20", "--calib", CALIB, "--json")
PRIORS = """\
kind: Priors
schema_version: 1
chip: {chip}
priors:
  - name: schedule_step_s
    value: 4.0e-3
    unit: "s"
    spread: 0.3
    method: literature
    scope: "a test"
    rows: 0
    source: "a number out of a book"
"""


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return one run."""
    return write_run(tmp_path_factory.mktemp("traces") / "a", seed=1)


@pytest.fixture(scope="module")
def done(traces: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Outcome]:
    """Return one fit with the operator tables' priors, and then a document that knows better."""
    out = tmp_path_factory.mktemp("fit")
    mine = out / "mine.yaml"
    mine.write_text(PRIORS.format(chip="h100-sxm"), encoding="utf-8")
    tables = CALIB / "priors" / "h100-sxm.yaml"
    words = ("--prior", tables, "--prior", mine)
    return out, kernelfit("fit", traces, "--out", out, *words, *NEARLY)


def test_priors_are_used_and_recorded(done: tuple[Path, Outcome]) -> None:
    assert done[1].code == 0, done[1].err
    (said,) = done[1].json()["calibrations"]
    assert said["priors"] == ["h100-sxm.yaml", "mine.yaml"]
    by_name = {c["name"]: c for c in said["coefficients"]}
    # The host's time outside the step is in no device time: what was given is all there is.
    kept = by_name["schedule_step_s"]
    assert (kept["verdict"], kept["method"]) == ("prior", "literature")
    assert kept["value"] == pytest.approx(4.0e-3)
    assert kept["prior"]["file"] == "mine.yaml"
    tables = {p.name: p for p in load_priors(CALIB / "priors" / "h100-sxm.yaml")}
    for name in by_name.keys() & tables.keys():
        prior = by_name[name]["prior"]
        assert (prior["file"], prior["source"]) == ("h100-sxm.yaml", tables[name].source)
        assert prior["value"] == pytest.approx(tables[name].value)
    assert by_name.keys() & tables.keys()


def test_an_earlier_calibration_is_a_prior(
    done: tuple[Path, Outcome], traces: Path, tmp_path: Path
) -> None:
    earlier = done[0] / "calib" / "calibrations" / "h100-sxm.json"
    (before,) = done[1].json()["calibrations"]
    again = kernelfit("fit", traces, "--out", tmp_path, "--prior", earlier, *NEARLY)
    assert again.code == 0, again.err
    (after,) = again.json()["calibrations"]
    assert after["priors"] == ["h100-sxm.json"]
    known = {c["name"] for c in before["coefficients"] if c["verdict"] in ("identified", "weak")}
    for c in after["coefficients"]:
        assert (c["prior"]["file"] == "h100-sxm.json") == (c["name"] in known)
        if c["name"] in known:
            assert c["prior"]["method"] == "copied"
            assert before["digest"] in c["prior"]["source"]
    # The two can be compared: nothing but the priors changed.
    new = tmp_path / "calib" / "calibrations" / "h100-sxm.json"
    assert kernelfit("diff", earlier, new, "--json").json()["coefficients"]


def test_priors_of_another_gpu_are_refused(traces: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.yaml"
    other.write_text(PRIORS.format(chip="A100-SXM-80GB"), encoding="utf-8")
    out = tmp_path / "out"
    outcome = kernelfit("fit", traces, "--out", out, "--prior", other, *NEARLY)
    assert (outcome.code, outcome.out) == (2, "")
    assert "another GPU type" in outcome.err
    assert "A100-SXM-80GB" in outcome.err
    assert "H100-SXM" in outcome.err
    assert not (out / "calib").exists()


@pytest.mark.parametrize(
    ("name", "text", "word"),
    [
        ("p.yaml", PRIORS.format(chip="H100-SXM").replace("4.0e-3", "-1.0"), "value"),
        ("p.json", '{"kind": "Priors"}', "Calibration"),
        ("p.json", "no json", "JSON"),
    ],
)
def test_what_is_no_file_of_priors_is_refused(
    traces: Path, tmp_path: Path, name: str, text: str, word: str
) -> None:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    out = tmp_path / "out"
    outcome = kernelfit("fit", traces, "--out", out, "--prior", path, *NEARLY)
    assert (outcome.code, outcome.out) == (2, "")
    assert word in outcome.err
    # Small files are read first: nothing was ingested for it.
    assert not out.exists()
