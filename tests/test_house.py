"""The rules of the house that no linter knows."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LONGEST_FILE_LINES = 400
TEXT = {".cfg", ".html", ".json", ".jsonl", ".md", ".py", ".toml", ".txt", ".yaml", ".yml", ".j2"}
# A folder of one machine, in a string or a sentence; a URL's path does not match.
MACHINE_PATH = re.compile(r"(?<![\w.:/-])/(?:home|root|work|tmp|opt|Users|mnt|srv|var)/\w")


def _tracked() -> tuple[Path, ...]:
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode != 0:
        pytest.skip("not a git checkout, so there is no list of the project's own files")
    paths = tuple(ROOT / name for name in listed.stdout.split("\0") if name)
    return tuple(path for path in paths if path.is_file())


def test_no_python_file_is_too_long() -> None:
    lengths = {
        str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines())
        for path in _tracked()
        if path.suffix == ".py"
    }
    assert len(lengths) >= 10
    assert {name: n for name, n in lengths.items() if n >= LONGEST_FILE_LINES} == {}


def test_no_path_of_one_machine() -> None:
    found = []
    checked = 0
    for path in _tracked():
        if path.suffix not in TEXT and path.name not in {"Makefile", "run", "requirements.lock"}:
            continue
        checked += 1
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if MACHINE_PATH.search(line):
                found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()[:120]}")
    assert checked >= 10
    assert found == []


@pytest.mark.parametrize(
    ("text", "hit"),
    [
        ("open('/" + "home/someone/x')", True),
        ("see https://example.org/home/page", False),
        ("ratio = a/tmp/b", False),
        ("in /" + "opt/tool/bin", True),
    ],
)
def test_the_pattern_of_a_machine_path(text: str, hit: bool) -> None:
    assert bool(MACHINE_PATH.search(text)) is hit


def test_imports_run_one_way() -> None:
    command = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run(
        [command, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 broken" in done.stdout


def test_the_lock_pins_by_hash_and_names_no_host() -> None:
    text = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    pins = re.findall(r"^([a-z0-9-]+)==\S+", text, re.MULTILINE)
    assert {"numpy", "scipy", "typer", "hatchling", "pytest"} <= set(pins)
    blocks = re.split(r"^(?=[a-z0-9-]+==)", text, flags=re.MULTILINE)[1:]
    assert [block.split()[0] for block in blocks if "--hash=sha256:" not in block] == []
    assert "//" not in text


def test_make_alone_lists_the_targets() -> None:
    done = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert {"fit", "test", "lint", "lock", "clean"} <= set(done.stdout.split())


@pytest.mark.slow
def test_the_wheel_carries_the_chips_and_the_plug_in(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (points,) = [name for name in names if name.endswith("entry_points.txt")]
        stated = archive.read(points).decode()
    chips = {path.name for path in (ROOT / "calib" / "chips").glob("*.yaml")}
    assert chips
    assert {Path(name).name for name in names if "_calib/chips/" in name} == chips
    assert "[vllm.general_plugins]" in stated
    assert "kernelfit = kernelfit.cli.main:main" in stated
    assert not [name for name in names if name.startswith(("tests", "traces"))]
