"""``validate --closed-loop``: a recorded load, replayed, compared and drawn."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.kernels import frozen_kernel, write_kernel
from tests.cli.run import kernelfit, snapshot
from tests.cli.runs import CALIB
from tests.cli.served import TRACE, write_served


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a kernel and two runs of one load."""
    folder = tmp_path_factory.mktemp("loop")
    write_kernel(folder)
    write_served(folder / "runs" / "one", frozen_kernel())
    write_served(folder / "runs" / "two", frozen_kernel(), slower=1.25)
    return folder


def close(place: Path, out: Path, *words: str | Path) -> list[str | Path]:
    return ["validate", place / "kernel.json", *words, "--out", out, "--calib", CALIB]


def loops(place: Path, out: Path, *words: str | Path) -> list[dict]:
    outcome = kernelfit(*close(place, out, *words), "--json")
    assert outcome.code == 0, outcome.err
    said = outcome.json()
    assert said["schema"] == "kernelfit.closed_loop/1"
    return said["closed_loop"]


def test_a_run_of_the_kernels_own_making_is_met_exactly(place: Path, tmp_path: Path) -> None:
    (loop,) = loops(place, tmp_path, "--closed-loop", place / "runs" / "one")
    assert (loop["requests"], loop["observer"], loop["left_out"]) == (len(TRACE), "client", 0)
    errors = {(r["host"], r["latency"], r["statistic"]): r for r in loop["errors"]}
    assert len(errors) == 4 * 3 * 4
    for (host, _, _), row in errors.items():
        if host in ("all", "paced"):
            # Arrivals are written in nanoseconds.
            assert row["error"] == pytest.approx(0.0, abs=1e-5)
        assert row["repeat"] is None
    assert loop["step_bias"] == pytest.approx(0.0, abs=1e-5)
    assert loop["out_of_domain"] == 0.0


def test_a_slow_machine_is_told_from_a_wrong_replay(place: Path, tmp_path: Path) -> None:
    run = write_served(tmp_path / "runs" / "slow", frozen_kernel(), pace=1.4)
    (loop,) = loops(place, tmp_path, "--closed-loop", run)
    assert loop["step_bias"] == pytest.approx(1 / 1.4 - 1, abs=1e-5)
    by_host = {
        host: [row["error"] for row in loop["errors"] if row["host"] == host]
        for host in ("all", "paced")
    }
    assert all(error < -0.2 for error in by_host["all"])
    assert by_host["paced"] == pytest.approx([0.0] * 12, abs=1e-5)


def test_runs_of_one_load_are_each_others_repeat(place: Path, tmp_path: Path) -> None:
    both = loops(
        place,
        tmp_path,
        "--closed-loop",
        place / "runs" / "one",
        "--closed-loop",
        place / "runs" / "two",
    )
    repeats = {
        loop["run"]: {row["repeat"] for row in loop["errors"] if row["latency"] != "tpot_s"}
        for loop in both
    }
    assert [len(loop["repeats"]) for loop in both] == [1, 1]
    assert all(spread == pytest.approx(0.25, abs=1e-4) for spread in repeats["one"])
    assert all(spread == pytest.approx(-0.2, abs=1e-4) for spread in repeats["two"])


def test_prompts_that_were_cached_since_are_no_repeat(place: Path, tmp_path: Path) -> None:
    # Prompts have 300 tokens: 64 more of each are a fifth, 16 more a twentieth.
    for more, expected in ((64, [[], []]), (16, [["again16"], ["one"]])):
        name = f"again{more}"
        run = write_served(tmp_path / "runs" / name, frozen_kernel(), cached_more=more)
        words = ("--closed-loop", place / "runs" / "one", "--closed-loop", run)
        found = {loop["run"]: loop["repeats"] for loop in loops(place, tmp_path / name, *words)}
        assert [found["one"], found[name]] == expected


def test_words_and_figures(place: Path, tmp_path: Path) -> None:
    words = ["--closed-loop", place / "runs" / "one", "--report", tmp_path / "figures"]
    outcome = kernelfit(*close(place, tmp_path, *words))
    assert outcome.code == 0
    assert "one: 40 requests as the client saw them" in outcome.out
    for word in ("time to first token", "time per output token", "end to end", "no host %"):
        assert word in outcome.out
    figures = snapshot(tmp_path / "figures")
    assert sorted(figures) == [f"closed-loop-one.{end}" for end in ("json", "png", "svg")]
    numbers = json.loads(figures["closed-loop-one.json"])
    assert numbers["requests"] == len(TRACE)
    assert b"share of requests" in figures["closed-loop-one.svg"]
    again = kernelfit(*close(place, tmp_path, *words))
    assert again.out == outcome.out
    assert snapshot(tmp_path / "figures") == figures


def test_a_run_on_another_gpu_is_refused_with_what_is_wrong(place: Path, tmp_path: Path) -> None:
    run = write_served(tmp_path / "runs" / "other", frozen_kernel(), gpu="A100-SXM-80GB")
    outcome = kernelfit(*close(place, tmp_path, "--closed-loop", run))
    assert (outcome.code, outcome.out) == (2, "")
    assert "other: is on another GPU type (got" in outcome.err
    assert "Traceback" not in outcome.err


def test_a_run_that_served_nobody_is_refused(place: Path, tmp_path: Path) -> None:
    run = write_served(tmp_path / "runs" / "mute", frozen_kernel())
    (run / "client-9.jsonl").unlink()
    outcome = kernelfit(*close(place, tmp_path, "--closed-loop", run))
    assert outcome.code == 2
    assert "mute: the run holds no requests as served" in outcome.err
    assert "docs/host.md" in outcome.err


def test_traces_and_a_closed_loop_are_two_things(place: Path, tmp_path: Path) -> None:
    run = place / "runs" / "one"
    for words in ([], [run, "--closed-loop", run]):
        outcome = kernelfit(*close(place, tmp_path, *words))
        assert outcome.code == 2
        assert "either TRACES or --closed-loop RUN" in outcome.err


def test_a_cache_that_is_too_small_is_told(place: Path, tmp_path: Path) -> None:
    run = place / "runs" / "one"
    outcome = kernelfit(*close(place, tmp_path, "--closed-loop", run, "--kv-blocks", "3"))
    assert outcome.code == 2
    assert ">= 13 KV blocks, which request 0 needs alone" in outcome.err
    assert "internal error" not in outcome.err
