"""Faults that fuzzing found in readers of requests, each beside what is still kept."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.logs.request_files import BENCH, GUIDELLM, INFERENCE_PERF, scrape, span, traces, write
from tests.logs.test_requests import observed, read, served


def test_an_integer_beyond_a_double_is_no_number(tmp_path: Path) -> None:
    latency = {"avg_latency": 1.5, "latencies": [1.0, 10**400]}
    (run,) = read("vllm-bench-latency", write(tmp_path, "r.json", latency))
    assert run.observed.value.tolist() == [1.0]
    assert len(run.rejects) == 1


def test_times_that_overflow_are_not_kept(tmp_path: Path) -> None:
    starts = [1.7e308, 6.0, 7.0, 8.0]
    result = {**BENCH, "start_times": starts, "ttfts": [1.7e308, 0.11, 0.13, 0.0]}
    (run,) = read("vllm-bench-serve", write(tmp_path, "r.json", result))
    assert served(run)["arrival_s"] == [6.0, 7.0]
    assert run.rejects[0].reason == "times_out_of_order: a time is beyond all measure"


@pytest.mark.parametrize("name", ["start_times", "errors"])
def test_start_times_and_errors_of_another_length_belong_to_no_request(
    tmp_path: Path, name: str
) -> None:
    # Before, every request began at 0.0 on the shared clock, or no failure was known.
    result = {**BENCH, name: BENCH[name][:2]}
    (run,) = read("vllm-bench-serve", write(tmp_path, "r.json", result))
    assert run.served.request.size == 0
    assert "not all as long" in run.rejects[0].reason


def test_a_request_without_its_start_is_not_the_first(tmp_path: Path) -> None:
    result = {**BENCH, "start_times": [5.0, None, 7.0, 8.0]}
    (run,) = read("vllm-bench-serve", write(tmp_path, "r.json", result))
    assert served(run)["arrival_s"] == [5.0, 7.0]
    assert run.rejects[0].reason == "request 2: its times are no numbers"


def test_a_chunk_cannot_come_before_another(tmp_path: Path) -> None:
    gaps = [[-0.01, 0.05], *BENCH["itls"][1:]]
    (run,) = read("vllm-bench-serve", write(tmp_path, "r.json", {**BENCH, "itls": gaps}))
    assert run.served.request.size == 2
    assert run.rejects[0].reason.startswith("times_out_of_order: request 1")
    entry = json.loads(json.dumps(INFERENCE_PERF[0]))
    entry["info"]["output_token_times"] = [100.5, 100.9, 100.6, 101.4]
    (run,) = read("inference-perf", write(tmp_path, "i.json", [entry, INFERENCE_PERF[1]]))
    assert run.served.request.size == 1
    assert run.rejects[0].reason.startswith("times_out_of_order")


def test_a_percentile_has_at_most_a_hundred(tmp_path: Path) -> None:
    named = {
        "p99.9_ttft_ms": 1.0,
        "p100_ttft_ms": 2.0,
        "p128009_ttft_ms": 3.0,
        "p9\u0669_ttft_ms": 4.0,
    }
    (run,) = read("vllm-bench-serve", write(tmp_path, "r.json", BENCH | named))
    seen = {key[1] for key in observed(run) if key[1].startswith("p")}
    assert seen == {"p99", "p99.9", "p100"}


@pytest.mark.parametrize(
    ("entry", "rejected"),
    [
        (5, 1),
        ({"requests": []}, 1),
        ({"requests": {"successful": "x", "errored": None, "incomplete": []}}, 1),
        ({"requests": {"successful": [], "incomplete": []}}, 0),
    ],
)
def test_a_benchmark_without_lists_is_counted(tmp_path: Path, entry: Any, rejected: int) -> None:
    report = {"benchmarks": [*GUIDELLM["benchmarks"], entry]}
    runs = read("guidellm", write(tmp_path, "b.json", report))
    assert runs[1].counts.rejected == rejected


def test_token_times_that_are_no_numbers_are_no_silence(tmp_path: Path) -> None:
    entry = json.loads(json.dumps(INFERENCE_PERF[0]))
    entry["info"]["output_token_times"][1] = "x"
    bare = json.loads(json.dumps(INFERENCE_PERF[0]))
    del bare["info"]["output_token_times"]
    (run,) = read("inference-perf", write(tmp_path, "i.json", [entry, bare]))
    assert [r.reason for r in run.rejects] == ["the times of its tokens are no numbers"]
    assert served(run)["finish_s"] == [101.5]


@pytest.mark.parametrize("start", ["inf", "nan", "1_0", "", None, True])
def test_a_span_without_its_start_is_not_of_1970(tmp_path: Path, start: Any) -> None:
    good = span(1, time_to_first_token=0.3, e2e=1.0)
    path = tmp_path / "t.jsonl"
    path.write_text(traces(good, good | {"startTimeUnixNano": start}, [1]), "utf-8")
    (run,) = read("otel-requests", path)
    assert run.served.request.size == 1
    assert [r.reason for r in run.rejects] == ["the span states no start", "a span is no object"]


NAME = "e2e_request_latency_seconds"


def _two(before: dict[int, str], after: dict[int, str]) -> str:
    lines = [
        f'vllm:{NAME}_{part}{{engine="{engine}"}} {value}'
        for scraped in (before, after)
        for engine, value in scraped.items()
        for part in ("sum", "count")
    ]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("value", ["+Inf", "1e19", "-1", "NaN", "1e300", "x"])
def test_a_counter_beyond_measure_is_refused_and_not_added(tmp_path: Path, value: str) -> None:
    path = tmp_path / "m.prom"
    path.write_text(_two({0: "4", 1: "8"}, {0: "6", 1: value}), "utf-8")
    (run,) = read("prometheus", path)
    assert observed(run) == {}
    assert len(run.rejects) == 2
    path.write_text(_two({0: "4", 1: "8"}, {0: "6", 1: "9"}), "utf-8")
    (run,) = read("prometheus", path)
    assert observed(run) == {("end_to_end", "sum", 0): (3.0, 3)}


def test_one_engine_that_restarts_is_not_hidden_by_another(tmp_path: Path) -> None:
    path = tmp_path / "m.prom"
    path.write_text(_two({0: "10", 1: "10"}, {0: "2", 1: "30"}), "utf-8")
    (run,) = read("prometheus", path)
    assert observed(run) == {}
    assert run.rejects[0].reason.startswith("counter_reset: ")


def test_an_engine_of_one_scrape_only_does_not_add_its_past(tmp_path: Path) -> None:
    path = tmp_path / "m.prom"
    path.write_text(_two({0: "10"}, {0: "12", 1: "500"}), "utf-8")
    (run,) = read("prometheus", path)
    assert observed(run) == {}
    assert "are not those of the scrape before" in run.rejects[0].reason


def test_a_damaged_sample_is_rejected_and_a_brace_in_a_label_is_not(tmp_path: Path) -> None:
    path = tmp_path / "m.prom"
    pair = scrape(**{NAME: (8.0, 4.0)}) + scrape(**{NAME: (16.0, 8.0)})
    path.write_text(
        pair.replace('"kf"', '"k}f"') + 'vllm:x{engine="0\nvllm:y 1 # {a="b"} 1 2\n', "utf-8"
    )
    (run,) = read("prometheus", path)
    assert observed(run)["end_to_end", "sum", 0] == (8.0, 4)
    assert [r.reason for r in run.rejects] == ["a line that begins with vllm: is no sample"]


def test_a_compressed_scrape_that_ends_early_is_said(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    many = "".join(scrape(**{NAME: (k + float(rng.random()), 4.0 * k)}) for k in range(2000))
    path = tmp_path / "m.prom.gz"
    path.write_bytes(gzip.compress(many.encode())[:-1000])
    (run,) = read("prometheus", path)
    assert run.rejects[-1].reason == "the compressed file ends early"
    assert run.observed.value.size > 0
