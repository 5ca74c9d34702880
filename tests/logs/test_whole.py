"""Whether a recording is whole: each thing that can be missing, beside a recording without it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernelfit.logs.whole import Wholeness, check_recording
from tests.logs.recording import MS, RUN_YAML, Recording, header, small
from tests.logs.test_vllm_log import HEAD

Rows = list[dict[str, Any]]


def test_a_whole_recording(tmp_path: Path) -> None:
    found = check_recording(small().write(tmp_path / "run"))
    assert found.whole
    assert (found.engines, found.workers, found.steps, found.idle) == (1, 1, 4, 0)
    # 64, 36, 1 and 41 tokens.
    assert found.tokens == 142
    assert found.worker_tokens == (("worker-11.jsonl", 142),)
    assert found.hook_share == pytest.approx(1e-5 / 10e-3)
    assert (found.timing, found.fit_refused_reason) == ("device", None)
    assert (found.aligned, found.printed, found.last_unfinished) == (None, None, None)


def yaml_with(**pool: int) -> str:
    """Return a run document with a pool."""
    words = ", ".join(f"{key}: {value}" for key, value in pool.items())
    return re.sub(r"(?ms)^pool:.*?(?=^\S|\Z)", "", RUN_YAML) + f"pool: {{{words}}}\n"


@pytest.mark.parametrize(
    ("spoil", "fault"),
    [
        (lambda p: (p / "run.yaml").unlink(), "run.yaml is missing"),
        (lambda p: (p / "run.yaml").write_text("gpu: [\n"), "run.yaml"),
        (lambda p: (p / "engine-10.jsonl").unlink(), "no engine-*.jsonl"),
        (lambda p: (p / "worker-11.jsonl").unlink(), "nothing was recorded by worker rank 0"),
        (lambda p: (p / "worker-11.jsonl").open("a").write("{}\n{}\n"), "not a row"),
        (
            lambda p: (p / "run.yaml").write_text(yaml_with(tp=2)),
            "nothing was recorded by worker rank 1",
        ),
        (
            lambda p: (p / "run.yaml").write_text(yaml_with(tp=1, dp=2)),
            "nothing was recorded by the engine of rank 1",
        ),
    ],
)
def test_what_is_missing_is_named(
    spoil: Callable[[Path], object], fault: str, tmp_path: Path
) -> None:
    folder = small().write(tmp_path / "run")
    assert check_recording(folder).whole
    spoil(folder)
    found = check_recording(folder)
    assert not found.whole
    assert any(fault in words for words in found.faults), found.faults


def test_steps_that_are_missing_within_a_file(tmp_path: Path) -> None:
    made = Recording()
    for number in range(30):
        made.step([(1, 50 + number, 20, 0)])
    for gone in (25, 12, 11, 0):
        del made.steps[gone]
    found = check_recording(made.write(tmp_path / "run"))
    assert "engine-10.jsonl lacks 4 steps (0, 11 to 12, 25)" in found.faults


def test_an_unfinished_end_is_told_and_is_no_fault(tmp_path: Path) -> None:
    made = Recording()
    for number in range(30):
        made.step([(1, 50 + number, 20, 0)])
    del made.steps[-2:]
    found = check_recording(made.write(tmp_path / "run"))
    assert found.whole
    assert (found.steps, found.unfinished, found.last_unfinished) == (28, 2, 29)


def test_a_costly_recorder_leaves_it_whole_and_unfit(tmp_path: Path) -> None:
    made = small()
    for row in made.steps:
        row["cost_ns"] = 200_000
    found = check_recording(made.write(tmp_path / "run"))
    assert found.whole
    assert found.hook_share == pytest.approx(0.02)
    assert "the recorder took 2.0% of the time" in (found.fit_refused_reason or "")


def test_stages_of_a_pipeline_are_whole_and_unfit(tmp_path: Path) -> None:
    folder = small(ranks=2).write(tmp_path / "run", run_yaml=yaml_with(tp=1, pp=2))
    found = check_recording(folder)
    assert found.whole
    assert "with pipeline parallelism (pp 2)" in (found.fit_refused_reason or "")


def log_of(tokens: list[int]) -> str:
    """Return an engine's log that prints steps of these tokens."""
    lines = [
        f"{HEAD}Iteration({n}): 0 context requests, 0 context tokens, 1 generation requests, "
        f"{count} generation tokens, iteration elapsed time: 1.00 ms"
        for n, count in enumerate(tokens)
    ]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    ("tokens", "disagreeing"),
    [
        ([64, 36, 1, 41], 0),
        ([64, 36, 1], 0),  # the last line was still in a pipe
        ([64, 36, 1, 41, 41], 0),
        ([64, 35, 1, 41], 1),
    ],
)
def test_the_engines_own_lines(tokens: list[int], disagreeing: int, tmp_path: Path) -> None:
    folder = small().write(tmp_path / "run")
    (folder / "engine.log").write_text(log_of(tokens))
    found = check_recording(folder)
    assert (found.printed, found.disagreeing) == (len(tokens), disagreeing)
    assert found.whole is (disagreeing == 0)
    if disagreeing:
        assert "at iteration 1 it printed 35 tokens and 36 were recorded" in found.faults[0]


def replicas(folder: Path, change: Callable[[int, Rows], Rows] = lambda rank, rows: rows) -> None:
    """Write two data-parallel engines that take 20 steps together, of which each skips some."""
    folder.mkdir()
    (folder / "run.yaml").write_text(yaml_with(tp=1, dp=2))
    for rank in range(2):
        made = Recording(start_ns=1_000 * MS)
        rows: Rows = []
        for counter in range(20):
            moment = [(1_000 + 20 * counter) * MS, (1_012 + 20 * counter) * MS]
            if counter % (rank + 2):
                made.step([(1 + rank, 100 + counter, 50, 0)], wave=1, counter=counter)
                made.steps[-1]["sched_ns"] = [moment[0], moment[0] + MS]
                rows.append(made.steps[-1])
            else:
                dummy = {"t": "dummy", "i": 0, "run_ns": moment, "wave": 1, "counter": counter}
                rows.append(dummy)
        rows = change(rank, rows)
        for role, pid, content in (
            ("engine", 10 + rank, rows),
            ("worker", 20 + rank, made.workers[0]),
        ):
            head = {**header(role), "version": 2, "pid": pid, "ppid": 10 + rank, "boot": "b"}
            head |= {"dp": rank, "rank": None if role == "engine" else 0}
            stated = {key: value for key, value in head.items() if value is not None}
            text = "".join(json.dumps(row) + "\n" for row in (stated, *content))
            (folder / f"{role}-{pid}.jsonl").write_text(text)


def test_replicas_that_keep_step(tmp_path: Path) -> None:
    replicas(tmp_path / "run")
    found = check_recording(tmp_path / "run")
    assert found.faults == ()
    assert found.aligned is not None
    # Of 20 steps rank 0 skips every second (10) and rank 1 every third (7).
    assert (found.aligned.ranks, found.aligned.together, found.aligned.apart) == (2, 20, 0)
    assert found.aligned.dummies == 17
    assert found.steps == 10 + 13
    assert found.missing_ranks == ()


def test_a_replica_that_skips_a_step_is_told(tmp_path: Path) -> None:
    def skip(rank: int, rows: Rows) -> Rows:
        dummies = [row for row in rows if row["t"] == "dummy"]
        return [row for row in rows if rank or row is not dummies[4]]

    replicas(tmp_path / "run", skip)
    found = check_recording(tmp_path / "run")
    assert found.aligned is not None
    assert (found.aligned.together, found.aligned.apart) == (19, 1)
    assert any("do not keep step: 1 steps of 20" in fault for fault in found.faults)


def test_a_replica_that_ends_early_is_compared_as_far_as_it_goes(tmp_path: Path) -> None:
    replicas(tmp_path / "run", lambda rank, rows: rows if rank else rows[:-3])
    found = check_recording(tmp_path / "run")
    assert found.aligned is not None
    assert (found.aligned.together, found.aligned.apart) == (17, 0)


def test_a_workers_owner_is_the_process_that_started_it(tmp_path: Path) -> None:
    replicas(tmp_path / "run")
    (tmp_path / "run" / "worker-21.jsonl").unlink()
    found = check_recording(tmp_path / "run")
    assert found.missing_ranks == ("worker rank 0 of engine-11.jsonl",)


def test_of_the_writers_time_the_last_clock_speaks(tmp_path: Path) -> None:
    folder = small().write(tmp_path / "run")
    clock = {"t": "clock", "wall_ns": 5, "mono_ns": 3 + 2_000 * MS, "writer_ns": 50 * MS}
    with (folder / "engine-10.jsonl").open("a") as file:
        file.write(json.dumps(clock) + "\n")
    found: Wholeness = check_recording(folder)
    assert found.writer_share == pytest.approx(0.025)
