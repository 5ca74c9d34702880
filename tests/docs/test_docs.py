"""What the pages say can be done can be done: commands run, code runs, links lead somewhere."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kernelfit.cli.main import command_line
from kernelfit.cli.reference import pages

ROOT = Path(__file__).resolve().parents[2]
DOCS = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
EXECUTED = [ROOT / "docs" / "tutorial.md", *sorted((ROOT / "docs" / "how-to").glob("*.md"))]
FENCE = re.compile(r"^```(bash|python)\n(.*?)^```", re.MULTILINE | re.DOTALL)
# Pages that belong to rooms of their own and may come after the pages that link to them.
TO_COME = {"logs.md", "store.md", "flips.md", "plan.md", "host.md", "recording.md"}


def relative(path: Path) -> str:
    """Return a page's name for the list of tests."""
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("name", sorted(pages()))
def test_the_reference_is_what_the_code_says(name: str) -> None:
    path = ROOT / "docs" / "reference" / name
    assert path.read_text(encoding="utf-8") == pages()[name], (
        f"docs/reference/{name} is behind the code: run "
        "python -m kernelfit.cli.reference docs/reference"
    )


def test_the_reference_knows_every_verb_and_every_gate() -> None:
    from kernelfit.fit.gates import GATES

    found = pages()
    for verb in command_line().commands:
        assert f"\n## {verb}\n" in found["commands.md"]
    for gate in GATES:
        assert f"| `{gate.id}` |" in found["gates.md"]


@pytest.mark.parametrize("path", DOCS, ids=relative)
def test_links_lead_somewhere(path: Path) -> None:
    text = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
        if "://" not in target and Path(target).name not in TO_COME:
            assert (path.parent / target).exists(), f"{relative(path)} links to {target}"


def test_every_page_is_reached_from_the_index() -> None:
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    linked = {
        (ROOT / "docs" / target).resolve() for target in re.findall(r"\]\(([^)#\s]+)\)", index)
    }
    missing = [
        relative(path)
        for path in sorted((ROOT / "docs").rglob("*.md"))
        if path.name != "README.md"
        and path.parent.name != "exports"
        and path.name not in TO_COME
        and path.resolve() not in linked
    ]
    assert missing == []


@pytest.mark.parametrize("path", EXECUTED, ids=relative)
def test_commands_on_the_page_are_commands(path: Path) -> None:
    """Verbs and options exist, also those that only slow tests run."""
    group = command_line()
    checked = 0
    for kind, block in FENCE.findall(path.read_text(encoding="utf-8")):
        for line in block.splitlines() if kind == "bash" else ():
            words = shlex.split(line, comments=True)
            if not words or words[0] != "kernelfit":
                continue
            command = group.commands[words[1]]
            known = {flag for parameter in command.params for flag in parameter.opts}
            stated = {word.partition("=")[0] for word in words[2:] if word.startswith("--")}
            assert stated <= known, line
            checked += 1
    assert checked >= 1 or path.name == "library.md"


@pytest.mark.slow
@pytest.mark.parametrize("path", EXECUTED, ids=relative)
def test_the_page_runs_from_top_to_bottom(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("traces", "calib", "reports"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "work").mkdir()
    program = shlex.quote(sys.executable) + " -m kernelfit.cli.main"
    names: dict[str, object] = {}
    ran = 0
    for kind, block in FENCE.findall(path.read_text(encoding="utf-8")):
        if kind == "python":
            exec(compile(block, str(path), "exec"), names)
        else:
            script = f'set -eu\nkernelfit() {{ {program} "$@"; }}\n{block}'
            done = subprocess.run([shutil.which("bash") or "bash", "-c", script])
            assert done.returncode == 0, block
        ran += 1
    assert ran >= 1
