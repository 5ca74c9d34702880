"""Reports that several files of tests look at, drawn once."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelfit.report.write import write_report
from tests.report.rich import rich_result
from tests.report.samples import bad_result, small_result

RESULTS = {"good": small_result, "bad": bad_result, "rich": rich_result}


@pytest.fixture(scope="session")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Every kind of report, written once."""
    folder = tmp_path_factory.mktemp("report")
    for name, result in RESULTS.items():
        written = write_report(result(), "H100-SXM", folder / name)
        assert written[0] == folder / name / "index.html"
        assert sorted(written) == sorted((folder / name).iterdir())
    return {name: folder / name for name in RESULTS}
