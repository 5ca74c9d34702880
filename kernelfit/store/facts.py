"""What a run was: its document, flags and the log's own statements put together."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernelfit.documents.canonical import compact
from kernelfit.documents.library import find
from kernelfit.documents.models import model_entries
from kernelfit.documents.problems import InputError, Place, Problem
from kernelfit.documents.resolve import run_chip, run_model
from kernelfit.documents.runs import RunFacts, load_run, run_from_flags
from kernelfit.documents.yamldoc import load_yaml
from kernelfit.logs.columns import ParsedRun
from kernelfit.logs.source import Reader, RunSource
from kernelfit.store.schema import STORE_VERSION

_UNSTATED = "unstated"


class Documents:
    """The chip and model documents, each looked up once.

    Parameters
    ----------
    calib : pathlib.Path
        Folder with ``chips`` and ``models``.
    """

    def __init__(self, calib: Path) -> None:
        self._calib = calib
        self._chips: dict[str, str] = {}
        self._models: dict[tuple[Path, str, str, str | None], str] = {}
        self._files: dict[str, Path] = {}

    def chip_name(self, facts: RunFacts) -> str:
        """Return the name of a run's chip document.

        Parameters
        ----------
        facts : RunFacts
            The run.

        Returns
        -------
        str
            The document's own name, whatever alias the run uses.

        Raises
        ------
        InputError
            When there is no such chip.
        """
        if facts.gpu not in self._chips:
            self._chips[facts.gpu] = run_chip(facts, self._calib / "chips").name
        return self._chips[facts.gpu]

    def model_json(self, facts: RunFacts) -> str:
        """Return a run's model as canonical JSON.

        Parameters
        ----------
        facts : RunFacts
            The run.

        Returns
        -------
        str
            Every field of the model.

        Raises
        ------
        InputError
            When there is no such model, or its document is not valid.
        """
        folder = facts.source.parent if facts.source is not None else Path()
        key = (folder, facts.model, facts.model_name, facts.dtype)
        if key not in self._models:
            model = run_model(facts, self._calib / "models")
            self._models[key] = compact(dataclasses.asdict(model))
        return self._models[key]

    def model_file(self, name: str) -> Path:
        """Return the document of a model that is named and not a path.

        Parameters
        ----------
        name : str
            A name or alias.

        Returns
        -------
        pathlib.Path
            The document.

        Raises
        ------
        InputError
            When no document has the name.
        """
        if name not in self._files:
            entries = model_entries(self._calib / "models")
            self._files[name] = find(name, entries, "model", Place(name))
        return self._files[name]


@dataclass(frozen=True, slots=True)
class Described:
    """A run's facts, resolved against the documents.

    Attributes
    ----------
    facts : RunFacts
        The facts.
    gpu : str or None
        Name of the chip document; None when nothing says it.
    model_name : str or None
        The model's name in reports; None when nothing says it.
    model_json : str or None
        The model as canonical JSON; None when nothing says it.
    pool_json : str
        The pool as canonical JSON.
    """

    facts: RunFacts
    gpu: str | None
    model_name: str | None
    model_json: str | None
    pool_json: str


def first_facts(source: RunSource, overrides: Mapping[str, object]) -> RunFacts:
    """Return the facts of a run before its log is read.

    Parameters
    ----------
    source : RunSource
        The run.
    overrides : mapping
        Facts from flags.

    Returns
    -------
    RunFacts
        The facts.

    Raises
    ------
    InputError
        When the document is not valid, or the flags alone do not suffice.
    """
    given = {**overrides, "reader": source.reader}
    if source.run_yaml is not None:
        return load_run(source.run_yaml, given)
    return run_from_flags(given)


def describe(
    source: RunSource, run: ParsedRun, overrides: Mapping[str, object], documents: Documents
) -> Described:
    """Put together what a run was.

    A log without a document may leave out the GPU and the model as long as a fit
    refuses its durations anyway; whatever is stated must exist.

    Parameters
    ----------
    source : RunSource
        The run.
    run : ParsedRun
        What its reader found, with the facts that the log states.
    overrides : mapping
        Facts from flags.
    documents : Documents
        The chip and model documents.

    Returns
    -------
    Described
        The facts.

    Raises
    ------
    InputError
        With every problem: the document's own, contradictions, an unknown GPU or
        model, a timing that the reader does not give.
    """
    stated = dict(run.stated)
    # A log without a document of its own may stand beside another reader's document.
    given = {**overrides, "reader": source.reader}
    unstated: set[str] = set()
    if source.run_yaml is not None:
        # The engine's name of a model is a path; the document's is for people.
        stated.pop("model_name", None)
        facts = load_run(source.run_yaml, given, stated, str(source.path))
    else:
        if run.fit_refused_reason is not None:
            unstated = {key for key in ("gpu", "model") if given.get(key) is None}
        given |= dict.fromkeys(unstated, _UNSTATED)
        facts = run_from_flags(given, stated, str(source.path))
    problems: list[Problem] = []
    gpu = model_json = None
    model_name = facts.model_name if facts.model_name != _UNSTATED else None
    if "gpu" not in unstated:
        try:
            gpu = documents.chip_name(facts)
        except InputError as error:
            problems += error.problems
    if "model" not in unstated:
        try:
            model_json = documents.model_json(facts)
        except InputError as error:
            problems += error.problems
    # A log beside another reader's document takes its facts, not its timing.
    own_document = _stated_reader(source) in (None, source.reader)
    if own_document and facts.timing not in (None, run.timing):
        problems.append(
            Problem.at(
                facts.place("timing"),
                f"the {source.reader} reader's durations do not mean that",
                got=facts.timing,
                allowed=run.timing,
            )
        )
    if problems:
        raise InputError(problems)
    return Described(facts, gpu, model_name, model_json, compact(dataclasses.asdict(facts.pool)))


def _stated_reader(source: RunSource) -> object:
    """Return the reader that the run's document names; None without one."""
    if source.run_yaml is None:
        return None
    return load_yaml(source.run_yaml).data.get("reader")


def source_digest(
    source: RunSource, reader: Reader, overrides: Mapping[str, object], documents: Documents
) -> str:
    """Return the digest of everything that a run's rows follow from.

    Parameters
    ----------
    source : RunSource
        The run.
    reader : Reader
        Its reader; its version is part of the digest.
    overrides : mapping
        Facts from flags.
    documents : Documents
        The model documents.

    Returns
    -------
    str
        ``sha256:`` and 64 hexadecimal digits; names of folders do not matter.
    """
    total = hashlib.sha256()
    flags = {key: value for key, value in overrides.items() if value is not None}
    head = [STORE_VERSION, reader.name, reader.version, flags]
    total.update(json.dumps(head, sort_keys=True, default=str).encode())
    files: Sequence[Path] = (*reader.files(source), *_describing(source, overrides, documents))
    for path in files:
        total.update(b"\0")
        try:
            with path.open("rb") as stream:
                total.update(hashlib.file_digest(stream, "sha256").digest())
        except OSError:
            total.update(b"missing")
    return f"sha256:{total.hexdigest()}"


def _describing(
    source: RunSource, overrides: Mapping[str, object], documents: Documents
) -> list[Path]:
    """Return the documents that describe a run, as far as they can be found."""
    found = [] if source.run_yaml is None else [source.run_yaml]
    model = overrides.get("model")
    folder = Path()
    if source.run_yaml is not None:
        folder = source.run_yaml.parent
        try:
            model = model or load_yaml(source.run_yaml).data.get("model")
        except InputError:
            return found
    if not isinstance(model, str):
        return found
    path = folder / model
    if path.is_dir():
        path /= "config.json"
    if not path.is_file():
        try:
            path = documents.model_file(model)
        except InputError:
            return found
    return [*found, path]
