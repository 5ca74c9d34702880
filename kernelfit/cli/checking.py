"""Finding documents and handing each to the reader of its kind."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelfit.cli.files import read_calibration, read_kernel, read_object, refuse
from kernelfit.documents.problems import InputError, Problem, shown

if TYPE_CHECKING:
    from kernelfit.documents.deployments import DeployedPool
    from kernelfit.documents.runs import RunFacts

SUFFIXES = (".yaml", ".yml", ".json")


def documents_under(paths: Iterable[Path], suffixes: Sequence[str] = SUFFIXES) -> tuple[Path, ...]:
    """Return the documents among files and folders.

    Parameters
    ----------
    paths : iterable of pathlib.Path
        Files, taken as they are, and folders, searched for documents.
    suffixes : sequence of str
        Endings of the files that a folder is searched for.

    Returns
    -------
    tuple of pathlib.Path
        Each once, sorted within a folder.

    Raises
    ------
    InputError
        When a path does not exist, or a folder holds no document.
    """
    found: dict[Path, None] = {}
    for path in paths:
        if not path.exists():
            raise refuse(path, "no such file or folder")
        if not path.is_dir():
            found[path] = None
            continue
        inside = sorted(p for p in path.rglob("*") if p.suffix in suffixes and p.is_file())
        if not inside:
            raise refuse(
                path, "holds no document", allowed="files ending in " + ", ".join(suffixes)
            )
        found |= dict.fromkeys(inside)
    return tuple(found)


def check_document(path: Path, calib: Path) -> str:
    """Check one document by its kind.

    Parameters
    ----------
    path : pathlib.Path
        The document.
    calib : pathlib.Path
        Holds the chips and models that runs and deployments name.

    Returns
    -------
    str
        Its kind.

    Raises
    ------
    InputError
        With every problem of the document.
    """
    if path.suffix == ".json":
        return _check_json(path)
    from kernelfit.documents.chips import load_chip
    from kernelfit.documents.deployments import load_deployment
    from kernelfit.documents.models import load_model
    from kernelfit.documents.priors import load_priors
    from kernelfit.documents.questions import load_questions
    from kernelfit.documents.runs import load_run
    from kernelfit.documents.yamldoc import load_yaml

    readers: dict[str, Callable[[Path], Any]] = {
        "Chip": load_chip,
        "Deployment": lambda path: _check_pools(load_deployment(path), path, calib),
        "Model": load_model,
        "Priors": load_priors,
        "Questions": load_questions,
        "Run": lambda path: _check_names(load_run(path), calib),
    }
    data = load_yaml(path).data
    kind = data.get("kind") if isinstance(data, dict) else None
    if kind is None and path.name == "run.yaml":
        kind = "Run"
    if kind not in readers:
        raise refuse(path, "states no kind", got=shown(kind), allowed=", ".join(readers))
    readers[kind](path)
    return str(kind)


def _check_names(run: RunFacts, calib: Path) -> None:
    """Refuse a run whose chip or model no document describes, as ``ingest`` does."""
    from kernelfit.documents.resolve import run_chip, run_model

    _all_of(
        lambda: run_chip(run, calib / "chips"),
        lambda: run_model(run, calib / "models"),
    )


def _check_pools(pools: Sequence[DeployedPool], path: Path, calib: Path) -> None:
    from kernelfit.documents.chips import find_chip
    from kernelfit.documents.models import find_model
    from kernelfit.documents.yamldoc import load_yaml

    document = load_yaml(path)
    places = [document.place((key,)) for key in ("gpu", "model")]
    _all_of(
        lambda: find_chip(pools[0].gpu, calib / "chips", places[0]),
        lambda: find_model(pools[0].model, calib / "models", places[1]),
    )


def _all_of(*checks: Callable[[], object]) -> None:
    """Run every check, and raise what all of them complain of."""
    problems: list[Problem] = []
    for each in checks:
        try:
            each()
        except InputError as error:
            problems += error.problems
    if problems:
        raise InputError(problems)


def _check_json(path: Path) -> str:
    document = read_object(path)
    kind = document.get("kind")
    if kind == "FittedKernel":
        read_kernel(path)
        return "FittedKernel"
    if kind == "Calibration":
        read_calibration(path)
        return "Calibration"
    if kind == "Workload":
        from kernelfit.documents.workloads import load_workload

        load_workload(path)
        return "Workload"
    if "architectures" in document or "model_type" in document or "text_config" in document:
        from kernelfit.documents.models import model_from_config

        model_from_config(document, path.parent.name or path.stem, str(path))
        return "config.json"
    raise refuse(path, "is no document of a known kind", got=shown(kind))
