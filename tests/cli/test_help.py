"""Help, usage and start-up: what a newcomer sees first."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from tests.cli.run import GOLDEN, VERBS, kernelfit

HEAVY = ("matplotlib", "numpy", "pandas", "pyarrow", "ruamel", "scipy", "sklearn", "msgspec")


@pytest.fixture(autouse=True)
def _width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


@pytest.mark.parametrize("verb", ["", *VERBS])
def test_help_is_what_was_reviewed(verb: str, request: pytest.FixtureRequest) -> None:
    outcome = kernelfit(*([verb] if verb else []), "--help")
    assert outcome.code == 0
    assert outcome.err == ""
    golden = GOLDEN / f"help-{verb or 'kernelfit'}.txt"
    if request.config.getoption("--update-golden"):
        golden.write_text(outcome.out, encoding="utf-8")
    assert outcome.out == golden.read_text(encoding="utf-8")


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_shows_an_example_first_and_takes_json(verb: str) -> None:
    text = kernelfit(verb, "--help").out
    example, options = text.index(f"\n    kernelfit {verb}"), text.index("Options:")
    assert example < options
    assert "--json" in text[options:]
    assert text.isascii()


def test_the_root_names_every_verb_and_no_other() -> None:
    listed = kernelfit("--help").out.partition("Commands:\n")[2].splitlines()
    names = [line.split()[0] for line in listed if line.startswith("  ") and line[2] != " "]
    assert sorted(names) == sorted(VERBS)


def test_a_mistyped_verb_gets_a_suggestion() -> None:
    outcome = kernelfit("vaildate", "x")
    assert outcome.code == 2
    assert outcome.out == ""
    assert "Did you mean 'validate'?" in outcome.err


@pytest.mark.parametrize(
    "words", [["fit"], ["fit", "--no-such-option", "x"], ["fit", "x", "--tp", "zero"], ["explain"]]
)
@pytest.mark.parametrize("json", [[], ["--json"]])
def test_bad_usage_is_two_and_leaves_standard_output_empty(
    words: list[str], json: list[str]
) -> None:
    outcome = kernelfit(*words, *json)
    assert outcome.code == 2
    assert outcome.out == ""
    assert "Traceback" not in outcome.err
    assert outcome.err


def test_version() -> None:
    outcome = kernelfit("--version")
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.startswith("kernelfit 0.")


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys\nfrom kernelfit.cli.main import main\nassert main(['--help']) == 0\n"
        f"print(sorted(m for m in {HEAVY!r} if m in sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"


@pytest.mark.slow
def test_help_is_quick() -> None:
    times = []
    for _ in range(10):
        begin = time.perf_counter()
        subprocess.run([sys.executable, "-m", "kernelfit.cli.main", "--help"], capture_output=True)
        times.append(time.perf_counter() - begin)
    # The best of ten: what the program needs, whatever else the machine does.
    assert min(times) < 0.2
