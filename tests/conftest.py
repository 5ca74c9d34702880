"""Options of the whole test run."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

# No deadline: the machine may be busy. Under CI every run tries the same examples.
settings.register_profile("house", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, database=None)
settings.load_profile("ci" if os.environ.get("CI") else "house")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--update-golden``."""
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="write what was found into tests/golden/ instead of only comparing; review the diff",
    )
