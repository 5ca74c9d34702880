from __future__ import annotations

from pathlib import Path

import pytest

from kernelfit.documents.chips import Figure, chip_entries, chip_figures, find_chip, load_chip
from kernelfit.documents.problems import Place
from kernelfit.kernel.chip import Chip
from tests.documents.helpers import changed, one_problem, place_in, problems_of, written

GOOD = """\
kind: Chip
schema_version: 1
name: X100
aliases: ["Vendor X100 80GB"]
chip_kind: gpu
peak_flop_per_s:
  bf16: {value: 989e12, unit: flop/s, method: vendor_spec, source: "X100 datasheet, dense"}
  fp8: {value: 1978e12, unit: flop/s, method: vendor_spec, source: "X100 datasheet, halved"}
hbm_bytes_per_s: {value: 3.35e12, unit: byte/s, method: vendor_spec, source: "X100 datasheet"}
hbm_bytes: {value: 80000000000, unit: byte, method: vendor_spec, source: "X100 datasheet"}
nvlink_bytes_per_s: {value: 450e9, unit: byte/s, method: vendor_spec, source: "X100 datasheet"}
nic_bytes_per_s: none
pcie_bytes_per_s: {value: 64e9, unit: byte/s, method: vendor_spec, source: "X100 datasheet"}
sm_count: {value: 132, unit: count, method: vendor_spec, source: "X100 whitepaper"}
gpus_per_node: {value: 8, unit: count, method: assumed, source: "the usual baseboard"}
"""


def test_a_chip_in_the_core_s_words(tmp_path: Path) -> None:
    chip = load_chip(written(tmp_path, GOOD))
    assert chip == Chip(
        name="X100",
        peak_flop_per_s=(("bf16", 989e12), ("fp8", 1978e12)),
        hbm_bytes_per_s=3.35e12,
        hbm_bytes=80_000_000_000,
        nvlink_bytes_per_s=450e9,
        nic_bytes_per_s=0.0,
        pcie_bytes_per_s=64e9,
        sm_count=132,
        gpus_per_node=8,
        kind="gpu",
    )
    assert isinstance(chip.hbm_bytes, int)
    assert isinstance(chip.sm_count, int)


def test_the_figures_keep_their_evidence(tmp_path: Path) -> None:
    figures = chip_figures(written(tmp_path, GOOD))
    names = [figure.name for figure in figures]
    assert names[:3] == ["peak_flop_per_s.bf16", "peak_flop_per_s.fp8", "hbm_bytes_per_s"]
    assert "nic_bytes_per_s" not in names
    assert figures[-1] == Figure("gpus_per_node", 8.0, "count", "assumed", "the usual baseboard")


@pytest.mark.parametrize(
    ("old", "new", "at", "words"),
    [
        # A slipped or dropped prefix, in either direction.
        ("3.35e12", "3.35", "3.35,", "hbm_bytes_per_s is not plausible for a gpu in byte/s"),
        ("3.35e12", "3350", "3350", "allowed 1e+11 to 1e+14; write it in SI units"),
        ("450e9", "450e12", "450e12", "nvlink_bytes_per_s is not plausible"),
        ("989e12", "989", "989,", "peak_flop_per_s.bf16 is not plausible"),
        ("80000000000", "80", "80,", "hbm_bytes is not plausible"),
        ("132,", "132.5,", "132.5", "sm_count must be a whole number"),
        # A number that is text.
        ("989e12", '"989e12"', '"989e12"', "wrong type (got '989e12'); allowed a number"),
        ("3.35e12", "3.35 TB/s", "3.35 TB", "without quotes and without a unit"),
        ("3.35e12", ".nan", ".nan", "allowed a finite number"),
        ("3.35e12", "-3.35e12", "-3.35e12", "(got -3350000000000.0); allowed above"),
        ("value: 3.35e12", "value: true", "true", "wrong type (got True)"),
        # Units and vocabulary.
        ("450e9, unit: byte/s", "450e9, unit: GB/s", "GB/s", "flop/s, byte/s, byte or count"),
        ("450e9, unit: byte/s", "450e9, unit: count", 'count, method: vendor_spec, source: "X100 d',
         "wrong unit for nvlink_bytes_per_s (got 'count'); allowed byte/s"),
        ("method: assumed", "method: guessed", "guessed", "method is not in the vocabulary"),
        ("bf16: {", "bfloat16: {", "bfloat16: {", "peak_flop_per_s.bfloat16"),
        ("chip_kind: gpu", "chip_kind: tpu", "tpu", "allowed gpu or cpu"),
        ("kind: Chip\n", "kind: Chap\n", "Chap", "allowed Chip"),
        ("schema_version: 1", "schema_version: 2", "2\n", "is not in the vocabulary"),
        # Keys.
        ("hbm_bytes: {", "hbm_byte: {", "hbm_byte: {", "unknown key hbm_byte; allowed"),
        ('source: "X100 whitepaper"', 'source: "X100 whitepaper", note: "x"', "note",
         "unknown key note; allowed method, source, unit, value"),
        ('source: "the usual baseboard"', 'source: ""', '""', "source says too little"),
        ("nic_bytes_per_s: none", "nic_bytes_per_s: nothing", "nothing", "allowed a mapping"),
    ],
)  # fmt: skip
def test_one_change_is_refused_where_it_stands(
    tmp_path: Path, old: str, new: str, at: str, words: str
) -> None:
    load_chip(written(tmp_path, GOOD))
    text = changed(GOOD, old, new)
    path = written(tmp_path, text)
    hits = [p for p in problems_of(load_chip, path) if words in p.render()]
    assert len(hits) == 1
    line, column = place_in(text, at)
    assert (hits[0].file, hits[0].line) == (str(path), line)
    if text.count(at) == 1:
        assert hits[0].column == column


@pytest.mark.parametrize(
    "key",
    [line.split(":")[0] for line in GOOD.splitlines() if not line.startswith(("  ", "aliases"))],
)
def test_each_key_is_required(tmp_path: Path, key: str) -> None:
    lines = GOOD.splitlines(keepends=True)
    gone = [i for i, line in enumerate(lines) if line.startswith(f"{key}:")]
    if key == "peak_flop_per_s":
        gone += [i for i, line in enumerate(lines) if line.startswith("  ")]
    text = "".join(line for i, line in enumerate(lines) if i not in gone)
    problem = one_problem(load_chip, written(tmp_path, text))
    assert problem.message == f"required key {key} is missing"
    assert problem.line == 1


def test_all_problems_come_at_once_in_order(tmp_path: Path) -> None:
    text = changed(GOOD, "unit: count, method: assumed", "unit: cnt, method: guessed")
    text = changed(text, "3.35e12", "fast")
    problems = problems_of(load_chip, written(tmp_path, text))
    assert [problem.line for problem in problems] == [9, 15, 15]
    assert list(problems) == sorted(problems)


def test_a_cpu_has_its_own_window(tmp_path: Path) -> None:
    slow = changed(GOOD, "3.35e12", "18.8e9")
    assert "not plausible for a gpu" in one_problem(load_chip, written(tmp_path, slow)).message
    cpu = changed(slow, "chip_kind: gpu", "chip_kind: cpu")
    cpu = changed(changed(cpu, "989e12", "98e9"), "1978e12", "197e9")
    assert load_chip(written(tmp_path, cpu)).hbm_bytes_per_s == 18.8e9


def test_a_chip_is_found_by_name_or_alias_whatever_the_case(tmp_path: Path) -> None:
    written(tmp_path, GOOD)
    written(tmp_path, changed(changed(GOOD, "name: X100", "name: Y200"), "Vendor X", "Vendor Y"),
            "y.yaml")  # fmt: skip
    for name in ("X100", "x100", "vendor x100 80gb"):
        assert find_chip(name, tmp_path).name == "X100"
    assert [entry.names[0] for entry in chip_entries(tmp_path)] == ["X100", "Y200"]
    problem = one_problem(find_chip, "X1OO", tmp_path, Place("run.yaml", 3, 6))
    assert problem.render() == (
        "run.yaml:3:6: unknown GPU (got 'X1OO'); allowed X100, Y200; did you mean X100?"
    )
    assert one_problem(find_chip, "X1OO", tmp_path).file == str(tmp_path)


def test_a_name_in_two_documents_is_refused(tmp_path: Path) -> None:
    written(tmp_path, GOOD)
    path = written(tmp_path, changed(GOOD, "name: X100", "name: Z"), "z.yaml")
    problem = one_problem(find_chip, "X100", tmp_path)
    assert problem.file == str(path)
    assert "'vendor x100 80gb' is also in doc.yaml" in problem.message


def test_a_missing_folder_and_a_bad_neighbour_are_said(tmp_path: Path) -> None:
    assert "no such folder" in one_problem(find_chip, "X", tmp_path / "none").message
    written(tmp_path, GOOD)
    bad = written(tmp_path, "kind: Chip\nkind: Chip\n", "bad.yaml")
    assert one_problem(find_chip, "X100", tmp_path).file == str(bad)
