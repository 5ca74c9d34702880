"""``run.yaml``: what a run was, as the readers need it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from kernelfit.documents.columns import ColumnModel, ColumnSpec, mapped
from kernelfit.documents.deployments import DeployedPool, load_deployment
from kernelfit.documents.dtypes import KNOWN, core_dtype
from kernelfit.documents.poolspec import POOL_KEYS, PoolSpec
from kernelfit.documents.problems import InputError, Place, Problem, did_you_mean, shown
from kernelfit.documents.yamldoc import Document, Strict, load_yaml, parse_as
from kernelfit.kernel.pool import Pool

Timing = Literal["device", "cycle", "step", "wait", "dispatch"]
Word = Annotated[str, Field(min_length=1)]

_OWN = ("gpu", "model", "model_name", "dtype", "engine", "engine_version", "reader", "timing")
FACT_KEYS: tuple[str, ...] = _OWN + POOL_KEYS
_REQUIRED = ("gpu", "model", "engine", "reader")
_FLAGS_PLACE = "command line"


class _DeploymentRef(Strict):
    file: Word
    pool: Word | None = None


class _RunDocument(Strict):
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
    pool: PoolSpec | None = None
    deployment: _DeploymentRef | None = None
    columns: dict[str, ColumnModel] | None = None


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What a run was.

    Attributes
    ----------
    gpu : str
        Name or alias of a chip document.
    model : str
        Name of a model document, or a path (to a ``config.json`` or a model document).
    model_name : str
        The model's name in reports.
    engine : str
        The engine, for example ``vllm``.
    engine_version : str or None
        Its version; None when not stated.
    reader : str
        The reader's name in the registry.
    timing : str or None
        What a step's duration means; None leaves it to the reader.
    pool : Pool
        The pool; unstated settings are None.
    dtype : str or None
        Data type that the engine ran with, in the core's words; None follows the model.
    columns : mapping of str to ColumnSpec
        Mapping of the ``table`` reader: our column to the table's; empty otherwise.
    source : pathlib.Path or None
        The ``run.yaml``; None when flags alone describe the run.
    places : mapping of str to Place
        Where each fact was stated, for later complaints; not part of equality.
    """

    gpu: str
    model: str
    model_name: str
    engine: str
    engine_version: str | None
    reader: str
    timing: str | None
    pool: Pool
    dtype: str | None
    columns: Mapping[str, ColumnSpec]
    source: Path | None
    places: Mapping[str, Place] = field(default_factory=dict, compare=False, repr=False)

    def place(self, key: str) -> Place:
        """Return where a fact was stated.

        Parameters
        ----------
        key : str
            A fact, for example ``gpu`` or ``tp``.

        Returns
        -------
        Place
            Its place, or the document itself.
        """
        whole = Place(_FLAGS_PLACE if self.source is None else str(self.source))
        return self.places.get(key, whole)


def load_run(
    path: Path,
    overrides: Mapping[str, object] | None = None,
    stated: Mapping[str, object] | None = None,
    stated_in: str = "the log",
) -> RunFacts:
    """Read a ``run.yaml``.

    Parameters
    ----------
    path : pathlib.Path
        The file.
    overrides : mapping, optional
        Facts from flags (keys of ``FACT_KEYS``; None means not given); they win.
    stated : mapping, optional
        Facts that the log itself states (same keys); they fill what is missing and
        must not contradict the document, unless a flag settles it.
    stated_in : str
        What to call the log in a complaint.

    Returns
    -------
    RunFacts
        The facts.

    Raises
    ------
    InputError
        With every problem: unknown or repeated keys, wrong types and units, missing
        facts, contradictions.
    """
    document = load_yaml(path)
    return _facts(document, path, overrides or {}, stated or {}, stated_in)


def run_from_flags(
    overrides: Mapping[str, object],
    stated: Mapping[str, object] | None = None,
    stated_in: str = "the log",
) -> RunFacts:
    """Describe a run that has no ``run.yaml``.

    Parameters
    ----------
    overrides : mapping
        Facts from flags (keys of ``FACT_KEYS``; None means not given).
    stated : mapping, optional
        Facts that the log itself states; flags win over them.
    stated_in : str
        What to call the log in a complaint.

    Returns
    -------
    RunFacts
        The facts.

    Raises
    ------
    InputError
        When facts are missing or not valid.
    """
    return _facts(Document(_FLAGS_PLACE, {}), None, overrides, stated or {}, stated_in)


def merge(run: RunFacts, overrides: Mapping[str, object]) -> RunFacts:
    """Return a run with flags applied: what they give wins.

    Parameters
    ----------
    run : RunFacts
        The run.
    overrides : mapping
        Facts (keys of ``FACT_KEYS``; None means not given).

    Returns
    -------
    RunFacts
        The run with those facts.

    Raises
    ------
    InputError
        When a key is unknown or a value is not valid.
    """
    given = {key: value for key, value in overrides.items() if value is not None}
    data: dict[str, Any] = {key: getattr(run, key) for key in _OWN}
    data["pool"] = _pool_data(run.pool)
    # A name follows its model unless it is given too.
    if "model" in given and "model_name" not in given:
        data["model_name"] = None
    columns = {n: {"column": c.column, "unit": c.unit} for n, c in run.columns.items()}
    if columns:
        data["columns"] = columns
    whole = _FLAGS_PLACE if run.source is None else str(run.source)
    data = {key: value for key, value in data.items() if value is not None}
    merged = _facts(Document(whole, data), run.source, given, {}, "")
    places = {**run.places, **{key: Place(_FLAGS_PLACE) for key in given}}
    return dataclasses.replace(merged, places=places)


def _pool_data(pool: Pool) -> dict[str, Any]:
    facts = {key: getattr(pool, key) for key in POOL_KEYS}
    facts["cudagraph_capture_sizes"] = list(pool.cudagraph_capture_sizes)
    return {key: value for key, value in facts.items() if value is not None}


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


def _nested(facts: Mapping[str, object]) -> dict[str, Any]:
    """Return flat facts in the document's shape."""
    data: dict[str, Any] = {}
    for key, value in facts.items():
        plain = list(value) if isinstance(value, tuple) else value
        if key in POOL_KEYS:
            data.setdefault("pool", {})[key] = plain
        else:
            data[key] = plain
    return data


def _flat(document: _RunDocument) -> dict[str, Any]:
    """Return what a validated document states, flat."""
    own = document.model_fields_set & set(_OWN)
    facts = {key: getattr(document, key) for key in own}
    if document.pool is not None:
        facts |= {key: getattr(document.pool, key) for key in document.pool.model_fields_set}
    return {key: value for key, value in facts.items() if value is not None}


def _checked(facts: Mapping[str, object], file: str) -> dict[str, Any]:
    """Validate flat facts from outside a document."""
    given = {key: value for key, value in facts.items() if value is not None}
    problems = _check_keys(given, file)
    if problems:
        raise InputError(problems)
    return _flat(parse_as(Document(file, _nested(given)), _RunDocument))


def _facts(
    document: Document,
    source: Path | None,
    overrides: Mapping[str, object],
    stated: Mapping[str, object],
    stated_in: str,
) -> RunFacts:
    problems: list[Problem] = []
    parts: list[dict[str, Any]] = []
    parsed = _RunDocument()
    deployed: dict[str, Any] = {}
    try:
        parsed = parse_as(document, _RunDocument)
        if parsed.deployment is not None:
            deployed = _from_deployment(document, parsed, source)
    except InputError as error:
        problems += error.problems
    for outside, file in ((overrides, _FLAGS_PLACE), (stated, stated_in)):
        try:
            parts.append(_checked(outside, file))
        except InputError as error:
            problems += error.problems
    if problems:
        raise InputError(problems)
    flags, log = parts
    own = _flat(parsed)
    problems += _contradictions(document, own, deployed, flags, "the deployment")
    problems += _contradictions(document, own | deployed, log, flags, stated_in)
    facts: dict[str, Any] = {**log, **deployed, **own, **flags}
    columns, found = _columns(document, parsed, facts)
    problems += found
    dtype, found = _dtype(document, facts)
    problems += found
    for key in _REQUIRED:
        if key not in facts:
            hint = f"state it in run.yaml or with --{key}"
            place = document.place(())
            problems.append(Problem.at(place, f"the run does not say its {key}", hint=hint))
    if facts.get("reader") == "table" and "timing" not in facts:
        problems.append(
            Problem.at(
                document.place(()),
                "a table must say what its durations mean: timing is missing",
                allowed="device, cycle, step, wait, dispatch",
            )
        )
    if problems:
        raise InputError(problems)
    pool_facts = {key: value for key, value in facts.items() if key in POOL_KEYS}
    pool = parse_as(Document(document.file, {"pool": pool_facts}), _RunDocument).pool
    return RunFacts(
        gpu=facts["gpu"],
        model=facts["model"],
        model_name=facts.get("model_name") or _model_name(facts["model"], source),
        engine=facts["engine"],
        engine_version=facts.get("engine_version"),
        reader=facts["reader"],
        timing=facts.get("timing"),
        pool=pool.core() if pool is not None else Pool(),
        dtype=dtype,
        columns=columns,
        source=source,
        places=_places(document, flags),
    )


def _columns(
    document: Document, parsed: _RunDocument, facts: Mapping[str, Any]
) -> tuple[dict[str, ColumnSpec], list[Problem]]:
    if facts.get("reader") == "table":
        if parsed.columns is None:
            message = "the table reader needs columns: which column is what, with its unit"
            return {}, [Problem.at(document.place(()), message)]
        return mapped(document, parsed.columns)
    if parsed.columns is not None:
        place = document.place(("columns",), key=True)
        got = shown(facts.get("reader"))
        return {}, [Problem.at(place, "columns is only for the table reader", got=got)]
    return {}, []


def _dtype(document: Document, facts: Mapping[str, Any]) -> tuple[str | None, list[Problem]]:
    word = facts.get("dtype")
    if word is None or word == "auto":
        return None, []
    found = core_dtype(word)
    if found is None:
        place = document.place(("dtype",))
        allowed = "auto, " + ", ".join(KNOWN)
        return None, [Problem.at(place, "unknown dtype", got=shown(word), allowed=allowed)]
    return found, []


def _same(key: str, one: object, other: object) -> bool:
    if key == "dtype":
        one, other = core_dtype(str(one)) or one, core_dtype(str(other)) or other
    return one == other


def _contradictions(
    document: Document,
    own: Mapping[str, Any],
    others: Mapping[str, Any],
    flags: Mapping[str, Any],
    who: str,
) -> list[Problem]:
    """Two sources that disagree about a fact that no flag settles."""
    return [
        Problem.at(
            _place(document, key),
            f"{key} contradicts {who}, which says {shown(others[key])}",
            got=shown(own[key]),
            hint="correct one of them, or settle it with a flag",
        )
        for key in sorted(own.keys() & others.keys() - flags.keys())
        if not _same(key, own[key], others[key])
    ]


def _from_deployment(
    document: Document, parsed: _RunDocument, source: Path | None
) -> dict[str, Any]:
    """Return the facts of the pool that a run takes from a deployment document."""
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


def _place(document: Document, key: str) -> Place:
    return document.place(("pool", key) if key in POOL_KEYS else (key,))


def _places(document: Document, flags: Mapping[str, Any]) -> dict[str, Place]:
    places = {}
    for key in FACT_KEYS:
        if key in flags:
            places[key] = Place(_FLAGS_PLACE)
        elif (("pool", key) if key in POOL_KEYS else (key,)) in document.values:
            places[key] = _place(document, key)
    return places


def _model_name(model: str, source: Path | None) -> str:
    """Name a model after its document, or after the folder of a ``config.json``."""
    path = Path(model)
    if path.suffix not in (".json", ".yaml", ".yml"):
        return model
    if path.name in ("config.json", "model.config.json"):
        folder = (source.parent / path if source is not None else path).parent
        return folder.name or path.stem
    return path.name.removesuffix(path.suffix).removesuffix(".config")
