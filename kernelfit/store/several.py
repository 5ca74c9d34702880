"""Runs of several stores taken together, as if one store held them all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from kernelfit.documents.problems import InputError, Problem
from kernelfit.store.scan import RunRecord, load_store

RUN_FILE = "runs.parquet"


def is_store(path: Path) -> bool:
    """Tell whether a folder is a trace store, or one run of it.

    Parameters
    ----------
    path : pathlib.Path
        Any path.

    Returns
    -------
    bool
        True when runs of a store are in it.
    """
    return path.is_dir() and (
        (path / RUN_FILE).is_file()
        or any(not found.parent.name.startswith(".") for found in path.glob(f"*/{RUN_FILE}"))
    )


def runs_of(path: Path) -> tuple[RunRecord, ...]:
    """Return the runs of a store, or the one run that a folder is.

    Parameters
    ----------
    path : pathlib.Path
        A folder for which ``is_store`` holds.

    Returns
    -------
    tuple of RunRecord
        In the order of their names.

    Raises
    ------
    InputError
        When a run is damaged or of another store version.
    """
    if (path / RUN_FILE).is_file():
        return tuple(r for r in load_store(path.parent).runs if r.folder == path)
    return load_store(path).runs


def merged(stores: Sequence[Sequence[RunRecord]]) -> tuple[RunRecord, ...]:
    """Return the runs of several stores, each log once.

    Parameters
    ----------
    stores : sequence of sequence of RunRecord
        The runs of each.

    Returns
    -------
    tuple of RunRecord
        In the order of their names, which is that of one store. Of two logs with one name
        the first keeps it; to the others' the beginning of the digest is added, as one
        store does.

    Raises
    ------
    InputError
        When a log's lives are not all there.
    """
    found: dict[tuple[str, int], RunRecord] = {}
    for records in stores:
        for record in records:
            key = (str(record.row["source_digest"]), int(record.row.get("life") or 1))
            found.setdefault(key, record)
    named: dict[str, RunRecord] = {}
    for (digest, _), record in found.items():
        name = record.run_id
        if name in named:
            name = f"{name}-{digest.removeprefix('sha256:')[:8]}"
        named[name] = replace(record, row={**record.row, "run_id": name})
    problems = [
        Problem(
            str(record.folder),
            None,
            None,
            f"the store holds only a part of the log {record.row['source']}",
            hint="ingest the log again",
        )
        for (digest, life), record in found.items()
        if any(
            (digest, other) not in found
            for other in range(1, int(record.row.get("lives") or 1) + 1)
        )
    ]
    if problems:
        raise InputError(problems)
    return tuple(named[name] for name in sorted(named))


def _lives(record: RunRecord) -> range:
    return range(1, int(record.row.get("lives") or 1) + 1)
