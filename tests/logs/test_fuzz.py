"""No bytes crash a reader or make it lose a line; ``benchmarks/fuzz`` tries many more."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.fuzz.__main__ import tried
from benchmarks.fuzz.check import TARGETS, Target, check, prepare
from benchmarks.fuzz.seeds import seeds
from kernelfit.logs.registry import readers

SEEDS = {target.reader: seeds(target) for target in TARGETS}


def test_every_reader_is_fuzzed() -> None:
    assert {target.reader for target in TARGETS} == set(readers())


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.reader)
@given(number=st.integers(0, 2**32), raw=st.binary(max_size=60), how=st.booleans())
@settings(max_examples=60, deadline=None)
def test_no_crash_and_no_lost_line(
    tmp_path_factory: pytest.TempPathFactory, target: Target, number: int, raw: bytes, how: bool
) -> None:
    folder = tmp_path_factory.mktemp("fuzz")
    prepare(target, folder)
    data = tried(random.Random(number), target, SEEDS[target.reader])
    check(target, folder, data + raw if how else raw + data)


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.reader)
def test_the_seeds_themselves_are_read(
    tmp_path_factory: pytest.TempPathFactory, target: Target
) -> None:
    folder = tmp_path_factory.mktemp("seeds")
    prepare(target, folder)
    read = sum(
        run.counts.lines for data in SEEDS[target.reader] for run in check(target, folder, data)
    )
    assert read > 0


@pytest.mark.slow
def test_many_inputs_guided_by_coverage() -> None:
    pytest.importorskip("atheris", reason="atheris is not installed")
    import subprocess
    import sys

    command = [sys.executable, "-m", "benchmarks.fuzz", "--runs", "3000"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("no crash, no lost line") == len(TARGETS)
