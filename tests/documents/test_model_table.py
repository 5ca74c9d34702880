"""The page of models is what the documents say."""

from __future__ import annotations

from kernelfit.documents.model_table import model_table
from tests.documents.helpers import CALIB, ROOT


def test_the_page_is_up_to_date() -> None:
    page = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")
    assert page == model_table(CALIB / "models")


def test_a_row_says_counted_and_published() -> None:
    rows = {
        row.split(" | ")[0].removeprefix("| "): row
        for row in model_table(CALIB / "models").splitlines()
        if row.startswith("| ")
    }
    assert "| 671.026 B | 671 B |" in rows["DeepSeek-V3"]
    assert "| 70,272 | 70,272 |" in rows["DeepSeek-V3"]
    assert "| 5.133 B | 5.13 B |" in rows["gpt-oss-120b"]
    assert "8,030,261,248" in rows["Llama-3.1-8B"]
    assert not [name for name in rows if name.startswith("kf-")]
