"""``export``: the targets by name, what is written, and what --check says of it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from kernelfit.export.registry import TARGETS
from tests.cli.kernels import frozen_kernel, write_kernel
from tests.cli.run import kernelfit, snapshot

SMALL = ("--set", "requests=1,8", "--set", "context=512", "--set", "beside=0")


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
    """Return a kernel's file in a folder of its own."""
    folder = tmp_path / "kernels"
    folder.mkdir()
    return write_kernel(folder)


def test_every_target_is_listed_with_what_it_can_and_cannot_express() -> None:
    listed = kernelfit("export", "--list")
    assert (listed.code, listed.err) == (0, "")
    said = kernelfit("export", "--list", "--json").json()
    assert [t["name"] for t in said["targets"]] == [t.name for t in TARGETS]
    for target in said["targets"]:
        assert target["holds"]
        assert target["lacks"]
        assert target["source"]
        assert f"{target['name']}: {target['title']}" in listed.out


def test_names_are_in_order_and_each_once() -> None:
    names = [target.name for target in TARGETS]
    assert names == sorted(set(names))
    assert {"blis", "grid", "mock", "plain"} <= set(names)


def test_without_a_folder_the_first_file_goes_to_standard_output(kernel: Path) -> None:
    plain = kernelfit("export", "plain", kernel)
    assert plain.code == 0
    assert json.loads(plain.out)["provenance"]["kernel"] == frozen_kernel().digest
    assert "not expressed: draws:" in plain.err
    blis = kernelfit("export", "blis", kernel, "--set", "chip=mine", "--quiet")
    assert (blis.code, blis.err) == (0, "")
    assert "hardware: [mine]" in blis.out
    assert "# command: kernelfit export blis kernel.json --set chip=mine\n" in blis.out
    said = kernelfit("export", "blis", kernel, "--json").json()
    assert said["files"] == []
    assert "kind: CoefficientSet" in said["text"]
    assert {"name", "reason"} == set(said["not_expressed"][0])


def test_a_folder_gets_the_files_and_how_they_were_made(kernel: Path, tmp_path: Path) -> None:
    out = tmp_path / "exports"
    outcome = kernelfit("export", "grid", kernel, *SMALL, "--out", out, "--json")
    assert outcome.code == 0
    names = [f"kernel.grid.{end}" for end in ("csv", "parquet", "json", "export.json")]
    assert [Path(file).name for file in outcome.json()["files"]] == names
    manifest = json.loads((out / "kernel.grid.export.json").read_text("utf-8"))
    assert manifest["kernel_file"] == "../kernels/kernel.json"
    assert manifest["settings"] == {"requests": "1,8", "context": "512", "beside": "0"}
    assert manifest["provenance"]["command"].startswith("kernelfit export grid kernel.json --set")
    before = snapshot(out)
    assert kernelfit("export", "grid", kernel, *SMALL, "--out", out).code == 0
    assert snapshot(out) == before


def test_a_dry_run_writes_nothing(kernel: Path, tmp_path: Path) -> None:
    outcome = kernelfit("export", "mock", kernel, "--out", tmp_path / "exports", "--dry-run")
    assert outcome.code == 0
    assert "would write" in outcome.err
    assert not (tmp_path / "exports").exists()


@pytest.mark.parametrize("target", ["blis", "grid", "mock", "plain"])
def test_what_was_written_is_made_again(target: str, kernel: Path, tmp_path: Path) -> None:
    out = tmp_path / "exports"
    words = SMALL if target == "grid" else ()
    assert kernelfit("export", target, kernel, *words, "--out", out).code == 0
    files = sorted(out.iterdir())
    checked = kernelfit("export", "--check", *files)
    assert (checked.code, checked.err) == (0, "")
    # All of them together are one export.
    assert checked.out == f"{out / f'kernel.{target}.export.json'}: the same, made again\n"
    # Both folders can move together.
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    shutil.copytree(out, moved / "exports")
    shutil.copytree(kernel.parent, moved / "kernels")
    assert kernelfit("export", "--check", moved / "exports" / files[0].name).code == 0


def test_a_change_is_found_by_line(kernel: Path, tmp_path: Path) -> None:
    out = tmp_path / "exports"
    assert kernelfit("export", "blis", kernel, "--out", out).code == 0
    file = out / "kernel.blis.yaml"
    text = file.read_text("utf-8")
    file.write_text(text.replace("kind: CoefficientSet", "kind: Set", 1), encoding="utf-8")
    checked = kernelfit("export", "--check", file)
    assert checked.code == 1
    line = text.splitlines().index("kind: CoefficientSet") + 1
    words = "on: 'kind: Set', made again 'kind: CoefficientSet'"
    assert f"differs from line {line} {words}" in checked.out
    said = kernelfit("export", "--check", file, "--json")
    assert said.code == 1
    assert said.json()["exports"][0]["same"] is False
    file.write_text(text + "\n", encoding="utf-8")
    assert "differs after line" in kernelfit("export", "--check", file).out
    file.unlink()
    missing = kernelfit("export", "--check", out / "kernel.blis.export.json")
    assert (missing.code, "is missing" in missing.out) == (1, True)


def test_another_kernel_in_its_place_is_found(kernel: Path, tmp_path: Path) -> None:
    out = tmp_path / "exports"
    assert kernelfit("export", "plain", kernel, "--out", out).code == 0
    kernel.write_text(frozen_kernel(tp=2).to_json(), encoding="utf-8")
    checked = kernelfit("export", "--check", out / "kernel.plain.json")
    assert checked.code == 1
    assert "kernel.plain.export.json: differs" in checked.out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["bliss", "K"], "did you mean blis?"),
        (["blis"], "give TARGET and KERNEL"),
        ([], "give TARGET and KERNEL"),
        (["blis", "none.json"], "none.json: no such file"),
        (["blis", "K", "--set", "chip"], "is no setting"),
        (["blis", "K", "--set", "chip=a", "--set", "chip=b"], "given twice"),
        (["blis", "K", "--set", "colour=red"], "colour"),
        (["plain", "K", "--set", "colour=red"], "plain has no settings"),
        (["grid", "K", "--set", "requests=many"], "requests"),
        (["blis", "K", "K"], "give TARGET and KERNEL"),
        (["--check"], "give TARGET and KERNEL"),
        (["--check", "K"], "speaks of it"),
        (["--check", "none.export.json"], "no such file"),
    ],
)
def test_bad_usage_is_named(words: list[str], said: str, kernel: Path) -> None:
    outcome = kernelfit("export", *(kernel if word == "K" else word for word in words))
    assert outcome.code == 2
    assert outcome.out == ""
    assert said in outcome.err
    assert "Traceback" not in outcome.err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{}", "states another schema"),
        ('{"schema": "kernelfit.exported/1", "target": "blis"}', "lacks kernel_file, settings"),
        ("[]", "no JSON object"),
    ],
)
def test_a_damaged_manifest_is_refused(text: str, said: str, tmp_path: Path) -> None:
    place = tmp_path / "x.export.json"
    place.write_text(text, encoding="utf-8")
    outcome = kernelfit("export", "--check", place)
    assert outcome.code == 2
    assert said in outcome.err
