from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelfit.documents.problems import InputError
from kernelfit.logs.columns import ParsedRun
from kernelfit.logs.marks import mark_names
from kernelfit.logs.otel import OtelStepsReader
from kernelfit.logs.source import RunSource
from tests.logs.recording import adds_up

MS = 1_000_000


def summary(step: int, start_ms: float, decode: int = 4, **changed: Any) -> dict[str, Any]:
    row: dict[str, Any] = {
        "step.id": step,
        "step.ts_start_ns": 5_000 * MS + round(start_ms * MS),
        "step.duration_us": 400,
        "queue.running_depth": decode,
        "batch.num_prefill_reqs": 0,
        "batch.num_decode_reqs": decode,
        "batch.prefill_tokens": 0,
        "batch.decode_tokens": decode,
        "batch.num_preempted": 0,
        "kv.blocks_total_gpu": 1000,
        "kv.blocks_free_gpu": 1000 - 10 * decode,
    }
    return row | changed


def parquet(folder: Path, *rows: dict[str, Any]) -> Path:
    path = folder / "steps.parquet"
    pq.write_table(pa.Table.from_pylist(list(rows)), path)
    return path


def exported(*rows: dict[str, Any]) -> str:
    def attribute(key: str, value: Any) -> dict[str, Any]:
        return {"key": key, "value": {"intValue": str(value)}}

    events: list[dict[str, Any]] = [
        {"name": "step.BATCH_SUMMARY", "attributes": [attribute(k, v) for k, v in row.items()]}
        for row in rows
    ]
    events.append({"name": "step.REQUEST_SNAPSHOT", "attributes": []})
    spans = [{"name": "scheduler_steps", "events": events}]
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]})


def read(path: Path, **said: Any) -> tuple[ParsedRun, ...]:
    runs = OtelStepsReader().read(RunSource(path, None, "otel-steps", path.name, "r", said), None)
    assert all(adds_up(run) for run in runs)
    return runs


def one(path: Path, **said: Any) -> ParsedRun:
    (run,) = read(path, **said)
    return run


def test_a_cycle_is_the_next_start_less_this_one(tmp_path: Path) -> None:
    rows = (summary(7, 0), summary(8, 20), summary(9, 45), summary(12, 90))
    run = one(parquet(tmp_path, *rows))
    np.testing.assert_allclose(run.steps.duration_s, [0.020, 0.025])
    assert run.steps.step.tolist() == [7, 8]
    # Steps whose successor was not sampled are known, and have no duration.
    assert (run.counts.lines, run.counts.recognised, run.counts.rejected) == (4, 2, 0)
    assert (run.timing, run.fit_refused_reason) == ("cycle", None)


def test_the_dispatch_is_refused(tmp_path: Path) -> None:
    path = parquet(tmp_path, summary(7, 0), summary(9, 20))
    run = one(path, timing="dispatch")
    np.testing.assert_allclose(run.steps.duration_s, [400e-6] * 2)
    assert run.timing == "dispatch"
    assert "only a part" in str(run.fit_refused_reason)


def test_the_blocks_in_use_are_shared_by_the_running_requests(tmp_path: Path) -> None:
    # 50 blocks of 16 tokens over 4 decodes and one prefill of 6 tokens: 160 each.
    mixed = {"batch.num_prefill_reqs": 1, "batch.prefill_tokens": 6, "kv.blocks_free_gpu": 950}
    rows = (summary(1, 0), summary(2, 20, **mixed, **{"queue.running_depth": 5}), summary(3, 40))
    run = one(parquet(tmp_path, *rows))
    assert run.steps.decode_context_tokens.tolist() == [4 * 160, 4 * 160]
    assert run.steps.prefill_context_tokens.tolist() == [0, 160]
    # Six queries on 154 tokens and on themselves.
    assert run.steps.prefill_pairs.tolist() == [0, 6 * 154 + 21]
    assert run.steps.kv_usage.tolist() == [0.04, 0.05]
    marks = [mark_names(bits) for bits in run.steps.marks.tolist()]
    assert marks == [
        ("context_approximated", "neighbour_batch"),
        ("pairs_approximated", "context_approximated", "neighbour_batch"),
    ]
    small = one(parquet(tmp_path, *rows), block_size=8, async_scheduling=False)
    assert small.steps.decode_context_tokens.tolist() == [4 * 80, 4 * 80]
    assert "neighbour_batch" not in mark_names(int(small.steps.marks[0]))


def test_preemption_is_marked(tmp_path: Path) -> None:
    rows = (summary(1, 0, **{"batch.num_preempted": 1}), summary(2, 20), summary(3, 40))
    run = one(parquet(tmp_path, *rows))
    assert ["preempted" in mark_names(b) for b in run.steps.marks.tolist()] == [True, False]


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (summary(3, 40, **{"batch.decode_tokens": 8}), "do not schedule one each"),
        (summary(2, 20), "step.id is repeated"),
        (summary(3, 40, **{"kv.blocks_free_gpu": 1001}), "more blocks are free"),
        (summary(3, 40, **{"batch.num_decode_reqs": -1}), "negative"),
        (summary(3, 40, **{"step.ts_start_ns": None}), "start_s is missing"),
    ],
)
def test_a_bad_summary_is_rejected(tmp_path: Path, bad: dict[str, Any], words: str) -> None:
    run = one(parquet(tmp_path, summary(1, 0), summary(2, 20), bad))
    (reject,) = run.rejects
    assert words in reject.reason
    assert run.steps.step.tolist() == [1]
    fine = one(parquet(tmp_path, summary(1, 0), summary(2, 20), summary(3, 40)))
    assert fine.steps.step.tolist() == [1, 2]


def test_time_does_not_run_backwards(tmp_path: Path) -> None:
    run = one(parquet(tmp_path, summary(1, 0), summary(2, 20), summary(3, 19)))
    (reject,) = run.rejects
    assert "starts no later" in reject.reason
    assert run.steps.step.tolist() == [1]


def test_experiments_are_runs(tmp_path: Path) -> None:
    labels = [{"experiment_id": f"e{n}", "model": f"m{n}", "tp": n} for n in (2, 4)]
    rows = [summary(s, 20 * s + n) | labels[n] for s in (1, 2) for n in (0, 1)]
    first, second = read(parquet(tmp_path, *rows))
    assert [run.steps.count for run in (first, second)] == [1, 1]
    assert first.stated["model"] == "m2"
    assert second.stated["tp"] == 4
    # One experiment leaves its model to the run document.
    assert "model" not in one(parquet(tmp_path, *rows[::2])).stated


def test_an_export_holds_several_summaries_in_a_line(tmp_path: Path) -> None:
    path = tmp_path / "steps.jsonl"
    text = [exported(summary(1, 0), summary(2, 20)), "{}", "oops", exported(summary(3, 40))]
    path.write_text("\n".join(text) + "\n")
    run = one(path)
    np.testing.assert_allclose(run.steps.duration_s, [0.020, 0.020])
    # Three summaries, a line without one, a line that is no JSON.
    assert (run.counts.lines, run.counts.recognised, run.counts.rejected) == (5, 2, 1)
    assert run.rejects[0].text == ""


def test_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "steps.parquet"
    pq.write_table(pa.table({"a": [1]}), path)
    with pytest.raises(InputError, match=r"no column step\.id"):
        one(path)
    path.write_bytes(b"PAR1 and nothing")
    with pytest.raises(InputError, match="cannot be read"):
        one(path)


@given(data=st.data())
@settings(deadline=None, max_examples=150)
def test_no_line_of_a_damaged_export_is_lost(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    good = exported(summary(2, 20))
    at = data.draw(st.integers(0, len(good) - 1))
    noise = data.draw(st.binary(max_size=6)).replace(b"\n", b"")
    path = tmp_path_factory.mktemp("t") / "x.jsonl"
    damaged = good[:at].encode() + noise + good[at + 1 :].encode()
    lines = [exported(summary(1, 0)).encode(), damaged, exported(summary(3, 40)).encode()]
    path.write_bytes(b"\n".join(lines) + b"\n")
    assert sum(run.counts.lines for run in read(path)) == 3


@given(data=st.binary(max_size=300))
@settings(deadline=None, max_examples=100)
def test_any_bytes_are_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    folder = tmp_path_factory.mktemp("t")
    for name in ("x.jsonl", "x.parquet"):
        (folder / name).write_bytes(data)
        try:
            read(folder / name)
        except InputError:
            continue
