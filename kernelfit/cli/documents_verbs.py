"""Verbs about files and the machine: ``check``, ``digest`` and ``env``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from kernelfit.cli import options
from kernelfit.cli.screen import Screen
from kernelfit.cli.verb import CHECK_SAID_NO, OK, verb

Files = Annotated[list[Path], typer.Argument(metavar="FILE", help="Documents, or folders.")]
LIBRARIES = (
    "numpy",
    "scipy",
    "scikit-learn",
    "pandas",
    "pyarrow",
    "matplotlib",
    "pydantic",
    "msgspec",
    "ruamel.yaml",
    "typer",
    "rich",
    "jinja2",
)


def register(app: typer.Typer) -> None:
    """Add the verbs of this module.

    Parameters
    ----------
    app : typer.Typer
        The command line.
    """
    verb(
        app,
        "check",
        summary="Check documents: chips, models, deployments, runs, kernels.",
        example="kernelfit check calib/",
        details="Every problem is printed with its place; the GPU and the model that a run or a "
        "deployment names must be known. Exit status 1 when there are any.",
    )(check)
    verb(
        app,
        "digest",
        summary="Print the digest of a calibration or kernel, and whether it holds.",
        example="kernelfit digest calib/kernels/NAME.json",
        details="Exit status 1 when a file was changed after it was written.",
    )(digest)
    verb(
        app,
        "env",
        summary="Print versions, and which options are set where.",
        example="kernelfit env --json",
        details="A flag wins over a variable such as KERNELFIT_FIT_DRAWS, a variable over "
        "kernelfit.toml (or [tool.kernelfit] in pyproject.toml) in the working directory, that "
        "over the default. In the file a key stands for every verb that has the option, or in "
        "the table of one verb.",
    )(env)


def check(screen: Screen, files: Files, calib: options.Calib = None) -> int:
    """Check documents.

    Parameters
    ----------
    screen : Screen
        Where the words go.
    files : list of pathlib.Path
        Documents, or folders that are searched for them.
    calib : pathlib.Path, optional
        Holds the chip and model documents that runs and deployments name.

    Returns
    -------
    int
        Exit status.
    """
    from kernelfit.cli.checking import check_document, documents_under
    from kernelfit.cli.places import calib_folder
    from kernelfit.documents.problems import InputError, Problem

    found: list[tuple[Path, str]] = []
    problems: list[Problem] = []
    folder = calib_folder(calib)
    for path in documents_under(files):
        try:
            found.append((path, check_document(path, folder)))
        except InputError as error:
            problems += error.problems
    problems.sort()
    if screen.json:
        screen.document(
            {
                "schema": "kernelfit.check/1",
                "documents": [{"file": str(path), "kind": kind} for path, kind in found],
                "problems": [
                    {
                        "file": p.file,
                        "line": p.line,
                        "column": p.column,
                        "message": p.message,
                        "got": p.got,
                        "allowed": p.allowed,
                        "hint": p.hint,
                    }
                    for p in problems
                ],
            }
        )
    else:
        for problem in problems:
            screen.line(problem.render())
        wrong = len({problem.file for problem in problems})
        screen.line(f"{len(found)} fine, {wrong} with problems")
    return CHECK_SAID_NO if problems else OK


def digest(screen: Screen, files: Files) -> int:
    """Print digests.

    Parameters
    ----------
    screen : Screen
        Where the words go.
    files : list of pathlib.Path
        Calibrations and kernels, or folders that are searched for them.

    Returns
    -------
    int
        Exit status.
    """
    from kernelfit.cli.checking import documents_under
    from kernelfit.cli.files import check_digest, read_object

    rows: list[dict[str, Any]] = []
    for path in documents_under(files, suffixes=(".json",)):
        document = read_object(path)
        holds = check_digest(path, document)
        rows.append({"file": str(path), "digest": document["digest"], "holds": holds})
    if screen.json:
        screen.document({"schema": "kernelfit.digest/1", "files": rows})
    else:
        for row in rows:
            mark = "" if row["holds"] else "  CHANGED AFTER IT WAS WRITTEN"
            screen.line(f"{row['digest']}  {row['file']}{mark}")
    return OK if all(row["holds"] for row in rows) else CHECK_SAID_NO


def env(screen: Screen) -> int:
    """Print versions.

    Parameters
    ----------
    screen : Screen
        Where the words go.

    Returns
    -------
    int
        Exit status.
    """
    import os
    import platform
    from importlib.metadata import PackageNotFoundError, version

    from kernelfit import __version__
    from kernelfit.cli.main import command_line
    from kernelfit.cli.settings import from_environment, from_file

    libraries: dict[str, str | None] = {}
    for name in LIBRARIES:
        try:
            libraries[name] = version(name)
        except PackageNotFoundError:
            libraries[name] = None
    group = command_line()
    variables, strangers = from_environment(group)
    # The nearest to the command line first.
    settings = (*variables, *reversed(from_file(group, Path())))
    seen: set[tuple[str, str]] = set()
    effective = []
    for setting in settings:
        if (setting.verb, setting.option) not in seen:
            seen.add((setting.verb, setting.option))
            effective.append(setting)
    effective.sort(key=lambda setting: (setting.verb, setting.option))
    document = {
        "schema": "kernelfit.env/1",
        "kernelfit": __version__,
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "system": platform.system(),
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
        "libraries": libraries,
        "settings": [
            {"verb": s.verb, "option": s.option, "value": s.value, "origin": s.origin}
            for s in effective
        ],
        "unknown_variables": list(strangers),
    }
    if screen.json:
        screen.document(document)
        return OK
    for key in ("kernelfit", "python", "implementation", "system", "machine", "cpus"):
        screen.line(f"{key:<16}{document[key]}")
    for name, stated in libraries.items():
        screen.line(f"{name:<16}{stated or 'missing'}")
    screen.line()
    if effective:
        screen.table(
            ("verb", "option", "value", "from"),
            [
                (s.verb, "--" + s.option.replace("_", "-"), str(s.value), s.origin)
                for s in effective
            ],
            left=4,
        )
    else:
        screen.line("every option stands at its default")
    for name in strangers:
        screen.note(f"{name} sets no option of any verb")
    return OK
