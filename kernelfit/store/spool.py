"""Standard input as files: readers go through a log more than once, a pipe only once."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import IO

from kernelfit.documents.problems import InputError, Problem
from kernelfit.logs.lines import MAGIC, TruncatedFile, read_lines
from kernelfit.logs.rows import FORMAT_NAME

NAME = "stdin"

_COPIED_BYTES = 1 << 20
_PARQUET = b"PAR1"


def spool(stream: IO[bytes], folder: Path, reader: str | None) -> Path:
    """Copy a stream into a folder, as files that its reader takes.

    Parameters
    ----------
    stream : binary file
        What is read to its end, a stretch at a time.
    folder : pathlib.Path
        An empty folder.
    reader : str or None
        Name of the reader; for the recorder's format the stream holds any number of its
        files, one after the other.

    Returns
    -------
    pathlib.Path
        The file, or the folder of a recording.

    Raises
    ------
    InputError
        When the stream is empty, or a compressed one ends early.
    """
    begin = stream.read(_COPIED_BYTES)
    if not begin:
        raise InputError([Problem(NAME, None, None, "standard input is empty")])
    packed = next((end for magic, end in MAGIC.items() if begin.startswith(magic)), "")
    path = folder / f"{NAME}{_suffix(begin, packed, reader)}{packed}"
    with path.open("wb") as target:
        target.write(begin)
        shutil.copyfileobj(stream, target, _COPIED_BYTES)
    return _recording(path, folder / NAME) if reader == FORMAT_NAME else path


def _suffix(begin: bytes, packed: str, reader: str | None) -> str:
    if begin.startswith(_PARQUET):
        return ".parquet"
    if reader in ("dynamo-fpm", "otel-steps", "blis-trace", "sglang-fpm"):
        return ".jsonl" if packed or begin.lstrip().startswith(b"{") else ".csv"
    return ".csv" if reader == "table" else ".log"


def _recording(path: Path, folder: Path) -> Path:
    """Part a stream of the recorder's files at their headers."""
    folder.mkdir()
    target: IO[bytes] | None = None
    try:
        for number, line in read_lines(path):
            name = _name(line, number) if b'"header"' in line else None
            if name is not None or target is None:
                if target is not None:
                    target.close()
                target = (folder / (name or "engine-0.jsonl")).open("ab")
            target.write(line if line.endswith(b"\n") else line + b"\n")
    except TruncatedFile as error:
        raise InputError(
            [Problem(NAME, None, None, f"standard input ends early: {error}")]
        ) from error
    finally:
        if target is not None:
            target.close()
    path.unlink()
    return folder


def _name(line: bytes, number: int) -> str | None:
    """Return the name of the file that a header begins; None when it is no header."""
    try:
        row = json.loads(line)
    except ValueError:
        return None
    if not isinstance(row, dict) or row.get("t") != "header":
        return None
    role = "worker" if row.get("role") == "worker" else "engine"
    pid = row.get("pid")
    return f"{role}-{pid if isinstance(pid, int) else 0}-{number}.jsonl"
