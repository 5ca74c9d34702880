"""``check``, ``digest`` and ``env``."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from kernelfit import __version__
from tests.cli.kernels import write_kernel
from tests.cli.run import kernelfit
from tests.cli.runs import CALIB, RUN


def test_the_projects_own_documents_are_fine() -> None:
    folders = [CALIB / name for name in ("chips", "models", "deployments")]
    outcome = kernelfit("check", *folders, "--json")
    assert outcome.code == 0
    said = outcome.json()
    assert said["problems"] == []
    kinds = {entry["kind"] for entry in said["documents"]}
    assert {"Chip", "Model", "Deployment"} <= kinds
    assert len(said["documents"]) >= 15


def test_problems_are_a_result_with_status_one(tmp_path: Path) -> None:
    shutil.copy(CALIB / "chips" / "h100-sxm.yaml", tmp_path / "good.yaml")
    text = (CALIB / "chips" / "h100-sxm.yaml").read_text(encoding="utf-8")
    (tmp_path / "bad.yaml").write_text(text.replace("byte/s", "GB/s", 1), encoding="utf-8")
    (tmp_path / "run.yaml").write_text(RUN.format(model="m").replace("device", "clock"))
    (tmp_path / "note.yaml").write_text("hello: world\n", encoding="utf-8")
    outcome = kernelfit("check", tmp_path)
    assert outcome.code == 1
    assert outcome.err == ""
    lines = outcome.out.splitlines()
    assert lines[:-1] == sorted(lines[:-1])
    assert any("bad.yaml:" in line and "GB/s" in line for line in lines)
    assert any("run.yaml:8:" in line and "'clock'" in line for line in lines)
    assert any("note.yaml: states no kind" in line for line in lines)
    assert lines[-1] == "1 fine, 3 with problems"
    said = kernelfit("check", tmp_path, "--json")
    assert said.code == 1
    assert len(said.json()["problems"]) == len(lines) - 1


def test_a_kernel_and_a_config_are_checked_by_their_contents(tmp_path: Path) -> None:
    write_kernel(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "llama"}', encoding="utf-8")
    outcome = kernelfit("check", tmp_path)
    assert outcome.code == 1
    assert "config.json" in outcome.out
    assert outcome.out.splitlines()[-1] == "1 fine, 1 with problems"


@pytest.mark.parametrize("verb", ["check", "digest"])
def test_what_is_not_there_is_bad_input(verb: str, tmp_path: Path) -> None:
    missing = kernelfit(verb, tmp_path / "none.json")
    empty = kernelfit(verb, tmp_path)
    assert (missing.code, empty.code) == (2, 2)
    assert "none.json: no such file or folder" in missing.err
    assert "holds no document" in empty.err


def test_digest_of_a_kernel_is_its_own(tmp_path: Path) -> None:
    path = write_kernel(tmp_path)
    outcome = kernelfit("digest", path)
    assert outcome.code == 0
    stated, name = outcome.out.split()
    assert stated.startswith("sha256:")
    assert name == str(path)
    assert f'"digest": "{stated}"' in path.read_text(encoding="utf-8")


def test_env_names_what_a_report_of_a_problem_needs() -> None:
    said = kernelfit("env", "--json").json()
    assert said["kernelfit"] == __version__
    assert said["python"] == ".".join(str(part) for part in sys.version_info[:3])
    assert all(said["libraries"].values())
    text = kernelfit("env").out
    assert f"numpy           {said['libraries']['numpy']}" in text
