"""Recordings against the engine's own printed steps."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelfit.documents.problems import InputError
from kernelfit.logs.compare import LOG_NAMES, Mismatch, iteration_mismatches
from tests.logs.recording import small
from tests.logs.test_vllm_log import HEAD

TRACES = Path(__file__).resolve().parents[2] / "traces"


def line(index: int, context: int, generation: int) -> str:
    return (
        f"{HEAD}Engine 000: Iteration({index}): {min(context, 1)} context requests, "
        f"{context} context tokens, {generation} generation requests, {generation} generation "
        "tokens, iteration elapsed time: 9.00 ms, GPU KV cache usage: 1.0%\n"
    )


def test_agreement_and_what_disagrees(tmp_path: Path) -> None:
    recording = small()
    # A call without tokens shifts the ordinals, as the engine does not count it.
    recording.steps[2]["i"], recording.steps[3]["i"] = 3, 4
    folder = recording.write(tmp_path / "run")
    log = folder / "engine.log"
    lines = [line(0, 64, 0), line(1, 36, 0), line(2, 0, 1), line(3, 40, 1)]
    log.write_text("".join(lines))
    assert iteration_mismatches(folder) == ()
    log.write_text("".join(lines[:2]) + line(2, 0, 2) + lines[3])
    assert iteration_mismatches(folder) == (Mismatch(2, 3, 2, 1),)
    log.write_text("".join(lines[:3]))
    assert iteration_mismatches(folder) == (Mismatch(-1, 4, -1, 41),)
    log.write_text("".join([*lines, line(4, 0, 1)]))
    assert iteration_mismatches(folder) == (Mismatch(4, -1, 1, -1),)


def test_both_sides_are_needed(tmp_path: Path) -> None:
    folder = small().write(tmp_path / "run")
    with pytest.raises(InputError, match=r"no engine\.log"):
        iteration_mismatches(folder)
    (folder / "engine.log").write_text(line(0, 64, 0))
    small().write(folder, pid=30)
    with pytest.raises(InputError, match="exactly one engine"):
        iteration_mismatches(folder)


def test_committed_recordings_equal_the_engines_log() -> None:
    runs = sorted({p.parent for name in LOG_NAMES for p in TRACES.glob(f"*/{name}")})
    if not runs:
        pytest.skip("no committed recording has the engine's log beside it")
    for run in runs:
        assert iteration_mismatches(run) == (), run.name
