from __future__ import annotations

from pathlib import Path

import pytest

from kernelfit.documents.problems import InputError
from kernelfit.documents.runs import load_run, merge
from kernelfit.kernel.batch import RequestShape
from kernelfit.kernel.totals import BatchTotals
from kernelfit.logs.columns import ParsedRun
from kernelfit.logs.source import RunSource
from kernelfit.logs.table import TableReader
from tests.logs.recording import adds_up

HEAD = """\
kind: Run
schema_version: 1
gpu: h100-sxm
model: qwen3-8b
engine: other
reader: table
timing: step
columns:
  duration_s: {column: took, unit: ms}
"""
TOKEN = """\
where:
  card: big
  width: 4
uniform:
  requests: batch
  scheduled: 1
  computed: [prompt, {column: out, times: 0.5}]
  prompt_len: prompt
"""
TABLE = """\
card,width,batch,prompt,out,took
big,4,3,100,9,20
big,8,3,100,9,21
small,4,3,100,9,22
,4,3,100,9,23
big,4.0,2,50,8,24
big,wide,2,50,8,25
"""


def read(folder: Path, rest: str = TOKEN, table: str = TABLE) -> ParsedRun:
    where, path = folder / "run.yaml", folder / "t.csv"
    where.write_text(HEAD + rest)
    path.write_text(table)
    (run,) = TableReader().read(RunSource(path, where, "table", "t.csv", "t"), load_run(where))
    assert adds_up(run)
    return run


def test_rows_are_chosen_and_become_batches(tmp_path: Path) -> None:
    run = read(tmp_path)
    assert run.steps.duration_s.tolist() == [0.020, 0.024]
    assert run.composition == "per_request"
    # The header and the rows of other cells are known.
    assert (run.counts.recognised, run.counts.rejected) == (5, 0)
    # 100 + 9/2 tokens are 104 whole ones.
    for place, batch in enumerate(([RequestShape(1, 104, 100)] * 3, [RequestShape(1, 54, 50)] * 2)):
        totals = BatchTotals.of(batch)
        assert run.steps.requests[place] == totals.requests
        assert run.steps.decode_context_tokens[place] == totals.decode_context_tokens
    assert run.requests.computed.tolist() == [104] * 3 + [54] * 2
    assert run.requests.step.tolist() == [0, 0, 0, 4, 4]
    assert run.steps.phases() == ("decode", "decode")


def test_a_prompt_step(tmp_path: Path) -> None:
    rest = "uniform: {requests: batch, scheduled: prompt, computed: 0, cached: 0}\n"
    run = read(tmp_path, rest)
    assert run.steps.count == 6
    whole = BatchTotals.of([RequestShape(100, 0, 100)] * 3)
    assert run.steps.prefill_pairs[0] == whole.prefill_pairs
    # Nothing says how long the prompts are, so nothing says which phase it is.
    assert run.steps.phases()[0] is None


def test_rows_that_are_left_out_are_not_judged(tmp_path: Path) -> None:
    bad = TABLE.replace("big,8,3,100,9,21", "big,8,x,100,9,-21")
    assert read(tmp_path, table=bad).counts.rejected == 0
    run = read(tmp_path, table=TABLE.replace("big,4,3,100", "big,4,x,100"))
    assert [r.reason for r in run.rejects] == ["batch is no number, which requests needs"]
    run = read(tmp_path, table=TABLE.replace("big,4,3,100", "big,4,0,100"))
    assert [r.reason for r in run.rejects] == ["requests is out of range"]


def test_flags_leave_the_mapping_as_it_is(tmp_path: Path) -> None:
    read(tmp_path)
    facts = load_run(tmp_path / "run.yaml")
    flagged = merge(facts, {"tp": 2})
    assert (flagged.uniform, flagged.where) == (facts.uniform, facts.where)


@pytest.mark.parametrize(
    ("rest", "words"),
    [
        (TOKEN.replace("width: 4", "wide: 4"), "no column wide"),
        (TOKEN.replace("requests: batch", "requests: batches"), "no column batches"),
        (TOKEN.replace("  scheduled: 1\n", ""), "required key scheduled is missing"),
        (TOKEN.replace("times: 0.5", "over: 2"), "times"),
        (TOKEN.replace("prompt_len", "prompt_length"), "prompt_length"),
        ("  scheduled_tokens: {column: prompt, unit: tokens}\n" + TOKEN, "stands beside uniform"),
        ("where: {}\n" + TOKEN.partition("uniform")[1] + TOKEN.partition("uniform")[2], "where"),
        ("where: {card: big}\n", "a step had"),
    ],
)
def test_what_the_mapping_may_not_say(tmp_path: Path, rest: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        read(tmp_path, rest)


def test_only_tables_have_rows_to_choose(tmp_path: Path) -> None:
    where = tmp_path / "run.yaml"
    text = HEAD.partition("columns")[0].replace("reader: table", "reader: vllm-log")
    where.write_text(text.replace("timing: step", "timing: wait") + TOKEN)
    with pytest.raises(InputError) as caught:
        load_run(where)
    said = [problem.render() for problem in caught.value.problems]
    assert len(said) == 2
    assert all("only for the table reader" in one for one in said)
