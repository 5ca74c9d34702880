"""``kernelfit fit`` from logs to files, and the verbs that read what it wrote."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from kernelfit.cli.result_text import gates_text
from kernelfit.export.blis_check import validate_coefficient_set
from kernelfit.export.plain import plain_schema
from tests.cli.kernels import write_kernel
from tests.cli.run import Outcome, kernelfit, snapshot
from tests.cli.runs import CALIB, rows, write_run

GIVEN = ("--calib", CALIB)
NEARLY = ("--draws", "20", *GIVEN)
SPLITS = {
    "time_block",
    "leave_one_run_out",
    "leave_one_pool_out",
    "leave_one_model_out",
    "leave_one_gpu_out",
}
PHASES = {"all", "decode", "mixed", "prefill"}


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return three runs of two models."""
    folder = tmp_path_factory.mktemp("traces")
    write_run(folder / "a", seed=1)
    write_run(folder / "b", seed=2)
    write_run(folder / "c", seed=3, model="qwen3-8b")
    return folder


@pytest.fixture(scope="module")
def done(traces: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Outcome]:
    """Return one fit's folder and what it said."""
    out = tmp_path_factory.mktemp("fit")
    return out, kernelfit("fit", traces, "--out", out, "--json", *NEARLY)


def test_the_files_are_where_they_should_be(done: tuple[Path, Outcome]) -> None:
    out, outcome = done
    assert outcome.code == 0
    names = set(snapshot(out))
    said = outcome.json()
    assert "calib/calibrations/h100-sxm.json" in names
    assert {entry["file"] for entry in said["kernels"]} <= names
    assert len(said["kernels"]) == 2
    assert "reports/h100-sxm/index.html" in names
    assert any(name.startswith(".kernelfit/store/") for name in names)


def test_json_follows_its_schema(done: tuple[Path, Outcome]) -> None:
    said = done[1].json()
    assert said["schema"] == "kernelfit.fit/1"
    assert said["seed"] == 0
    assert said["command"].startswith("kernelfit fit ")
    assert "points" not in said
    (calibration,) = said["calibrations"]
    assert calibration["gpu"] == "H100-SXM"
    assert calibration["digest"].startswith("sha256:")
    assert calibration["composition"]["rule"] in {"sum", "max", "share"}
    assert calibration["coefficients"]
    for item in calibration["coefficients"]:
        assert set(item) >= {"name", "value", "unit", "ci95", "verdict", "method"}
        assert item["ci95"][0] <= item["value"] <= item["ci95"][1]
        assert item["verdict"] in {"identified", "weak", "prior", "at_bound"}
    assert said["validation"]
    for row in said["validation"]:
        assert set(row) >= {
            "gpu",
            "split",
            "group",
            "phase",
            "n",
            "median_ape",
            "mape",
            "p90_ape",
            "bias",
        }
        assert row["split"] in SPLITS
        assert row["phase"] in PHASES
    assert {"kernelfit", "datasheet"} <= {row["predictor"] for row in said["validation"]}
    assert {row["split"] for row in said["validation"]} >= {"time_block", "leave_one_model_out"}
    for row in said["gates"]:
        assert set(row) >= {"id", "run", "rows"}
    for row in said["ingest"]:
        assert set(row) >= {"file", "lines", "steps", "rejected"}
        assert row["lines"] == row["steps"] + row["recognised"] + row["rejected"]


def test_held_out_error_is_near_the_planted_noise(done: tuple[Path, Outcome]) -> None:
    # The planted noise is 1 %, so its median absolute deviation is 0.67 %.
    for row in done[1].json()["validation"]:
        if (row["predictor"], row["split"], row["group"], row["phase"]) == (
            "kernelfit",
            "time_block",
            "all",
            "all",
        ):
            assert 0.004 < row["median_ape"] < 0.03
            return
    pytest.fail("no row of all steps")


@pytest.fixture(scope="module")
def again(traces: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Outcome]:
    """Return a second fit of the same logs with the same seed, in words and quiet."""
    out = tmp_path_factory.mktemp("again")
    return out, kernelfit("fit", traces, "--out", out, "--quiet", *NEARLY)


def test_the_same_seed_gives_the_same_bytes(
    done: tuple[Path, Outcome], again: tuple[Path, Outcome]
) -> None:
    first, second = snapshot(done[0] / "calib"), snapshot(again[0] / "calib")
    assert first
    assert first == second


def test_words_without_json(done: tuple[Path, Outcome], again: tuple[Path, Outcome]) -> None:
    outcome = again[1]
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.isascii()
    for word in ("gemm_eff", "identified", "time_block", "leave_one_model_out", "forest"):
        assert word in outcome.out
    assert "wrote " in done[1].err
    assert "drew " in done[1].err


def test_a_dry_run_writes_nothing(done: tuple[Path, Outcome], traces: Path) -> None:
    out = done[0]
    before = snapshot(out)
    outcome = kernelfit("fit", traces, "--out", out, "--dry-run", "--seed", "5", *NEARLY)
    assert outcome.code == 0
    assert "would write" in outcome.err
    assert snapshot(out) == before


def _nan(folder: Path) -> Path:
    return write_run(folder / "bad", changes={4: {"ms": "nan"}})


def _negative(folder: Path) -> Path:
    return write_run(folder / "bad", changes={4: {"prefill_tokens": -7}})


def _truncated(folder: Path) -> Path:
    run = write_run(folder / "bad")
    table = run / "steps.csv"
    table.write_bytes(table.read_bytes()[:-25])
    return run


def _short(folder: Path) -> Path:
    return write_run(folder / "bad", steps=30)


@pytest.mark.parametrize("json_flag", [[], ["--json"]])
@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda folder: folder / "none", "none: "),
        (_nan, "steps.csv:6: "),
        (_negative, "steps.csv:6: "),
        (_truncated, "steps.csv:301: "),
        (_short, "are too few to fit"),
    ],
)
def test_bad_input_leaves_every_output(
    spoil: Callable[[Path], Path],
    said: str,
    json_flag: list[str],
    done: tuple[Path, Outcome],
    tmp_path: Path,
) -> None:
    out = done[0]
    before = {name: data for name, data in snapshot(out).items() if "store" not in name}
    outcome = kernelfit("fit", spoil(tmp_path), "--out", out, *NEARLY, *json_flag)
    assert outcome.code == 2
    assert outcome.out == ""
    assert said in outcome.err
    assert "Traceback" not in outcome.err
    assert "internal error" not in outcome.err
    after = {name: data for name, data in snapshot(out).items() if "store" not in name}
    assert after == before


def test_a_few_bad_lines_may_be_passed_over_when_asked(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", changes={4: {"ms": "nan"}})
    outcome = kernelfit(
        "fit", run, "--out", tmp_path / "out", "--max-rejected", "1", "--json", *NEARLY
    )
    assert outcome.code == 0
    assert outcome.json()["ingest"][0]["rejected"] == 1
    assert "1 of 301 lines rejected" in outcome.err


def test_a_wait_is_refused_with_the_reason(traces: Path, tmp_path: Path) -> None:
    from tests.cli.runs import RUN

    run = write_run(tmp_path / "run", document=RUN.replace("timing: device", "timing: wait"))
    outcome = kernelfit("fit", run, "--out", tmp_path / "out", *NEARLY)
    assert outcome.code == 2
    assert "wait" in outcome.err


def test_exports_of_a_fit_load(done: tuple[Path, Outcome], tmp_path: Path) -> None:
    calib = done[0] / "calib"
    source = min((calib / "kernels").iterdir())
    plain = kernelfit("export", "plain", source)
    assert plain.code == 0
    jsonschema.validate(json.loads(plain.out), plain_schema())
    blis = kernelfit("export", "blis", source, "--out", tmp_path, "--json")
    assert blis.code == 0
    text = (tmp_path / f"{source.stem}.blis.yaml").read_text(encoding="utf-8")
    assert validate_coefficient_set(text) == ()
    assert blis.json()["not_expressed"]
    wrong = kernelfit("export", "blis", calib / "calibrations" / "h100-sxm.json")
    assert wrong.code == 2
    assert "is no frozen kernel" in wrong.err


def test_a_report_is_drawn_again_to_the_same_bytes(done: tuple[Path, Outcome]) -> None:
    folder = done[0] / "reports" / "h100-sxm"
    before = snapshot(folder)
    assert kernelfit("report", folder).code == 0
    assert snapshot(folder) == before
    missing = kernelfit("report", folder / "none")
    assert missing.code == 2
    assert "report.json: no such file" in missing.err


def test_flips_ask_what_the_kernels_suggest_or_what_the_user_wants(
    done: tuple[Path, Outcome], tmp_path: Path
) -> None:
    kernels = done[0] / "calib" / "kernels"
    said = kernelfit("flips", kernels, "--json")
    assert said.code == 1
    assert kernelfit("flips", kernels, "--json", "--exit-zero").code == 0
    flags = said.json()["flags"]
    assert flags == done[1].json()["flips"]["flags"]
    for flag in flags:
        assert set(flag) >= {"pool", "conclusion", "flag", "overlap", "no_overlap", "fitted"}
        assert (flag["measurement"] is None) == (flag["flag"] == "agree")
    # No batch takes a second, and none takes a microsecond.
    asked = tmp_path / "questions.yaml"
    asked.write_text(
        "kind: Questions\nschema_version: 1\nname: q\nquestions:\n"
        "  - {model: Llama-3.1-8B, context_tokens: [256], concurrency: [1], target_s: [1, 1e-6]}\n"
    )
    answers = kernelfit("flips", kernels, "--questions", asked, "--json").json()["flags"]
    meets = [flag for flag in answers if flag["conclusion"] == "meets_token_latency"]
    assert sorted(flag["fitted"] for flag in meets) == ["no", "yes"]
    assert {flag["flag"] for flag in meets} <= {"agree", "extrapolated"}
    in_words = kernelfit("flips", kernels, "--questions", asked)
    assert in_words.out.startswith(f"{len(answers)} conclusions: ")
    agreed = all(flag["flag"] == "agree" for flag in answers)
    assert in_words.code == (not agreed)


def test_flips_say_when_the_calibration_is_gone(tmp_path: Path) -> None:
    outcome = kernelfit("flips", write_kernel(tmp_path))
    assert outcome.code == 2
    assert "not in ../calibrations" in outcome.err


def test_validate_on_new_logs(done: tuple[Path, Outcome], tmp_path: Path) -> None:
    source = done[0] / "calib" / "calibrations" / "h100-sxm.json"
    run = write_run(tmp_path / "new", seed=9)
    words: tuple[Any, ...] = ("validate", source, run, "--out", tmp_path / "out", *GIVEN, "--json")
    fine = kernelfit(*words, "--max-error", "0.05")
    assert fine.code == 0
    assert {row["split"] for row in fine.json()["validation"]} == {"new_runs"}
    assert fine.err == ""
    strict = kernelfit(*words, "--max-error", "0.0001")
    assert strict.code == 1
    assert strict.json()["validation"] == fine.json()["validation"]


def test_validation_does_not_count_copies(done: tuple[Path, Outcome], tmp_path: Path) -> None:
    source = done[0] / "calib" / "calibrations" / "h100-sxm.json"
    run = write_run(tmp_path / "one" / "run", seed=9)
    slower = {i: {"ms": 1.5 * float(str(r["ms"]))} for i, r in enumerate(rows(9, 300))}
    copy = write_run(tmp_path / "two" / "run", seed=9, changes=slower)

    def judged(*logs: Path) -> list[dict[str, Any]]:
        words = ("validate", source, *logs, "--out", tmp_path / "out", *GIVEN, "--json")
        found = kernelfit(*words)
        assert found.code == 0
        return list(found.json()["validation"])

    assert judged(run, copy) == judged(run)


def test_what_the_gates_did_in_words() -> None:
    def gate(name: str, rows: int, repaired: int = 0) -> dict[str, Any]:
        return {"id": name, "run": "r", "rows": rows, "repaired": repaired}

    noted = [gate("probe", 0)]
    assert gates_text(noted) is None
    assert gates_text([*noted, gate("late", 1200), gate("first", 2), gate("late", 1)]) == (
        "gates dropped 1,203 steps: late 1,201, first 2"
    )
    assert gates_text([gate("spilled", 0, 7)]) == (
        "7 steps were given back the time of a step beside them"
    )
    assert gates_text([gate("spilled", 5, 4)]) == (
        "gates dropped 5 steps: spilled 5; 4 steps were given back the time of a step beside them"
    )


def test_freeze_a_pool_that_was_not_measured(done: tuple[Path, Outcome], tmp_path: Path) -> None:
    source = done[0] / "calib" / "calibrations" / "h100-sxm.json"
    deployment = CALIB / "deployments" / "llama-3.1-8b-h100.yaml"
    words = ("freeze", source, deployment, "--out", tmp_path, *GIVEN, "--json")
    outcome = kernelfit(*words, "--pool", "tp1")
    assert outcome.code == 0
    (row,) = outcome.json()["kernels"]
    assert kernelfit("explain", row["file"], "--decode", "8x512").code == 0
    # Two GPUs need a link's coefficients, which one-GPU runs do not hold.
    refused = kernelfit(*words, "--pool", "tp2")
    assert refused.code == 2
    assert "allreduce_custom" in refused.err
    unknown = kernelfit(*words, "--pool", "tp3")
    assert unknown.code == 2
    assert "has no such pool (got tp3); allowed tp1, tp2" in unknown.err


def test_flips_by_flags_about_pools_that_nobody_ran(
    done: tuple[Path, Outcome], tmp_path: Path
) -> None:
    source = done[0] / "calib" / "calibrations" / "h100-sxm.json"
    words: tuple[Any, ...] = ("flips", source, *GIVEN, "--gpu", "h100-sxm", "--model")
    words += ("Llama-3.1-8B", "--tp", "1,2", "--prompt", "512", "--output", "64")
    words += ("--concurrency", "4,16", "--target", "0.02", "--first-token-target", "0.5")
    said = kernelfit(*words, "--json", "--out", tmp_path)
    flags = said.json()["flags"]
    assert said.code == 1
    wide = [flag for flag in flags if flag["pool"] == "tp2"]
    # Its collectives are priors: nothing about it can be agreed upon, but what fits in memory.
    assert {f["flag"] for f in wide if f["conclusion"] != "kv_fits"} <= {
        "measure",
        "uncertain",
        "extrapolated",
    }
    assert {f["conclusion"] for f in flags} >= {"meets_first_token", "wider_pays", "best_pool"}
    assert {path.suffix for path in tmp_path.iterdir()} == {".json", ".svg", ".png"}
    # Eight KV heads do not divide by three.
    refused = kernelfit(*words[:9], "3", *words[10:], "--json", "--exit-zero")
    assert refused.code == 0
    assert [row["pool"] for row in refused.json()["refused"]] == ["tp3 dp1"]
    for wrong, text in (
        (("--target", "fast"), "--target: has a wrong entry (got 'fast'); allowed numbers, commas"),
        (("--percentile", "99"), "command line: questions.0.percentile is out of range"),
        (("--gpu", "b300"), "no calibration of its GPU type was given"),
        (("--set", "block_size"), "--set: is no pair"),
    ):
        failed = kernelfit(*words, *wrong)
        assert failed.code == 2
        assert text in failed.err
        assert failed.out == ""


def test_a_plan_from_logs_and_back(
    done: tuple[Path, Outcome], traces: Path, tmp_path: Path
) -> None:
    calib = done[0] / "calib"
    words = ("plan", traces, calib, *GIVEN, "--gpu-minutes", "1", "--startup-minutes", "0.1")
    said = kernelfit(*words, "--out", tmp_path, "--json")
    assert said.code == 0
    (plan,) = said.json()["plans"]
    assert 0.0 < plan["gpu_minutes"] <= 1.0
    assert all(0.0 < row["shrinkage"] <= 1.0 + 1e-9 for row in plan["coefficients"])
    assert kernelfit("check", tmp_path / "workload.json").out == "1 fine, 0 with problems\n"
    later = calib / "calibrations" / "h100-sxm.json"
    compared = kernelfit("plan", "--compare", tmp_path / "plan.json", later, "--json")
    # Intervals of no width have nothing to shrink.
    assert {row["real"] for row in compared.json()["coefficients"]} - {None} == {1.0}
    in_words = kernelfit("plan", "--compare", tmp_path / "plan.json", later)
    assert "width left, real" in in_words.out
    assert kernelfit(*words, "--criterion", "x").code == 2
    alone = kernelfit("plan", calib, *GIVEN)
    assert "logs and a calibration of them are both needed" in alone.err
    assert "is no plan" in kernelfit("plan", "--compare", later, later).err
