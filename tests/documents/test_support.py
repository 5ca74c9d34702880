"""The page on what is priced says what the code does today."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kernelfit.documents.families import FAMILIES
from kernelfit.documents.support import page
from kernelfit.kernel.refusals import accepted

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def text() -> str:
    return page(ROOT / "calib")


def cells(text: str) -> list[list[str]]:
    return [
        [cell.strip() for cell in line.strip("|").split(" | ")]
        for line in text.splitlines()
        if line.startswith("| ")
    ]


def test_the_page_is_up_to_date(text: str) -> None:
    written = (ROOT / "docs" / "support.md").read_text(encoding="utf-8")
    assert written == text, "run: python -m kernelfit.documents.support > docs/support.md"


def test_every_model_and_family_stands_there(text: str) -> None:
    first = {row[0] for row in cells(text)}
    assert {path.stem for path in (ROOT / "calib" / "models").glob("*.yaml")} <= first
    assert set(FAMILIES) <= first


def test_what_is_called_accepted_is_priced_and_what_is_called_refused_is_not(text: str) -> None:
    answers = {
        (row[0], value): row[2]
        for row in cells(text)
        if len(row) == 3
        for value in row[1].split(", ")
    }
    checked = 0
    for choice in accepted():
        if choice.setting == "attention.kind":
            continue
        for value in choice.accepted:
            assert "refused" not in answers[choice.setting, value]
            checked += 1
        for value, reason in choice.refused:
            answer = answers[choice.setting, value.replace(">1", "2")]
            assert answer.startswith("refused: ")
            if choice.setting != "enable_dbo":
                assert reason in answer
            checked += 1
    assert checked >= 30


def test_facts_that_are_known_from_elsewhere(text: str) -> None:
    # 671e9 parameters in one byte each: eight GPUs of 80 GB hold 640 GB, four of 288 GB 1152.
    (deepseek,) = re.findall(r"^\| deepseek-v3 \|.*$", text, re.MULTILINE)
    assert "needs more than one node" in deepseek
    assert "fits from 4" in deepseek
    # Three does not divide the 32 query heads of Llama 3.1 8B; eight does.
    assert re.search(r"^\| tp=3 \| llama-3.1-8b \| refused: .*32 query heads", text, re.MULTILINE)
    assert re.search(r"^\| tp=8 \| all \| priced \|$", text, re.MULTILINE)
