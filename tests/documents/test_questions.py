from __future__ import annotations

from pathlib import Path

import pytest

from kernelfit.documents.questions import Question, load_questions
from tests.documents.helpers import CALIB, changed, place_in, problems_of, written

GOOD = """\
kind: Questions
schema_version: 1
name: two
questions:
  - context_tokens: [256, 1024]
    concurrency: [1, 8]
    target_s: [0.05, 0.1]
  - model: Qwen3-32B
    pools: [tp2, tp4]
    context_tokens: [4096]
    target_s: [2]
"""


def test_one_question_per_context_and_target(tmp_path: Path) -> None:
    questions = load_questions(written(tmp_path, GOOD))
    assert questions == (
        Question(256, 0.05, (1, 8)),
        Question(256, 0.1, (1, 8)),
        Question(1024, 0.05, (1, 8)),
        Question(1024, 0.1, (1, 8)),
        Question(4096, 2.0, (), "Qwen3-32B", ("tp2", "tp4")),
    )


@pytest.mark.parametrize(
    ("old", "new", "at", "words"),
    [
        ("[0.05, 0.1]", "[50, 0.1]", "50, ", "is out of range (got 50); allowed at most 10"),
        ("[0.05, 0.1]", "[0, 0.1]", "0, 0.1", "is out of range (got 0); allowed above 0"),
        ("[0.05, 0.1]", "[.nan, 0.1]", ".nan", "allowed a finite number"),
        ("[0.05, 0.1]", "[50 ms, 0.1]", "50 ms", "allowed a number"),
        ("[0.05, 0.1]", "[0.1, 0.1]", "0.1]", "target_s repeats a value (got 0.1)"),
        ("[1, 8]", "[8, 8]", "8]", "concurrency repeats a value (got 8)"),
        ("[1, 8]", "[0, 8]", "0, 8", "is out of range (got 0); allowed at least 1"),
        ("[1, 8]", "8", "8\n    target_s: [0.05", "concurrency has the wrong type"),
        ("[256, 1024]", "[]", "[]", "context_tokens is empty"),
        ("[256, 1024]", "[-256, 1024]", "-256", "is out of range"),
        ("concurrency", "concurency", "concurency", "did you mean concurrency?"),
        ("    target_s: [2]\n", "", "model", "required key target_s is missing"),
        (GOOD[GOOD.index("questions:") :], "questions: []\n", "[]", "questions is empty"),
    ],
)
def test_one_change_is_refused_where_it_stands(
    tmp_path: Path, old: str, new: str, at: str, words: str
) -> None:
    text = changed(GOOD, old, new)
    hits = [p for p in problems_of(load_questions, written(tmp_path, text)) if words in p.render()]
    assert len(hits) == 1, [p.render() for p in hits]
    assert (hits[0].line, hits[0].column) == place_in(text, at)


@pytest.mark.parametrize("path", sorted((CALIB / "questions").glob("*.yaml")), ids=lambda p: p.stem)
def test_a_document_of_the_project(path: Path) -> None:
    assert load_questions(path)
