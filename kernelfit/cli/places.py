"""Where files stand when the user does not say."""

from __future__ import annotations

from pathlib import Path

import kernelfit
from kernelfit.cli.files import refuse

HERE = Path("calib")
STORE = Path(".kernelfit") / "store"


def calib_folder(stated: Path | None) -> Path:
    """Return the folder of chip and model documents.

    Parameters
    ----------
    stated : pathlib.Path or None
        What the user gave.

    Returns
    -------
    pathlib.Path
        That folder; without one ``calib`` in the working directory, else the documents that
        came with the package.

    Raises
    ------
    InputError
        When the folder holds no chips.
    """
    if stated is not None:
        if not (stated / "chips").is_dir():
            raise refuse(
                stated, "holds no chips/ folder", allowed="a folder with chips/ and models/"
            )
        return stated
    package = Path(kernelfit.__file__).parent
    for folder in (HERE, package / "_calib", package.parent / "calib"):
        if (folder / "chips").is_dir():
            return folder
    raise refuse(HERE, "no chip documents found", hint="name their folder with --calib")


def store_folder(out: Path) -> Path:
    """Return the folder of the trace store.

    Parameters
    ----------
    out : pathlib.Path
        What the user gave as ``--out``.

    Returns
    -------
    pathlib.Path
        A hidden folder below it: the store can always be made again from the logs.
    """
    return out / STORE


def file_name(name: str) -> str:
    """Return a name as it may stand in a file system.

    Parameters
    ----------
    name : str
        For example a GPU's name, with blanks and brackets.

    Returns
    -------
    str
        Lower case letters, digits, dots and dashes.
    """
    kept = "".join(c if c.isalnum() or c == "." else "-" for c in name.lower())
    return "-".join(part for part in kept.split("-") if part) or "unnamed"
