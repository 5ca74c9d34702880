from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelfit.documents.columns import COLUMNS, ColumnSpec
from kernelfit.documents.problems import InputError, Place
from kernelfit.documents.resolve import run_chip, run_model
from kernelfit.documents.rundoc import FACT_KEYS
from kernelfit.documents.runs import RunFacts, load_run, merge, run_from_flags
from kernelfit.kernel.pool import Pool
from tests.documents.helpers import CALIB, changed, one_problem, place_in, problems_of, written

# As the recorder writes it: JSON scalars, null facts left out.
RECORDED = """\
kind: "Run"
schema_version: 1
gpu: "AMD EPYC (family 25 model 1)"
model: "model.config.json"
model_name: "kf-gqa"
dtype: "float32"
engine: "vllm"
engine_version: "0.32.0"
reader: "kernelfit"
timing: "device"
pool:
  tp: 2
  enable_expert_parallel: false
  block_size: 128
  cache_dtype: "auto"
  max_num_seqs: 64
  enforce_eager: true
  cudagraph_mode: "NONE"
  cudagraph_capture_sizes: []
"""
TABLE = """\
gpu: H100-SXM
model: Qwen3-32B
engine: vllm
reader: table
timing: step
columns:
  duration_s: {column: latency_ms, unit: ms}
  requests: {column: n, unit: count}
  scheduled_tokens: {column: toks, unit: tokens}
  kv_usage: {column: kv, unit: percent}
pool: {tp: 2}
"""
FLAGS: dict[str, object] = {
    "gpu": "H100-SXM",
    "model": "Qwen3-32B",
    "engine": "vllm",
    "reader": "vllm-log",
}


def test_a_recorded_run(tmp_path: Path) -> None:
    path = written(tmp_path, RECORDED, "run.yaml")
    run = load_run(path)
    assert run == RunFacts(
        gpu="AMD EPYC (family 25 model 1)",
        model="model.config.json",
        model_name="kf-gqa",
        engine="vllm",
        engine_version="0.32.0",
        reader="kernelfit",
        timing="device",
        pool=Pool(
            tp=2,
            block_size=128,
            cache_dtype="auto",
            max_num_seqs=64,
            enforce_eager=True,
            cudagraph_mode="NONE",
        ),
        dtype="fp32",
        columns={},
        source=path,
    )
    assert run.place("gpu") == Place(str(path), 3, 6)
    assert run.place("tp") == Place(str(path), 12, 7)
    assert run.place("dp") == Place(str(path))


def test_a_table_with_its_units(tmp_path: Path) -> None:
    run = load_run(written(tmp_path, TABLE))
    assert run.columns == {
        "duration_s": ColumnSpec("latency_ms", "ms"),
        "requests": ColumnSpec("n", "count"),
        "scheduled_tokens": ColumnSpec("toks", "tokens"),
        "kv_usage": ColumnSpec("kv", "percent"),
    }
    scales = {name: spec.scale for name, spec in run.columns.items()}
    assert scales == {
        "duration_s": 1e-3,
        "requests": 1.0,
        "scheduled_tokens": 1.0,
        "kv_usage": 1e-2,
    }
    assert (run.timing, run.engine_version, run.dtype) == ("step", None, None)


@pytest.mark.parametrize(("unit", "scale"), [("s", 1), ("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9)])
def test_units_of_time(tmp_path: Path, unit: str, scale: float) -> None:
    run = load_run(written(tmp_path, changed(TABLE, "unit: ms", f"unit: {unit}")))
    assert run.columns["duration_s"].scale == scale


@pytest.mark.parametrize(
    ("old", "new", "at", "words"),
    [
        ("unit: ms", "unit: min", "min}", "wrong unit for duration_s (got 'min'); allowed s, ms"),
        ("unit: ms", "unit: tokens", "tokens}", "wrong unit for duration_s (got 'tokens')"),
        ("unit: count", "unit: ms", "ms}\n  sch", "for requests (got 'ms'); allowed count"),
        ("unit: percent", "unit: '%'", "'%'", "for kv_usage (got '%'); allowed fraction"),
        (", unit: ms", "", "{column: latency_ms}", "required key unit is missing"),
        ("column: latency_ms", "column: ''", "''", "duration_s names no column"),
        ("requests:", "request:", "request:", "unknown column request; allowed step, duration_s"),
        ("requests:", "request:", "request:", "did you mean requests?"),
        ("  duration_s: {column: latency_ms, unit: ms}\n", "", "requests:",
         "needs a column mapped to duration_s"),
        ("timing: step\n", "", "gpu", "timing is missing; allowed device, cycle, step, wait, disp"),
        ("timing: step", "timing: wall", "wall", "timing is not in the vocabulary (got 'wall')"),
        ("reader: table", "reader: vllm-log", "columns", "columns is only for the table reader"),
        ("{tp: 2}", "{tp: 0}", "0}", "pool.tp is out of range (got 0); allowed at least 1"),
        ("{tp: 2}", "{tp: 2.0}", "2.0}", "pool.tp has the wrong type (got 2.0)"),
        ("{tp: 2}", "{tpp: 2}", "tpp", "unknown key tpp"),
        ("{tp: 2}", "{tp: 2, nodes: 4}", "{tp", "nodes is 4, but tp x pp x dp gives only 2 ranks"),
        ("{tp: 2}", "{max_num_seqs: 65, max_num_batched_tokens: 64}", "{max",
         "max_num_batched_tokens is 64, less than max_num_seqs 65"),
        ("{tp: 2}", "{num_redundant_experts: 2, enable_eplb: false}", "{num",
         "num_redundant_experts is 2, but enable_eplb is false"),
        ("{tp: 2}", "{gpu_memory_utilization: 90}", "90", "is out of range (got 90)"),
        ("{tp: 2}", "{cudagraph_mode: full}", "full", "cudagraph_mode is not in the vocabulary"),
        ("{tp: 2}", "{cudagraph_capture_sizes: [8, 0]}", "0]", "cudagraph_capture_sizes.1 is out"),
        ("engine: vllm", "engine: vllm\nengine_version: 0.32", "0.32", "put it in quotes"),
        ("engine: vllm", "engine: vllm\ndtype: float17", "float17", "dtype (got 'float17')"),
        ("engine: vllm\n", "", "gpu", "the run does not say its engine; state it in run.yaml or"),
        ("gpu: H100-SXM\n", "", "model", "the run does not say its gpu"),
        ("gpu: H100-SXM", "gpus: H100-SXM", "gpus", "unknown key gpus"),
        ("gpu: H100-SXM", "gpu: ''", "''", "gpu is empty"),
        ("gpu: H100-SXM", "gpu: H100-SXM\ngpu: B200", "gpu: B200", "key gpu is repeated"),
        ("gpu: H100-SXM", "kind: Chip\ngpu: H100-SXM", "Chip", "allowed Run"),
    ],
)  # fmt: skip
def test_one_change_is_refused_where_it_stands(
    tmp_path: Path, old: str, new: str, at: str, words: str
) -> None:
    load_run(written(tmp_path, TABLE))
    text = changed(TABLE, old, new)
    path = written(tmp_path, text)
    hits = [p for p in problems_of(load_run, path) if words in p.render()]
    assert len(hits) == 1, [p.render() for p in problems_of(load_run, path)]
    assert (hits[0].file, hits[0].line, hits[0].column) == (str(path), *place_in(text, at))


def test_a_table_says_how_much_work_there_was(tmp_path: Path) -> None:
    gone = "  scheduled_tokens: {column: toks, unit: tokens}\n"
    problem = one_problem(load_run, written(tmp_path, changed(TABLE, gone, "")))
    work = "scheduled, scheduled_tokens, decode_requests, prefill_tokens"
    assert problem.allowed == f"uniform, or one of {work}"
    for other in ("scheduled", "prefill_tokens"):
        text = changed(TABLE, "scheduled_tokens", other)
        assert other in load_run(written(tmp_path, text)).columns


def test_a_table_without_columns_and_columns_in_our_order(tmp_path: Path) -> None:
    without = TABLE[: TABLE.index("columns:")]
    assert "needs columns" in one_problem(load_run, written(tmp_path, without)).message
    assert list(load_run(written(tmp_path, TABLE)).columns) == [
        name for name in COLUMNS if f"  {name}:" in TABLE
    ]


def test_flags_fill_and_override(tmp_path: Path) -> None:
    bare = written(tmp_path, "reader: vllm-log\nmodel: Qwen3-32B\n")
    assert len(problems_of(load_run, bare)) == 2
    flags = {"gpu": "H100-SXM", "engine": "vllm", "tp": 4, "model": "Qwen3-8B", "dp": None}
    run = load_run(bare, flags)
    assert (run.gpu, run.model, run.model_name) == ("H100-SXM", "Qwen3-8B", "Qwen3-8B")
    assert run.pool == Pool(tp=4)
    assert run.place("gpu") == Place("command line")
    assert run.place("reader").line == 1


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"tpp": 2}, "command line: unknown fact tpp; allowed gpu, model"),
        ({"tp": "2"}, "command line: pool.tp has the wrong type (got '2')"),
        ({"tp": -1}, "command line: pool.tp is out of range (got -1)"),
        ({"timing": "wall"}, "command line: timing is not in the vocabulary (got 'wall')"),
        ({"dtype": "float17"}, "unknown dtype (got 'float17')"),
    ],
)
def test_flags_are_checked_like_the_document(
    tmp_path: Path, flags: dict[str, object], words: str
) -> None:
    path = written(tmp_path, TABLE)
    run = load_run(path, {"tp": 4, "timing": "cycle", "dtype": "float16"})
    assert (run.pool.tp, run.timing, run.dtype) == (4, "cycle", "fp16")
    for read in (lambda: load_run(path, flags), lambda: merge(run, flags)):
        assert any(words in problem.render() for problem in problems_of(read))


def test_what_the_log_states_fills_and_must_not_contradict(tmp_path: Path) -> None:
    path = written(tmp_path, TABLE)
    log = {"tp": 2, "max_num_seqs": 128, "engine_version": "0.32.0"}
    run = load_run(path, stated=log)
    assert (run.pool.max_num_seqs, run.engine_version) == (128, "0.32.0")
    problem = one_problem(load_run, path, stated=log | {"tp": 4}, stated_in="engine.log:12")
    line, column = place_in(TABLE, "2}")
    assert problem.render() == (
        f"{path}:{line}:{column}: tp contradicts engine.log:12, which says 4 (got 2); "
        "correct one of them, or settle it with a flag"
    )
    assert load_run(path, {"tp": 4}, stated=log | {"tp": 4}).pool.tp == 4
    assert load_run(path, {"tp": 2}, stated=log | {"tp": 4}).pool.tp == 2


def test_two_words_for_one_dtype_do_not_contradict(tmp_path: Path) -> None:
    path = written(tmp_path, RECORDED)
    assert load_run(path, stated={"dtype": "torch.float32"}).dtype == "fp32"
    assert "dtype contradicts" in one_problem(load_run, path, stated={"dtype": "bf16"}).message


def test_flags_alone_describe_a_run() -> None:
    run = run_from_flags(FLAGS | {"tp": 2})
    assert (run.gpu, run.source, run.pool.tp) == ("H100-SXM", None, 2)
    problems = problems_of(run_from_flags, {"gpu": "H100-SXM"})
    assert [p.message for p in problems] == [
        "the run does not say its engine",
        "the run does not say its model",
        "the run does not say its reader",
    ]
    assert {p.file for p in problems} == {"command line"}
    assert run_from_flags({"gpu": "H100-SXM", "reader": "r"}, stated=FLAGS).engine == "vllm"


@given(st.sampled_from([RECORDED, TABLE]), st.data())
def test_merging_nothing_changes_nothing(
    tmp_path_factory: pytest.TempPathFactory, text: str, data: st.DataObject
) -> None:
    run = load_run(written(tmp_path_factory.mktemp("run"), text, "run.yaml"))
    nothing: dict[str, Any] = dict.fromkeys(data.draw(st.lists(st.sampled_from(FACT_KEYS))))
    assert merge(run, nothing) == run


def test_merging_changes_what_it_names(tmp_path: Path) -> None:
    run = load_run(written(tmp_path, RECORDED, "run.yaml"))
    other = merge(run, {"gpu": "B200", "max_num_seqs": 8})
    pool = dataclasses.replace(run.pool, max_num_seqs=8)
    assert other == dataclasses.replace(run, gpu="B200", pool=pool)
    assert other.place("gpu") == Place("command line")
    assert other.place("tp") == run.place("tp")
    assert merge(run, {"model": "Qwen3-8B"}).model_name == "Qwen3-8B"
    assert merge(run, {"model": "Qwen3-8B", "model_name": "q"}).model_name == "q"


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("Qwen3-32B", "Qwen3-32B"),
        ("org/Qwen3-32B", "org/Qwen3-32B"),
        ("shapes/kf-gqa/config.json", "kf-gqa"),
        ("model.config.json", "the-run"),
        ("models/tiny.yaml", "tiny"),
        ("org--m.config.json", "org--m"),
    ],
)
def test_a_model_without_a_name_gets_one(tmp_path: Path, model: str, name: str) -> None:
    (tmp_path / "the-run").mkdir()
    text = changed(TABLE, "Qwen3-32B", model)
    assert load_run(written(tmp_path / "the-run", text, "run.yaml")).model_name == name


DEPLOYMENT = """\
kind: Deployment
schema_version: 1
name: d
gpu: H100-SXM
model: Qwen3-32B
engine: vllm
engine_version: "0.32.0"
pools:
  - {name: small, pool: {tp: 2, max_num_seqs: 32}}
  - {name: large, pool: {tp: 4}}
"""


def test_a_run_may_name_a_deployment(tmp_path: Path) -> None:
    written(tmp_path, DEPLOYMENT, "d.yaml")
    text = "reader: vllm-log\ndeployment: {file: d.yaml, pool: small}\n"
    run = load_run(written(tmp_path, text, "run.yaml"))
    assert (run.gpu, run.model, run.engine_version) == ("H100-SXM", "Qwen3-32B", "0.32.0")
    assert run.pool == Pool(tp=2, max_num_seqs=32)
    for end, words in {
        "{file: d.yaml}": "has several pools; say which; allowed small, large",
        "{file: d.yaml, pool: medium}": "no such pool (got 'medium'); allowed small, large",
        "{file: e.yaml, pool: small}": "e.yaml: no such file",
        "{file: d.yaml, pool: small}\npool: {tp: 4}": "tp contradicts the deployment, which says 2",
        "{file: d.yaml, pool: small}\ngpu: B200": "gpu contradicts the deployment",
    }.items():
        bad = written(tmp_path, f"reader: vllm-log\ndeployment: {end}\n", "run.yaml")
        assert words in one_problem(load_run, bad).render()
    fits = text + "pool: {tp: 2, block_size: 16}\n"
    pool = load_run(written(tmp_path, fits, "run.yaml")).pool
    assert pool == Pool(tp=2, max_num_seqs=32, block_size=16)


def test_a_run_finds_its_chip_and_model(tmp_path: Path) -> None:
    run = load_run(written(tmp_path, TABLE, "run.yaml"))
    assert run_chip(run, CALIB / "chips").name == "H100-SXM"
    assert run_model(run, CALIB / "models").name == "Qwen3-32B"
    unknown = one_problem(run_chip, merge(run, {"gpu": "H100-SXN"}), CALIB / "chips")
    assert unknown.render().startswith("command line: unknown GPU (got 'H100-SXN'); allowed A100-")
    path = written(tmp_path, changed(TABLE, "H100-SXM", "H1000"), "run.yaml")
    problem = one_problem(run_chip, load_run(path), CALIB / "chips")
    assert (problem.file, problem.line, problem.column) == (str(path), 1, 6)


def test_a_run_s_model_may_be_a_file_or_a_folder(tmp_path: Path) -> None:
    config = (
        '{"model_type": "llama", "hidden_size": 8, "num_attention_heads": 2, "vocab_size": 5,'
        ' "num_hidden_layers": 1, "intermediate_size": 16, "torch_dtype": "bfloat16"}'
    )
    written(tmp_path, config, "model.config.json")
    run = load_run(written(tmp_path, RECORDED, "run.yaml"))
    model = run_model(run, tmp_path)
    assert (model.name, model.dtype) == ("kf-gqa", "fp32")
    (tmp_path / "checkpoint").mkdir()
    written(tmp_path / "checkpoint", config, "config.json")
    assert run_model(merge(run, {"model": "checkpoint"}), tmp_path).name == "checkpoint"
    problem = one_problem(run_model, merge(run, {"model": "gone.json"}), tmp_path)
    assert problem.message == "no such model file"
    lacking = config.replace('"num_attention_heads": 2, ', "")
    path = written(tmp_path, lacking, "model.config.json")
    problem = one_problem(run_model, run, tmp_path)
    assert problem.render() == f"{path}:1:1: required field num_attention_heads is missing"


def test_an_input_error_shows_every_line() -> None:
    with pytest.raises(InputError) as caught:
        run_from_flags({})
    assert str(caught.value).count("\n") == 3
