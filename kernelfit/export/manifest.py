"""What stands beside an export: how it was made, so that it can be made again and compared."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from kernelfit.documents.canonical import digest, dumps
from kernelfit.export.base import ExportedFile, ExportOptions, Files, Target, provenance
from kernelfit.kernel.fitted import FittedKernel

SCHEMA = "kernelfit.exported/1"
ENDING = ".export.json"


def manifest(
    target: Target, kernel: FittedKernel, options: ExportOptions, files: Files, kernel_place: str
) -> ExportedFile:
    """Return the file that says how an export was made.

    Parameters
    ----------
    target : Target
        The target.
    kernel : FittedKernel
        The kernel.
    options : ExportOptions
        The options.
    files : tuple of ExportedFile
        What was exported.
    kernel_place : str
        The kernel's file as seen from the export's folder, with slashes.

    Returns
    -------
    ExportedFile
        ``<kernel>.<target>.export.json``: provenance, settings, digests of the files and what
        was left out. No date and no place outside the two folders.
    """
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "target": target.name,
        "source": target.source,
        "kernel_file": kernel_place,
        "provenance": provenance(target.name, kernel, options),
        "settings": dict(options.settings),
        "files": [
            {"path": f.path, "bytes": len(f.content), "digest": _digest(f.content)} for f in files
        ],
        "not_expressed": [
            {"name": each.name, "reason": each.reason} for each in target.missing(kernel, options)
        ],
    }
    document["digest"] = digest(document)
    return ExportedFile(f"{options.stem}.{target.name}{ENDING}", dumps(document))


def _digest(content: bytes) -> str:
    return "sha256:" + hashlib.sha256(content).hexdigest()


def place_of_kernel(kernel: Path, folder: Path) -> str:
    """Return where a kernel lies, as seen from the folder of its export.

    Parameters
    ----------
    kernel : pathlib.Path
        The kernel's file.
    folder : pathlib.Path
        The export's folder.

    Returns
    -------
    str
        A relative path with slashes, so that both can move together.
    """
    return PurePosixPath(os.path.relpath(kernel.resolve(), folder.resolve())).as_posix()


def listed(document: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the files that a manifest speaks of.

    Parameters
    ----------
    document : mapping
        The manifest.

    Returns
    -------
    tuple of str
        Their places within the folder; empty where the document is no manifest.
    """
    if document.get("schema") != SCHEMA:
        return ()
    return tuple(str(entry["path"]) for entry in document["files"])


def differences(folder: Path, files: Files) -> tuple[str, ...]:
    """Compare a folder with what an export would write into it.

    Parameters
    ----------
    folder : pathlib.Path
        The folder.
    files : tuple of ExportedFile
        The files as they come out now.

    Returns
    -------
    tuple of str
        What differs, byte for byte; empty where nothing does.
    """
    out = []
    for file in files:
        path = folder / file.path
        if not path.is_file():
            out.append(f"{path}: is missing")
        elif (there := path.read_bytes()) != file.content:
            out.append(f"{path}: {_difference(there, file.content)}")
    return tuple(out)


def _difference(there: bytes, made: bytes) -> str:
    """Say where two contents part, by line where both are text."""
    try:
        lines = list(zip(there.decode().splitlines(), made.decode().splitlines(), strict=False))
    except UnicodeDecodeError:
        return f"differs: {len(there)} bytes, made again {len(made)}"
    for number, (old, new) in enumerate(lines, 1):
        if old != new:
            was, is_now = (line.strip()[:60] for line in (old, new))
            return f"differs from line {number} on: {was!r}, made again {is_now!r}"
    return f"differs after line {len(lines)}"
