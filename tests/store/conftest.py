from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernelfit.store.ingest import IngestReport, ingest_paths

CALIB = Path(__file__).resolve().parents[2] / "calib"
PARTS = (
    "chips/h100-sxm.yaml",
    "chips/l40s.yaml",
    "chips/a100-sxm-80gb.yaml",
    "models/qwen3-8b.yaml",
)


@pytest.fixture(scope="session")
def calib(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A few of the project's own documents: an ingestion then reads only those."""
    folder = tmp_path_factory.mktemp("calib")
    for part in PARTS:
        (folder / part).parent.mkdir(exist_ok=True)
        shutil.copy(CALIB / part, folder / part)
    return folder


@pytest.fixture(scope="session")
def ingest(calib: Path) -> Callable[..., IngestReport]:
    """Ingest paths with those documents."""

    def run(*paths: Path, out: Path, **more: Any) -> IngestReport:
        return ingest_paths(paths, out, calib=calib, **more)

    return run
