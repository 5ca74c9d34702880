"""Targets are found by name, settings are read strictly, and the page names every target."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelfit.export.base import ExportedFile, ExportOptions, Setting, integers, number, setting
from kernelfit.export.registry import TARGETS, find_target, options_for
from kernelfit.kernel import FittedKernel
from kernelfit.kernel.errors import InvalidArgument, KernelError
from tests.export.samples import OPTIONS, kernels, random_batches
from tests.export.test_plain import reader

ROOT = Path(__file__).resolve().parents[2]


def test_targets_are_found_by_name() -> None:
    for target in TARGETS:
        assert find_target(target.name) is target
    with pytest.raises(InvalidArgument, match="blis"):
        find_target("bliss")


def test_the_page_names_every_target() -> None:
    page = (ROOT / "docs" / "exports.md").read_text("utf-8")
    for target in TARGETS:
        assert f"| `{target.name}` |" in page


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_every_target_makes_the_same_files_twice_and_loads_them(target: object) -> None:
    found = find_target(target.name)  # type: ignore[attr-defined]
    made = 0
    for kernel in kernels().values():
        try:
            files = found.export(kernel, OPTIONS)
        except KernelError:
            # Said in the target's own words; its own tests hold what it refuses.
            continue
        made += 1
        if made > 3:
            break
        assert [f.content for f in found.export(kernel, OPTIONS)] == [f.content for f in files]
        assert found.check(files) == ()
        assert all(each.name and each.reason for each in found.missing(kernel, OPTIONS))
        for file in files:
            assert not Path(file.path).is_absolute()
            assert ".." not in Path(file.path).parts
    assert found.holds
    assert found.lacks


def test_settings_are_known_by_name() -> None:
    grid = find_target("grid")
    options = options_for(grid, "k.json", "1", {"level": "0.5"})
    assert (options.stem, setting(grid.settings, options, "level")) == ("k", "0.5")
    assert setting(grid.settings, options, "beside") == "1,8,64,256"
    assert options.command("grid") == "kernelfit export grid k.json --set level=0.5"
    with pytest.raises(InvalidArgument, match="requests, context"):
        options_for(grid, "k.json", "1", {"colour": "red"})
    with pytest.raises(InvalidArgument, match="plain has no settings"):
        options_for(find_target("plain"), "k.json", "1", {"colour": "red"})
    assert setting((Setting("a", "x", "y"),), ExportOptions(), "a") == "x"


def test_lists_and_numbers() -> None:
    assert integers("n", "4,1,4") == (1, 4)
    assert number("x", "0.5") == 0.5
    for text in ("", "1,,2", "1.5", "-1", "a"):
        with pytest.raises(InvalidArgument):
            integers("n", text)
    for text in ("", "-0.5", "inf", "nan", "a"):
        with pytest.raises(InvalidArgument):
            number("x", text)
    assert integers("n", "0") == (0,)
    with pytest.raises(InvalidArgument, match="from 1"):
        integers("n", "0", 1)


def test_a_file_is_its_bytes() -> None:
    assert ExportedFile("a", "µ").content == b"\xc2\xb5"
    assert ExportedFile("a", b"\x00").content == b"\x00"


@pytest.mark.parametrize("name", ["kernel-v1.json", "kernel-v2.json"])
def test_kernels_of_every_file_version_are_read_back(name: str) -> None:
    path = ROOT / "tests" / "golden" / "kernels" / name
    if not path.is_file():
        pytest.skip(f"no {name}")
    kernel = FittedKernel.load(path)
    from kernelfit.export.plain import plain_document

    document = plain_document(kernel, OPTIONS)
    limits = kernel.plan.resolution
    read, compared = reader().step_times, 0
    for batch in random_batches(200):
        totals = kernel.totals(batch)
        if totals.requests > limits.max_num_seqs or totals.tokens > limits.max_num_batched_tokens:
            continue
        shapes = [(r.scheduled, r.computed) for r in batch.requests]
        overlap, no_overlap, mean = read(document, shapes, batch.decode_threshold)
        step = kernel.totals_time(totals)
        assert overlap == pytest.approx(step.overlap_s, rel=1e-9)
        assert no_overlap == pytest.approx(step.no_overlap_s, rel=1e-9)
        assert mean == pytest.approx(kernel.mean_step_time(totals), rel=1e-9)
        compared += 1
    assert compared > 50
