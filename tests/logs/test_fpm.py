from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelfit.documents.problems import InputError
from kernelfit.kernel.batch import RequestShape
from kernelfit.kernel.totals import BatchTotals
from kernelfit.logs.columns import ParsedRun
from kernelfit.logs.discover import discover
from kernelfit.logs.fpm import DynamoFpmReader
from kernelfit.logs.marks import mark_names
from kernelfit.logs.source import RunSource
from tests.logs.recording import adds_up

NAMES = (
    "phase,workload_segment,counter_id,worker_id,dp_rank,sum_prefill_tokens,num_prefill_requests,"
    "sum_prefill_kv_tokens,var_prefill_length,num_decode_requests,sum_decode_kv_tokens,latency_ms"
)
# A prompt of 100, a mixed step, four decodes of a designed shape, an idle beat.
ROWS = (
    "context,real,7,99,0,100,1,0,0.000,0,0,20.5",
    "mixed,real,8,99,0,40,1,60,0.000,2,300,10",
    "decode,sweep,9,99,0,0,0,0,0.000,4,4000,5",
    "decode,sweep,10,99,0,0,0,0,0.000,1,1000,4",
    ",,11,99,0,0,0,0,0.000,0,0,0",
)


def csv(folder: Path, *rows: str, names: str = NAMES) -> Path:
    path = folder / "fpm_metrics_detail.csv"
    path.write_text("\n".join((names, *rows)) + "\n")
    return path


def read(path: Path, **said: Any) -> tuple[ParsedRun, ...]:
    runs = DynamoFpmReader().read(RunSource(path, None, "dynamo-fpm", path.name, "r", said), None)
    assert all(adds_up(run) for run in runs)
    return runs


def one(path: Path, **said: Any) -> ParsedRun:
    (run,) = read(path, **said)
    return run


def names(run: ParsedRun) -> list[tuple[str, ...]]:
    return [mark_names(bits) for bits in run.steps.marks.tolist()]


def record(counter: int, **changed: Any) -> dict[str, Any]:
    scheduled = {
        "num_prefill_requests": 1,
        "sum_prefill_tokens": 100,
        "var_prefill_length": 0.0,
        "sum_prefill_kv_tokens": 0,
        "num_decode_requests": 3,
        "sum_decode_kv_tokens": 30,
        "var_decode_kv_tokens": 2.0,
    }
    top = {
        "version": 1,
        "worker_id": "w",
        "dp_rank": 0,
        "counter_id": counter,
        "wall_time": 0.02,
        "scheduled_requests": scheduled,
        "queued_requests": {},
    }
    scheduled.update({k: v for k, v in changed.items() if k in scheduled})
    top.update({k: v for k, v in changed.items() if k not in scheduled})
    return top


def jsonl(folder: Path, *records: dict[str, Any] | str) -> Path:
    path = folder / "fpm.jsonl"
    path.write_text("".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in records))
    return path


def test_a_table_by_hand(tmp_path: Path) -> None:
    run = one(csv(tmp_path, *ROWS))
    assert run.counts.lines == 6
    assert run.counts.recognised == 2  # the header and the idle beat
    steps = run.steps
    np.testing.assert_allclose(steps.duration_s, [20.5e-3, 10e-3, 5e-3, 4e-3])
    assert steps.step.tolist() == [7, 8, 9, 10]
    assert steps.scheduled_tokens.tolist() == [100, 42, 4, 1]
    shapes = [
        [RequestShape(100, 0, 100)],
        # The split of 300 tokens over two decodes does not matter.
        [RequestShape(40, 60, 100), RequestShape(1, 50, 5), RequestShape(1, 250, 5)],
        [RequestShape(1, 1000, 5)] * 4,
        [RequestShape(1, 1000, 5)],
    ]
    for place, requests in enumerate(shapes):
        totals = BatchTotals.of(requests)
        assert steps.requests[place] == totals.requests
        for name in (
            "decode_context_tokens",
            "decode_pairs",
            "prefill_context_tokens",
            "prefill_pairs",
        ):
            assert getattr(steps, name)[place] == getattr(totals, name), (place, name)
    assert steps.phases() == ("prefill", "mixed", "decode", "decode")
    assert names(run) == [(), (), ("shared_prefix",), ()]
    assert [run.segments[s] for s in steps.segment.tolist()] == ["real", "real", "sweep", "sweep"]
    assert (run.timing, run.composition, run.fit_refused_reason) == ("cycle", "aggregated", None)


def test_without_prefix_caching_no_page_is_shared(tmp_path: Path) -> None:
    path = csv(tmp_path, *ROWS)
    assert ("shared_prefix",) in names(one(path, enable_prefix_caching=True))
    assert ("shared_prefix",) not in names(one(path, enable_prefix_caching=False))


def test_drafts_are_marked(tmp_path: Path) -> None:
    run = one(csv(tmp_path, *ROWS), speculative_method="mtp")
    assert ["spec" in marks for marks in names(run)] == [False, True, True, True]


@given(lengths=st.lists(st.integers(2, 4000), min_size=2, max_size=9))
@settings(deadline=None, max_examples=60)
def test_whole_prompts_give_exact_pairs(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[int]
) -> None:
    variance = float(np.var(lengths))
    row = f"context,real,1,9,0,{sum(lengths)},{len(lengths)},0,{variance!r},0,0,5"
    run = one(csv(tmp_path_factory.mktemp("t"), row))
    exact = BatchTotals.of(RequestShape(n, 0, n) for n in lengths).prefill_pairs
    assert run.steps.prefill_pairs.tolist() == [exact]
    assert names(run) == [("pairs_approximated",)]


def test_a_cut_prompt_falls_back_to_an_equal_split(tmp_path: Path) -> None:
    # Prompts of 10 and 10,000 of which 90 were scheduled: no split of 100 tokens in two
    # has the variance of the prompts.
    row = "context,real,1,9,0,100,2,0,24950025.0,0,0,5"
    run = one(csv(tmp_path, row))
    assert run.steps.prefill_pairs.tolist() == [2 * (50 * 51 // 2)]


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("decode,real,9,99,0,0,0,0,0,-1,40,5", "decode_requests is negative"),
        ("decode,real,9,99,0,0,0,0,0,2,40,-5", "duration_s is negative"),
        ("decode,real,9,99,0,0,0,0,0,2,forty,5", "not a number"),
        ("decode,real,9,99,0,0,0,0,0,2,40", "11 fields where the header has 12"),
        ("context,real,9,99,0,1,2,0,0,0,0,5", "at least one token"),
        ("context,real,9,99,x,5,1,0,0,0,0,5", "dp_rank is not a rank"),
        ("decode,sweep,10,99,0,0,0,0,0,1,1000,4", "counter_id is repeated"),
        ("decode,real,,99,0,0,0,0,0,2,40,5", "step is missing"),
    ],
)
def test_a_bad_row_is_rejected_and_its_neighbours_stay(
    tmp_path: Path, row: str, words: str
) -> None:
    run = one(csv(tmp_path, *ROWS[:4], row, "decode,real,12,99,0,0,0,0,0,2,40,5"))
    assert run.steps.count == 5
    (reject,) = run.rejects
    assert words in reject.reason
    assert reject.line == 6
    assert "99" not in reject.text


def test_lines_of_json_are_the_same_rows(tmp_path: Path) -> None:
    run = one(jsonl(tmp_path, record(1), "", record(2, wall_time=0, **idle())))
    assert run.counts.recognised == 2
    assert run.steps.duration_s.tolist() == [0.02]
    assert run.steps.decode_context_tokens.tolist() == [33]
    assert run.steps.prefill_pairs.tolist() == [5050]
    assert run.segments == ()


def idle() -> dict[str, int]:
    keys = ("num_prefill_requests", "sum_prefill_tokens", "num_decode_requests")
    return dict.fromkeys((*keys, "sum_decode_kv_tokens"), 0)


def test_ranks_and_workers_are_engines(tmp_path: Path) -> None:
    ranks = one(jsonl(tmp_path, record(1), record(1, dp_rank=3), record(2), record(2, dp_rank=3)))
    assert ranks.steps.engine.tolist() == [0, 3, 0, 3]
    workers = one(jsonl(tmp_path, record(5, worker_id="b"), record(5, worker_id="a")))
    assert sorted(workers.steps.engine.tolist()) == [0, 1]


def test_a_counter_that_falls_starts_a_life(tmp_path: Path) -> None:
    first, second = read(jsonl(tmp_path, record(1), record(2), record(0), record(1), "{"))
    assert (first.steps.step.tolist(), second.steps.step.tolist()) == ([1, 2], [0, 1])
    assert (first.counts.lines, second.counts.lines) == (3, 2)
    assert len(first.rejects) == 1


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "not a line of JSON"),
        ('{"counter_id": 1}', "not a forward pass record"),
        (json.dumps(record(3, version=2)), "version 2"),
        (json.dumps(record(3, sum_prefill_tokens=1.5)), "not a forward pass record"),
        (json.dumps(record(3, num_decode_requests=2**63)), "not a forward pass record"),
    ],
)
def test_a_bad_line_is_rejected_without_its_text(tmp_path: Path, line: str, words: str) -> None:
    run = one(jsonl(tmp_path, record(1), line, record(4)))
    assert run.steps.step.tolist() == [1, 4]
    (reject,) = run.rejects
    assert words in reject.reason
    assert (reject.line, reject.text) == (2, "")


def test_a_compressed_file_that_ends_early(tmp_path: Path) -> None:
    path = tmp_path / "fpm.jsonl.gz"
    lines = "".join(json.dumps(record(n, wall_time=n * 0.0137)) + "\n" for n in range(1, 300))
    path.write_bytes(gzip.compress(lines.encode())[:-40])
    run = one(path)
    assert "ends early" in run.rejects[-1].reason
    assert run.steps.count > 10


def test_what_the_document_says_of_the_time_is_believed(tmp_path: Path) -> None:
    path = csv(tmp_path, *ROWS)
    for timing in ("step", "device", "cycle"):
        assert one(path, timing=timing).fit_refused_reason is None
    waiting = one(path, timing="wait")
    assert waiting.timing == "wait"
    assert "only a part" in str(waiting.fit_refused_reason)


def test_documents_beside_the_file_state_facts(tmp_path: Path) -> None:
    path = csv(tmp_path, *ROWS)
    effective = {
        "vllm_version": "0.20.1",
        "cache_config.block_size": 16,
        "model_config.dtype": "torch.bfloat16",
        "scheduler_config.max_num_seqs": 128,
        "scheduler_config.max_num_batched_tokens": 64,
        "attention_config.backend": None,
    }
    (tmp_path / "effective_vllm_config.json").write_text(json.dumps(effective))
    asked = {"model": "maker/Some-7B", "extra_args": ["--enable-expert-parallel"]}
    both = {"effective_config": effective, "requested": {"deployment_config": asked}}
    (tmp_path / "vllm_metadata.json").write_text(json.dumps(both))
    run = one(path)
    # A step of 100 tokens was scheduled, so that a budget of 64 is no fact.
    assert run.stated == {
        "reader": "dynamo-fpm",
        "engine": "vllm",
        "engine_version": "0.20.1",
        "block_size": 16,
        "dtype": "bfloat16",
        "max_num_seqs": 128,
        "enable_expert_parallel": True,
        "model_name": "Some-7B",
    }
    effective["scheduler_config.max_num_batched_tokens"] = 100
    (tmp_path / "effective_vllm_config.json").write_text(json.dumps(effective))
    with pytest.raises(InputError, match="max_num_batched_tokens contradicts"):
        one(path)
    (tmp_path / "vllm_metadata.json").unlink()
    assert one(path).stated["max_num_batched_tokens"] == 100
    (tmp_path / "effective_vllm_config.json").write_text("[")
    with pytest.raises(InputError, match="not a JSON document"):
        one(path)


def test_the_metrics_of_a_folder_are_found(tmp_path: Path) -> None:
    csv(tmp_path, *ROWS)
    (tmp_path / "request_workload.csv").write_text("a,b\n1,2\n")
    (tmp_path / "run.yaml").write_text("reader: dynamo-fpm\ntiming: step\npool: {tp: 2}\n")
    (source,) = discover(tmp_path, {"gpu": "b300"})
    assert source.path.name == "fpm_metrics_detail.csv"
    assert source.said == {"reader": "dynamo-fpm", "timing": "step", "tp": 2, "gpu": "b300"}


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no column counter_id"):
        one(csv(tmp_path, "1,2", names="latency_ms,b"))
    (tmp_path / "empty.jsonl").write_text("")
    with pytest.raises(InputError, match="empty"):
        one(tmp_path / "empty.jsonl")


def physical(data: bytes) -> int:
    lines = re.split(rb"\r\n|\n|\r", data)
    return len(lines) - (lines[-1] == b"")


@given(
    place=st.integers(0, 5),
    noise=st.binary(max_size=60),
    keep=st.booleans(),
)
@settings(deadline=None, max_examples=150)
def test_no_line_of_a_damaged_table_is_lost(
    tmp_path_factory: pytest.TempPathFactory, place: int, noise: bytes, keep: bool
) -> None:
    lines = [row.encode() for row in ROWS] + [b"decode,real,12,99,0,0,0,0,0,2,40,5"]
    lines[place] = (lines[place][:9] if keep else b"") + noise
    data = b"\n".join([NAMES.encode(), *lines]) + b"\n"
    path = tmp_path_factory.mktemp("t") / "x.csv"
    path.write_bytes(data)
    runs = read(path)
    assert sum(run.counts.lines for run in runs) == physical(data)
    assert sum(run.steps.count for run in runs) >= 3


@given(data=st.binary(max_size=300), head=st.booleans())
@settings(deadline=None, max_examples=150)
def test_any_bytes_are_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, head: bool
) -> None:
    folder = tmp_path_factory.mktemp("t")
    for name, start in (("x.csv", NAMES.encode() + b"\n" if head else b""), ("x.jsonl", b"")):
        path = folder / name
        path.write_bytes(start + data)
        try:
            runs = read(path)
        except InputError:
            continue
        if name == "x.jsonl":
            assert sum(r.counts.lines for r in runs) == data.count(b"\n") + (
                not data.endswith(b"\n")
            )


@given(change=st.data())
@settings(deadline=None, max_examples=150)
def test_no_line_of_damaged_json_is_lost(
    tmp_path_factory: pytest.TempPathFactory, change: st.DataObject
) -> None:
    good = json.dumps(record(2))
    at = change.draw(st.integers(0, len(good) - 1))
    text = change.draw(st.text(st.characters(exclude_characters="\n\r"), max_size=8))
    path = tmp_path_factory.mktemp("t") / "x.jsonl"
    lines = [json.dumps(record(1)), good[:at] + text + good[at + 1 :], json.dumps(record(3))]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8", errors="surrogatepass")
    runs = read(path)
    assert sum(run.counts.lines for run in runs) == 3
    assert sum(run.steps.count for run in runs) >= 2
