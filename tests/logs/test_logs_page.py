"""The page on logs is what the readers and fixtures say, and its example works."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.logs.page import FOOT, PAGE, page

ROOT = PAGE.parents[1]


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run: python -m tests.logs.page"


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A site folder in which a distribution with the page's reader is installed."""
    (example,) = re.findall(r"```python\n(import numpy.*?)```", FOOT, re.DOTALL)
    site = tmp_path / "site"
    (site / "my_package").mkdir(parents=True)
    (site / "my_package" / "__init__.py").write_text("")
    (site / "my_package" / "reader.py").write_text(example)
    info = site / "my_package-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-package\nVersion: 1.0\n")
    (info / "RECORD").write_text("")
    (points,) = re.findall(r"(my-engine = \"[^\"]+\")", FOOT)
    name, target = points.replace('"', "").split(" = ")
    (info / "entry_points.txt").write_text(f"[kernelfit.readers]\n{name} = {target}\n")
    return site


def ingest(site: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kernelfit.cli.main", "ingest", *arguments]
    kept = os.environ.get("PYTHONPATH")
    path = os.pathsep.join([str(site), str(ROOT), *([kept] if kept else [])])
    env = {**os.environ, "PYTHONPATH": path, "NO_COLOR": "1"}
    return subprocess.run(command, capture_output=True, text=True, env=env, cwd=ROOT, check=False)


def test_an_installed_distribution_adds_its_reader(installed: Path, tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    log.write_text("0 4 10.5\n1 4 11.5\nhello\n2 5 12.5\n")
    run = [str(log), "--gpu", "h100-sxm", "--model", "qwen3-8b", "--out", str(tmp_path / "store")]
    done = ingest(installed, *run, "--reader", "my-engine", "--json")
    assert done.returncode == 0, done.stderr
    (file,) = json.loads(done.stdout)["ingest"]
    assert (file["lines"], file["steps"], file["rejected"]) == (4, 3, 1)
    # The nearest neighbour: without the distribution the word is not known.
    other = ingest(tmp_path, *run, "--reader", "my-engine")
    assert other.returncode == 2
    assert "unknown reader" in other.stderr
    assert "Traceback" not in other.stderr
