"""What is wrong with an input, said once, with the place."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Place:
    """Where something stands.

    Attributes
    ----------
    file : str
        The file as the user named it; a folder or a flag may stand here too.
    line : int or None
        Line, counted from 1.
    column : int or None
        Column, counted from 1.
    """

    file: str
    line: int | None = None
    column: int | None = None


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with an input.

    Attributes
    ----------
    file : str
        The file at fault, as the user named it.
    line : int or None
        Line, counted from 1.
    column : int or None
        Column, counted from 1.
    message : str
        What is wrong.
    got : str or None
        The value found.
    allowed : str or None
        What would be accepted.
    hint : str or None
        What to do about it.
    """

    file: str
    line: int | None
    column: int | None
    message: str
    got: str | None = None
    allowed: str | None = None
    hint: str | None = None

    @classmethod
    def at(
        cls,
        place: Place,
        message: str,
        *,
        got: str | None = None,
        allowed: str | None = None,
        hint: str | None = None,
    ) -> Problem:
        """Return a problem at a place.

        Parameters
        ----------
        place : Place
            Where it is.
        message, got, allowed, hint : str
            As the attributes of the same names.

        Returns
        -------
        Problem
            The problem.
        """
        return cls(place.file, place.line, place.column, message, got, allowed, hint)

    def sort_key(self) -> tuple[str, int, int, str, str]:
        """Return the key that orders problems.

        Returns
        -------
        tuple
            File, line, column, message, value; what is not known comes first.
        """
        """Return the key that orders problems: by file, line, column, then words."""
        return (self.file, self.line or 0, self.column or 0, self.message, self.got or "")

    def __lt__(self, other: Problem) -> bool:
        """Order by :meth:`sort_key`."""
        return self.sort_key() < other.sort_key()

    def render(self) -> str:
        """Return the problem as one line.

        Returns
        -------
        str
            ``file:line:col: what is wrong (got X); allowed Y; hint``; parts that are
            not known are left out.
        """
        place = self.file
        if self.line is not None:
            place += f":{self.line}"
            if self.column is not None:
                place += f":{self.column}"
        text = f"{place}: {self.message}"
        if self.got is not None:
            text += f" (got {self.got})"
        if self.allowed is not None:
            text += f"; allowed {self.allowed}"
        if self.hint is not None:
            text += f"; {self.hint}"
        # One problem is one line, whatever a file put into a value.
        return " ".join(text.splitlines())


class InputError(Exception):
    """Inputs that cannot be used, with every problem that was found.

    Parameters
    ----------
    problems : iterable of Problem
        At least one; kept sorted and without repeats.
    """

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems: tuple[Problem, ...] = tuple(sorted(set(problems)))
        if not self.problems:
            raise ValueError("an InputError needs at least one problem")
        super().__init__("\n".join(problem.render() for problem in self.problems))


def shown(value: object, limit: int = 60) -> str:
    """Return a value as it is shown in a problem.

    Parameters
    ----------
    value : object
        Any value read from a file.
    limit : int
        Longest text [characters].

    Returns
    -------
    str
        Its ``repr``, cut where it is long.
    """
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list) and len(value) > 8:
        return f"a list of {len(value)}"
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 3] + "..."


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the known word that looks most like a given one.

    Parameters
    ----------
    word : str
        What was written.
    known : iterable of str
        What is known.

    Returns
    -------
    str or None
        The nearest, ignoring case; None when nothing is near.
    """
    by_fold = {name.casefold(): name for name in known}
    found = difflib.get_close_matches(word.casefold(), list(by_fold), n=1, cutoff=0.5)
    return by_fold[found[0]] if found else None


def did_you_mean(word: str, known: Iterable[str]) -> str | None:
    """Return a hint that names the nearest known word.

    Parameters
    ----------
    word : str
        What was written.
    known : iterable of str
        What is known.

    Returns
    -------
    str or None
        For example ``did you mean hbm_bytes?``; None when nothing is near.
    """
    found = nearest(word, known)
    return f"did you mean {found}?" if found is not None else None
