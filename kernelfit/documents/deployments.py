"""Deployment documents: named pools with their GPU type, model and engine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from kernelfit.documents.dtypes import KNOWN, core_dtype
from kernelfit.documents.poolspec import PoolSpec, Word
from kernelfit.documents.problems import InputError, Problem, shown
from kernelfit.documents.strict import Strict, parse_as
from kernelfit.documents.yamldoc import load_yaml, problem_at
from kernelfit.kernel.pool import Pool


@dataclass(frozen=True, slots=True)
class DeployedPool:
    """One pool of a deployment.

    Attributes
    ----------
    deployment : str
        The deployment's name.
    name : str
        The pool's name, unique in its deployment.
    gpu : str
        Name or alias of a chip document.
    model : str
        Name or alias of a model document.
    engine : str
        The engine.
    engine_version : str or None
        Its version; None when not stated.
    dtype : str or None
        Data type to run with, in the core's words; None follows the model.
    pool : Pool
        What the pool asks for.
    """

    deployment: str
    name: str
    gpu: str
    model: str
    engine: str
    engine_version: str | None
    dtype: str | None
    pool: Pool


class _NamedPool(Strict):
    name: Word
    pool: PoolSpec


class _DeploymentDocument(Strict):
    kind: Literal["Deployment"]
    schema_version: Literal[1]
    name: Word
    description: Word | None = None
    gpu: Word
    model: Word
    engine: Word
    engine_version: Word | None = None
    dtype: Word | None = None
    pools: Annotated[list[_NamedPool], Field(min_length=1)]


def load_deployment(path: Path) -> tuple[DeployedPool, ...]:
    """Read a deployment document.

    Parameters
    ----------
    path : pathlib.Path
        The file.

    Returns
    -------
    tuple of DeployedPool
        Its pools, in the order of the document.

    Raises
    ------
    InputError
        With every problem: unknown or repeated keys, wrong types, repeated pool names.
    """
    document = load_yaml(path)
    parsed = parse_as(document, _DeploymentDocument)
    problems: list[Problem] = []
    seen: set[str] = set()
    for index, item in enumerate(parsed.pools):
        if item.name in seen:
            where = ("pools", index, "name")
            problems.append(problem_at(document, where, "pool name is repeated", got=item.name))
        seen.add(item.name)
    dtype = core_dtype(parsed.dtype) if parsed.dtype is not None else None
    if parsed.dtype is not None and dtype is None:
        message = "unknown dtype"
        problems.append(
            problem_at(
                document, ("dtype",), message, got=shown(parsed.dtype), allowed=", ".join(KNOWN)
            )
        )
    if problems:
        raise InputError(problems)
    return tuple(
        DeployedPool(
            deployment=parsed.name,
            name=item.name,
            gpu=parsed.gpu,
            model=parsed.model,
            engine=parsed.engine,
            engine_version=parsed.engine_version,
            dtype=dtype,
            pool=item.pool.core(),
        )
        for item in parsed.pools
    )
