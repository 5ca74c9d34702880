"""Reading and writing the files that a user names, with the place in every complaint."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelfit.documents.canonical import digest, write_atomic
from kernelfit.documents.problems import InputError, Problem, shown

if TYPE_CHECKING:
    from kernelfit.cli.screen import Screen
    from kernelfit.fit.calibration import Calibration
    from kernelfit.kernel.fitted import FittedKernel

STANDARD_INPUT = "-"


def refuse(file: str | Path, message: str, **words: str | None) -> InputError:
    """Return the error that says what is wrong with a file as a whole.

    Parameters
    ----------
    file : str or pathlib.Path
        The file, as the user named it.
    message : str
        What is wrong.
    **words : str
        ``got``, ``allowed`` and ``hint`` of the problem.

    Returns
    -------
    InputError
        To be raised.
    """
    return InputError([Problem(str(file), None, None, message, **words)])


def read_text(path: Path) -> str:
    """Read a text file, or standard input for ``-``.

    Parameters
    ----------
    path : pathlib.Path
        The file.

    Returns
    -------
    str
        Its text.

    Raises
    ------
    InputError
        When there is no such file, or it is no text.
    """
    if str(path) == STANDARD_INPUT:
        return sys.stdin.read()
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise refuse(path, "no such file") from None
    except IsADirectoryError:
        raise refuse(path, "is a folder", allowed="a file") from None
    except UnicodeDecodeError:
        raise refuse(path, "is no UTF-8 text") from None


def _no_constant(word: str) -> float:
    raise ValueError(f"{word} is no number that JSON knows")


def parse_json(text: str, file: str, first_line: int = 1) -> Any:
    """Parse JSON and name the place of a mistake.

    Parameters
    ----------
    text : str
        The text.
    file : str
        Where it comes from.
    first_line : int
        Line of the file that the text begins in.

    Returns
    -------
    object
        The data.

    Raises
    ------
    InputError
        When it is no JSON, or holds NaN or an infinity.
    """
    try:
        return json.loads(text, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        line = first_line + error.lineno - 1
        raise InputError([Problem(file, line, error.colno, f"is no JSON: {error.msg}")]) from None
    except ValueError as error:
        raise InputError([Problem(file, first_line, None, f"is no JSON: {error}")]) from None


def read_object(path: Path) -> dict[str, Any]:
    """Read a file that holds one JSON object.

    Parameters
    ----------
    path : pathlib.Path
        The file, or ``-``.

    Returns
    -------
    dict
        The object.

    Raises
    ------
    InputError
        When it holds something else.
    """
    data = parse_json(read_text(path), str(path))
    if not isinstance(data, dict):
        raise InputError([Problem(str(path), 1, 1, "holds no JSON object", got=shown(data))])
    return data


def stream_lines(path: Path) -> Iterator[tuple[int, Any]]:
    """Read a file with one JSON value a line, one line at a time; empty lines are passed over.

    Parameters
    ----------
    path : pathlib.Path
        The file, or ``-``.

    Yields
    ------
    tuple of (int, object)
        Line number, from 1, and the value; an ``InputError`` in its place where the line is
        no JSON, so that the reader can go on.

    Raises
    ------
    InputError
        When there is no such file, or it is no text.
    """
    with contextlib.ExitStack() as stack:
        try:
            stream: Iterable[str] = (
                sys.stdin
                if str(path) == STANDARD_INPUT
                else stack.enter_context(path.open(encoding="utf-8"))
            )
            for number, line in enumerate(stream, 1):
                if line.strip():
                    try:
                        value = parse_json(line.rstrip("\r\n"), str(path), number)
                    except InputError as error:
                        value = error
                    yield number, value
        except FileNotFoundError:
            raise refuse(path, "no such file") from None
        except IsADirectoryError:
            raise refuse(path, "is a folder", allowed="a file") from None
        except UnicodeDecodeError:
            raise refuse(path, "is no UTF-8 text") from None


def read_kernel(path: Path) -> FittedKernel:
    """Read a frozen kernel.

    Parameters
    ----------
    path : pathlib.Path
        The file.

    Returns
    -------
    FittedKernel
        The kernel.

    Raises
    ------
    InputError
        When the file is no frozen kernel, or was changed after it was frozen.
    """
    from kernelfit.kernel.errors import InvalidArgument
    from kernelfit.kernel.fitted import FittedKernel

    document = read_object(path)
    try:
        return FittedKernel.from_document(document)
    except InvalidArgument as error:
        raise refuse(
            path,
            f"is no frozen kernel that can be used: {error.field}",
            got=shown(error.got),
            allowed=error.allowed,
        ) from None


def read_calibration(path: Path) -> Calibration:
    """Read a calibration that a fit wrote.

    Parameters
    ----------
    path : pathlib.Path
        The file.

    Returns
    -------
    Calibration
        The calibration.

    Raises
    ------
    InputError
        When the file is no calibration, or was changed after it was written.
    """
    from kernelfit.fit.calibration import SCHEMA_VERSION, Calibration
    from kernelfit.kernel.errors import InvalidArgument
    from kernelfit.kernel.frozen import from_data

    document = read_object(path)
    for key, wanted in (("kind", "Calibration"), ("schema_version", SCHEMA_VERSION)):
        if document.get(key) != wanted:
            raise refuse(
                path,
                f"is no calibration that can be used: {key}",
                got=shown(document.get(key)),
                allowed=str(wanted),
            )
    if not check_digest(path, document):
        raise refuse(path, "was changed after it was written: its digest does not hold")
    body = {k: v for k, v in document.items() if k not in ("kind", "schema_version", "digest")}
    if body.get("condition") is None:
        body["condition"] = float("inf")
    try:
        return from_data(Calibration, body)
    except InvalidArgument as error:
        raise refuse(
            path,
            f"is no calibration that can be used: {error.field}",
            got=shown(error.got),
            allowed=error.allowed,
        ) from None


def check_digest(path: Path, document: Mapping[str, Any]) -> bool:
    """Return whether a document's digest is that of its contents.

    Parameters
    ----------
    path : pathlib.Path
        The file, for the complaint.
    document : mapping
        The document.

    Returns
    -------
    bool
        False when it was changed after it was written.

    Raises
    ------
    InputError
        When it carries no digest.
    """
    if not isinstance(document.get("digest"), str):
        raise refuse(path, "carries no digest")
    return bool(document["digest"] == digest(document))


def write(screen: Screen, path: Path, text: str, *, dry_run: bool = False) -> None:
    """Write a file whole or not at all, and say so.

    Parameters
    ----------
    screen : Screen
        Where it is said.
    path : pathlib.Path
        The file.
    text : str
        Its contents.
    dry_run : bool
        Only say what would be written.
    """
    size = len(text.encode("utf-8"))
    if dry_run:
        screen.note(f"would write {path} ({size:,} bytes)")
        return
    write_atomic(path, text)
    screen.wrote(path)
    screen.note(f"wrote {path} ({size:,} bytes)")
