"""Where a run's log is, and what a reader is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from kernelfit.documents.runs import RunFacts
from kernelfit.logs.columns import ParsedRun

ENTRY_POINT_GROUP = "kernelfit.readers"


@dataclass(frozen=True, slots=True)
class RunSource:
    """One run to be read.

    Attributes
    ----------
    path : pathlib.Path
        The log: a file, or the folder of a recording.
    run_yaml : pathlib.Path or None
        The document beside it; None when flags alone describe the run.
    reader : str
        Name of the reader in the registry.
    name : str
        Short name for people and for the store; never an absolute path.
    run_id : str
        Name of the run, safe as a folder's name.
    said : mapping of str to object
        What flags and the document say, flat and not yet checked: enough for a reader
        whose log completes the document, so that it cannot be checked before.
    """

    path: Path
    run_yaml: Path | None
    reader: str
    name: str
    run_id: str
    said: Mapping[str, object] = field(default_factory=dict)


class Reader(Protocol):
    """What the registry holds: one engine format.

    Attributes
    ----------
    name : str
        The word that ``run.yaml`` and ``--reader`` use.
    version : int
        Raised whenever the reader's rows would change for the same log.
    needs_facts : bool
        Whether it must know the run document before it can read.
    """

    name: str
    version: int
    needs_facts: bool

    def files(self, source: RunSource) -> tuple[Path, ...]:
        """Return the files that hold the log, for its digest.

        Parameters
        ----------
        source : RunSource
            The run.

        Returns
        -------
        tuple of pathlib.Path
            In a fixed order.
        """
        ...

    def read(self, source: RunSource, facts: RunFacts | None) -> tuple[ParsedRun, ...]:
        """Read a run.

        Parameters
        ----------
        source : RunSource
            The run.
        facts : RunFacts or None
            The run document; always given when ``needs_facts``.

        Returns
        -------
        tuple of ParsedRun
            One per life of the engine: a log that spans a restart holds two runs.

        Raises
        ------
        InputError
            When the source is no log of this format.
        """
        ...
