from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from kernelfit.documents.problems import InputError
from kernelfit.kernel.model import parameter_count
from kernelfit.store.ingest import IngestReport
from kernelfit.store.scan import load_store
from kernelfit.store.schema import SCHEMAS, STORE_VERSION, VERSION_KEY
from tests.logs.recording import RUN_YAML, Recording, small
from tests.logs.test_vllm_log import HEAD, body

Ingest = Callable[..., IngestReport]


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_a_recording_becomes_tables(ingest: Ingest, tmp_path: Path) -> None:
    out = tmp_path / "store"
    report = ingest(small().write(tmp_path / "in" / "run"), out=out)
    (counts,) = report.files
    assert (counts.lines, counts.steps, counts.recognised, counts.rejected) == (12, 4, 8, 0)
    assert (counts.file, counts.reader, counts.timing) == ("run", "kernelfit", "device")
    assert counts.run_ids == report.run_ids == ("run",)
    assert not counts.skipped
    assert [p.name for p in out.iterdir()] == ["run"]
    for name, schema in SCHEMAS.items():
        table = pq.read_table(out / "run" / f"{name}.parquet")
        assert table.schema.equals(schema, check_metadata=True)
        assert table.schema.metadata[VERSION_KEY] == str(STORE_VERSION).encode()
    meta = pq.ParquetFile(out / "run" / "steps.parquet").metadata
    assert meta.row_group(0).column(0).compression == "ZSTD"
    (record,) = load_store(out).runs
    assert record.row["lines_read"] == 12
    assert (record.run_id, record.gpu, record.model_name) == ("run", "H100-SXM", "qwen3-8b")
    assert record.row["source"] == "run"
    assert record.row["dtype"] == "bf16"
    assert record.pool.block_size == 16
    # Qwen3-8B is published with 8.2 billion parameters.
    assert record.model is not None
    assert parameter_count(record.model) == pytest.approx(8.19e9, rel=0.01)
    steps = record.steps.to_pydict()
    assert steps["run_id"] == ["run"] * 4
    assert steps["timing"] == ["device"] * 4
    assert steps["composition"] == ["per_request"] * 4
    assert steps["phase"] == ["prefill", "prefill", "decode", "mixed"]
    assert steps["marks"] == [[], [], [], []]
    np.testing.assert_allclose(steps["duration_s"], 10e-3)
    assert record.requests.column("computed").to_pylist() == [0, 64, 100, 101, 32]
    assert record.events.num_rows == 0


def test_unknown_becomes_null(ingest: Ingest, tmp_path: Path) -> None:
    recording = Recording()
    recording.step([(1, None, None, None)], submit_ns=None, kv_usage=None, in_flight=2)
    ingest(recording.write(tmp_path / "run"), out=tmp_path / "store")
    (record,) = load_store(tmp_path / "store").runs
    (step,) = record.steps.to_pylist()
    for name in ("wait_s", "dispatch_s", "kv_usage", "context_tokens", "decode_pairs", "phase"):
        assert step[name] is None, name
    assert (step["decode_requests"], step["marks"]) == (1, ["in_flight"])
    (request,) = record.requests.to_pylist()
    assert (request["computed"], request["prompt_len"], request["cached"]) == (None, None, None)


def test_ingesting_again_changes_nothing(ingest: Ingest, tmp_path: Path) -> None:
    out = tmp_path / "store"
    folder = small().write(tmp_path / "run")
    first = ingest(folder, out=out)
    before = snapshot(out)
    again = ingest(folder, out=out)
    assert snapshot(out) == before
    assert again.files[0].skipped
    assert again.files[0].run_ids == ("run",)
    assert again.files[0].steps == first.files[0].steps
    # The same recording under another name is the same recording.
    copy = small().write(tmp_path / "copy")
    report = ingest(folder, copy, out=out)
    assert [f.run_ids for f in report.files] == [("run",), ("run",)]
    assert snapshot(out) == before


def test_a_changed_source_replaces_its_run(ingest: Ingest, tmp_path: Path) -> None:
    out = tmp_path / "store"
    recording = small()
    ingest(recording.write(tmp_path / "run"), out=out)
    recording.step([(1, 102, 100, 0)])
    ingest(recording.write(tmp_path / "run"), out=out)
    (record,) = load_store(out).runs
    assert record.steps.num_rows == 5
    # A changed document is a change too.
    (tmp_path / "run" / "run.yaml").write_text(RUN_YAML.replace("tp: 1", "tp: 2"))
    assert not ingest(tmp_path / "run", out=out).files[0].skipped
    (record,) = load_store(out).runs
    assert record.pool.tp == 2
    assert not [p for p in out.iterdir() if p.name.startswith(".")]


def test_runs_of_one_name_are_kept_apart(ingest: Ingest, tmp_path: Path) -> None:
    other = small()
    other.step([(1, 102, 100, 0)])
    report = ingest(
        small().write(tmp_path / "x" / "run"),
        other.write(tmp_path / "y" / "run"),
        out=tmp_path / "store",
    )
    assert report.run_ids == ("x-run", "y-run")
    assert len(load_store(tmp_path / "store").runs) == 2


def test_rejects_stand_beside_the_run(ingest: Ingest, tmp_path: Path) -> None:
    out = tmp_path / "store"
    recording = small()
    recording.steps[1]["computed"] = [-64]
    folder = recording.write(tmp_path / "run")
    (counts,) = ingest(folder, out=out).files
    rejects = [json.loads(line) for line in (out / "run" / "run.rejects.jsonl").open()]
    assert counts.rejected == len(rejects) == 2
    assert counts.lines == counts.steps + counts.recognised + counts.rejected
    assert (rejects[0]["file"], rejects[0]["line"]) == ("engine-10.jsonl", 4)
    assert ">= 0" in rejects[0]["reason"]
    assert rejects[0]["text"].startswith('{"t": "step"')


def test_flags_override_and_dry_run_writes_nothing(ingest: Ingest, tmp_path: Path) -> None:
    out = tmp_path / "store"
    folder = small().write(tmp_path / "run")
    report = ingest(folder, out=out, dry_run=True)
    assert report.files[0].steps == 4
    assert not out.exists()
    ingest(folder, out=out, overrides={"gpu": "L40S", "tp": None})
    assert load_store(out).runs[0].gpu == "L40S"


def test_flags_describe_a_recording_without_document(ingest: Ingest, tmp_path: Path) -> None:
    folder = small().write(tmp_path / "run", run_yaml=None)
    with pytest.raises(InputError, match="does not say its gpu"):
        ingest(folder, out=tmp_path / "store")
    ingest(folder, out=tmp_path / "store", overrides={"gpu": "H100", "model": "qwen3-8b"})
    assert load_store(tmp_path / "store").runs[0].model_name == "qwen3-8b"


def test_progress_is_told(ingest: Ingest, tmp_path: Path) -> None:
    told: list[tuple[int, int, str]] = []
    ingest(
        small().write(tmp_path / "run"),
        out=tmp_path / "s",
        progress=lambda done, total, name: told.append((done, total, name)),
    )
    assert told == [(0, 1, "run"), (1, 1, "")]


def log_of(tmp_path: Path, *lines: str, yaml: str | None = None) -> Path:
    tmp_path.mkdir(exist_ok=True)
    (tmp_path / "engine.log").write_text("\n".join(lines) + "\n")
    if yaml is not None:
        (tmp_path / "run.yaml").write_text(yaml)
    return tmp_path / "engine.log"


LOG_YAML = RUN_YAML.replace("reader: kernelfit\ntiming: device\n", "reader: vllm-log\n")
INIT = (
    f"{HEAD}Initializing a V1 LLM engine (v0.32.0) with config: model='m', "
    "dtype=torch.bfloat16, tensor_parallel_size=1, enforce_eager=True"
)


def test_a_text_log_is_stored_and_refused_for_fitting(ingest: Ingest, tmp_path: Path) -> None:
    log = log_of(tmp_path / "a", INIT, HEAD + body(0), HEAD + body(1), yaml=LOG_YAML)
    (counts,) = ingest(log, out=tmp_path / "store").files
    assert counts.timing == "wait"
    assert "only the wait" in str(counts.fit_refused_reason)
    (record,) = load_store(tmp_path / "store").runs
    # What the log states is filled in; nothing about prompts or hosts is.
    assert record.pool.enforce_eager is True
    assert record.fit_refused_reason == counts.fit_refused_reason
    assert record.requests.num_rows == 0


def test_a_document_that_contradicts_the_log(ingest: Ingest, tmp_path: Path) -> None:
    yaml = LOG_YAML.replace("tp: 1", "tp: 2")
    log = log_of(tmp_path / "a", INIT, HEAD + body(0), yaml=yaml)
    with pytest.raises(InputError, match=r"run\.yaml:10:7: tp contradicts") as caught:
        ingest(log, out=tmp_path / "store")
    assert len(caught.value.problems) == 1
    # A flag settles it.
    ingest(log, out=tmp_path / "store", overrides={"tp": 2})
    assert load_store(tmp_path / "store").runs[0].pool.tp == 2


def test_a_document_cannot_turn_a_wait_into_a_step(ingest: Ingest, tmp_path: Path) -> None:
    for timing in ("device", "cycle", "step", "dispatch"):
        yaml = LOG_YAML.replace("pool:", f"timing: {timing}\npool:")
        log = log_of(tmp_path / timing, HEAD + body(0), yaml=yaml)
        with pytest.raises(InputError, match=rf"do not mean that \(got {timing}\); allowed wait"):
            ingest(log, out=tmp_path / "store")
    yaml = LOG_YAML.replace("pool:", "timing: wait\npool:")
    log = log_of(tmp_path / "wait", HEAD + body(0), yaml=yaml)
    assert ingest(log, out=tmp_path / "store").files[0].steps == 1


def test_the_engines_log_beside_a_recording_keeps_its_own_timing(
    ingest: Ingest, tmp_path: Path
) -> None:
    folder = small().write(tmp_path / "run")
    (folder / "engine.log").write_text(HEAD + body(0) + "\n")
    (counts,) = ingest(folder / "engine.log", out=tmp_path / "store").files
    assert (counts.reader, counts.timing) == ("vllm-log", "wait")


def test_a_restart_gives_two_runs(ingest: Ingest, tmp_path: Path) -> None:
    log = log_of(tmp_path / "a", INIT, HEAD + body(0), INIT, HEAD + body(0), HEAD + body(1))
    (counts,) = ingest(log, out=tmp_path / "store").files
    assert counts.run_ids == ("engine", "engine.2")
    assert (counts.lines, counts.steps) == (5, 3)
    assert [r.steps.num_rows for r in load_store(tmp_path / "store").runs] == [1, 2]
    # With one life left, the other's folder goes.
    log_of(tmp_path / "a", INIT, HEAD + body(0))
    ingest(log, out=tmp_path / "store")
    assert [p.name for p in (tmp_path / "store").iterdir()] == ["engine"]


def test_pipeline_parallel_spans_are_refused_for_fitting(ingest: Ingest, tmp_path: Path) -> None:
    yaml = RUN_YAML.replace("tp: 1", "tp: 1\n  pp: 2")
    folder = small(ranks=2).write(tmp_path / "run", run_yaml=yaml)
    (counts,) = ingest(folder, out=tmp_path / "store").files
    assert "pipeline parallelism" in str(counts.fit_refused_reason)


def test_a_table_beside_its_document(ingest: Ingest, tmp_path: Path) -> None:
    folder = tmp_path / "t"
    folder.mkdir()
    (folder / "run.yaml").write_text(
        "kind: Run\nschema_version: 1\ngpu: A100-SXM-80GB\nmodel: qwen3-8b\nengine: other\n"
        "reader: table\ntiming: step\ncolumns:\n"
        "  duration_s: {column: took, unit: us}\n  decode_requests: {column: n, unit: count}\n"
    )
    (folder / "a.csv.gz").write_bytes(gzip.compress(b"took,n\n2500,3\nnan,1\n"))
    (counts,) = ingest(folder, out=tmp_path / "store").files
    assert (counts.lines, counts.steps, counts.recognised, counts.rejected) == (3, 1, 1, 1)
    (record,) = load_store(tmp_path / "store").runs
    assert record.run_id == "t"
    assert record.steps.column("duration_s").to_pylist() == [pytest.approx(2.5e-3)]


# -- what cannot be used: one clear line, and the store stays as it was -------------


def bad_yaml(old: str, new: str) -> str:
    assert old in RUN_YAML
    return RUN_YAML.replace(old, new)


@pytest.mark.parametrize(
    ("yaml", "message"),
    [
        (bad_yaml("gpu: h100-sxm", "gpu: h1000"), r"run\.yaml:3:6: .*GPU.*h1000"),
        (bad_yaml("model: qwen3-8b", "model: nobody-1b"), r"run\.yaml:4:8: .*model.*nobody"),
        (bad_yaml("tp: 1", "tp: two"), r"run\.yaml:11:7"),
        (bad_yaml("tp: 1", "tpp: 1"), r"run\.yaml:11:3.*tpp"),
        (bad_yaml("timing: device", "timing: guess"), r"run\.yaml:9:9"),
        (bad_yaml("timing: device", "timing: step"), "do not mean that"),
        (bad_yaml('"0.32.0"', '"0.31.0"'), r"engine_version contradicts"),
        (RUN_YAML + "  tp: 2\n", "repeated"),
    ],
)
def test_bad_documents(ingest: Ingest, tmp_path: Path, yaml: str, message: str) -> None:
    out = tmp_path / "store"
    good = small().write(tmp_path / "good")
    ingest(good, out=out)
    before = snapshot(out)
    bad = small().write(tmp_path / "bad", run_yaml=yaml)
    other = Recording()
    other.step([(5, 0, 5, 0)])
    fresh = other.write(tmp_path / "fresh")
    with pytest.raises(InputError, match=message) as caught:
        ingest(fresh, bad, out=out)
    assert len(caught.value.problems) == 1
    assert str(bad) in str(caught.value)
    assert snapshot(out) == before


def test_a_model_file_with_a_missing_field(ingest: Ingest, tmp_path: Path) -> None:
    yaml = bad_yaml("model: qwen3-8b", "model: model.config.json")
    folder = small().write(tmp_path / "run", run_yaml=yaml)
    facts = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": 100,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
    }
    path = folder / "model.config.json"
    path.write_text(json.dumps({k: v for k, v in facts.items() if k != "hidden_size"}))
    with pytest.raises(InputError, match=r"model\.config\.json.*hidden_size"):
        ingest(folder, out=tmp_path / "store")
    assert not (tmp_path / "store").exists()
    path.write_text(json.dumps(facts))
    assert ingest(folder, out=tmp_path / "store").files[0].steps == 4
    # The model's file is part of what the run follows from.
    path.write_text(json.dumps(facts | {"hidden_size": 128}))
    assert not ingest(folder, out=tmp_path / "store").files[0].skipped
    path.unlink()
    with pytest.raises(InputError, match="no such model file"):
        ingest(folder, out=tmp_path / "store")


def test_only_unusable_rows_name_the_first(ingest: Ingest, tmp_path: Path) -> None:
    recording = small()
    for row in recording.workers[0]:
        row["span_ns"] = [9, 5]
    folder = recording.write(tmp_path / "run")
    with pytest.raises(InputError, match=r"engine-10\.jsonl:3: no usable step.*span is negative"):
        ingest(folder, out=tmp_path / "store")
    recording = Recording()
    recording.step([(1, 5, 5, 0)], computed=[-5])
    folder = recording.write(tmp_path / "other")
    with pytest.raises(InputError, match=r"engine-10\.jsonl:3: no usable step.*>= 0"):
        ingest(folder, out=tmp_path / "store")
    assert not (tmp_path / "store").exists()


def test_every_problem_at_once_and_sorted(ingest: Ingest, tmp_path: Path) -> None:
    (tmp_path / "empty.log").write_text("")
    (tmp_path / "diary.txt").write_text("nothing happened\n")
    (tmp_path / "void").mkdir()
    paths = [tmp_path / name for name in ("void", "missing", "empty.log", "diary.txt")]
    with pytest.raises(InputError) as caught:
        ingest(*paths, out=tmp_path / "store")
    lines = [problem.render() for problem in caught.value.problems]
    assert len(lines) == 4
    for name, message in (
        ("diary.txt", "not a log of vLLM"),
        ("empty.log", "the log is empty"),
        ("missing", "no such file or folder"),
        ("void", "the folder holds no run"),
    ):
        (line,) = [text for text in lines if text.startswith(str(tmp_path / name))]
        assert message in line
    assert lines == sorted(lines)
    assert not (tmp_path / "store").exists()
