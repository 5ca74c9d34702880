"""Readers of request-level files: what they keep, what they refuse, what they never keep."""

from __future__ import annotations

import copy
import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernelfit.documents.problems import InputError
from kernelfit.logs.columns import ParsedRun
from kernelfit.logs.hostwork import SERVED_TIMING
from kernelfit.logs.inference_perf import SAME_CHUNK_S, chunks
from kernelfit.logs.registry import readers
from kernelfit.logs.source import RunSource
from tests.logs.request_files import (
    BENCH,
    GUIDELLM,
    INFERENCE_PERF,
    SECRET,
    scrape,
    span,
    traces,
    write,
)


def read(reader: str, path: Path) -> tuple[ParsedRun, ...]:
    source = RunSource(path, None, reader, path.name, "r")
    runs = readers()[reader].read(source, None)
    for run in runs:
        counts = run.counts
        assert counts.lines == counts.steps + counts.recognised + counts.rejected
        assert counts.rejected == len(run.rejects)
        assert run.timing == SERVED_TIMING
        assert run.fit_refused_reason is not None
        assert SECRET not in repr(run)
    return runs


def served(run: ParsedRun) -> dict[str, list[float]]:
    return {
        spec.name: np.asarray(getattr(run.served, spec.name)).round(9).tolist()
        for spec in fields(run.served)
    }


def observed(run: ParsedRun) -> dict[tuple[str, str, int], tuple[float, int]]:
    seen = run.observed
    keys = zip(seen.quantity, seen.statistic, seen.window.tolist(), strict=True)
    return dict(zip(keys, zip(seen.value.tolist(), seen.count.tolist(), strict=True), strict=True))


def test_bench_serve_keeps_requests_and_statistics(tmp_path: Path) -> None:
    (run,) = read("vllm-bench-serve", write(tmp_path, "r.json", BENCH))
    rows = served(run)
    assert rows["prompt_tokens"] == [100, 200, 300]
    assert rows["arrival_s"] == [5.0, 6.0, 7.0]
    assert rows["first_token_s"] == [5.1, 6.11, 7.13]
    assert rows["finish_s"] == [5.14, 6.17, 7.19]
    # Two tokens in one chunk leave one gap fewer than tokens.
    assert (rows["output_tokens"], rows["chunks"]) == ([3, 4, 4], [3, 4, 3])
    assert [reject.reason for reject in run.rejects] == ["failed: request 4: an error is noted"]
    seen = observed(run)
    assert seen["time_to_first_token", "mean", 0] == (pytest.approx(0.11), 3)
    assert seen["time_to_first_token", "p99", 0] == (pytest.approx(0.13), 3)
    assert seen["inter_token_latency", "mean", 0] == (pytest.approx(0.02), 3)
    assert seen["prompt_tokens", "sum", 0] == (600.0, 3)
    assert seen["max_concurrency", "setting", 0] == (1.0, 1)


def test_a_failed_request_without_a_note_is_no_quick_one(tmp_path: Path) -> None:
    result = {**copy.deepcopy(BENCH), "errors": ["", "", "", ""], "output_lens": [3, 4, 4, 9]}
    (run,) = read("vllm-bench-serve", write(tmp_path, "r.json", result))
    assert [reject.reason for reject in run.rejects] == ["failed: request 4: no first token came"]
    # The nearest that is kept: a first token after a microsecond.
    result["ttfts"] = [0.1, 0.11, 0.13, 1e-6]
    (run,) = read("vllm-bench-serve", write(tmp_path, "r.json", result))
    assert run.rejects == ()


def test_appended_results_are_runs_of_their_own(tmp_path: Path) -> None:
    plain = {key: value for key, value in BENCH.items() if not isinstance(value, list)}
    runs = read("vllm-bench-serve", write(tmp_path, "r.json", BENCH, plain))
    assert [run.served.request.size for run in runs] == [3, 0]
    assert observed(runs[1])["time_to_first_token", "median", 0] == (pytest.approx(0.1), 3)
    # Without start times nothing says which requests met.
    late = {key: value for key, value in BENCH.items() if key != "start_times"}
    (run,) = read("vllm-bench-serve", write(tmp_path, "late.json", late))
    assert run.clock == "each request's own arrival"
    assert served(run)["first_token_s"] == [0.1, 0.11, 0.13]


def test_lists_of_unequal_length_are_refused_whole(tmp_path: Path) -> None:
    result = {**BENCH, "ttfts": [0.1]}
    (run,) = read("vllm-bench-serve", write(tmp_path, "r.json", result))
    assert run.served.request.size == 0
    assert "not all as long" in run.rejects[0].reason


@pytest.mark.parametrize(
    ("reader", "text", "message"),
    [
        ("vllm-bench-serve", "{}", "not a result of vllm bench serve"),
        ("vllm-bench-serve", "", "the file is empty"),
        ("vllm-bench-serve", '{"completed": 1,', "no JSON from here on"),
        ("vllm-bench-latency", '{"avg_latency": 1}', "not a result of vllm bench latency"),
        ("guidellm", "[]", "not a report of guidellm"),
        ("inference-perf", "{}", "not a per-request file of inference-perf"),
        ("prometheus", "sglang:x 1\n", "not a scrape of vLLM"),
        ("otel-requests", '{"a": 1}\n', "not an OpenTelemetry export"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, reader: str, text: str, message: str) -> None:
    path = tmp_path / "file"
    path.write_text(text, "utf-8")
    with pytest.raises(InputError, match=message):
        read(reader, path)


def test_bench_latency_keeps_seconds_per_batch(tmp_path: Path) -> None:
    result = {"avg_latency": 1.5, "latencies": [1.0, 2.0, 0.0], "percentiles": {"50": 1.5}}
    (run,) = read("vllm-bench-latency", write(tmp_path, "r.json", result))
    assert run.observed.value.tolist() == [1.0, 2.0]
    assert set(run.observed.quantity) == {"batch_latency"}
    assert len(run.rejects) == 1


def test_guidellm_counts_from_when_a_request_was_sent(tmp_path: Path) -> None:
    (run,) = read("guidellm", write(tmp_path, "benchmarks.json", GUIDELLM))
    rows = served(run)
    # Seconds of the epoch leave a quarter of a microsecond to a double.
    waited = np.subtract(rows["first_token_s"], rows["arrival_s"])
    np.testing.assert_allclose(waited, [0.25, 0.25], atol=1e-6)
    whole = np.subtract(rows["finish_s"], rows["arrival_s"])
    np.testing.assert_allclose(whole, [1.0, 1.0], atol=1e-6)
    assert (rows["prompt_tokens"], rows["output_tokens"]) == ([256, 128], [8, 4])
    assert rows["chunks"] == [7, -1]
    assert [reject.reason.split(":")[0] for reject in run.rejects] == ["failed"] * 3


def test_inference_perf_groups_tokens_of_one_chunk(tmp_path: Path) -> None:
    (run,) = read("inference-perf", write(tmp_path, "r.json", INFERENCE_PERF))
    rows = served(run)
    assert rows["arrival_s"] == [100.0, 101.0]
    assert rows["first_token_s"] == [100.5, 101.25]
    assert rows["finish_s"] == [101.4, 101.75]
    assert rows["prompt_tokens"] == [591, 20]
    assert (rows["output_tokens"], rows["chunks"]) == ([4, 2], [3, 2])
    assert [reject.reason for reject in run.rejects] == ["failed: an error is noted"]


@given(st.lists(st.booleans(), max_size=30))
def test_chunks_are_told_by_the_time_between_tokens(together: list[bool]) -> None:
    times = [0.0]
    for same in together:
        times.append(times[-1] + (0.1 if not same else 0.1 * SAME_CHUNK_S))
    assert chunks(times) == 1 + sum(not same for same in together)


def test_spans_keep_the_times_inside_the_engine(tmp_path: Path) -> None:
    good = span(1, time_to_first_token=0.3, e2e=1.0, time_in_queue=0.1, time_in_model_prefill=0.15)
    path = tmp_path / "traces.jsonl"
    fork = {"name": "llm_request", "events": [{"name": "api.ARRIVED"}]}
    other = {"name": "model_loading", "attributes": []}
    path.write_text(traces(good, fork, other) + "\n\nnot json\n", "utf-8")
    (run,) = read("otel-requests", path)
    rows = served(run)
    assert rows["prompt_tokens"] == [100]
    assert run.served.first_token_s - run.served.arrival_s == pytest.approx([0.3], abs=1e-6)
    assert (rows["queue_s"], rows["prefill_s"]) == ([0.1], [0.15])
    assert np.isnan(rows["decode_s"][0])
    assert rows["observer"] == [1]
    assert [reject.reason for reject in run.rejects] == ["not a line of JSON"]


def test_a_first_token_counted_from_scheduling_is_told(tmp_path: Path) -> None:
    wrong = span(
        1, time_to_first_token=0.16, e2e=2.0, time_in_queue=0.4, time_in_model_prefill=0.15
    )
    # Without a queue the two readings are one, so nothing speaks against it.
    right = span(
        2, time_to_first_token=0.16, e2e=2.0, time_in_queue=0.0, time_in_model_prefill=0.15
    )
    path = tmp_path / "traces.jsonl"
    path.write_text(traces(wrong, right), "utf-8")
    (run,) = read("otel-requests", path)
    assert served(run)["prompt_tokens"] == [200]
    assert run.rejects[0].reason.startswith("first_token_from_scheduling: ")


def test_scrapes_become_differences(tmp_path: Path) -> None:
    path = tmp_path / "m.prom"
    first = scrape(time_to_first_token_seconds=(10.0, 8.0), request_prompt_tokens=(800.0, 8.0))
    second = scrape(time_to_first_token_seconds=(16.0, 20.0), request_prompt_tokens=(4400.0, 20.0))
    path.write_text(first + second + second, "utf-8")
    (run,) = read("prometheus", path)
    seen = observed(run)
    assert seen["time_to_first_token", "sum", 0] == (pytest.approx(6.0), 12)
    assert seen["prompt_tokens", "sum", 0] == (pytest.approx(3600.0), 12)
    # Nothing happened between the second scrape and its copy.
    assert {key[2] for key in seen} == {0}
    path.write_text(first, "utf-8")
    with pytest.raises(InputError, match="not two scrapes"):
        read("prometheus", path)


def test_a_restart_between_scrapes_is_told(tmp_path: Path) -> None:
    path = tmp_path / "m.prom"
    series = [(10.0, 8.0), (3.0, 4.0), (6.0, 8.0)]
    path.write_text("".join(scrape(e2e_request_latency_seconds=pair) for pair in series), "utf-8")
    (run,) = read("prometheus", path)
    assert observed(run) == {("end_to_end", "sum", 1): (pytest.approx(3.0), 4)}
    assert run.rejects[0].reason.startswith("counter_reset: vllm:e2e_request_latency_seconds")


@given(st.lists(st.tuples(st.floats(0, 50), st.integers(0, 40)), min_size=2, max_size=6))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
def test_scrapes_in_between_change_no_total(tmp_path: Path, steps: list[tuple[float, int]]) -> None:
    totals = np.cumsum([(0.0, 4.0), *((a if n else 0.0, 4.0 * n) for a, n in steps)], axis=0)
    path = tmp_path / "m.prom"
    whole = [scrape(e2e_request_latency_seconds=(float(a), float(n))) for a, n in totals]
    path.write_text("".join(whole), "utf-8")
    (run,) = read("prometheus", path)
    seen = run.observed
    assert seen.value.sum() == pytest.approx(totals[-1, 0], abs=1e-9)
    assert seen.count.sum() == totals[-1, 1] - 4


JUNK = st.recursive(
    st.none()
    | st.booleans()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=8,
)


@pytest.mark.parametrize(
    ("reader", "base", "path"),
    [
        ("vllm-bench-serve", BENCH, ["ttfts"]),
        ("vllm-bench-serve", BENCH, ["itls", 1]),
        ("vllm-bench-serve", BENCH, ["input_lens", 0]),
        ("vllm-bench-serve", BENCH, ["errors"]),
        ("guidellm", GUIDELLM, ["benchmarks", 0]),
        ("guidellm", GUIDELLM, ["benchmarks", 0, "requests", "successful", 0]),
        ("guidellm", GUIDELLM, ["benchmarks", 0, "requests", "successful", 0, "info", "timings"]),
        ("inference-perf", INFERENCE_PERF, [0]),
        ("inference-perf", INFERENCE_PERF, [0, "info"]),
        ("inference-perf", INFERENCE_PERF, [0, "info", "output_token_times"]),
    ],
)
@given(junk=JUNK)
@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=12, deadline=None
)
def test_damaged_files_lose_nothing_and_crash_nothing(
    tmp_path: Path, reader: str, base: Any, path: list[Any], junk: Any
) -> None:
    value = copy.deepcopy(base)
    inner = value
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = junk
    file = tmp_path / "damaged.json"
    file.write_text(json.dumps(value), "utf-8")
    try:
        runs = read(reader, file)
    except InputError:
        return
    for run in runs:
        known = run.served
        assert (known.prompt_tokens >= 1).all()
        waited = known.first_token_s - known.arrival_s
        assert not (waited < 0).any()
