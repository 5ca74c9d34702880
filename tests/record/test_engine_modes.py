"""The recorder in every mode of a real vLLM that its CPU build runs.

In each of them the tokens of every step are those that the engine prints itself, every step is
joined with every rank's span, and nothing is rejected.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernelfit.logs.compare import iteration_mismatches
from kernelfit.logs.vllm_log import iteration_tokens
from kernelfit.logs.whole import check_recording
from kernelfit.store.ingest import ingest_paths
from tests.record.engine_script import MODES
from tests.record.engines import ROOT, run_mode, steps_of

pytestmark = pytest.mark.engine

Rows = list[dict[str, Any]]
LOST_NS = 2 * 10**8
"""What a kill may lose [ns]."""


def asynchronous(rows: Rows) -> None:
    """Check that two steps were in flight."""
    assert max(row["in_flight"] for row in rows) == 2


def speculative(rows: Rows) -> None:
    """Check that some drafts were accepted and some were not, and that the sums hold."""
    drafted = [row for row in rows if row["drafts"]]
    accepted = sum(row["accepted"] for row in drafted)
    assert 0 < accepted < sum(row["drafts"] for row in drafted)
    assert all(sum(row["emitted"]) == row["sampled"] for row in drafted)
    for before, after in itertools.pairwise(rows):
        if "emitted" in before and before["prompt_len"] == after["prompt_len"]:
            # What a request computed for good is what it emitted, where it is past its prompt.
            expected = [
                c + e if c >= p else c + s
                for c, e, p, s in zip(
                    before["computed"],
                    before["emitted"],
                    before["prompt_len"],
                    before["scheduled"],
                    strict=True,
                )
            ]
            assert after["computed"] == expected


def preempted(rows: Rows) -> None:
    """Check that requests were put back and came again, with all of their tokens to compute."""
    assert sum(row["preempted"] for row in rows) == sum(row["resumed"] for row in rows) > 0
    back = next(row for row in rows if row["resumed"])
    again = [
        (s, p)
        for s, c, p in zip(back["scheduled"], back["computed"], back["prompt_len"], strict=True)
        if c < p and s > 1
    ]
    # More than the prompt: what was generated before is computed again.
    assert any(s > p for s, p in again)


def constrained(rows: Rows) -> None:
    """Check that steps with a grammar are marked."""
    assert any(row.get("structured") for row in rows)


def nothing(rows: Rows) -> None:
    """Check nothing more."""


MORE: dict[str, tuple[Callable[[Rows], None], ...]] = {
    "async": (asynchronous,),
    "tp2-async": (asynchronous,),
    "abort-async": (asynchronous,),
    "preempt-async": (asynchronous, preempted),
    "structured-async": (asynchronous, constrained),
    "spec": (speculative,),
    "preempt": (preempted,),
    "structured": (constrained,),
}
RANKS = {"tp2": 2, "tp2-async": 2, "pp2": 2}


@pytest.mark.parametrize("mode", [mode for mode in MODES if mode != "kill"])
def test_a_mode(mode: str, tmp_path: Path) -> None:
    run, said = run_mode(mode, tmp_path)
    rows = steps_of(run)
    assert len(list(iteration_tokens(run / "engine.log"))) > 20
    assert iteration_mismatches(run) == ()
    found = check_recording(run)
    assert found.faults == ()
    assert (found.rejected, found.disagreeing) == (0, 0)
    assert found.workers == RANKS.get(mode, 1)
    assert {tokens for _, tokens in found.worker_tokens} == {found.tokens}
    got = re.search(r"^requests: (.*)$", said, re.MULTILINE)
    assert got is not None
    requests = json.loads(got.group(1)).values()
    if not mode.startswith("abort"):
        assert all(r["output"] == r["wanted"] for r in requests)
        # Every token that a request got was sampled in some step, and no other was.
        assert sum(row["sampled"] for row in rows) >= sum(r["output"] for r in requests)
        if "async" not in mode:
            assert sum(row["sampled"] for row in rows) == sum(r["output"] for r in requests)
    if not mode.startswith(("spec", "preempt")):  # the others have prompts that begin alike
        assert any(hit > 0 for row in rows for hit in row["cached"])
    for check in MORE.get(mode, ()):
        check(rows)
    report = ingest_paths(
        [run], tmp_path / "store", overrides={"gpu": "epyc-milan-core"}, calib=ROOT / "calib"
    )
    (counts,) = report.files
    assert (counts.reader, counts.timing, counts.rejected) == ("kernelfit", "device", 0)
    assert counts.steps == found.steps


def test_an_engine_that_is_killed(tmp_path: Path) -> None:
    run, said = run_mode("kill", tmp_path)
    moment = re.search(r"^killed: (\d+)$", said, re.MULTILINE)
    assert moment is not None
    rows = steps_of(run)
    longest_ns = max(row["update_ns"][1] - row["sched_ns"][0] for row in rows[1:])
    lost_ns = int(moment.group(1)) - rows[-1]["update_ns"][1]
    # The step under way at that time has no end to record.
    assert lost_ns < LOST_NS + longest_ns
    found = check_recording(run)
    assert found.faults == ()
    assert found.rejected == 0
    assert found.steps >= 10
    both = [m for m in iteration_mismatches(run) if m.iteration >= 0 and m.ordinal >= 0]
    assert both == []
