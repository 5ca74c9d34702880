"""Nothing private of a request-level source gets into the store, a reject or a complaint."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelfit.documents.problems import InputError
from kernelfit.logs.registry import readers
from kernelfit.logs.source import RunSource
from kernelfit.store.ingest import ingest_paths
from kernelfit.store.scan import load_store
from tests.logs.private_requests import CANARIES, KEY, SECRET, SOURCES
from tests.logs.test_private import CALIB, FLAGS, clean

SHUT = {
    "vllm-bench-serve": [SECRET, f'{{"{KEY}": "{SECRET}"}}', f'["{SECRET}"'],
    "vllm-bench-latency": [SECRET, f'{{"avg_latency": 1, "latencies": "{SECRET}"}}'],
    "guidellm": [SECRET, f'{{"benchmarks": "{SECRET}"}}', f'{{"benchmarks": ["{SECRET}"]}}'],
    "inference-perf": [SECRET, f'{{"{SECRET}": 1}}', f'["{SECRET}"]'],
    "prometheus": [SECRET, f"vllm:zebra {KEY}\n", f"vllm:zebra 1\n{SECRET}\nvllm:zebra {KEY}\n"],
    "otel-requests": [SECRET, f'{{"{SECRET}": 1}}', f'{{"resourceSpans": ["{SECRET}"]}}'],
}
"""Texts in which nothing can be used."""


@pytest.mark.parametrize("reader", SOURCES)
def test_secrets_in_a_source_of_requests(tmp_path: Path, reader: str) -> None:
    name, text = SOURCES[reader]
    path = tmp_path / name
    path.write_text(text(), encoding="utf-8")
    assert sum(canary in path.read_text(encoding="utf-8") for canary in CANARIES) >= 6
    (run, *more) = readers()[reader].read(RunSource(path, None, reader, name, "r"), None)
    assert not [c for each in (run, *more) for c in CANARIES if c in repr(each)]
    out = tmp_path / "store"
    report = ingest_paths(
        [path], out, overrides=FLAGS | {"engine": "vllm", "reader": reader}, calib=CALIB
    )
    assert sum(f.rejected for f in report.files) >= 2
    assert run.served.request.size or run.observed.value.size
    clean(out)
    assert len(load_store(out).runs) >= 1


@pytest.mark.parametrize(("reader", "text"), [(r, text) for r in SHUT for text in SHUT[r]])
def test_a_complaint_quotes_nothing(tmp_path: Path, reader: str, text: str) -> None:
    path = tmp_path / SOURCES[reader][0]
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as refused:
        ingest_paths(
            [path],
            tmp_path / "store",
            overrides=FLAGS | {"engine": "vllm", "reader": reader},
            calib=CALIB,
        )
    assert [p for p in refused.value.problems for c in CANARIES if c in repr(p)] == []
    assert not list((tmp_path / "store").rglob("*.parquet"))


def test_every_reader_of_requests_is_refused_here_too() -> None:
    assert set(SHUT) == set(SOURCES)
