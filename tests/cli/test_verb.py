"""Exit status and words when something goes wrong inside a command."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kernelfit.cli import documents_verbs
from kernelfit.cli.screen import Screen
from kernelfit.documents.problems import InputError, Problem
from kernelfit.kernel.errors import Refusal
from tests.cli.kernels import write_kernel
from tests.cli.run import kernelfit


def _raising(error: BaseException) -> Callable[..., int]:
    def env(screen: Screen) -> int:
        raise error

    return env


@pytest.mark.parametrize("json", [[], ["--json"]])
@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (RuntimeError("a\nb"), 2, "kernelfit: internal error: RuntimeError: a b; --debug shows"),
        (Refusal("pp", 2, "one stage only"), 2, "kernelfit: pp=2 cannot be priced: one stage only"),
        (PermissionError(13, "Permission denied", "x.json"), 2, "x.json: Permission denied"),
        (InputError([Problem("b", 2, 1, "odd"), Problem("a", 1, 1, "odd")]), 2, "a:1:1: odd\nb:2"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_what_goes_wrong_is_one_line_and_a_status(
    error: BaseException,
    code: int,
    said: str,
    json: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(documents_verbs, "env", _raising(error))
    outcome = kernelfit("env", *json)
    assert outcome.code == code
    assert outcome.out == ""
    assert outcome.err.startswith(said)
    assert "Traceback" not in outcome.err


def test_debug_shows_the_traceback_of_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents_verbs, "env", _raising(RuntimeError("broken")))
    outcome = kernelfit("env", "--debug")
    assert outcome.code == 2
    assert "Traceback" in outcome.err
    assert "in env" in outcome.err


def test_a_closed_pipe_ends_quietly(tmp_path: Path) -> None:
    kernel = write_kernel(tmp_path)
    batches = tmp_path / "batches.jsonl"
    batches.write_text('{"requests": [[1, 5, 5]]}\n' * 2000, encoding="utf-8")
    program = subprocess.Popen(
        [sys.executable, "-m", "kernelfit.cli.main", "predict", kernel, batches],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert program.stdout is not None
    assert program.stderr is not None
    program.stdout.readline()
    program.stdout.close()
    said = program.stderr.read()
    program.wait()
    program.stderr.close()
    assert b"Traceback" not in said
    assert b"internal error" not in said


def test_progress_is_silent_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with Screen().progress("reading") as progress:
        progress(1, 2, "run")
    captured = capsys.readouterr()
    assert captured.out + captured.err == ""


@pytest.mark.parametrize("quiet", [False, True])
def test_progress_goes_to_the_terminal_behind_standard_error(quiet: bool) -> None:
    code = (
        "from kernelfit.cli.screen import Screen\n"
        f"with Screen(quiet={quiet}).progress('reading') as show:\n    show(1, 2, 'a[b]')\n"
        "print('result')"
    )
    own, other = pty.openpty()
    done = subprocess.run(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=other,
        env={**os.environ, "TERM": "xterm", "NO_COLOR": "1"},
        check=True,
    )
    os.close(other)
    try:
        shown = os.read(own, 65536)
    except OSError:
        # Linux answers so where nothing was written.
        shown = b""
    os.close(own)
    assert done.stdout == b"result\n"
    assert (b"reading a[b]" in shown) is not quiet
    assert b"\x1b[3" not in shown
