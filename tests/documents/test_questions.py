from __future__ import annotations

from pathlib import Path

import pytest

from kernelfit.documents.questions import Question, load_question_document, load_questions
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


SECOND = """\
kind: Questions
schema_version: 2
name: two
candidates:
  - gpu: [H100-SXM]
    model: [Llama-3.1-8B]
    tp: [1, 2]
    expert_parallel: [false, true]
    settings: {max_num_seqs: 128}
prices_per_gpu_hour: {H100-SXM: 2.5}
questions:
  - prompt_tokens: [1024]
    output_tokens: [256, 512]
    prefix_hit_share: [0.25]
    concurrency: [8]
    rate_per_s: [2.0]
    target_s: [0.05]
    first_token_target_s: [1.0]
    percentile: 0.99
    objective: cost_per_token
    transfer: nic
  - context_tokens: [2048]
    target_s: [0.1]
"""


def test_the_second_version_states_pools_prompts_and_objectives(tmp_path: Path) -> None:
    found = load_question_document(written(tmp_path, SECOND))
    assert [(q.context_tokens, q.output_tokens) for q in found.questions] == [
        (1024 + 127, 256),
        (1024 + 255, 512),
        (2048, 0),
    ]
    first = found.questions[0]
    assert first.prices_per_gpu_hour == (("H100-SXM", 2.5),)
    assert (first.objective, first.transfer, first.percentile) == ("cost_per_token", "nic", 0.99)
    widths = [(c.pool.tp, c.pool.enable_expert_parallel) for c in found.candidates]
    assert widths == [(1, False), (1, True), (2, False), (2, True)]
    assert {c.pool.max_num_seqs for c in found.candidates} == {128}
    # Every old file still reads, and means the same in the new version.
    new = changed(GOOD, "schema_version: 1", "schema_version: 2")
    assert load_questions(written(tmp_path, new)) == load_questions(written(tmp_path, GOOD))


@pytest.mark.parametrize(
    ("old", "new", "at", "words"),
    [
        ("schema_version: 2", "schema_version: 1", "percentile", "percentile is not part of"),
        ("[256, 512]", "[1, 512]", "1, 512", "is out of range (got 1); allowed at least 2"),
        ("    output_tokens: [256, 512]\n", "", "prompt", "required key output_tokens is missing"),
        ("[0.25]", "[25]", "25]", "is out of range (got 25); allowed at most 1"),
        ("[0.25]", "[0.25, 0.25]", "0.25]\n    conc", "prefix_hit_share repeats a value"),
        ("0.99", "99", "99\n", "percentile is out of range (got 99); allowed below 1"),
        ("cost_per_token", "cheapest", "cheapest", "is not in the vocabulary (got 'cheapest')"),
        (
            "prices_per_gpu_hour: {H100-SXM: 2.5}\n",
            "",
            "cost_per_token",
            "cost_per_token needs prices_per_gpu_hour",
        ),
        ("{H100-SXM: 2.5}", "{H100-SXM: 0}", "0}", "is out of range (got 0); allowed above 0"),
        ("[2048]", "[2048]\n    rate_per_s: [3.5]", "[3.5]", "rate_per_s needs prompt_tokens"),
        (
            "[2048]",
            "[2048]\n    prompt_tokens: [1]",
            "[2048]",
            "context_tokens stands beside prompt_tokens",
        ),
        ("    target_s: [0.1]\n", "", "context", "required key target_s is missing"),
        ("{max_num_seqs: 128}", "{tp: 2}", "2}", "settings.tp is stated beside the list tp"),
        ("[1, 2]\n    exp", "[1, 1]\n    exp", "1]\n    exp", "tp repeats a value (got 1)"),
        ("nic\n", "wire\n", "wire", "is not in the vocabulary (got 'wire')"),
    ],
)
def test_one_change_of_the_second_version_is_refused_where_it_stands(
    tmp_path: Path, old: str, new: str, at: str, words: str
) -> None:
    text = changed(SECOND, old, new)
    path = written(tmp_path, text)
    hits = [p for p in problems_of(load_question_document, path) if words in p.render()]
    assert len(hits) == 1, [p.render() for p in problems_of(load_question_document, path)]
    assert (hits[0].line, hits[0].column) == place_in(text, at)


@pytest.mark.parametrize(("stated", "good"), [("concurrency: [8]", True), ("pools: [tp1]", False)])
def test_the_fewest_gpus_are_for_something(tmp_path: Path, stated: str, good: bool) -> None:
    text = (
        "kind: Questions\nschema_version: 2\nname: few\nquestions:\n"
        f"  - {{context_tokens: [64], target_s: [1], objective: fewest_gpus, {stated}}}\n"
    )
    path = written(tmp_path, text)
    if good:
        assert load_questions(path)[0].concurrency == (8,)
    else:
        (problem,) = problems_of(load_questions, path)
        assert "fewest_gpus needs concurrency or rate_per_s" in problem.render()
