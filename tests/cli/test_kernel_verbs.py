"""``explain`` and ``predict``: the same numbers as the kernel, and what bad batches say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kernelfit.kernel.batch import Batch, RequestShape
from tests.cli.kernels import frozen_kernel, write_kernel
from tests.cli.run import kernelfit

DECODE = Batch.decode(32, 1024)


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a kernel's file."""
    return write_kernel(tmp_path_factory.mktemp("kernels"))


def test_explain_gives_the_kernels_own_numbers(kernel: Path) -> None:
    outcome = kernelfit("explain", kernel, "--decode", "32x1024", "--json")
    assert (outcome.code, outcome.err) == (0, "")
    said, frozen = outcome.json(), frozen_kernel()
    step, fitted = frozen.step_time(DECODE), frozen.calibrated_step_time(DECODE)
    assert said["schema"] == "kernelfit.explain/1"
    assert said["kernel"] == frozen.digest
    assert said["overlap_s"] == step.overlap_s
    assert said["no_overlap_s"] == step.no_overlap_s
    assert said["bottleneck"] == step.bottleneck.value == "hbm"
    assert (said["low_s"], said["mean_s"], said["high_s"]) == (
        fitted.low_s,
        fitted.mean_s,
        fitted.high_s,
    )
    assert {c["name"] for c in said["coefficients"]} == set(frozen.plan.coefficients)
    assert {c["method"] for c in said["coefficients"]} <= {"literature", "assumed"}


def test_explain_in_words_names_bounds_and_bottleneck(kernel: Path) -> None:
    outcome = kernelfit("explain", kernel, "--decode", "32x1024", "--prefill", "1x512")
    assert outcome.code == 0
    assert "33 requests, 544 tokens in this step" in outcome.out
    for word in ("bottleneck", "overlap", "no overlap", "fitted", "hbm", "sm"):
        assert word in outcome.out
    assert "extrapolated" not in outcome.out
    # The calibration has seen up to 64 requests.
    beyond = kernelfit("explain", kernel, "--decode", "65x1024")
    assert "extrapolated" in beyond.out


def test_explain_takes_a_batch_from_a_file(kernel: Path, tmp_path: Path) -> None:
    batch = tmp_path / "batch.json"
    batch.write_text('{"requests": [[1, 1024, 1024], [512, 0, 512]]}', encoding="utf-8")
    by_file = kernelfit("explain", kernel, "--batch", batch, "--json")
    by_flags = kernelfit("explain", kernel, "--decode", "1x1024", "--prefill", "1x512", "--json")
    assert by_file.json() == by_flags.json()


@pytest.mark.parametrize("words", [(), ("--decode", "1x1", "--batch", "x.json")])
def test_explain_wants_one_batch(kernel: Path, words: tuple[str, ...]) -> None:
    outcome = kernelfit("explain", kernel, *words)
    assert outcome.code == 2
    assert "either --decode and --prefill, or --batch" in outcome.err


def test_a_batch_beyond_the_pool_is_refused_beside_one_that_fits(kernel: Path) -> None:
    assert kernelfit("explain", kernel, "--decode", "256x16").code == 0
    outcome = kernelfit("explain", kernel, "--decode", "257x16")
    assert outcome.code == 2
    assert outcome.out == ""
    assert "257" in outcome.err
    assert "internal error" not in outcome.err


def test_predict_prices_line_by_line(kernel: Path, tmp_path: Path) -> None:
    batches = tmp_path / "batches.jsonl"
    lines = [
        {"requests": [[1, 1024, 1024, 0]] * 32},
        {"requests": [[512, 0, 512]]},
        {"requests": [[4, 10, 10]], "decode_threshold": 4},
    ]
    text = "\n\n".join(json.dumps(line) for line in lines)
    batches.write_text(text, encoding="utf-8")
    outcome = kernelfit("predict", kernel, batches)
    assert (outcome.code, outcome.err) == (0, "")
    rows = [json.loads(line) for line in outcome.out.splitlines()]
    assert [row["line"] for row in rows] == [1, 3, 5]
    frozen = frozen_kernel()
    shapes = (
        DECODE,
        Batch((RequestShape(512, 0, 512),)),
        Batch((RequestShape(4, 10, 10),), decode_threshold=4),
    )
    for row, batch in zip(rows, shapes, strict=True):
        step = frozen.step_time(batch)
        assert row["overlap_s"] == step.overlap_s
        assert row["no_overlap_s"] == step.no_overlap_s
        assert row["mean_s"] == pytest.approx(frozen.calibrated_step_time(batch).mean_s, rel=1e-9)
        assert "low_s" not in row
    whole = kernelfit("predict", kernel, batches, "--level", "0.5", "--json").json()
    assert whole["schema"] == "kernelfit.predict/1"
    assert [row["mean_s"] for row in whole["steps"]] == pytest.approx(
        [row["mean_s"] for row in rows], rel=1e-9
    )
    assert all(row["low_s"] <= row["mean_s"] <= row["high_s"] for row in whole["steps"])


def test_predict_reads_standard_input(kernel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import io

    monkeypatch.setattr("sys.stdin", io.StringIO('{"requests": [[1, 1024, 1024]]}\n'))
    outcome = kernelfit("predict", kernel)
    assert outcome.code == 0
    assert json.loads(outcome.out)["line"] == 1


def test_predict_names_every_bad_line_and_prices_the_others(kernel: Path, tmp_path: Path) -> None:
    batches = tmp_path / "batches.jsonl"
    batches.write_text(
        '{"requests": [[1, 5, 5]]}\n{"requests": [[1, -5, 5]]}\n{"requests": [[9000, 0, 9000]]}\n',
        encoding="utf-8",
    )
    outcome = kernelfit("predict", kernel, batches)
    assert outcome.code == 2
    assert [json.loads(line)["line"] for line in outcome.out.splitlines()] == [1]
    whole = kernelfit("predict", kernel, batches, "--json")
    assert (whole.code, whole.out, whole.err) == (2, "", outcome.err)
    first, second = outcome.err.splitlines()
    assert first.startswith(f"{batches}:2: is no batch: computed (got -5)")
    assert second.startswith(f"{batches}:3: ")
    assert "9000" in second


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", ":1:1: is no JSON"),
        ("[1]", ":1:1: holds no JSON object"),
        ('{"kind": "FittedKernel",\n "schema_version": 1, }', ":2:23: is no JSON"),
        ('{"kind": "FittedKernel", "x": NaN}', "NaN is no number"),
        ('{"kind": "Chip"}', "kind (got 'Chip'); allowed FittedKernel"),
        ('{"kind": "FittedKernel", "schema_version": 9}', "schema_version (got 9)"),
    ],
)
def test_what_is_no_kernel_is_said(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "kernel.json"
    path.write_text(text, encoding="utf-8")
    outcome = kernelfit("explain", path, "--decode", "1x1")
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith(str(path))
    assert said in outcome.err
    assert len(outcome.err.splitlines()) == 1


def test_a_changed_kernel_is_refused(kernel: Path, tmp_path: Path) -> None:
    changed = tmp_path / "kernel.json"
    text = kernel.read_text(encoding="utf-8")
    assert '"overlap_share": 0.5' in text
    changed.write_text(text.replace('"overlap_share": 0.5', '"overlap_share": 0.6'))
    outcome = kernelfit("explain", changed, "--decode", "1x1")
    assert outcome.code == 2
    assert "digest" in outcome.err
    assert kernelfit("digest", kernel).code == 0
    said = kernelfit("digest", changed, "--json")
    assert said.code == 1
    assert [row["holds"] for row in said.json()["files"]] == [False]
