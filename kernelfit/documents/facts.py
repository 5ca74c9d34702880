"""Looking up the facts of a checkpoint's ``config.json`` without stopping at a bad one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernelfit.documents.problems import Problem, shown
from kernelfit.documents.yamldoc import Document


class Facts:
    """The facts of a config, each looked up once, every problem kept.

    Parameters
    ----------
    document : Document
        The config; a nested ``text_config`` is followed.
    """

    def __init__(self, document: Document) -> None:
        self.document = document
        outer = document.data
        nested = outer.get("text_config")
        self.path: tuple[str, ...] = ("text_config",) if isinstance(nested, dict) else ()
        self.outer: Mapping[str, Any] = outer
        self.inner: Mapping[str, Any] = nested if isinstance(nested, dict) else outer
        self.problems: list[Problem] = []
        self.bad: set[str] = set()

    def fail(self, key: str, message: str, **words: str | None) -> None:
        """Keep a problem with a field.

        Parameters
        ----------
        key : str
            The field.
        message : str
            What is wrong.
        **words : str or None
            Further parts of a ``Problem``: ``got``, ``allowed``, ``hint``.
        """
        self.bad.add(key)
        place = self.document.place((*self.path, key))
        self.problems.append(Problem.at(place, message, **words))

    def get(self, key: str) -> Any:
        """Return a fact.

        Parameters
        ----------
        key : str
            The field.

        Returns
        -------
        object
            The nested text config's, else the outer one's; null is as good as absent.
        """
        value = self.inner.get(key)
        return self.outer.get(key) if value is None else value

    def missing(self, key: str, hint: str | None = None) -> None:
        """Keep that a field is missing.

        Parameters
        ----------
        key : str
            The field.
        hint : str, optional
            What else would do.
        """
        self.fail(key, f"required field {key} is missing", hint=hint)

    def count(self, key: str, default: int | None = None, least: int = 1) -> int:
        """Return a whole number.

        Parameters
        ----------
        key : str
            The field.
        default : int, optional
            What an absent field means; without it the field is required.
        least : int
            Smallest value accepted.

        Returns
        -------
        int
            The value; ``least`` after a problem.
        """
        value = self.get(key)
        if value is None:
            if default is None:
                self.missing(key)
                return least
            return default
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            allowed = f"a whole number, at least {least}"
            self.fail(key, f"field {key} is not usable", got=shown(value), allowed=allowed)
            return least
        return value

    def flag(self, key: str, default: bool) -> bool:
        """Return a switch.

        Parameters
        ----------
        key : str
            The field.
        default : bool
            What an absent field means.

        Returns
        -------
        bool
            The value; ``default`` after a problem.
        """
        value = self.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            message = f"field {key} is not usable"
            self.fail(key, message, got=shown(value), allowed="true or false")
            return default
        return value

    def integers(self, key: str) -> tuple[int, ...]:
        """Return a list of whole numbers.

        Parameters
        ----------
        key : str
            The field.

        Returns
        -------
        tuple of int
            The values; empty where absent, or after a problem.
        """
        value = self.get(key)
        if value is None:
            return ()
        if not isinstance(value, list) or not all(type(item) is int for item in value):
            message = f"field {key} is not usable"
            self.fail(key, message, got=shown(value), allowed="a list of whole numbers")
            return ()
        return tuple(value)
