"""What the tests of the documents share: a file written, and the problems of reading it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernelfit.documents.problems import InputError, Problem

ROOT = Path(__file__).resolve().parents[2]
CALIB = ROOT / "calib"
SHARED = ROOT.parent / "shared"


def written(folder: Path, text: str, name: str = "doc.yaml") -> Path:
    """Write a file and return its path."""
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def problems_of(read: Callable[..., Any], *args: Any, **words: Any) -> tuple[Problem, ...]:
    """Return the problems that reading something gives; fail when it gives none."""
    with pytest.raises(InputError) as caught:
        read(*args, **words)
    return caught.value.problems


def one_problem(read: Callable[..., Any], *args: Any, **words: Any) -> Problem:
    """Return the only problem that reading something gives."""
    problems = problems_of(read, *args, **words)
    assert len(problems) == 1, [problem.render() for problem in problems]
    return problems[0]


def changed(text: str, old: str, new: str) -> str:
    """Replace a part that stands exactly once in a text."""
    assert text.count(old) == 1, f"{old!r} stands {text.count(old)} times"
    return text.replace(old, new)


def place_in(text: str, part: str) -> tuple[int, int]:
    """Return line and column (from 1) of the first occurrence of a part."""
    at = text.index(part)
    return text.count("\n", 0, at) + 1, at - (text.rfind("\n", 0, at) + 1) + 1
