"""Folders of documents: which names stand there, and the one that is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from kernelfit.documents.problems import InputError, Place, Problem, did_you_mean, shown


@dataclass(frozen=True, slots=True)
class Entry:
    """One document of a folder.

    Attributes
    ----------
    path : pathlib.Path
        The file.
    names : tuple of str
        Its name, then its aliases.
    """

    path: Path
    names: tuple[str, ...]


def index(folder: Path, what: str, names: Callable[[Path], tuple[str, ...]]) -> tuple[Entry, ...]:
    """Read the names of every YAML document of a folder.

    Parameters
    ----------
    folder : pathlib.Path
        The folder.
    what : str
        What its documents describe, for complaints.
    names : callable
        Gives the name and aliases of one file.

    Returns
    -------
    tuple of Entry
        One per document, by file name.

    Raises
    ------
    InputError
        When the folder is missing, a document is not valid, or two share a name.
    """
    if not folder.is_dir():
        raise InputError([Problem(str(folder), None, None, f"no such folder of {what} documents")])
    problems: list[Problem] = []
    entries = []
    for path in sorted(folder.glob("*.yaml")):
        try:
            entries.append(Entry(path, names(path)))
        except InputError as error:
            problems += error.problems
    problems += _shared(entries, what)
    if problems:
        raise InputError(problems)
    return tuple(entries)


def _shared(entries: Iterable[Entry], what: str) -> list[Problem]:
    """Return a problem for each name that stands in two documents."""
    owner: dict[str, Path] = {}
    problems = []
    for entry in entries:
        for name in dict.fromkeys(name.casefold() for name in entry.names):
            if name in owner:
                message = f"the {what} name {name!r} is also in {owner[name].name}"
                problems.append(Problem(str(entry.path), None, None, message))
            owner.setdefault(name, entry.path)
    return problems


def find(name: str, entries: Iterable[Entry], what: str, place: Place) -> Path:
    """Return the document that has a name.

    Parameters
    ----------
    name : str
        A name or alias; case does not matter.
    entries : iterable of Entry
        The documents.
    what : str
        What they describe, for the complaint.
    place : Place
        Where the name was stated.

    Returns
    -------
    pathlib.Path
        The file.

    Raises
    ------
    InputError
        When none has it; it lists the names and the nearest one.
    """
    known = tuple(entries)
    for entry in known:
        if name.casefold() in (other.casefold() for other in entry.names):
            return entry.path
    raise InputError(
        [
            Problem.at(
                place,
                f"unknown {what}",
                got=shown(name),
                allowed=", ".join(entry.names[0] for entry in known) or "nothing yet",
                hint=did_you_mean(name, [n for entry in known for n in entry.names]),
            )
        ]
    )
