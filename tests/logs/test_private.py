"""Nothing private gets past a reader: not into rows, not into rejects, not into the store."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelfit.documents.problems import InputError
from kernelfit.logs.columns import Reject
from kernelfit.logs.redact import LONGEST_FORM, error_shown, form_of, value_shown
from kernelfit.logs.registry import readers
from kernelfit.store.ingest import ingest_paths
from kernelfit.store.scan import load_store
from tests.logs.forms import all_forms
from tests.logs.forms.sglang import pre
from tests.logs.forms.trtllm import it
from tests.logs.forms.vllm_averages import BASE, V1
from tests.logs.forms.vllm_steps import DECODE, INIT, REQUEST, new
from tests.logs.private_requests import (
    ADDRESS,
    CANARIES,
    HOST,
    KEY,
    SECRET,
    SOURCES,
    TOKENS,
    WORD,
)
from tests.logs.recording import header, small
from tests.logs.test_blis_trace import Engine

FLAGS = {"gpu": "h100-sxm", "model": "qwen3-8b"}
CALIB = Path(__file__).resolve().parents[2] / "calib"


def poisoned(good: list[str]) -> list[str]:
    """Lines of a log, and the same lines damaged with secrets in every way."""
    lines = list(good)
    for line in good:
        half = len(line) // 2
        lines += [
            line + SECRET,
            SECRET + line,
            line[:half] + SECRET,
            line[:half] + SECRET + line[half:],
        ]
        lines += [
            line.replace("20", WORD),
            line.replace(" ms", f" {SECRET} ms"),
            f'{{"log": "{line} {SECRET}',
        ]
        lines += [line.replace(":", f": {WORD} "), line.replace("1", TOKENS), SECRET]
    return lines


def vllm() -> list[str]:
    start = INIT.format(tp=1).replace("models/tiny", f"{HOST}/{WORD}/tiny")
    said = f"{{'api_key': '{KEY}', 'host': '{ADDRESS}'}}"
    arguments = f"INFO 11-30 06:18:30 [u.py:1] non-default args: {said}"
    averages = f"{V1}Engine 000: {BASE}Waiting: 0 reqs, GPU KV cache usage: 1.0%"
    request = REQUEST.format(q=WORD).replace("128000, 9906", TOKENS)
    quoting = REQUEST.format(q=f"{SECRET} {DECODE.format(i=9)}")
    steps = [new(DECODE, i) for i in range(1, 9)]
    return [start, arguments, *steps[:4], averages, request, quoting, *steps[4:]]


def texts(folder: Path) -> Iterator[str]:
    """Everything that a store holds, as text; Parquet is compressed, so it is decoded."""
    for path in folder.rglob("*"):
        if path.suffix == ".parquet":
            yield json.dumps(pq.read_table(path).to_pylist(), default=str)
        elif path.is_file():
            yield path.read_text(encoding="utf-8")


def clean(folder: Path) -> None:
    found = [c for text in texts(folder) for c in CANARIES if c in text]
    assert found == []


@pytest.mark.parametrize(
    ("reader", "name", "good"),
    [
        ("vllm-log", "x.log", vllm()),
        ("sglang-log", "x.log", [pre(1, 20), pre(2, 30), pre(1, 40)]),
        ("trtllm-log", "x.log", [it(i, "7.0ms", gen=3) for i in (5, 6, 7, 8)]),
    ],
)
def test_secrets_in_a_text_log(tmp_path: Path, reader: str, name: str, good: list[str]) -> None:
    log = tmp_path / name
    log.write_text("\n".join(good + poisoned(good) + [good[-1]]) + "\n")
    out = tmp_path / "store"
    report = ingest_paths([log], out, overrides=FLAGS | {"reader": reader}, calib=CALIB)
    assert sum(f.rejected for f in report.files) > 3
    assert sum(f.steps for f in report.files) >= 2
    clean(out)
    assert len(load_store(out).runs) >= 1


@pytest.mark.parametrize("reader", ["dynamo-fpm", "sglang-fpm", "otel-steps"])
def test_secrets_in_lines_of_json(tmp_path: Path, reader: str) -> None:
    good = [
        line
        for form in all_forms()
        if form.reader == "dynamo-fpm" and form.name == "dynamo-json"
        for line in form.data().decode().splitlines()
    ]
    if reader == "otel-steps":
        good = [_summary(k) for k in range(1, 5)]
    more = poisoned(good) + [line.replace('"w"', json.dumps(SECRET)) for line in good]
    log = tmp_path / "x.jsonl"
    log.write_text("\n".join(good + more) + "\n")
    (tmp_path / "run.yaml").write_text(
        "kind: Run\nschema_version: 1\ngpu: h100-sxm\nmodel: qwen3-8b\n"
        f"engine: {'sglang' if 'sglang' in reader else 'vllm'}\nreader: {reader}\n"
    )
    out = tmp_path / "store"
    report = ingest_paths([tmp_path], out, calib=CALIB)
    assert sum(f.rejected for f in report.files) > 3
    clean(out)


def _summary(step: int) -> str:
    values = {
        "step.id": step, "step.ts_start_ns": step * 20_000_000, "step.duration_us": 500,
        "queue.running_depth": 4, "batch.num_prefill_reqs": 0, "batch.num_decode_reqs": 4,
        "batch.prefill_tokens": 0, "batch.decode_tokens": 4, "batch.scheduled_tokens": 4,
        "batch.num_preempted": 0, "kv.blocks_total_gpu": 100, "kv.blocks_free_gpu": 50,
    }  # fmt: skip
    attributes = [{"key": k, "value": {"intValue": str(v)}} for k, v in values.items()]
    event = {"name": "step.BATCH_SUMMARY", "attributes": attributes}
    resource = {"attributes": [{"key": "host.name", "value": {"stringValue": HOST}}]}
    spans = [{"name": WORD, "events": [event, {"name": SECRET}]}]
    return json.dumps({"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": spans}]}]})


def test_secrets_in_a_recording(tmp_path: Path) -> None:
    folder = small().write(tmp_path / "run")
    engine = folder / "engine-10.jsonl"
    rows = engine.read_text().splitlines()
    bad = [row.replace('"t": "step"', f'"t": "{WORD}"') for row in rows[2:]]
    extra = [json.dumps({**json.loads(row), "prompt": SECRET, "i": 99}) for row in rows[2:3]]
    odd = {**header("engine"), "host": HOST, "argv": SECRET}
    engine.write_text(
        "\n".join([json.dumps(odd), *rows[1:], *bad, *extra, *poisoned(rows[2:])]) + "\n"
    )
    out = tmp_path / "store"
    report = ingest_paths([folder], out, calib=CALIB)
    assert sum(f.rejected for f in report.files) > 3
    clean(out)


def test_secrets_in_a_table(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(
        "kind: Run\nschema_version: 1\ngpu: h100-sxm\nmodel: qwen3-8b\nengine: vllm\n"
        "reader: table\ntiming: step\ncolumns:\n"
        "  duration_s: {column: ms, unit: ms}\n  decode_requests: {column: n, unit: count}\n"
        "  decode_context_tokens: {column: kv, unit: tokens}\n"
    )
    rows = [
        "ms,n,kv,prompt",
        f"10,4,400,{WORD}",
        f"11,4,{WORD},x",
        f"{HOST},4,400,x",
        f"12,{TOKENS},9,y",
    ]
    (tmp_path / "x.csv").write_text("\n".join(rows) + "\n")
    out = tmp_path / "store"
    report = ingest_paths([tmp_path], out, calib=CALIB)
    assert sum(f.rejected for f in report.files) == 3
    clean(out)


def test_secrets_in_a_trace(tmp_path: Path) -> None:
    engine = Engine(1)
    path = engine.write(tmp_path)
    for row in engine.rows:
        row["error_message"] = WORD
    path = engine.write(tmp_path)
    requests = path.with_name("trace.csv")
    requests.write_text(
        requests.read_text() + f"{WORD},{HOST},1,2,3,ok,\nreq-99,x,{WORD},1,2,{KEY},\n"
    )
    path.write_text(path.read_text() + f"{WORD},0,5.0\n{HOST},{ADDRESS},{KEY}\nreq-1,{WORD},1\n")
    (tmp_path / "run.yaml").write_text(
        "kind: Run\nschema_version: 1\ngpu: h100-sxm\nmodel: qwen3-8b\nengine: vllm\n"
        "reader: blis-trace\n"
    )
    out = tmp_path / "store"
    try:
        report = ingest_paths([tmp_path], out, calib=CALIB)
    except InputError as error:
        pytest.fail("; ".join(p.message for p in error.problems))
    assert sum(f.rejected for f in report.files) >= 4
    clean(out)


def test_every_reader_is_tried_here() -> None:
    tried = {"vllm-log", "sglang-log", "trtllm-log", "dynamo-fpm", "sglang-fpm", "otel-steps"}
    # Readers of whole requests are tried in test_private_requests.
    assert set(readers()) == tried | {"kernelfit", "table", "blis-trace"} | set(SOURCES)


@given(st.text(max_size=600))
def test_a_form_says_nothing_and_is_its_own_form(text: str) -> None:
    form = form_of(text)
    assert len(form) == min(len(text), LONGEST_FORM)
    assert form_of(form) == form
    assert not any(c.isdigit() and c != "0" for c in form)
    assert form.isascii()


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("Iteration(12): 3 context requests", "Iteration(00): 0 context requests"),
        ("my secret plan, 42!", "xx xxxxxx xxxx, 00!"),
        ("Iterations", "xxxxxxxxxx"),
        ("größe ٣", "xx??x ?"),
        ("a\tb\n", "x?x?"),
    ],
)
def test_forms(text: str, form: str) -> None:
    assert form_of(text) == form
    assert Reject("f", 1, "why", text).text == form


def test_values_and_errors_are_shown_without_what_they_quote() -> None:
    assert [value_shown(v) for v in ("nan", "-3.0", "12.5%", "1e-9", "8.5")] == [
        "nan", "-3.0", "12.5%", "1e-9", "8.5",
    ]  # fmt: skip
    assert value_shown("hunter2") == "7 characters of text"
    assert (
        error_shown(ValueError("Invalid value 'hunter2' - at `$.t`"))
        == "Invalid value (7 characters) - at `$.t`"
    )
