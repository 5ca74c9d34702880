"""Comparing what a command says with the files in ``tests/golden/cli``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.run import GOLDEN


def check_words(
    name: str, text: str, request: pytest.FixtureRequest, places: dict[str, Path] | None = None
) -> None:
    """Compare a text, folders of this run written as words, or keep it with --update-golden."""
    for word, folder in (places or {}).items():
        text = text.replace(str(folder), word)
    path = GOLDEN / name
    if request.config.getoption("--update-golden"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")
