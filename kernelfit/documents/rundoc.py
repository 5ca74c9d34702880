"""The form of ``run.yaml``, and bringing together what several sources say of a run."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from kernelfit.documents.columns import ColumnModel
from kernelfit.documents.deployments import DeployedPool, load_deployment
from kernelfit.documents.dtypes import core_dtype
from kernelfit.documents.poolspec import POOL_KEYS, PoolSpec
from kernelfit.documents.problems import InputError, Place, Problem, did_you_mean, shown
from kernelfit.documents.strict import Strict, parse_as
from kernelfit.documents.uniform import Cell, UniformModel
from kernelfit.documents.yamldoc import Document
from kernelfit.kernel.pool import Pool

Timing = Literal["device", "cycle", "step", "wait", "dispatch"]
FitUse = Literal["all", "host"]
Word = Annotated[str, Field(min_length=1)]

OWN_KEYS = (
    "gpu",
    "model",
    "model_name",
    "dtype",
    "engine",
    "engine_version",
    "reader",
    "timing",
    "fit",
)
FACT_KEYS: tuple[str, ...] = OWN_KEYS + POOL_KEYS
REQUIRED = ("gpu", "model", "engine", "reader")
FLAGS_PLACE = "command line"


class _DeploymentRef(Strict):
    file: Word
    pool: Word | None = None


class RunDocument(Strict):
    """The strict form of ``run.yaml``; what may be missing here may come from elsewhere."""

    kind: Literal["Run"] = "Run"
    schema_version: Literal[1] = 1
    gpu: Word | None = None
    model: Word | None = None
    model_name: Word | None = None
    dtype: Word | None = None
    engine: Word | None = None
    engine_version: Word | None = None
    reader: Word | None = None
    timing: Timing | None = None
    fit: FitUse | None = None
    pool: PoolSpec | None = None
    deployment: _DeploymentRef | None = None
    columns: dict[str, ColumnModel] | None = None
    where: Annotated[dict[str, Cell], Field(min_length=1)] | None = None
    uniform: UniformModel | None = None


def _check_keys(facts: Mapping[str, object], file: str) -> list[Problem]:
    return [
        Problem(
            file,
            None,
            None,
            f"unknown fact {key}",
            allowed=", ".join(FACT_KEYS),
            hint=did_you_mean(key, FACT_KEYS),
        )
        for key in facts
        if key not in FACT_KEYS
    ]


def nested(facts: Mapping[str, object]) -> dict[str, Any]:
    """Return flat facts in the shape of the document.

    Parameters
    ----------
    facts : mapping
        Keys of ``FACT_KEYS``.

    Returns
    -------
    dict
        The same facts, those of the pool under ``pool``; tuples become lists.
    """
    data: dict[str, Any] = {}
    for key, value in facts.items():
        plain = list(value) if isinstance(value, tuple) else value
        if key in POOL_KEYS:
            data.setdefault("pool", {})[key] = plain
        else:
            data[key] = plain
    return data


def stated_facts(document: RunDocument) -> dict[str, Any]:
    """Return what a validated document states itself, flat.

    Parameters
    ----------
    document : RunDocument
        The document.

    Returns
    -------
    dict
        Keys of ``FACT_KEYS``; what is left out or null is absent.
    """
    own = document.model_fields_set & set(OWN_KEYS)
    facts = {key: getattr(document, key) for key in own}
    if document.pool is not None:
        facts |= {key: getattr(document.pool, key) for key in document.pool.model_fields_set}
    return {key: value for key, value in facts.items() if value is not None}


def checked_facts(facts: Mapping[str, object], file: str) -> dict[str, Any]:
    """Validate flat facts from outside a document.

    Parameters
    ----------
    facts : mapping
        Keys of ``FACT_KEYS``; None means not given.
    file : str
        Where they come from, for complaints.

    Returns
    -------
    dict
        The facts that are given.

    Raises
    ------
    InputError
        When a key is unknown or a value is not valid.
    """
    given = {key: value for key, value in facts.items() if value is not None}
    problems = _check_keys(given, file)
    if problems:
        raise InputError(problems)
    return stated_facts(parse_as(Document(file, nested(given)), RunDocument))


def _same(key: str, one: object, other: object) -> bool:
    if key == "dtype":
        one, other = core_dtype(str(one)) or one, core_dtype(str(other)) or other
    return one == other


def contradictions(
    document: Document,
    own: Mapping[str, Any],
    others: Mapping[str, Any],
    flags: Mapping[str, Any],
    who: str,
) -> list[Problem]:
    """Return the facts about which two sources disagree and that no flag settles.

    Parameters
    ----------
    document : Document
        The run's document, for places.
    own : mapping
        What it states.
    others : mapping
        What the other source states.
    flags : mapping
        What flags state.
    who : str
        What to call the other source.

    Returns
    -------
    list of Problem
        One per fact.
    """
    return [
        Problem.at(
            place_of(document, key),
            f"{key} contradicts {who}, which says {shown(others[key])}",
            got=shown(own[key]),
            hint="correct one of them, or settle it with a flag",
        )
        for key in sorted(own.keys() & others.keys() - flags.keys())
        if not _same(key, own[key], others[key])
    ]


def deployment_facts(
    document: Document, parsed: RunDocument, source: Path | None
) -> dict[str, Any]:
    """Return the facts of the pool that a run takes from a deployment document.

    Parameters
    ----------
    document : Document
        The run's document, for places.
    parsed : RunDocument
        The same, validated; it names a deployment.
    source : pathlib.Path or None
        The run's file; the deployment's path is relative to it.

    Returns
    -------
    dict
        Keys of ``FACT_KEYS``.

    Raises
    ------
    InputError
        When the deployment is not valid or has no such pool.
    """
    ref = parsed.deployment
    assert ref is not None
    folder = source.parent if source is not None else Path()
    pools = load_deployment(folder / ref.file)
    chosen = _choose(document, pools, ref.pool)
    facts: dict[str, Any] = {"gpu": chosen.gpu, "model": chosen.model, "engine": chosen.engine}
    if chosen.engine_version is not None:
        facts["engine_version"] = chosen.engine_version
    if chosen.dtype is not None:
        facts["dtype"] = chosen.dtype
    stated = {item.name: item.default for item in dataclasses.fields(Pool)}
    pool = {key: getattr(chosen.pool, key) for key in POOL_KEYS}
    return facts | {
        key: list(value) if isinstance(value, tuple) else value
        for key, value in pool.items()
        if value != stated[key] or key in ("tp", "pp", "dp")
    }


def _choose(document: Document, pools: tuple[DeployedPool, ...], name: str | None) -> DeployedPool:
    names = [pool.name for pool in pools]
    if name is None:
        if len(pools) == 1:
            return pools[0]
        place = document.place(("deployment",))
        message = "the deployment has several pools; say which"
        raise InputError([Problem.at(place, message, allowed=", ".join(names))])
    for pool in pools:
        if pool.name == name:
            return pool
    place = document.place(("deployment", "pool"))
    message = "the deployment has no such pool"
    raise InputError([Problem.at(place, message, got=shown(name), allowed=", ".join(names))])


def place_of(document: Document, key: str) -> Place:
    """Return where a document states a fact.

    Parameters
    ----------
    document : Document
        The document.
    key : str
        One of ``FACT_KEYS``.

    Returns
    -------
    Place
        Its place.
    """
    return document.place(("pool", key) if key in POOL_KEYS else (key,))
