"""Documents of priors are read strictly."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelfit.documents.chips import chip_entries
from kernelfit.documents.priors import (
    PriorValue,
    find_priors,
    load_priors,
    priors_entries,
)
from kernelfit.documents.problems import Place
from kernelfit.kernel.catalog import DEFINITIONS
from tests.documents.helpers import CALIB, changed, one_problem, place_in, problems_of, written

GOOD = """\
kind: Priors
schema_version: 1
chip: X100
priors:
  - name: gemm_eff_bf16
    value: 0.8
    unit: "1"
    spread: 0.07
    method: measured
    scope: "matrices of 1024 and wider"
    rows: 120
    source: "a table of the vendor"
  - name: allgather_floor_s
    value: 9.3e-6
    unit: s
    spread: 0.3
    method: literature
    scope: "2 to 8 ranks"
    rows: 0
    source: "a paper, table 2"
"""


def test_a_document_becomes_values(tmp_path: Path) -> None:
    assert load_priors(written(tmp_path, GOOD)) == (
        PriorValue(
            "gemm_eff_bf16",
            0.8,
            "1",
            0.07,
            "measured",
            "a table of the vendor",
            "matrices of 1024 and wider",
            120,
        ),
        PriorValue(
            "allgather_floor_s",
            9.3e-6,
            "s",
            0.3,
            "literature",
            "a paper, table 2",
            "2 to 8 ranks",
            0,
        ),
    )


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("gemm_eff_bf16", "gemm_eff_bf17", "names no data type; allowed"),
        ("gemm_eff_bf16", "gem_eff_bf16", "no such coefficient"),
        ("allgather_floor_s", "gemm_eff_bf16", "a second prior"),
        ("value: 0.8", "value: 1.01", "is a share of a peak (got 1.01); allowed 0 to 1"),
        ("value: 0.8", "value: 0", "allowed above 0"),
        ("value: 0.8", "value: .inf", "allowed a finite number"),
        ("value: 9.3e-6", "value: 9.3", "longer than a second"),
        ("unit: s", "unit: us", "not in the vocabulary"),
        ("unit: s", "unit: tokens", "wrong unit for allgather_floor_s"),
        ("spread: 0.07", "spread: 0", "allowed above 0"),
        ("spread: 0.07", "spread: 5.1", "allowed at most 5.0"),
        ("method: measured", "method: guessed", "not in the vocabulary"),
        ("rows: 120", "rows: -1", "allowed at least 0"),
        ('source: "a paper, table 2"', 'source: "paper"', "source says too little"),
        ("rows: 120", "row: 120", "unknown key row"),
        ("kind: Priors", "kind: Prior", "not in the vocabulary"),
    ],
)
def test_one_change_is_refused_where_it_stands(
    tmp_path: Path, old: str, new: str, words: str
) -> None:
    text = changed(GOOD, old, new)
    path = written(tmp_path, text)
    hits = [p for p in problems_of(load_priors, path) if words in p.render()]
    assert len(hits) == 1
    line = place_in(GOOD, old)[0]
    assert (hits[0].file, hits[0].line) == (str(path), line)


def test_the_nearest_neighbours_are_read(tmp_path: Path) -> None:
    for old, new in (
        ("value: 0.8", "value: 1.0"),
        ("value: 9.3e-6", "value: 1.0"),
        ("spread: 0.07", "spread: 5.0"),
        ("gemm_eff_bf16", "gemm_eff_fp8"),
    ):
        assert len(load_priors(written(tmp_path, changed(GOOD, old, new)))) == 2


def test_the_problems_of_two_entries_come_together(tmp_path: Path) -> None:
    text = changed(changed(GOOD, "value: 0.8", "value: 80"), "unit: s", "unit: tokens")
    found = problems_of(load_priors, written(tmp_path, text))
    assert [problem.line for problem in found] == [6, 15]


def test_priors_are_found_by_chip(tmp_path: Path) -> None:
    written(tmp_path, GOOD)
    assert find_priors("x100", tmp_path) == load_priors(tmp_path / "doc.yaml")
    problem = one_problem(find_priors, "Y100", tmp_path, Place("run.yaml", 3, 6))
    assert (problem.file, problem.line) == ("run.yaml", 3)
    assert problem.allowed == "X100"


def test_the_projects_own_priors() -> None:
    folder = CALIB / "priors"
    entries = priors_entries(folder)
    assert {entry.path.stem for entry in entries} == {"a100-sxm-80gb", "b300", "h100-sxm"}
    chips = {entry.names[0] for entry in chip_entries(CALIB / "chips")}
    defaults = {d.name: d for d in DEFINITIONS}
    checked = 0
    for entry in entries:
        assert entry.names[0] in chips
        for prior in load_priors(entry.path):
            checked += 1
            assert prior.method == "measured"
            assert prior.rows > 0
            # A table and an order of magnitude agree within a factor of 60, or one is wrong.
            untyped = prior.name if prior.name in defaults else prior.name.rpartition("_")[0]
            ratio = prior.value / defaults[untyped].prior
            assert 1 / 130 < ratio < 60, prior.name
    assert checked >= 3 * 20
