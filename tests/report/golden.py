"""Comparing with the files in ``tests/golden/report``."""

from __future__ import annotations

from pathlib import Path

import pytest

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "report"


def check_golden(name: str, text: str, request: pytest.FixtureRequest) -> None:
    """Compare a text with its golden file, or write it with ``--update-golden``."""
    path = GOLDEN / name
    if request.config.getoption("--update-golden"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")
