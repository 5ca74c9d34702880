"""Question documents: which pools, loads, targets and objective a decision is about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from kernelfit.documents.candidates import CandidatePool, CandidateSpec, candidate_problems
from kernelfit.documents.poolspec import Count, Word
from kernelfit.documents.problems import InputError, Problem, shown
from kernelfit.documents.strict import Strict, parse_as
from kernelfit.documents.yamldoc import Document, Keys, load_yaml, problem_at

LONGEST_TARGET_S = 10.0
"""A target above this is taken for a slipped unit, such as milliseconds written as seconds."""

LONGEST_FIRST_TOKEN_S = 600.0
"""The same for a time to first token: a long prompt may take minutes."""

OBJECTIVES: tuple[str, ...] = ("throughput_per_gpu", "cost_per_token", "fewest_gpus")
LINKS: tuple[str, ...] = ("nvlink", "nic")


@dataclass(frozen=True, slots=True)
class Question:
    """What someone wants to know: do these pools serve this load, and which does it best.

    Attributes
    ----------
    context_tokens : int
        Tokens in the KV cache of every request before the step, for a load with prompts on
        average over its decode steps [tokens].
    target_s : float or None
        Longest acceptable time per output token [s]; None asks for none.
    concurrency : tuple of int
        Requests in flight in one engine; each is asked about by itself. Empty asks only for
        the largest batch and the best pool.
    model : str or None
        Name of the model that is served; None asks about every model.
    pools : tuple of str
        Labels of the pools in question; empty asks about every pool.
    prompt_tokens, output_tokens : int
        Length of every prompt and answer [tokens]; 0 asks about decoding alone.
    prefix_hit_share : float
        Share of every prompt that the prefix cache holds [1].
    rates_per_s : tuple of float
        Requests that the whole pool takes each second [1/s].
    first_token_target_s : float or None
        Longest acceptable time to first token [s].
    percentile : float or None
        Share of tokens and of first tokens that must meet the targets [1]; None asks for
        means without queueing.
    objective : str
        One of ``OBJECTIVES``: what makes a pool the best.
    prices_per_gpu_hour : tuple of (str, float)
        Price of one GPU for an hour, by GPU type, in any currency.
    transfer : str or None
        Link between prefill and decode pools, one of ``LINKS``; None asks nothing about
        disaggregated prefill.
    """

    context_tokens: int
    target_s: float | None
    concurrency: tuple[int, ...] = ()
    model: str | None = None
    pools: tuple[str, ...] = ()
    prompt_tokens: int = 0
    output_tokens: int = 0
    prefix_hit_share: float = 0.0
    rates_per_s: tuple[float, ...] = ()
    first_token_target_s: float | None = None
    percentile: float | None = None
    objective: str = OBJECTIVES[0]
    prices_per_gpu_hour: tuple[tuple[str, float], ...] = ()
    transfer: str | None = None


@dataclass(frozen=True, slots=True)
class QuestionDocument:
    """A whole document of questions.

    Attributes
    ----------
    questions : tuple of Question
        What is asked.
    candidates : tuple of CandidatePool
        Pools that it is asked about beside those that have kernels.
    """

    questions: tuple[Question, ...]
    candidates: tuple[CandidatePool, ...]


Target = Annotated[float, Field(gt=0, le=LONGEST_TARGET_S)]
FirstTarget = Annotated[float, Field(gt=0, le=LONGEST_FIRST_TOKEN_S)]
Price = Annotated[float, Field(gt=0)]


class _Asked(Strict):
    model: Word | None = None
    pools: list[Word] = Field(default_factory=list)
    context_tokens: list[Count] | None = Field(default=None, min_length=1)
    prompt_tokens: list[Count] | None = Field(default=None, min_length=1)
    output_tokens: list[Annotated[int, Field(ge=2)]] | None = Field(default=None, min_length=1)
    prefix_hit_share: Annotated[list[Annotated[float, Field(ge=0, le=1)]], Field(min_length=1)] = (
        Field(default_factory=lambda: [0.0])
    )
    concurrency: list[Count] = Field(default_factory=list)
    rate_per_s: list[Annotated[float, Field(gt=0)]] = Field(default_factory=list)
    target_s: list[Target] | None = Field(default=None, min_length=1)
    first_token_target_s: list[FirstTarget] | None = Field(default=None, min_length=1)
    percentile: Annotated[float, Field(gt=0, lt=1)] | None = None
    objective: Literal["throughput_per_gpu", "cost_per_token", "fewest_gpus"] = "throughput_per_gpu"
    transfer: Literal["nvlink", "nic"] | None = None


class _QuestionsDocument(Strict):
    kind: Literal["Questions"]
    schema_version: Literal[1, 2]
    name: Word
    description: Word | None = None
    candidates: Annotated[list[CandidateSpec], Field(min_length=1)] | None = None
    prices_per_gpu_hour: dict[str, Price] = Field(default_factory=dict)
    questions: Annotated[list[_Asked], Field(min_length=1)]


_SECOND: tuple[str, ...] = (
    "prompt_tokens",
    "output_tokens",
    "prefix_hit_share",
    "rate_per_s",
    "first_token_target_s",
    "percentile",
    "objective",
    "transfer",
)
"""Keys of a question that version 1 did not have."""

_LISTS: tuple[str, ...] = (
    "pools",
    "context_tokens",
    "prompt_tokens",
    "output_tokens",
    "prefix_hit_share",
    "concurrency",
    "rate_per_s",
    "target_s",
    "first_token_target_s",
)


def load_questions(path: Path) -> tuple[Question, ...]:
    """Read the questions of a document.

    Parameters
    ----------
    path : pathlib.Path
        The file.

    Returns
    -------
    tuple of Question
        One for each load and pair of targets of each entry, in the order of the document.

    Raises
    ------
    InputError
        As ``load_question_document``.
    """
    return load_question_document(path).questions


def load_question_document(path: Path) -> QuestionDocument:
    """Read a document of questions.

    Parameters
    ----------
    path : pathlib.Path
        The file.

    Returns
    -------
    QuestionDocument
        Its questions and candidate pools.

    Raises
    ------
    InputError
        With every problem: unknown or repeated keys, wrong types, values out of range or
        repeated, loads or objectives that lack what they need.
    """
    return _read(load_yaml(path))


def questions_from_flags(asked: Mapping[str, Any], rest: Mapping[str, Any]) -> QuestionDocument:
    """Read one question that was asked on the command line.

    Parameters
    ----------
    asked : mapping
        Keys of one entry of ``questions``.
    rest : mapping
        ``candidates`` and ``prices_per_gpu_hour``, as a document has them.

    Returns
    -------
    QuestionDocument
        The question and its candidate pools.

    Raises
    ------
    InputError
        With every problem, as of a document.
    """
    data = {"kind": "Questions", "schema_version": 2, "name": "asked", **rest}
    return _read(Document("command line", {**data, "questions": [dict(asked)]}))


def _read(document: Document) -> QuestionDocument:
    parsed = parse_as(document, _QuestionsDocument)
    problems: list[Problem] = []
    if parsed.schema_version == 1:
        problems += _too_new(document, parsed)
    for index, asked in enumerate(parsed.questions):
        for key in _LISTS:
            problems += _repeats(document, ("questions", index, key), getattr(asked, key) or [])
        problems += _lacks(document, index, asked, parsed.prices_per_gpu_hour)
    for index, spec in enumerate(parsed.candidates or ()):
        repeats = [
            problem
            for key in ("gpu", "model", "tp", "dp", "expert_parallel")
            for problem in _repeats(document, ("candidates", index, key), getattr(spec, key))
        ]
        problems += candidate_problems(document, index, spec, repeats)
    if problems:
        raise InputError(problems)
    prices = tuple(parsed.prices_per_gpu_hour.items())
    return QuestionDocument(
        tuple(question for asked in parsed.questions for question in _expanded(asked, prices)),
        tuple(pool for spec in parsed.candidates or () for pool in spec.pools()),
    )


def _too_new(document: Document, parsed: _QuestionsDocument) -> list[Problem]:
    newer: list[Keys] = [
        (key,) for key in ("candidates", "prices_per_gpu_hour") if key in parsed.model_fields_set
    ]
    newer += [
        ("questions", index, key)
        for index, asked in enumerate(parsed.questions)
        for key in _SECOND
        if key in asked.model_fields_set
    ]
    return [
        Problem.at(
            document.place(path, key=True),
            f"{path[-1]} is not part of version 1",
            hint="write schema_version: 2",
        )
        for path in newer
    ]


def _lacks(
    document: Document, index: int, asked: _Asked, prices: Mapping[str, float]
) -> list[Problem]:
    path = ("questions", index)

    def wrong(message: str, *key: str, **words: str | None) -> Problem:
        return problem_at(document, (*path, *key), message, **words)

    problems = []
    prompts = asked.prompt_tokens is not None or asked.output_tokens is not None
    if asked.context_tokens is not None and prompts:
        problems.append(
            wrong(
                "context_tokens stands beside prompt_tokens or output_tokens",
                "context_tokens",
                allowed="a context, or prompts and answers",
            )
        )
    elif prompts:
        problems += [
            wrong(f"required key {key} is missing")
            for key in ("prompt_tokens", "output_tokens")
            if getattr(asked, key) is None
        ]
    elif asked.context_tokens is None:
        problems.append(
            wrong("states no load", allowed="context_tokens, or prompt_tokens and output_tokens")
        )
    if not prompts:
        problems += [
            wrong(f"{key} needs prompt_tokens and output_tokens", key)
            for key in ("prefix_hit_share", "rate_per_s", "first_token_target_s", "transfer")
            if key in asked.model_fields_set
        ]
    if asked.target_s is None and asked.first_token_target_s is None:
        message = "required key target_s is missing"
        problems.append(wrong(message, hint="with prompts, first_token_target_s alone will do"))
    if asked.objective == "fewest_gpus" and not (asked.concurrency or asked.rate_per_s):
        problems.append(wrong("fewest_gpus needs concurrency or rate_per_s", "objective"))
    if asked.objective == "cost_per_token" and not prices:
        hint = "for example prices_per_gpu_hour: {H100-SXM: 2.5}"
        problems.append(wrong("cost_per_token needs prices_per_gpu_hour", "objective", hint=hint))
    return problems


def _expanded(asked: _Asked, prices: tuple[tuple[str, float], ...]) -> list[Question]:
    loads: Sequence[tuple[int, int, int, float]]
    if asked.context_tokens is not None:
        loads = [(context, 0, 0, 0.0) for context in asked.context_tokens]
    else:
        # From the second token on, each decode step finds one token more than the last.
        loads = [
            (prompt + (output - 2) // 2, prompt, output, float(hit))
            for prompt in asked.prompt_tokens or ()
            for output in asked.output_tokens or ()
            for hit in asked.prefix_hit_share
        ]
    return [
        Question(
            context_tokens=context,
            target_s=target,
            concurrency=tuple(asked.concurrency),
            model=asked.model,
            pools=tuple(asked.pools),
            prompt_tokens=prompt,
            output_tokens=output,
            prefix_hit_share=hit,
            rates_per_s=tuple(float(rate) for rate in asked.rate_per_s),
            first_token_target_s=first,
            percentile=asked.percentile,
            objective=asked.objective,
            prices_per_gpu_hour=prices,
            transfer=asked.transfer,
        )
        for context, prompt, output, hit in loads
        for target in asked.target_s or (None,)
        for first in asked.first_token_target_s or (None,)
    ]


def _repeats(
    document: Document, path: tuple[str | int, ...], values: list[object]
) -> list[Problem]:
    """Name every value that stands earlier in its own list."""
    return [
        problem_at(document, (*path, place), f"{path[-1]} repeats a value", got=shown(value))
        for place, value in enumerate(values)
        if value in values[:place]
    ]
