"""Real excerpts with what really happened in the same run, step by step."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from kernelfit.logs.columns import ParsedRun
from kernelfit.logs.marks import mark_names
from kernelfit.logs.source import RunSource
from kernelfit.logs.vllm_log import VllmLogReader
from tests.logs.recording import adds_up

LOGS = Path(__file__).resolve().parents[2].parent / "shared" / "logs"

pytestmark = pytest.mark.skipif(
    not LOGS.is_dir(), reason="the folder shared/logs beside the repository is absent"
)

STEPS = {
    "dev-04": 37,
    "dev-70": 72,
    "dev-71": 539,
    "dev-72": 17,
    "dev-73": 63,
    "dev-74": 58,
    "dev-75": 74,
    "dev-76": 33,
    "dev-77": 77,
}


def run_of(name: str) -> ParsedRun:
    (path,) = LOGS.glob(f"{name}-*.log")
    (run,) = VllmLogReader().read(RunSource(path, None, "vllm-log", path.name, name), None)
    return run


@pytest.mark.parametrize("name", STEPS)
def test_steps_and_accounts(name: str) -> None:
    run = run_of(name)
    (path,) = LOGS.glob(f"{name}-*.log")
    assert run.steps.count == STEPS[name]
    assert run.counts.rejected == 0
    assert run.counts.lines == len(path.read_bytes().splitlines())
    assert adds_up(run)
    assert run.timing == "wait"
    assert run.fit_refused_reason is not None


@pytest.mark.parametrize("name", [n for n in STEPS if n != "dev-76"])
def test_totals_equal_the_truth_at_every_step(name: str) -> None:
    """The truth holds idle calls too, which the engine does not print."""
    truth = [json.loads(line) for line in (LOGS / "truth" / f"{name}.jsonl").open()]
    busy = [row for row in truth if row["total_scheduled"] > 0]
    steps = run_of(name).steps
    printed = list(zip(steps.scheduled_tokens.tolist(), steps.requests.tolist(), strict=True))
    assert printed == [(row["total_scheduled"], len(row["requests"])) for row in busy]


@pytest.mark.parametrize("name", [n for n in STEPS if n != "dev-76"])
def test_known_decode_counts_equal_the_truth(name: str) -> None:
    truth = [json.loads(line) for line in (LOGS / "truth" / f"{name}.jsonl").open()]
    busy = [row for row in truth if row["total_scheduled"] > 0]
    known = 0
    for got, row in zip(run_of(name).steps.decode_requests.tolist(), busy, strict=True):
        if got >= 0:
            known += 1
            assert got == sum(r["scheduled"] == 1 for r in row["requests"])
    assert known > 0


def marked(name: str, mark: str) -> list[int]:
    steps = run_of(name).steps
    pairs = zip(steps.step.tolist(), steps.marks.tolist(), strict=True)
    return [step for step, bits in pairs if mark in mark_names(bits)]


def test_resumed_requests_are_marked() -> None:
    assert marked("dev-71", "resume_or_spec") == [260, 262, 263, 267, 269, 272]
    steps = run_of("dev-71").steps
    phases = dict(zip(steps.step.tolist(), steps.phases(), strict=True))
    assert {phases[i] for i in marked("dev-71", "resume_or_spec")} == {None}


def test_compilation_is_marked() -> None:
    assert marked("dev-72", "warmup") == [0]
    for name in STEPS:
        if name != "dev-72":
            assert marked(name, "warmup") == []


def test_the_wrapped_log_equals_the_unwrapped_lines(tmp_path: Path) -> None:
    (path,) = LOGS.glob("dev-76-*.log")
    plain = tmp_path / "plain.log"
    plain.write_text("".join(json.loads(line)["log"] for line in path.open()))
    (bare,) = VllmLogReader().read(RunSource(plain, None, "vllm-log", "plain", "plain"), None)
    wrapped = run_of("dev-76")
    assert bare.counts == wrapped.counts
    for name in ("step", "engine", "duration_s", "scheduled_tokens", "kv_usage"):
        assert getattr(bare.steps, name).tolist() == getattr(wrapped.steps, name).tolist()
    assert sorted(set(wrapped.steps.engine.tolist())) == [0, 1]


def test_json_records_state_year_and_milliseconds() -> None:
    assert "date and milliseconds" in run_of("dev-70").clock


def test_the_whole_folder_is_ingested_without_documents(tmp_path: Path) -> None:
    from kernelfit.store.ingest import ingest_paths
    from kernelfit.store.scan import load_store

    calib = Path(__file__).resolve().parents[2] / "calib"
    report = ingest_paths([LOGS], tmp_path / "store", calib=calib)
    assert sum(f.steps for f in report.files) == sum(STEPS.values())
    assert all(f.fit_refused_reason for f in report.files)
    stored = b"".join(p.read_bytes() for p in (tmp_path / "store").rglob("*") if p.is_file())
    assert b"r0-" not in stored
    assert len(load_store(tmp_path / "store").runs) == len(STEPS)
    shutil.rmtree(tmp_path / "store")
