"""Workload documents: runs that a recorder executes, as shapes of requests.

The file is JSON, which is YAML too, so that the recorder needs the standard library alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from kernelfit.documents.poolspec import Count, PoolSpec, Word
from kernelfit.documents.problems import InputError, Problem
from kernelfit.documents.strict import Strict, parse_as
from kernelfit.documents.yamldoc import load_yaml, problem_at
from kernelfit.kernel.frozen import to_data
from kernelfit.kernel.pool import Pool

SCHEMA_VERSION = 1
KIND = "Workload"


@dataclass(frozen=True, slots=True)
class RequestGroup:
    """Requests of one episode that are alike.

    Attributes
    ----------
    count : int
        How many.
    prompt_tokens, output_tokens : int
        Their lengths [tokens].
    after_steps : int
        Engine steps of the episode before they are added.
    """

    count: int
    prompt_tokens: int
    output_tokens: int
    after_steps: int = 0


@dataclass(frozen=True, slots=True)
class WorkloadEpisode:
    """Requests that run together until all are done.

    Attributes
    ----------
    repeat : int
        How often the episode runs.
    one_by_one : bool
        Whether each request is added when the one before it is done.
    requests : tuple of RequestGroup
        Its requests.
    """

    repeat: int
    one_by_one: bool
    requests: tuple[RequestGroup, ...]


@dataclass(frozen=True, slots=True)
class WorkloadRun:
    """One engine and what it is given.

    Attributes
    ----------
    name : str
        The run's name, unique in its document.
    gpu, model : str
        Names of the chip and model documents.
    engine_version : str
        The engine's version that the plan assumed; empty where it is not known.
    pool : Pool
        Widths and settings of the engine.
    gpu_minutes : float
        What it is expected to cost [min].
    episodes : tuple of WorkloadEpisode
        In order.
    """

    name: str
    gpu: str
    model: str
    engine_version: str
    pool: Pool
    gpu_minutes: float
    episodes: tuple[WorkloadEpisode, ...]


@dataclass(frozen=True, slots=True)
class Workload:
    """A document of runs.

    Attributes
    ----------
    name : str
        Its name.
    runs : tuple of WorkloadRun
        One per engine that is started.
    """

    name: str
    runs: tuple[WorkloadRun, ...]


class _Group(Strict):
    count: Count
    prompt_tokens: Count
    output_tokens: Count
    after_steps: Annotated[int, Field(ge=0)] = 0


class _Episode(Strict):
    repeat: Count = 1
    one_by_one: bool = False
    requests: Annotated[list[_Group], Field(min_length=1)]


class _Run(Strict):
    name: Word
    gpu: Word
    model: Word
    engine_version: str = ""
    pool: PoolSpec
    gpu_minutes: Annotated[float, Field(ge=0)]
    episodes: Annotated[list[_Episode], Field(min_length=1)]


class _Document(Strict):
    kind: Literal["Workload"]
    schema_version: Literal[1]
    name: Word
    description: Word | None = None
    runs: Annotated[list[_Run], Field(min_length=1)]


def load_workload(path: Path) -> Workload:
    """Read a workload document.

    Parameters
    ----------
    path : pathlib.Path
        The file, JSON or YAML.

    Returns
    -------
    Workload
        Its runs.

    Raises
    ------
    InputError
        With every problem and its place: unknown or repeated keys, wrong types, a name
        that two runs share, a request that is longer than its engine takes, requests that
        come one by one and yet at a step.
    """
    document = load_yaml(path)
    parsed = parse_as(document, _Document)
    problems: list[Problem] = []
    seen: set[str] = set()
    for index, run in enumerate(parsed.runs):
        where = ("runs", index)
        if run.name in seen:
            message = "run name is repeated"
            problems.append(problem_at(document, (*where, "name"), message, got=run.name))
        seen.add(run.name)
        longest = run.pool.max_model_len
        for number, episode in enumerate(run.episodes):
            for place, group in enumerate(episode.requests):
                at = (*where, "episodes", number, "requests", place)
                length = group.prompt_tokens + group.output_tokens
                if longest is not None and length > longest:
                    problems.append(
                        problem_at(
                            document,
                            (*at, "prompt_tokens"),
                            "request is longer than max_model_len",
                            got=f"{length}",
                            allowed=f"at most {longest}",
                        )
                    )
                if episode.one_by_one and group.after_steps:
                    message = "after_steps has no meaning where requests come one by one"
                    problems.append(problem_at(document, (*at, "after_steps"), message))
    if problems:
        raise InputError(problems)
    return Workload(
        parsed.name,
        tuple(
            WorkloadRun(
                run.name,
                run.gpu,
                run.model,
                run.engine_version,
                run.pool.core(),
                float(run.gpu_minutes),
                tuple(
                    WorkloadEpisode(
                        episode.repeat,
                        episode.one_by_one,
                        tuple(RequestGroup(**group.model_dump()) for group in episode.requests),
                    )
                    for episode in run.episodes
                ),
            )
            for run in parsed.runs
        ),
    )


def workload_document(workload: Workload) -> dict[str, Any]:
    """Return a workload as a document.

    Parameters
    ----------
    workload : Workload
        The runs.

    Returns
    -------
    dict
        JSON-shaped; settings that a pool does not state are left out.
    """
    runs = []
    for run in workload.runs:
        pool = {
            key: value
            for key, value in to_data(run.pool).items()
            if value is not None and value != []
        }
        runs.append({**to_data(run), "pool": pool})
    return {
        "kind": KIND,
        "schema_version": SCHEMA_VERSION,
        "name": workload.name,
        "runs": runs,
    }
