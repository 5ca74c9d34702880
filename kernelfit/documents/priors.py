"""Documents of priors: what is known about a GPU's coefficients before any step is seen."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from kernelfit.documents.library import Entry, find, index
from kernelfit.documents.problems import InputError, Place, Problem, shown
from kernelfit.documents.strict import Strict, parse_as
from kernelfit.documents.yamldoc import Document, load_yaml, problem_at
from kernelfit.kernel.catalog import TYPED, definition
from kernelfit.kernel.dtypes import DTYPE_BYTES
from kernelfit.kernel.errors import InvalidArgument

Word = Annotated[str, Field(min_length=1)]
Sentence = Annotated[str, Field(min_length=8)]
Method = Literal["measured", "literature", "vendor_spec", "copied", "assumed", "not_charged"]

WIDEST_SPREAD = 5.0
"""A wider one says nothing: a factor of 150 either way."""


@dataclass(frozen=True, slots=True)
class PriorValue:
    """What is known about one coefficient of a GPU type before any step is seen.

    Attributes
    ----------
    name : str
        The coefficient, with its data type where it has one.
    value : float
        Its value in ``unit``; the median of the prior.
    unit : str
        ``1``, ``s`` or ``tokens``.
    spread : float
        One standard deviation of the natural logarithm of the value [1].
    method : str
        Evidence, one of the kernel's ``METHODS``.
    source : str
        Where it comes from.
    scope : str
        What it holds for.
    rows : int
        Measurements behind it; 0 where none are.
    """

    name: str
    value: float
    unit: str
    spread: float
    method: str
    source: str
    scope: str = ""
    rows: int = 0


class _Prior(Strict):
    name: Word
    value: Annotated[float, Field(gt=0)]
    unit: Literal["1", "s", "tokens"]
    spread: Annotated[float, Field(gt=0, le=WIDEST_SPREAD)]
    method: Method
    scope: Word
    rows: Annotated[int, Field(ge=0)]
    source: Sentence


class _PriorsDocument(Strict):
    kind: Literal["Priors"]
    schema_version: Literal[1]
    chip: Word
    description: Word | None = None
    priors: Annotated[list[_Prior], Field(min_length=1)]


def _check(document: Document, at: int, prior: _Prior, seen: dict[str, int]) -> list[Problem]:
    path = ("priors", at)
    if prior.name in seen:
        message = f"a second prior of {prior.name}; the first is entry {seen[prior.name] + 1}"
        return [problem_at(document, (*path, "name"), message)]
    try:
        entry = definition(prior.name)
    except InvalidArgument as refusal:
        message = f"no such coefficient (got {prior.name!r})"
        return [problem_at(document, (*path, "name"), message, allowed=refusal.allowed)]
    problems = []
    dtype = prior.name.rpartition("_")[2]
    known = [word for word, _ in DTYPE_BYTES]
    if entry.name in TYPED and dtype not in known:
        message = f"{prior.name} names no data type"
        allowed = ", ".join(f"{entry.name}_{word}" for word in known)
        problems.append(problem_at(document, (*path, "name"), message, allowed=allowed))
    if prior.unit != entry.unit:
        message = f"wrong unit for {prior.name}"
        problems.append(
            problem_at(
                document, (*path, "unit"), message, got=shown(prior.unit), allowed=entry.unit
            )
        )
    elif entry.kind == "efficiency" and prior.value > 1.0:
        message = f"{prior.name} is a share of a peak"
        problems.append(
            problem_at(
                document, (*path, "value"), message, got=f"{prior.value:g}", allowed="0 to 1"
            )
        )
    elif entry.kind == "time" and prior.value > 1.0:
        message = f"{prior.name} is longer than a second"
        problems.append(
            problem_at(
                document,
                (*path, "value"),
                message,
                got=f"{prior.value:g}",
                allowed="at most 1",
                hint="write it in seconds, for example 9.3e-6 for 9.3 us",
            )
        )
    return problems


def _parsed(path: Path) -> _PriorsDocument:
    document = load_yaml(path)
    parsed = parse_as(document, _PriorsDocument)
    problems: list[Problem] = []
    seen: dict[str, int] = {}
    for at, prior in enumerate(parsed.priors):
        problems += _check(document, at, prior, seen)
        seen.setdefault(prior.name, at)
    if problems:
        raise InputError(problems)
    return parsed


def load_priors(path: Path) -> tuple[PriorValue, ...]:
    """Read a document of priors.

    Parameters
    ----------
    path : pathlib.Path
        The file.

    Returns
    -------
    tuple of PriorValue
        In the order of the document.

    Raises
    ------
    InputError
        With every problem and its place: unknown, repeated or missing keys, a name that
        is no coefficient or stands twice, a wrong unit, a share above 1.
    """
    return tuple(
        PriorValue(p.name, p.value, p.unit, p.spread, p.method, p.source, p.scope, p.rows)
        for p in _parsed(path).priors
    )


def chip_of_priors(path: Path) -> str:
    """Read which chip a document of priors is about.

    Parameters
    ----------
    path : pathlib.Path
        The file.

    Returns
    -------
    str
        The chip document's ``name``, as the document states it.

    Raises
    ------
    InputError
        As ``load_priors``.
    """
    return _parsed(path).chip


def priors_entries(folder: Path) -> tuple[Entry, ...]:
    """Return the chips that the documents of a folder are about.

    Parameters
    ----------
    folder : pathlib.Path
        The folder, for example ``calib/priors``.

    Returns
    -------
    tuple of Entry
        One per document, by file name.

    Raises
    ------
    InputError
        When the folder is missing, a document is not valid, or two are about one chip.
    """
    return index(folder, "priors", lambda path: (_parsed(path).chip,))


def find_priors(chip: str, folder: Path, place: Place | None = None) -> tuple[PriorValue, ...]:
    """Find the priors of a chip.

    Parameters
    ----------
    chip : str
        The chip document's ``name``; case does not matter.
    folder : pathlib.Path
        The folder of documents of priors.
    place : Place, optional
        Where the chip was stated, for the complaint; by default the folder.

    Returns
    -------
    tuple of PriorValue
        Its priors.

    Raises
    ------
    InputError
        When no document is about the chip.
    """
    entries = priors_entries(folder)
    return load_priors(find(chip, entries, "chip", place or Place(str(folder))))
