"""Cut the recording of one server that served several loads into one recording per load.

Starting a server takes longer than a load does. ``python -m kernelfit.record.load --name NAME``
names a load; afterwards ::

    python -m kernelfit.record.cut recording --out traces

writes ``traces/NAME`` for each, with what the engine, its workers and its front end did from
the load's first request to its last. What lies between loads, warming up for example, is left
out.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

_MARGIN_NS = 50_000_000
_DOCUMENTS = ("run.yaml", "model.config.json")
_KEPT = ("header", "clock", "host")

Row = dict[str, Any]


def rows_of(path: Path) -> Iterator[Row]:
    """Return the rows of one file of a recording.

    Parameters
    ----------
    path : pathlib.Path
        A file of JSON lines; a line that is cut short ends it.

    Yields
    ------
    dict
        One row per line.
    """
    with path.open(encoding="utf-8") as file:
        for line in file:
            if not line.endswith("\n"):
                return
            yield json.loads(line)


def spans(folder: Path) -> dict[str, tuple[list[Path], int, int]]:
    """Return the loads of a recording.

    Parameters
    ----------
    folder : pathlib.Path
        The recording.

    Returns
    -------
    dict
        By name, the load's client files and the moments [ns] between which it was served.

    Raises
    ------
    ValueError
        When loads overlap.
    """
    found: dict[str, tuple[list[Path], int, int]] = {}
    for path in sorted(folder.glob("client-*.jsonl")):
        rows = list(rows_of(path))
        name = rows[0].get("name") if rows else None
        served = [row for row in rows if row["t"] == "served"]
        if not isinstance(name, str) or not served:
            continue
        first = min(row["arrival_ns"] for row in served)
        last = max(row["end_ns"] for row in served)
        files, begin, end = found.get(name, ([], first, last))
        found[name] = ([*files, path], min(begin, first), max(end, last))
    order = sorted(found.items(), key=lambda item: item[1][1])
    for (one, (_, _, end)), (other, (_, begin, _)) in pairwise(order):
        if end >= begin:
            raise ValueError(f"loads {one} and {other} overlap")
    return found


def moment(row: Row) -> int | None:
    """Return when a row of the engine or of the front end began [ns]; None for other rows.

    Parameters
    ----------
    row : dict
        The row.

    Returns
    -------
    int or None
        The moment on the monotonic clock [ns].
    """
    if row["t"] == "step":
        return int(row["sched_ns"][0])
    value = row.get("arrival_ns", row.get("start_ns"))
    return None if value is None else int(value)


def _write(path: Path, rows: Iterable[Row]) -> None:
    lines = [json.dumps(row, separators=(",", ":")) for row in rows]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def cut(folder: Path, out: Path) -> tuple[Path, ...]:
    """Cut a recording into one per load.

    Parameters
    ----------
    folder : pathlib.Path
        The recording of one server.
    out : pathlib.Path
        Where the folders go.

    Returns
    -------
    tuple of pathlib.Path
        The folders written.

    Raises
    ------
    ValueError
        When no load has a name, or loads overlap.
    """
    loads = spans(folder)
    if not loads:
        raise ValueError(f"{folder}: no client file names its load")
    written = []
    for name, (clients, begin, end) in loads.items():
        target = out / name
        target.mkdir(parents=True, exist_ok=True)
        within = range(begin - _MARGIN_NS, end + _MARGIN_NS)
        steps: set[int] = set()
        for path in sorted([*folder.glob("engine-*.jsonl"), *folder.glob("frontend-*.jsonl")]):
            kept = [r for r in rows_of(path) if r["t"] in _KEPT or (moment(r) or 0) in within]
            steps |= {row["i"] for row in kept if row["t"] == "step"}
            _write(target / path.name, kept)
        for path in sorted(folder.glob("worker-*.jsonl")):
            _write(
                target / path.name,
                (r for r in rows_of(path) if r["t"] in _KEPT or r.get("i") in steps),
            )
        for path in clients:
            shutil.copyfile(path, target / path.name)
        for document in _DOCUMENTS:
            if (folder / document).is_file():
                shutil.copyfile(folder / document, target / document)
        written.append(target)
    return tuple(written)


def main(arguments: Sequence[str] | None = None) -> int:
    """Cut a recording and return the exit status.

    Parameters
    ----------
    arguments : sequence of str, optional
        The words after the program's name; those of the process when None.

    Returns
    -------
    int
        0, or 2 when the recording cannot be cut.
    """
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("recording", type=Path, help="folder that the recorder wrote")
    parser.add_argument("--out", type=Path, required=True, help="where one folder per load goes")
    options = parser.parse_args(arguments)
    try:
        for target in cut(options.recording, options.out):
            print(target)
    except ValueError as error:
        print(f"kernelfit: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
