"""Options from a file and from the environment: who wins, and what a mistake says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.kernels import write_kernel
from tests.cli.run import kernelfit


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty folder that holds a kernel and a batch."""
    monkeypatch.chdir(tmp_path)
    write_kernel(tmp_path)
    (tmp_path / "batches.jsonl").write_text('{"requests": [[1, 5, 5]]}\n', encoding="utf-8")
    return tmp_path


def level(*words: str) -> float | None:
    """Return the level that ``predict`` used."""
    outcome = kernelfit("predict", "kernel.json", "batches.jsonl", *words)
    assert (outcome.code, outcome.err) == (0, "")
    found = json.loads(outcome.out).get("level")
    return None if found is None else float(found)


def test_flag_over_variable_over_file_over_default(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert level() is None
    (here / "pyproject.toml").write_text("[tool.kernelfit]\nlevel = 0.4\n", encoding="utf-8")
    assert level() == 0.4
    (here / "kernelfit.toml").write_text("level = 0.5\n", encoding="utf-8")
    assert level() == 0.5
    (here / "kernelfit.toml").write_text("level = 0.5\n[predict]\nlevel = 0.6\n")
    assert level() == 0.6
    monkeypatch.setenv("KERNELFIT_PREDICT_LEVEL", "0.7")
    assert level() == 0.7
    assert level("--level", "0.8") == 0.8


def test_env_shows_each_value_with_its_origin(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert kernelfit("env", "--json").json()["settings"] == []
    (here / "kernelfit.toml").write_text(
        "# what we always want\nseed = 7\n\n[fit]\nmax-rejected = 3\n[predict]\nlevel = 0.5\n",
        encoding="utf-8",
    )
    monkeypatch.setenv("KERNELFIT_PREDICT_LEVEL", "0.9")
    monkeypatch.setenv("KERNELFIT_PREDICT_LEVLE", "0.9")
    monkeypatch.setenv("KERNELFIT_TRACE_DIR", "traces")
    outcome = kernelfit("env", "--json")
    found = {(s["verb"], s["option"]): s for s in outcome.json()["settings"]}
    assert found["fit", "seed"]["origin"] == "kernelfit.toml:2"
    assert found["fit", "max_rejected"]["origin"] == "kernelfit.toml:5"
    assert found["predict", "level"]["origin"] == "KERNELFIT_PREDICT_LEVEL"
    assert found["predict", "level"]["value"] == "0.9"
    assert outcome.json()["unknown_variables"] == ["KERNELFIT_PREDICT_LEVLE"]
    words = kernelfit("env")
    assert "--max-rejected" in words.out
    assert "KERNELFIT_PREDICT_LEVLE sets no option of any verb" in words.err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[fti]\nseed = 1\n", "kernelfit.toml:1:1: no verb is called fti; allowed "),
        ("[fit]\nsede = 1\n", "did you mean seed?"),
        ("\nsede = 1\n", "kernelfit.toml:2:1: no option is called sede"),
        ("[fit]\n\ndraws = 3\n", "kernelfit.toml:3: fit: draws: Input should be greater"),
        ("[fit]\ndraws = 'x'\n", "(got 'x')"),
        ("[fit\n", "kernelfit.toml:1:5: is no TOML: "),
    ],
)
def test_a_mistake_in_the_file_has_its_place(here: Path, text: str, said: str) -> None:
    (here / "kernelfit.toml").write_text(text, encoding="utf-8")
    outcome = kernelfit("predict", "kernel.json", "batches.jsonl")
    assert (outcome.code, outcome.out) == (2, "")
    assert said in outcome.err
    assert len(outcome.err.splitlines()) == 1


def test_all_mistakes_of_the_file_at_once(here: Path) -> None:
    (here / "kernelfit.toml").write_text("[fit]\nsede = 1\ndraws = 3\n[fti]\n", encoding="utf-8")
    lines = kernelfit("env").err.splitlines()
    assert [line.split(":")[1] for line in lines] == ["2", "3", "4"]


def test_a_foreign_pyproject_says_nothing(here: Path) -> None:
    (here / "pyproject.toml").write_text("[tool.other]\nlevel = 0.4\n", encoding="utf-8")
    assert level() is None
