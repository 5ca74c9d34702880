"""``kernelfit ingest``: counts that add up, and what bad input says."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from tests.cli.run import kernelfit, snapshot
from tests.cli.runs import CALIB, RUN, write_run

GIVEN = ("--calib", CALIB)


@pytest.fixture
def held(tmp_path: Path) -> Path:
    """Return a folder with an earlier, good ingestion."""
    out = tmp_path / "out"
    assert kernelfit("ingest", write_run(tmp_path / "good"), "--out", out, *GIVEN).code == 0
    assert snapshot(out)
    return out


def test_counts_add_up_and_a_second_time_writes_nothing(tmp_path: Path) -> None:
    run, out = write_run(tmp_path / "traces" / "a", steps=40), tmp_path / "out"
    first = kernelfit("ingest", run.parent, "--out", out, "--json", *GIVEN)
    assert first.code == 0
    (entry,) = first.json()["ingest"]
    assert entry["steps"] == 40
    assert entry["lines"] == entry["steps"] + entry["recognised"] + entry["rejected"]
    before = snapshot(out)
    assert [name for name in before if name.endswith("steps.parquet")]
    again = kernelfit("ingest", run.parent, "--out", out, "--json", *GIVEN)
    assert again.json()["ingest"] == [{**entry, "skipped": True}]
    assert snapshot(out) == before


def test_a_dry_run_counts_and_writes_nothing(tmp_path: Path) -> None:
    run, out = write_run(tmp_path / "a", steps=40), tmp_path / "out"
    outcome = kernelfit("ingest", run, "--out", out, "--dry-run", "--json", *GIVEN)
    assert outcome.code == 0
    assert outcome.json()["ingest"][0]["steps"] == 40
    assert not out.exists()


def test_words_without_json(tmp_path: Path) -> None:
    outcome = kernelfit(
        "ingest", write_run(tmp_path / "a", steps=40), "--out", tmp_path / "o", *GIVEN
    )
    assert "table" in outcome.out
    assert "device" in outcome.out
    assert outcome.err == ""


def test_a_flag_overrules_the_document(tmp_path: Path) -> None:
    run, out = write_run(tmp_path / "a", steps=40), tmp_path / "out"
    words = ("ingest", run, "--out", out, *GIVEN)
    assert kernelfit(*words, "--gpu", "h200-sxm", "--tp", "2").code == 0
    refused = kernelfit(*words, "--gpu", "h2000-sxm")
    assert refused.code == 2
    assert "did you mean H200-SXM?" in refused.err


def _cut_gzip(run: Path) -> Path:
    whole = gzip.compress((run / "steps.csv").read_bytes())
    (run / "steps.csv").unlink()
    (run / "steps.csv.gz").write_bytes(whole[:-40])
    return run


BAD = {
    "missing folder": (lambda run: run / "nowhere", "nowhere: "),
    "empty log": (lambda run: _put(run / "steps.csv", ""), "steps.csv"),
    "no log": (lambda run: _put(run / "steps.csv", "Dear diary,\nnothing today.\n"), "steps.csv"),
    "wrong unit": (
        lambda run: _put(run / "run.yaml", RUN.format(model="llama-3.1-8b").replace("ms}", "mz}")),
        "run.yaml:17:34: wrong unit for duration_s (got 'mz'); allowed s, ms, us, ns",
    ),
    "unknown GPU": (
        lambda run: _put(run / "run.yaml", RUN.format(model="qwen3-8b").replace("H100", "H10")),
        "run.yaml:3:6: unknown GPU (got 'H10-SXM')",
    ),
    "model with a missing field": (
        lambda run: _model(run, '{"model_type": "llama", "hidden_size": 64}'),
        "config.json",
    ),
    "truncated gzip": (_cut_gzip, "steps.csv.gz"),
}


def _put(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path.parent


def _model(run: Path, text: str) -> Path:
    (run / "config.json").write_text(text, encoding="utf-8")
    return _put(run / "run.yaml", RUN.format(model="config.json"))


@pytest.mark.parametrize("json_flag", [[], ["--json"]])
@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_said_with_its_place_and_leaves_the_store(
    name: str, json_flag: list[str], held: Path, tmp_path: Path
) -> None:
    spoil, said = BAD[name]
    before = snapshot(held)
    path = spoil(write_run(tmp_path / "bad", seed=2, steps=30))
    outcome = kernelfit("ingest", path, "--out", held, *GIVEN, *json_flag)
    assert outcome.code == 2
    assert outcome.out == ""
    assert said in outcome.err
    assert "Traceback" not in outcome.err
    assert "internal error" not in outcome.err
    assert snapshot(held) == before


def test_all_problems_at_once_sorted(tmp_path: Path) -> None:
    for name in ("b", "a"):
        write_run(tmp_path / name, steps=5, document=RUN.replace("H100-SXM", "H1"))
    outcome = kernelfit("ingest", tmp_path, "--out", tmp_path / "out", *GIVEN)
    assert outcome.code == 2
    lines = outcome.err.splitlines()
    assert len(lines) == 2
    assert lines == sorted(lines)


def test_rejected_lines_are_kept_with_place_and_reason(tmp_path: Path) -> None:
    run = write_run(
        tmp_path / "a", steps=40, changes={3: {"ms": "nan"}, 7: {"decode_requests": -4}}
    )
    out = tmp_path / "out"
    outcome = kernelfit("ingest", run, "--out", out, "--json", *GIVEN)
    (entry,) = outcome.json()["ingest"]
    assert (entry["steps"], entry["rejected"]) == (38, 2)
    (rejects,) = out.rglob("*.rejects.jsonl")
    kept = [json.loads(line) for line in rejects.read_text(encoding="utf-8").splitlines()]
    # The head is line 1, so row 3 is line 5.
    assert [(row["file"], row["line"]) for row in kept] == [("steps.csv", 5), ("steps.csv", 9)]
    assert all(row["reason"] for row in kept)
