"""Starting an engine so that it is recorded, and saying what a recording holds."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from kernelfit.cli.files import refuse
from kernelfit.cli.screen import Screen
from kernelfit.documents.problems import InputError, Problem

if TYPE_CHECKING:
    from kernelfit.logs.whole import Wholeness

PLUGIN = "kernelfit"
PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
LAST_FLUSH_S = 0.3
"""Time after the engine's end in which its processes may still write [s]."""

_PROBE = (
    "import json\n"
    "from importlib.metadata import entry_points\n"
    "print(json.dumps([e.name for e in entry_points(group='vllm.general_plugins')]))\n"
)


def prepared_environment(
    screen: Screen, folder: Path, *, gpu: str | None, speed_probe: bool, given: Mapping[str, str]
) -> dict[str, str]:
    """Return the environment in which an engine records itself.

    Parameters
    ----------
    screen : Screen
        Where it is said what was changed.
    folder : pathlib.Path
        The recording's folder.
    gpu : str or None
        Name of the device for ``run.yaml``, where the engine's own is not wanted.
    speed_probe : bool
        Whether the workers time a fixed piece of work beside every step.
    given : mapping of str to str
        The environment so far.

    Returns
    -------
    dict of str to str
        The environment.
    """
    environment = {**given, "KERNELFIT_TRACE_DIR": str(folder.resolve())}
    before = given.get("KERNELFIT_TRACE_DIR")
    if before and before != environment["KERNELFIT_TRACE_DIR"]:
        screen.note(f"warning: KERNELFIT_TRACE_DIR was {before}; recording to {folder}")
    if gpu is not None:
        environment["KERNELFIT_GPU"] = gpu
    if speed_probe:
        environment["KERNELFIT_SPEED_PROBE"] = "1"
    allowed = given.get("VLLM_PLUGINS")
    if allowed is not None and PLUGIN not in allowed.split(","):
        environment["VLLM_PLUGINS"] = ",".join(word for word in (allowed, PLUGIN) if word)
        screen.note(
            f"warning: VLLM_PLUGINS={allowed} leaves the recorder's plug-in out; "
            f"the engine gets VLLM_PLUGINS={environment['VLLM_PLUGINS']}"
        )
    return environment


def recording_folder(folder: Path | None) -> Path:
    """Choose a recording's folder.

    Parameters
    ----------
    folder : pathlib.Path or None
        The folder; None names one after the time.

    Returns
    -------
    pathlib.Path
        The folder; it may have to be made, and holds no recording.

    Raises
    ------
    InputError
        When it holds a recording already.
    """
    if folder is None:
        folder = Path("traces") / time.strftime("run-%Y%m%d-%H%M%S")
    kinds = ("run.yaml", "engine-*.jsonl*", "worker-*.jsonl*")
    held = sorted(p.name for kind in kinds for p in folder.glob(kind))
    if held:
        raise refuse(
            folder,
            "holds a recording already",
            got=held[0],
            allowed="a new or an empty folder",
            hint="one folder holds one run; name another with --out",
        )
    return folder


def check_engine(screen: Screen, command: Sequence[str], environment: Mapping[str, str]) -> None:
    """See that the engine's own Python has the recorder, before the engine is started.

    Parameters
    ----------
    screen : Screen
        Where it is said when that cannot be told.
    command : sequence of str
        The engine's command line.
    environment : mapping of str to str
        The environment that it gets.

    Raises
    ------
    InputError
        When the program is not there, or its Python lacks the recorder.
    """
    program = shutil.which(command[0], path=environment.get("PATH"))
    if program is None:
        raise InputError([Problem("command line", None, None, "no such program", got=command[0])])
    python = python_of(Path(program))
    said = None if python is None else _probe(python, environment)
    if said is None:
        screen.note(
            f"warning: it cannot be told whether the Python behind {command[0]} has kernelfit; "
            "without it nothing is recorded"
        )
    elif PLUGIN not in said:
        raise InputError(
            [
                Problem(
                    str(python),
                    None,
                    None,
                    "the engine's Python has no kernelfit, so nothing would be recorded",
                    hint=f"{python} -m pip install --no-deps kernelfit",
                )
            ]
        )


def python_of(program: Path) -> Path | None:
    """Return the Python that runs a program.

    Parameters
    ----------
    program : pathlib.Path
        An executable: a Python, or a script such as ``vllm``.

    Returns
    -------
    pathlib.Path or None
        The interpreter; None where the program does not name one.
    """
    if program.name.startswith("python"):
        return program
    try:
        with program.open("rb") as file:
            lines = file.read(4096).decode("utf-8", "replace").splitlines()[:3]
    except OSError:
        return None
    if not lines or not lines[0].startswith("#!"):
        return None
    words = lines[0][2:].split()
    if words and Path(words[0]).name == "env":
        words = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
    if words and Path(words[0]).name.startswith("python"):
        found = shutil.which(words[0])
        return None if found is None else Path(found)
    # Where a path is too long for a script's first line, pip lets the shell start Python.
    for line in lines[1:]:
        if line.startswith("'''exec' "):
            path = Path(line[len("'''exec' ") :].split(' "$0"')[0].strip('"'))
            return path if path.name.startswith("python") and path.exists() else None
    return None


def _probe(python: Path, environment: Mapping[str, str]) -> list[Any] | None:
    """Return the plug-ins that an engine's Python would load; None when it does not say."""
    try:
        done = subprocess.run(
            [str(python), "-c", _PROBE],
            env=dict(environment),
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        said = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return None
    return said if isinstance(said, list) else None


def run_engine(
    command: Sequence[str], environment: Mapping[str, str], *, aside: bool
) -> tuple[int, bool]:
    """Run an engine to its end, passing signals on.

    Parameters
    ----------
    command : sequence of str
        The engine's command line.
    environment : mapping of str to str
        The environment that it gets.
    aside : bool
        Whether what it prints goes to standard error, because a document follows.

    Returns
    -------
    tuple of (int, bool)
        Its exit status, negative for a signal, and whether it was asked to stop.
    """
    # A group of its own: a terminal's Ctrl-C reaches it once, through us.
    child = subprocess.Popen(
        list(command),
        env=dict(environment),
        stdout=sys.stderr if aside else None,
        process_group=0,
    )
    asked = False

    def pass_on(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        del frame
        asked = True
        try:
            if number == signal.SIGINT:
                os.killpg(child.pid, number)
            else:
                child.send_signal(number)
        except ProcessLookupError:
            pass

    before = {number: signal.signal(number, pass_on) for number in PASSED_ON}
    try:
        status = child.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    time.sleep(LAST_FLUSH_S)
    return status, asked


def whole_document(folder: Path, found: Wholeness) -> dict[str, Any]:
    """Return a check's result as JSON-shaped data.

    Parameters
    ----------
    folder : pathlib.Path
        The recording.
    found : Wholeness
        The result.

    Returns
    -------
    dict
        Shares are fractions.
    """
    aligned = found.aligned
    return {
        "schema": "kernelfit.record/1",
        "recording": str(folder),
        "whole": found.whole,
        "faults": list(found.faults),
        "engines": found.engines,
        "workers": found.workers,
        "steps": found.steps,
        "idle_steps": found.idle,
        "tokens": found.tokens,
        "worker_tokens": dict(found.worker_tokens),
        "rejected": found.rejected,
        "unfinished_lines": found.unfinished,
        "last_unfinished_step": found.last_unfinished,
        "missing_ranks": list(found.missing_ranks),
        "data_parallel": None
        if aligned is None
        else {
            "ranks": aligned.ranks,
            "together": aligned.together,
            "apart": aligned.apart,
            "dummy_steps": aligned.dummies,
        },
        "hook_share": found.hook_share,
        "writer_share": found.writer_share,
        "timing": found.timing or None,
        "fitted": found.fit_refused_reason is None,
        "fit_refused_reason": found.fit_refused_reason,
        "printed_steps": found.printed,
        "disagreeing_steps": found.disagreeing,
    }


def show_whole(screen: Screen, folder: Path, found: Wholeness) -> None:
    """Print what a recording holds.

    Parameters
    ----------
    screen : Screen
        Where it is printed.
    folder : pathlib.Path
        The recording.
    found : Wholeness
        The result of its check.
    """
    worker_tokens = sorted({tokens for _, tokens in found.worker_tokens})
    rows = [
        ("engines", f"{found.engines:,}"),
        ("workers", f"{found.workers:,}"),
        ("steps", f"{found.steps:,}, and {found.idle:,} without tokens"),
        (
            "tokens",
            f"{found.tokens:,}; the workers' own count: "
            + (" and ".join(f"{tokens:,}" for tokens in worker_tokens) or "none"),
        ),
        ("rejected lines", f"{found.rejected:,}"),
        (
            "unfinished",
            "nothing"
            if found.last_unfinished is None
            else f"{found.unfinished:,} lines of the last steps, up to step "
            f"{found.last_unfinished:,}: the engine ended within them",
        ),
    ]
    if found.aligned is not None:
        rows.append(
            (
                "data parallel",
                f"{found.aligned.together:,} steps taken together by {found.aligned.ranks} ranks, "
                f"{found.aligned.dummies:,} dummy steps among theirs",
            )
        )
    if found.printed:
        rows.append(
            (
                "engine's own log",
                f"{found.printed:,} steps printed, {found.disagreeing or 0:,} with other tokens",
            )
        )
    rows += [
        ("recorder's cost", _cost(found)),
        (
            "durations",
            f"{found.timing or 'none'}: "
            + ("can be fitted" if found.fit_refused_reason is None else "not fitted"),
        ),
    ]
    screen.line(f"{folder}: {'whole' if found.whole else 'not whole'}")
    width = max(len(name) for name, _ in rows)
    for name, words in rows:
        screen.line(f"  {name:<{width}}  {words}")
    if found.fit_refused_reason is not None:
        screen.line(f"  not fitted: {found.fit_refused_reason}")
    for fault in found.faults:
        screen.line(f"  missing or wrong: {fault}")


def _cost(found: Wholeness) -> str:
    if found.hook_share is None:
        return "unknown"
    words = f"{found.hook_share:.2%} of the steps' time"
    if found.writer_share is not None:
        words += f"; {found.writer_share:.2%} of a core for writing"
    return words
