"""Verbs about files and the machine: ``check``, ``digest`` and ``env``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

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
        details="Every problem is printed with its place. Exit status 1 when there are any.",
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
        summary="Print the versions that a report of a problem needs.",
        example="kernelfit env --json",
    )(env)


def check(screen: Screen, files: Files) -> int:
    """Check documents.

    Parameters
    ----------
    screen : Screen
        Where the words go.
    files : list of pathlib.Path
        Documents, or folders that are searched for them.

    Returns
    -------
    int
        Exit status.
    """
    from kernelfit.cli.checking import check_document, documents_under
    from kernelfit.documents.problems import InputError, Problem

    found: list[tuple[Path, str]] = []
    problems: list[Problem] = []
    for path in documents_under(files):
        try:
            found.append((path, check_document(path)))
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

    libraries: dict[str, str | None] = {}
    for name in LIBRARIES:
        try:
            libraries[name] = version(name)
        except PackageNotFoundError:
            libraries[name] = None
    document = {
        "schema": "kernelfit.env/1",
        "kernelfit": __version__,
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "system": platform.system(),
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
        "libraries": libraries,
    }
    if screen.json:
        screen.document(document)
        return OK
    for key in ("kernelfit", "python", "implementation", "system", "machine", "cpus"):
        screen.line(f"{key:<16}{document[key]}")
    for name, stated in libraries.items():
        screen.line(f"{name:<16}{stated or 'missing'}")
    return OK
