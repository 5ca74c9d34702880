"""``docs/store.md``: its tables are the schemas, and its examples run."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kernelfit.store.ingest import ingest_paths
from kernelfit.store.page import BEGIN, END, column_tables
from tests.store.test_scale import busy

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "store.md"
EXAMPLE = re.compile(r"```python\n(.*?)```", re.DOTALL)
PRINTED = re.compile(r"print\(.*\)  # (.*)")


def test_the_tables_are_those_of_the_schemas(request: pytest.FixtureRequest) -> None:
    text = PAGE.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    wanted = f"{before}{BEGIN}\n{column_tables()}{END}{after}"
    if request.config.getoption("--update-golden"):
        PAGE.write_text(wanted, encoding="utf-8")
    assert text == wanted


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    for number in range(2):
        busy(300, number).write(folder / "logs" / f"run-{number}")
    out = folder / ".kernelfit" / "store"
    ingest_paths([folder / "logs"], out, calib=ROOT / "calib")
    return folder


@pytest.mark.parametrize("number", range(4))
def test_the_examples_run_and_print_what_they_say(store: Path, number: int) -> None:
    examples = EXAMPLE.findall(PAGE.read_text(encoding="utf-8"))
    assert len(examples) == 4
    code = examples[number]
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=store, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    said = PRINTED.findall(code)
    assert said
    assert done.stdout.splitlines() == said


def test_the_program_is_there() -> None:
    assert shutil.which("kernelfit", path=str(Path(sys.executable).parent))
