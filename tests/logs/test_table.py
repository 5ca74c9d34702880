from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelfit.documents.problems import InputError
from kernelfit.documents.runs import load_run
from kernelfit.kernel.batch import RequestShape
from kernelfit.kernel.totals import BatchTotals
from kernelfit.logs.columns import UNKNOWN, ParsedRun
from kernelfit.logs.marks import mark_names
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
timing: {timing}
columns:
  duration_s: {{column: took, unit: ms}}
"""
AGGREGATED = {
    "decode_requests": "nd",
    "decode_context_tokens": "cd",
    "prefill_requests": "np",
    "prefill_tokens": "sp",
    "prefill_computed_tokens": "cp",
}
UNITS = {"decode_requests": "count", "prefill_requests": "count", "requests": "count"}
UNITS |= {"step": "count", "kv_usage": "percent", "start_s": "s"}
LISTS = {"scheduled": "s", "computed": "c", "prompt_len": "p", "cached": "h"}


def document(folder: Path, columns: dict[str, str], timing: str = "step") -> Path:
    path = folder / "run.yaml"
    path.write_text(
        HEAD.format(timing=timing)
        + "".join(
            f"  {name}: {{column: {column}, unit: {UNITS.get(name, 'tokens')}}}\n"
            for name, column in columns.items()
        )
    )
    return path


def read(path: Path, columns: dict[str, str], timing: str = "step") -> ParsedRun:
    where = document(path.parent, columns, timing)
    (run,) = TableReader().read(RunSource(path, where, "table", path.name, "t"), load_run(where))
    assert adds_up(run)
    return run


def csv(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "steps.csv"
    path.write_text(text)
    return path


def test_aggregates_by_hand(tmp_path: Path) -> None:
    run = read(
        csv(tmp_path, "took,nd,cd,np,sp,cp\n2.5,3,30,1,4,6\n1,2,8,0,0,0\n4,0,0,1,5,0\n"),
        AGGREGATED,
    )
    steps = run.steps
    np.testing.assert_allclose(steps.duration_s, [2.5e-3, 1e-3, 4e-3])
    assert steps.requests.tolist() == [4, 2, 1]
    assert steps.scheduled_tokens.tolist() == [7, 2, 5]
    # Decode tokens are added to what stood in the KV before the step.
    assert steps.decode_context_tokens.tolist() == [33, 10, 0]
    assert steps.decode_pairs.tolist() == [33, 10, 0]
    # One chunk of 4 after 6: its tokens see 7, 8, 9 and 10 keys.
    assert steps.prefill_pairs.tolist() == [34, 0, 15]
    assert steps.prefill_context_tokens.tolist() == [10, 0, 5]
    assert steps.context_tokens.tolist() == [43, 10, 5]
    assert steps.phases() == ("mixed", "decode", "prefill")
    assert steps.marks.tolist() == [0, 0, 0]
    assert run.composition == "aggregated"
    assert (run.counts.lines, run.counts.recognised) == (4, 1)


@given(
    st.lists(st.integers(0, 5000), min_size=0, max_size=6),
    st.integers(1, 6),
    st.integers(1, 3000),
    st.integers(0, 3000),
)
@settings(max_examples=60, deadline=None)
def test_aggregates_of_equal_prefills_are_exact(
    tmp_path_factory: pytest.TempPathFactory, decodes: list[int], n: int, s: int, c: int
) -> None:
    shapes = [RequestShape(1, d, max(d, 1)) for d in decodes]
    shapes += [RequestShape(s, c, c + s + 1)] * n
    want = BatchTotals.of(shapes)
    row = f"1,{len(decodes)},{sum(decodes)},{n},{n * s},{n * c}"
    folder = tmp_path_factory.mktemp("t")
    steps = read(csv(folder, f"took,nd,cd,np,sp,cp\n{row}\n"), AGGREGATED).steps
    for name in (
        "requests",
        "decode_requests",
        "decode_context_tokens",
        "decode_pairs",
        "prefill_context_tokens",
        "prefill_pairs",
    ):
        assert getattr(steps, name)[0] == getattr(want, name), name
    approximated = mark_names(int(steps.marks[0])) == ("pairs_approximated",)
    # Several chunks of more than one token could have been unequal.
    assert approximated is (n > 1 and s > 1)


def test_unequal_prefills_are_marked_and_underestimated(tmp_path: Path) -> None:
    # Chunks of 2 and 6 without context: 3 + 21 pairs; an equal split says 2 * 10.
    steps = read(csv(tmp_path, "took,nd,cd,np,sp,cp\n1,0,0,2,8,0\n"), AGGREGATED).steps
    assert steps.prefill_pairs.tolist() == [20]
    assert mark_names(int(steps.marks[0])) == ("pairs_approximated",)


def test_two_of_three_give_the_third(tmp_path: Path) -> None:
    path = csv(tmp_path, "took,n,nd,all\n1,5,3,103\n1,3,3,3\n1,2,3,9\n1,4,3,2\n")
    columns = {"requests": "n", "decode_requests": "nd", "scheduled_tokens": "all"}
    run = read(path, columns)
    assert run.steps.in_prompt_requests.tolist() == [2, 0]
    assert run.steps.in_prompt_tokens.tolist() == [100, 0]
    assert run.steps.context_tokens.tolist() == [UNKNOWN, UNKNOWN]
    assert [(r.line, r.reason) for r in run.rejects] == [
        (4, "decode_requests exceeds requests"),
        (5, "decode_requests exceed scheduled_tokens"),
    ]


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_lists_of_requests(tmp_path: Path, kind: str) -> None:
    data = {
        "took": [1.0, 2.0],
        "s": [[1, 40], [7]],
        "c": [[101, 32], [None]],
        "p": [[100, 72], [7]],
        "h": [[0, 32], [0]],
    }
    if kind == "parquet":
        path = tmp_path / "steps.parquet"
        pq.write_table(pa.table(data), path)
    else:
        path = csv(tmp_path, 'took,s,c,p,h\n1,"[1, 40]",101;32,"100,72",(0 32)\n2,7,3,7,0\n')
    run = read(path, LISTS)
    steps = run.steps
    want = BatchTotals.of([RequestShape(1, 101, 100), RequestShape(40, 32, 72)])
    assert steps.decode_pairs[0] == want.decode_pairs
    assert steps.prefill_pairs[0] == want.prefill_pairs
    assert steps.phases()[0] == "mixed"
    assert run.requests.step.tolist() == [0, 0, 1]
    assert run.requests.cached.tolist() == [0, 32, 0]
    assert run.composition == "per_request"
    if kind == "parquet":
        assert steps.context_tokens[1] == UNKNOWN
        assert run.requests.computed.tolist() == [101, 32, UNKNOWN]


def test_units_and_the_optional_columns(tmp_path: Path) -> None:
    path = csv(tmp_path, "took,nd,i,t,kv\n2,1,7,0.5,40\n3,1,9,,\n")
    columns = {"decode_requests": "nd", "step": "i", "start_s": "t", "kv_usage": "kv"}
    steps = read(path, columns).steps
    assert steps.step.tolist() == [7, 9]
    np.testing.assert_allclose(steps.start_s, [0.5, np.nan])
    np.testing.assert_allclose(steps.kv_usage, [0.4, np.nan])
    np.testing.assert_allclose(steps.duration_s, [2e-3, 3e-3])


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("nan,1,1,0,0,0", "duration_s is not a finite number"),
        ("inf,1,1,0,0,0", "duration_s is not a finite number"),
        ("-1,1,1,0,0,0", "duration_s is negative"),
        ("fast,1,1,0,0,0", "duration_s is not a number"),
        (",1,1,0,0,0", "duration_s is missing"),
        ("1,-1,1,0,0,0", "decode_requests is negative"),
        ("1,1.5,1,0,0,0", "decode_requests is not a whole number"),
        ("1,1,,0,0,0", "decode_context_tokens is missing"),
        ("1,1,1,0,5,0", "prefill tokens without a prefill request"),
        ("1,1,1,6,5,0", "each prefill request schedules at least one token"),
        ("1,1,1,0,0", "5 fields where the header has 6"),
        ("1,1,1e300,0,0,0", "decode_context_tokens is out of range"),
    ],
)
def test_a_bad_row_is_rejected_with_its_line(tmp_path: Path, row: str, reason: str) -> None:
    run = read(
        csv(tmp_path, f"took,nd,cd,np,sp,cp\n1,1,1,0,0,0\n\n{row}\n2,1,1,0,0,0\n"), AGGREGATED
    )
    np.testing.assert_allclose(run.steps.duration_s, [1e-3, 2e-3])
    (reject,) = run.rejects
    assert reason in reject.reason
    assert (reject.file, reject.line) == ("steps.csv", 4)
    # The header and the blank line.
    assert run.counts.recognised == 2


def test_idle_rows_are_recognised_and_zero_durations_marked(tmp_path: Path) -> None:
    run = read(csv(tmp_path, "took,nd,cd,np,sp,cp\n1,0,0,0,0,0\n0,1,1,0,0,0\n"), AGGREGATED)
    assert run.counts.recognised == 2
    assert mark_names(int(run.steps.marks[0])) == ("zero_duration",)


@pytest.mark.parametrize("timing", ["wait", "dispatch"])
def test_parts_of_a_step_are_refused_for_fitting(tmp_path: Path, timing: str) -> None:
    path = csv(tmp_path, "took,nd\n1,1\n")
    assert timing in str(read(path, {"decode_requests": "nd"}, timing).fit_refused_reason)
    assert read(path, {"decode_requests": "nd"}, "cycle").fit_refused_reason is None


@pytest.mark.parametrize(
    ("text", "columns", "message"),
    [
        ("", AGGREGATED, "the table is empty"),
        ("took,nd,cd,np,sp\n", AGGREGATED, "no column cp.*allowed took, nd, cd, np, sp"),
        ("took,nd\n", {"decode_requests": "nd"}, "holds no row"),
        ("took,all\n1,5\n", {"scheduled_tokens": "all"}, "prefill requests"),
        ("took,s\n1,5\n", {"prefill_tokens": "s"}, "prefill requests"),
        (
            "took,n,all\n1,2,5\n",
            {"requests": "n", "scheduled_tokens": "all"},
            "does not say what the step was",
        ),
    ],
)
def test_tables_that_cannot_be_read(
    tmp_path: Path, text: str, columns: dict[str, str], message: str
) -> None:
    path = csv(tmp_path, text)
    with pytest.raises(InputError, match=message) as caught:
        read(path, columns)
    assert "steps.csv" in str(caught.value)


def test_damaged_files_are_said_to_be(tmp_path: Path) -> None:
    path = tmp_path / "steps.parquet"
    path.write_bytes(b"PAR1 is not enough")
    with pytest.raises(InputError, match="cannot be read"):
        read(path, AGGREGATED)
    path = tmp_path / "steps.csv.gz"
    rng = np.random.default_rng(1)
    rows = "".join(f"{v}\n" for v in rng.random(5000))
    path.write_bytes(gzip.compress(f"took\n{rows}".encode())[:2000])
    with pytest.raises(InputError, match=r"cannot be read|no column"):
        read(path, AGGREGATED)


cell = st.one_of(
    st.sampled_from(["1", "-1", "", "nan", "1e400", "[1,2]", '"', "x", "9" * 400, "é", "0x1"]),
    st.text(alphabet="0123456789.,-e[] ;", max_size=6),
)


@given(st.lists(st.lists(cell, min_size=3, max_size=3).map(",".join), max_size=8), st.booleans())
@settings(max_examples=150, deadline=None)
def test_no_row_crashes_and_none_is_lost(
    tmp_path_factory: pytest.TempPathFactory, rows: list[str], lists: bool
) -> None:
    folder = tmp_path_factory.mktemp("fuzz")
    columns = {"scheduled": "s", "computed": "c"} if lists else {"decode_requests": "s"}
    path = csv(folder, "took,s,c\n1,1,1\n" + "".join(f"{row}\n" for row in rows))
    try:
        run = read(path, columns)
    except InputError:
        return
    # An open quote swallows the lines after it, and nothing else does.
    if '"' not in "".join(rows):
        assert run.counts.lines == 2 + len(rows)
