"""What commands say when things go well, go wrong, are stopped or are not read to the end."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.golden import check_words
from tests.cli.kernels import write_kernel
from tests.cli.run import VERBS, kernelfit
from tests.cli.runs import CALIB, RUN, write_run

MAIN = (sys.executable, "-m", "kernelfit.cli.main")


def test_explain_as_it_was_reviewed(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    kernel = write_kernel(tmp_path)
    for name, words in {
        "explain-inside": ("--decode", "32x1024", "--prefill", "1x512"),
        "explain-outside": ("--decode", "128x64"),
    }.items():
        outcome = kernelfit("explain", kernel, *words)
        assert (outcome.code, outcome.err) == (0, "")
        check_words(f"{name}.txt", outcome.out, request)


BROKEN = {
    # Too few rows for any split or resample.
    "too-few-rows": {"steps": 6},
    # Every step is quicker than the datasheet allows, so that no gate lets it pass.
    "nothing-left": {"steps": 80, "changes": {i: {"ms": 0.01} for i in range(80)}},
    # A name with a typing error.
    "unknown-gpu": {"document": RUN.replace("H100-SXM", "H100-SMX")},
    "unknown-model": {"document": RUN.replace("{model}", "llama-3.1-8")},
    "bad-document": {"document": RUN.replace("tp: 1", "tp: one").replace("reader:", "raeder:")},
    "bad-rows": {"steps": 40, "changes": {3: {"ms": "fast"}, 5: {"step": "x"}}},
}


@pytest.mark.parametrize("name", sorted(BROKEN))
def test_what_a_fit_says_that_cannot_be(
    name: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    write_run(tmp_path / "traces" / "a", **BROKEN[name])  # type: ignore[arg-type]
    words = ("fit", tmp_path / "traces", "--out", tmp_path / "out", "--calib", CALIB, "--draws", 20)
    outcome = kernelfit(*map(str, words))
    assert (outcome.code, outcome.out) == (2, "")
    assert "Traceback" not in outcome.err
    assert not (tmp_path / "out" / "calib").exists()
    assert not (tmp_path / "out" / "reports").exists()
    check_words(f"error-{name}.txt", outcome.err, request, {"FOLDER": tmp_path, "CALIB": CALIB})
    # The same with --json, and nothing half-said on standard output.
    again = kernelfit(*map(str, words), "--json")
    assert (again.code, again.out) == (2, "")


def test_check_refuses_the_names_that_ingest_refuses(tmp_path: Path) -> None:
    good = write_run(tmp_path / "good")
    assert kernelfit("check", good / "run.yaml", "--calib", CALIB).code == 0
    text = RUN.replace("H100-SXM", "H100-SMX").replace("{model}", "llama-3.1-8")
    bad = write_run(tmp_path / "bad", document=text)
    outcome = kernelfit("check", bad / "run.yaml", "--calib", CALIB)
    assert outcome.code == 1
    first, second, _ = outcome.out.splitlines()
    assert f"{bad / 'run.yaml'}:3:6: unknown GPU (got 'H100-SMX')" in first
    assert "did you mean H100-SXM?" in first
    assert f"{bad / 'run.yaml'}:4:8: unknown model" in second
    ingested = kernelfit("ingest", bad, "--out", tmp_path / "out", "--calib", CALIB)
    assert ingested.code == 2
    assert first.partition(": ")[2] in ingested.err
    deployment = tmp_path / "pools.yaml"
    stated = (CALIB / "deployments" / "llama-3.1-8b-h100.yaml").read_text(encoding="utf-8")
    deployment.write_text(stated, encoding="utf-8")
    assert kernelfit("check", deployment, "--calib", CALIB).code == 0
    deployment.write_text(stated.replace("gpu: ", "gpu: x-"), encoding="utf-8")
    outcome = kernelfit("check", deployment, "--calib", CALIB)
    assert outcome.code == 1
    assert "unknown GPU" in outcome.out


def test_a_pipe_that_is_closed_early_is_no_error(tmp_path: Path) -> None:
    kernel = write_kernel(tmp_path)
    batches = tmp_path / "batches.jsonl"
    batches.write_text('{"requests": [[1, 5, 5]]}\n' * 3000, encoding="utf-8")
    for words in (["predict", str(kernel), str(batches)], ["show", "--schema", "fit"]):
        done = subprocess.run(
            ["bash", "-c", 'set -o pipefail; "$@" | head -n 1', "-", *MAIN, *words],
            capture_output=True,
            text=True,
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert len(done.stdout.splitlines()) == 1


def test_predict_answers_a_line_before_the_next_is_written(tmp_path: Path) -> None:
    program = subprocess.Popen(
        [*MAIN, "predict", str(write_kernel(tmp_path))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert program.stdin is not None
    assert program.stdout is not None
    for number in (1, 2):
        program.stdin.write('{"requests": [[1, 5, 5]]}\n')
        program.stdin.flush()
        assert f'"line": {number}' in program.stdout.readline()
    program.stdin.close()
    program.stdout.close()
    assert program.wait() == 0


def test_an_interrupted_run_says_what_it_left(tmp_path: Path) -> None:
    program = subprocess.Popen(
        [*MAIN, "predict", str(write_kernel(tmp_path))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert program.stdin is not None
    assert program.stdout is not None
    program.stdin.write('{"requests": [[1, 5, 5]]}\n')
    program.stdin.flush()
    program.stdout.readline()
    program.send_signal(signal.SIGINT)
    _, said = program.communicate()
    assert program.returncode == 130
    assert said == "interrupted; no result was written, and no file is half-written\n"


@pytest.mark.parametrize("no_color", [False, True])
def test_rich_on_a_terminal_and_plain_in_a_pipe(tmp_path: Path, no_color: bool) -> None:
    kernel = write_kernel(tmp_path)
    piped = kernelfit("show", kernel).out
    assert piped.isascii()
    assert "\x1b" not in piped
    own, other = pty.openpty()
    environment = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "COLUMNS")}
    environment |= {"TERM": "xterm-256color", "COLUMNS": "160"}
    if no_color:
        environment["NO_COLOR"] = "1"
    program = subprocess.Popen([*MAIN, "show", str(kernel)], stdout=other, env=environment)
    os.close(other)
    shown = b""
    while True:
        try:
            part = os.read(own, 65536)
        except OSError:
            break
        if not part:
            break
        shown += part
    assert program.wait() == 0
    os.close(own)
    text = shown.decode("utf-8")
    assert "gemm_eff_bf16" in text
    assert "\N{BOX DRAWINGS LIGHT HORIZONTAL}" in text
    # Colours have numbers from 30 to 37; weight alone stays with NO_COLOR.
    assert ("\x1b[33m" in text or "\x1b[36m" in text or "\x1b[32m" in text) is not no_color


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_knows_verbs_and_options(shell: str) -> None:
    variables = {
        "bash": {"COMP_WORDS": "kernelfit exp", "COMP_CWORD": "1"},
        "zsh": {"_TYPER_COMPLETE_ARGS": "kernelfit exp"},
        "fish": {
            "_TYPER_COMPLETE_ARGS": "kernelfit exp",
            "_TYPER_COMPLETE_FISH_ACTION": "get-args",
        },
    }[shell]
    done = subprocess.run(
        [*MAIN],
        env={**os.environ, "_KERNELFIT_COMPLETE": f"complete_{shell}", **variables},
        capture_output=True,
        text=True,
    )
    assert {"explain", "export"} <= set(done.stdout.replace('"', " ").replace(":", " ").split())


def test_every_help_gives_its_example_before_anything_else() -> None:
    for verb in VERBS:
        lines = [line for line in kernelfit(verb, "--help").out.splitlines() if line.strip()]
        assert lines[0].startswith(f"Usage: kernelfit {verb}")
        start = lines.index("  Example:")
        assert start <= 3, verb
        assert lines[start + 1].startswith(f"    kernelfit {verb} "), verb


def test_a_mistyped_option_gets_a_suggestion() -> None:
    outcome = kernelfit("fit", "x", "--drawz", "20")
    assert outcome.code == 2
    assert "--draws" in outcome.err


def test_progress_shows_rate_and_time_left() -> None:
    code = (
        "import time\nfrom kernelfit.cli.screen import Screen\n"
        "with Screen().progress('reading') as show:\n"
        "    for i in range(1, 9):\n        show(i, 20, 'a'); time.sleep(0.15)\n"
    )
    own, other = pty.openpty()
    program = subprocess.Popen(
        [sys.executable, "-c", code],
        stderr=other,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "100"},
    )
    os.close(other)
    shown, end = b"", time.monotonic() + 60
    while time.monotonic() < end:
        try:
            part = os.read(own, 65536)
        except OSError:
            break
        if not part:
            break
        shown += part
    assert program.wait() == 0
    os.close(own)
    text = shown.decode("utf-8")
    assert "reading a" in text
    assert "8/20" in text
    assert "/s" in text
    assert "0:00:0" in text
