"""The verb ``record``: a recorded engine from one command, and the check of a recording."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from kernelfit.cli.recording import prepared_environment, python_of
from kernelfit.cli.screen import Screen
from tests.cli.run import GOLDEN, kernelfit, snapshot
from tests.logs.recording import Recording, small

ROOT = Path(__file__).resolve().parents[2]
ENGINE = [sys.executable, "-m", "tests.cli.fake_engine"]


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("KERNELFIT_GPU", "H100-SXM")
    for name in ("KERNELFIT_TRACE_DIR", "KERNELFIT_SPEED_PROBE", "VLLM_PLUGINS"):
        monkeypatch.delenv(name, raising=False)


def run(*words: str) -> subprocess.CompletedProcess[str]:
    """Run the program in a process of its own: its child writes to the real screen."""
    command = [sys.executable, "-m", "kernelfit.cli.main", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def test_an_engine_is_recorded_and_the_recording_checked(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "run"
    done = run("record", "--out", str(folder), "--", *ENGINE, "record")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "engine says hello"
    assert lines[1] == f"{folder}: whole"
    assert "6, and 0 without tokens" in done.stdout
    assert "45; the workers' own count: 45" in done.stdout
    assert done.stderr == f"recording to {folder}\n"
    assert len(list(folder.glob("engine-*.jsonl"))) == 1


def test_the_document_is_alone_on_standard_output(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    done = run("record", "--json", "--out", str(folder), "--", *ENGINE, "record")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["whole"], found["steps"], found["tokens"]) == (True, 6, 45)
    assert "engine says hello" in done.stderr


def test_the_environment_that_the_engine_gets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_PLUGINS", "lora_resolver")
    monkeypatch.setenv("KERNELFIT_TRACE_DIR", "/somewhere/else")
    folder = tmp_path / "run"
    words = ["record", "--out", str(folder), "--gpu", "a100", "--speed-probe"]
    done = run(*words, "--", *ENGINE, "environment")
    assert done.returncode == 0, done.stderr
    assert (
        str(
            {
                "KERNELFIT_TRACE_DIR": str(folder),
                "KERNELFIT_GPU": "a100",
                "KERNELFIT_SPEED_PROBE": "1",
                "VLLM_PLUGINS": "lora_resolver,kernelfit",
            }
        )
        in done.stdout
    )
    assert "VLLM_PLUGINS=lora_resolver leaves the recorder's plug-in out" in done.stderr
    assert "KERNELFIT_TRACE_DIR was /somewhere/else" in done.stderr
    assert 'gpu: "a100"' in (folder / "run.yaml").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("plugins", "given", "warned"),
    [
        (None, None, False),
        ("kernelfit", "kernelfit", False),
        ("other,kernelfit", "other,kernelfit", False),
        ("other", "other,kernelfit", True),
        # Set and empty, it lets no plug-in in at all.
        ("", "kernelfit", True),
    ],
)
def test_plugins_are_changed_only_where_they_leave_the_recorder_out(
    plugins: str | None,
    given: str | None,
    warned: bool,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = {} if plugins is None else {"VLLM_PLUGINS": plugins}
    after = prepared_environment(Screen(), tmp_path, gpu=None, speed_probe=False, given=before)
    assert after.pop("KERNELFIT_TRACE_DIR") == str(tmp_path)
    assert after == ({} if given is None else {"VLLM_PLUGINS": given})
    assert ("warning: VLLM_PLUGINS" in capsys.readouterr().err) is warned


def test_a_signal_is_passed_on_and_the_recording_is_still_checked(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    command = [sys.executable, "-m", "kernelfit.cli.main", "record", "--out", str(folder), "--"]
    program = subprocess.Popen([*command, *ENGINE, "wait"], stdout=subprocess.PIPE, text=True)
    assert program.stdout is not None
    assert [program.stdout.readline() for _ in range(2)] == ["engine says hello\n", "ready\n"]
    os.kill(program.pid, signal.SIGTERM)
    rest = program.stdout.read()
    program.stdout.close()
    # The engine saw the signal, once, and what it recorded is whole.
    assert program.wait(60) == 0
    assert rest.startswith(f"{folder}: whole\n")


def test_an_engine_that_fails_is_told_after_what_it_recorded(tmp_path: Path) -> None:
    done = run("record", "--out", str(tmp_path / "run"), "--", *ENGINE, "fail")
    assert done.returncode == 2
    assert "run: whole" in done.stdout
    assert done.stderr.endswith("kernelfit: the engine ended with status 3\n")


def test_an_engine_that_records_nothing_is_not_whole(tmp_path: Path) -> None:
    done = run("record", "--out", str(tmp_path / "run"), "--", *ENGINE, "nothing")
    assert done.returncode == 1
    assert "not whole" in done.stdout
    assert "no engine-*.jsonl" in done.stdout


def test_a_folder_with_a_recording_is_not_recorded_over(tmp_path: Path) -> None:
    folder = small().write(tmp_path / "run")
    before = snapshot(folder)
    outcome = kernelfit("record", "--out", folder, "--", *ENGINE, "record")
    assert outcome.code == 2
    assert "holds a recording already" in outcome.err
    assert snapshot(folder) == before


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    outcome = kernelfit("record", "--out", tmp_path / "run", "--", "no-such-engine", "serve")
    assert outcome.code == 2
    assert "no such program (got no-such-engine)" in outcome.err
    assert not (tmp_path / "run").exists()


def executable(path: Path, text: str) -> Path:
    """Write a script that can be run."""
    path.write_text(text, encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_an_engine_whose_python_lacks_the_recorder_is_not_started(tmp_path: Path) -> None:
    # A Python of the engine's own that answers as one without the package would.
    python = executable(tmp_path / "python3", '#!/bin/sh\necho "[]"\n')
    vllm = executable(tmp_path / "vllm", f"#!{python}\nraise SystemExit(0)\n")
    outcome = kernelfit("record", "--out", tmp_path / "run", "--", vllm, "serve")
    assert outcome.code == 2
    assert "the engine's Python has no kernelfit" in outcome.err
    assert f"{python} -m pip install --no-deps kernelfit" in outcome.err
    assert not (tmp_path / "run").exists()


def test_an_engine_whose_python_cannot_be_told_is_started_with_a_warning(tmp_path: Path) -> None:
    words = " ".join(ENGINE)
    script = executable(tmp_path / "start.sh", f"#!/bin/sh\nexec {words} record\n")
    done = run("record", "--out", str(tmp_path / "run"), "--", str(script))
    assert done.returncode == 0, done.stderr
    assert "it cannot be told whether the Python behind" in done.stderr


@pytest.mark.parametrize(
    ("first", "second", "found"),
    [
        (f"#!{sys.executable}", "", sys.executable),
        (f"#!{sys.executable} -I", "", sys.executable),
        ("#!/bin/sh", f"'''exec' {sys.executable} \"$0\" \"$@\"", sys.executable),
        ("#!/bin/sh", f'\'\'\'exec\' "{sys.executable}" "$0" "$@"', sys.executable),
        ("#!/bin/sh", "echo", None),
        ("#!/usr/bin/perl", "", None),
        ("\x7fELF", "", None),
        ("", "", None),
    ],
)
def test_the_python_behind_a_script(
    first: str, second: str, found: str | None, tmp_path: Path
) -> None:
    script = executable(tmp_path / "vllm", f"{first}\n{second}\n")
    assert python_of(script) == (None if found is None else Path(found))


def test_a_python_is_its_own(tmp_path: Path) -> None:
    assert python_of(tmp_path / "python3.11") == tmp_path / "python3.11"
    env = executable(tmp_path / "vllm", "#!/usr/bin/env -S python3 -u\n")
    found = python_of(env)
    assert found is not None
    assert found.name == "python3"


def test_a_planned_workload_is_executed_by_the_engines_python(tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text("{}", encoding="utf-8")
    # It stands in for the engine's Python: it answers the question for the plug-in, and
    # otherwise says what it was asked to run.
    python = executable(
        tmp_path / "python3",
        f'#!/bin/sh\n[ "$1" = -c ] && exec {sys.executable} "$@"\necho "$@"\n',
    )
    words = ["--workload", str(plan), "--run", "tp2", "--model", "models/tiny"]
    done = run("record", "--out", str(tmp_path / "run"), *words, "--", str(python))
    asked = f"-m kernelfit.record.workload_file {plan} --model models/tiny --run tp2"
    assert done.stdout.splitlines()[0] == asked
    assert done.returncode == 1  # nothing was recorded


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--workload", "x"], "a planned workload needs --model"),
        (["--model", "x"], "a planned workload needs --workload"),
        (["--run", "x", "--", "python3"], "a planned workload needs --workload"),
        (["--workload", "nothing.json", "--model", "x"], "nothing.json: no such file"),
    ],
)
def test_a_workload_comes_with_its_model(words: list[str], message: str) -> None:
    outcome = kernelfit("record", *words)
    assert outcome.code == 2
    assert message in outcome.err


@pytest.mark.parametrize("words", [[], ["--check", "x", "--", "vllm"]])
def test_either_a_command_or_a_recording(words: list[str]) -> None:
    outcome = kernelfit("record", *words)
    assert outcome.code == 2
    assert "name either the engine's command" in outcome.err


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    outcome = kernelfit("record", "--check", tmp_path / "nothing")
    assert outcome.code == 2
    assert "no such folder" in outcome.err


def check(folder: Path, golden: str, update: bool) -> None:
    """Compare what is printed with what was reviewed, and the document with its words."""
    outcome = kernelfit("record", "--check", folder)
    text = outcome.out.replace(str(folder), "traces/my-run")
    path = GOLDEN / golden
    if update:
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")
    document = kernelfit("record", "--json", "--check", folder)
    assert document.code == outcome.code
    assert outcome.code == (0 if document.json()["whole"] else 1)


def test_what_a_whole_recording_looks_like(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    folder = small().write(tmp_path / "run")
    check(folder, "record-whole.txt", request.config.getoption("--update-golden"))


def test_what_a_broken_recording_looks_like(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    made = Recording(ranks=1)
    for number in range(60):
        made.step([(1, 100 + number, 50, 0)], cost_ns=200_000)
    del made.steps[20:23]
    del made.workers[0][40]
    made.steps[-1]["n"] = 9
    folder = made.write(tmp_path / "run")
    check(folder, "record-broken.txt", request.config.getoption("--update-golden"))
