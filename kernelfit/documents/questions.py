"""Question documents: which loads and targets a decision is about."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from kernelfit.documents.poolspec import Count, Word
from kernelfit.documents.problems import InputError, Problem, shown
from kernelfit.documents.strict import Strict, parse_as
from kernelfit.documents.yamldoc import Document, load_yaml, problem_at

LONGEST_TARGET_S = 10.0
"""A target above this is taken for a slipped unit, such as milliseconds written as seconds."""


@dataclass(frozen=True, slots=True)
class Question:
    """What someone wants to know: do these pools serve this load, and which does it best.

    Attributes
    ----------
    context_tokens : int
        Tokens in the KV cache of every request before the step [tokens].
    target_s : float
        Longest acceptable time per output token [s].
    concurrency : tuple of int
        Requests that decode together in one engine; each is asked about by itself.
        Empty asks only for the largest batch and the best pool.
    model : str or None
        Name of the model that is served; None asks about every model.
    pools : tuple of str
        Labels of the pools in question; empty asks about every pool.
    """

    context_tokens: int
    target_s: float
    concurrency: tuple[int, ...] = ()
    model: str | None = None
    pools: tuple[str, ...] = ()


Target = Annotated[float, Field(gt=0, le=LONGEST_TARGET_S)]


class _Asked(Strict):
    model: Word | None = None
    pools: list[Word] = Field(default_factory=list)
    context_tokens: Annotated[list[Count], Field(min_length=1)]
    concurrency: list[Count] = Field(default_factory=list)
    target_s: Annotated[list[Target], Field(min_length=1)]


class _QuestionsDocument(Strict):
    kind: Literal["Questions"]
    schema_version: Literal[1]
    name: Word
    description: Word | None = None
    questions: Annotated[list[_Asked], Field(min_length=1)]


def load_questions(path: Path) -> tuple[Question, ...]:
    """Read a document of questions.

    Parameters
    ----------
    path : pathlib.Path
        The file.

    Returns
    -------
    tuple of Question
        One for each context and target of each entry, in the order of the document.

    Raises
    ------
    InputError
        With every problem: unknown or repeated keys, wrong types, values out of range or
        repeated.
    """
    document = load_yaml(path)
    parsed = parse_as(document, _QuestionsDocument)
    problems = [
        problem
        for index, asked in enumerate(parsed.questions)
        for key in ("pools", "context_tokens", "concurrency", "target_s")
        for problem in _repeats(document, ("questions", index, key), getattr(asked, key))
    ]
    if problems:
        raise InputError(problems)
    return tuple(
        Question(
            context_tokens=context,
            target_s=target,
            concurrency=tuple(asked.concurrency),
            model=asked.model,
            pools=tuple(asked.pools),
        )
        for asked in parsed.questions
        for context in asked.context_tokens
        for target in asked.target_s
    )


def _repeats(
    document: Document, path: tuple[str | int, ...], values: list[object]
) -> list[Problem]:
    """Name every value that stands earlier in its own list."""
    return [
        problem_at(document, (*path, place), f"{path[-1]} repeats a value", got=shown(value))
        for place, value in enumerate(values)
        if value in values[:place]
    ]
