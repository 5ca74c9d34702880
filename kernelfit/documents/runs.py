"""``run.yaml``: what a run was, as the readers need it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kernelfit.documents.columns import ColumnSpec, mapped
from kernelfit.documents.dtypes import KNOWN, core_dtype
from kernelfit.documents.poolspec import POOL_KEYS
from kernelfit.documents.problems import InputError, Place, Problem, shown
from kernelfit.documents.rundoc import (
    FACT_KEYS,
    FLAGS_PLACE,
    OWN_KEYS,
    REQUIRED,
    RunDocument,
    checked_facts,
    contradictions,
    deployment_facts,
    place_of,
    stated_facts,
)
from kernelfit.documents.strict import parse_as
from kernelfit.documents.uniform import Cell, Uniform, as_written, misplaced, uniform_of
from kernelfit.documents.yamldoc import Document, load_yaml
from kernelfit.kernel.pool import Pool

__all__ = ["FACT_KEYS", "RunFacts", "load_run", "merge", "run_from_flags"]


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
    fit : str
        What a fit uses of the run: ``all``, or ``host`` where its steps are kept for checking
        what was fitted elsewhere and only its host work outside steps is fitted.
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
    where : mapping of str to str, int or float
        Values that a table's row must have in these columns to be read; empty reads all.
    uniform : mapping of str to tuple of Term
        Amounts of a table whose rows are batches of equal requests; empty otherwise.
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
    where: Mapping[str, Cell] = field(default_factory=dict)
    uniform: Uniform = field(default_factory=dict)
    fit: str = "all"

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
        whole = Place(FLAGS_PLACE if self.source is None else str(self.source))
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
    return _facts(Document(FLAGS_PLACE, {}), None, overrides, stated or {}, stated_in)


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
    data: dict[str, Any] = {key: getattr(run, key) for key in OWN_KEYS}
    data["pool"] = _pool_data(run.pool)
    # A name follows its model unless it is given too.
    if "model" in given and "model_name" not in given:
        data["model_name"] = None
    columns = {n: {"column": c.column, "unit": c.unit} for n, c in run.columns.items()}
    if columns:
        data["columns"] = columns
    data |= {"where": dict(run.where)} if run.where else {}
    data |= {"uniform": as_written(run.uniform)} if run.uniform else {}
    whole = FLAGS_PLACE if run.source is None else str(run.source)
    data = {key: value for key, value in data.items() if value is not None}
    merged = _facts(Document(whole, data), run.source, given, {}, "")
    places = {**run.places, **{key: Place(FLAGS_PLACE) for key in given}}
    return dataclasses.replace(merged, places=places)


def _pool_data(pool: Pool) -> dict[str, Any]:
    facts = {key: getattr(pool, key) for key in POOL_KEYS}
    facts["cudagraph_capture_sizes"] = list(pool.cudagraph_capture_sizes)
    return {key: value for key, value in facts.items() if value is not None}


def _facts(
    document: Document,
    source: Path | None,
    overrides: Mapping[str, object],
    stated: Mapping[str, object],
    stated_in: str,
) -> RunFacts:
    problems: list[Problem] = []
    parts: list[dict[str, Any]] = []
    parsed = RunDocument()
    deployed: dict[str, Any] = {}
    try:
        parsed = parse_as(document, RunDocument)
        if parsed.deployment is not None:
            deployed = deployment_facts(document, parsed, source)
    except InputError as error:
        problems += error.problems
    for outside, file in ((overrides, FLAGS_PLACE), (stated, stated_in)):
        try:
            parts.append(checked_facts(outside, file))
        except InputError as error:
            problems += error.problems
    if problems:
        raise InputError(problems)
    flags, log = parts
    own = stated_facts(parsed)
    problems += contradictions(document, own, deployed, flags, "the deployment")
    problems += contradictions(document, own | deployed, log, flags, stated_in)
    facts: dict[str, Any] = {**log, **deployed, **own, **flags}
    columns, found = _columns(document, parsed, facts)
    problems += found
    dtype, found = _dtype(document, facts)
    problems += found
    for key in REQUIRED:
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
    pool = parse_as(Document(document.file, {"pool": pool_facts}), RunDocument).pool
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
        where=parsed.where or {},
        uniform=uniform_of(parsed.uniform),
        fit=facts.get("fit") or "all",
    )


def _columns(
    document: Document, parsed: RunDocument, facts: Mapping[str, Any]
) -> tuple[dict[str, ColumnSpec], list[Problem]]:
    stated = {name: getattr(parsed, name) for name in ("columns", "where", "uniform")}
    problems = misplaced(document, stated, facts.get("reader"), parsed.columns or {})
    if problems or facts.get("reader") != "table":
        return {}, problems
    if parsed.columns is None:
        message = "the table reader needs columns: which column is what, with its unit"
        return {}, [Problem.at(document.place(()), message)]
    return mapped(document, parsed.columns, parsed.uniform is not None)


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


def _places(document: Document, flags: Mapping[str, Any]) -> dict[str, Place]:
    places = {}
    for key in FACT_KEYS:
        if key in flags:
            places[key] = Place(FLAGS_PLACE)
        elif (("pool", key) if key in POOL_KEYS else (key,)) in document.values:
            places[key] = place_of(document, key)
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
