"""The chip and the model that a run means."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from kernelfit.documents.chips import find_chip
from kernelfit.documents.models import find_model, load_model, with_dtype
from kernelfit.documents.problems import InputError, Problem
from kernelfit.documents.runs import RunFacts
from kernelfit.kernel.chip import Chip
from kernelfit.kernel.model import Model

_FILES = (".json", ".yaml", ".yml")


def run_chip(run: RunFacts, chips: Path) -> Chip:
    """Return the chip of a run.

    Parameters
    ----------
    run : RunFacts
        The run.
    chips : pathlib.Path
        The folder of chip documents.

    Returns
    -------
    Chip
        The chip.

    Raises
    ------
    InputError
        When no document has the name; the place is where the run states it.
    """
    return find_chip(run.gpu, chips, run.place("gpu"))


def run_model(run: RunFacts, models: Path) -> Model:
    """Return the model of a run, in the data type that the run states.

    Parameters
    ----------
    run : RunFacts
        The run. Its ``model`` is a path (a file, or a folder that holds a
        ``config.json``; relative to the run's document) or a name.
    models : pathlib.Path
        The folder of model documents.

    Returns
    -------
    Model
        The model; one that is read from a config is named as the run names it.

    Raises
    ------
    InputError
        When the file is missing or not valid, or no document has the name.
    """
    folder = run.source.parent if run.source is not None else Path()
    path = folder / run.model
    if path.is_dir():
        path = path / "config.json"
    if path.suffix not in _FILES:
        return find_model(run.model, models, run.place("model"), run.dtype)
    if not path.is_file():
        place = run.place("model")
        raise InputError([Problem.at(place, "no such model file", got=str(path))])
    model = load_model(path, run.dtype)
    if path.suffix == ".json":
        return dataclasses.replace(model, name=run.model_name)
    return with_dtype(model, run.dtype, run.place("dtype"))
