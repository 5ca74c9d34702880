"""Writing one run into a folder, piece by piece."""

from __future__ import annotations

import json
import shutil
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import IO, Self

import pyarrow as pa
import pyarrow.parquet as pq

from kernelfit.logs.columns import ParsedRun, Reject
from kernelfit.logs.stream import Piece
from kernelfit.store.schema import RUNS, SCHEMAS
from kernelfit.store.tables import host_tables, intervals_table, packed, requests_table, steps_table

REJECTS_SUFFIX = ".rejects.jsonl"

ROW_GROUP_ROWS = 1 << 16
"""Rows per row group: what a reader that needs stretches of a long run can skip."""

REQUEST_GROUP_ROWS = 1 << 18
"""The same of the requests, of which a step has many."""

SORTED_REJECTS = 200_000
"""Rejects up to which their file is sorted by file and line; more stay as they were met."""

KEPT_REJECTS = 10
"""Rejects that are remembered for a complaint."""

_QUEUED = 3
_SORTED_INTEGERS = ("step", "scheduled", "computed", "prompt_len", "cached")


def rejects_text(rejects: Sequence[Reject]) -> str:
    """Return rejects as they stand in a rejects file.

    Parameters
    ----------
    rejects : sequence of Reject
        The rejects.

    Returns
    -------
    str
        One JSON object per line: file, line, reason, text.
    """
    return "".join(
        json.dumps({"file": r.file, "line": r.line, "reason": r.reason, "text": r.text}) + "\n"
        for r in rejects
    )


def read_rejects(out: Path, run_id: str, most: int | None = None) -> tuple[Reject, ...]:
    """Read a run's rejects back.

    Parameters
    ----------
    out : pathlib.Path
        The store.
    run_id : str
        The run's name.
    most : int, optional
        Rejects that are read; all without it.

    Returns
    -------
    tuple of Reject
        In the order of the file; none when it was removed.
    """
    found: list[Reject] = []
    for path in sorted((out / run_id).glob(f"*{REJECTS_SUFFIX}")):
        with path.open(encoding="utf-8") as stream:
            for line in stream:
                if len(found) == most:
                    break
                found.append(Reject(**json.loads(line)))
    return tuple(found)


def table_file(name: str, part: int = 0) -> str:
    """Return the name of a table's file in a run's folder.

    Parameters
    ----------
    name : str
        The table.
    part : int
        Which part, from 0; only a run that was followed has more than one.

    Returns
    -------
    str
        For example ``steps.parquet`` or ``steps.0001.parquet``.
    """
    return f"{name}.parquet" if part == 0 else f"{name}.{part:04d}.parquet"


def rejects_file(run_id: str, part: int = 0) -> str:
    """Return the name of a run's rejects file.

    Parameters
    ----------
    run_id : str
        The run.
    part : int
        Which part, from 0.

    Returns
    -------
    str
        For example ``a.rejects.jsonl``.
    """
    return f"{run_id}{REJECTS_SUFFIX}" if part == 0 else f"{run_id}.{part:04d}{REJECTS_SUFFIX}"


class _Table:
    """One table's file, written in row groups of one size."""

    def __init__(self, path: Path, schema: pa.Schema, group_rows: int) -> None:
        self._schema = packed(schema)
        self._rows = group_rows
        self._waiting: list[pa.Table] = []
        self._count = 0
        # A dictionary that is stored as such would come back as one; Parquet's own types say
        # all that the schema needs. Sorted whole numbers pack better as differences.
        delta = [n for n in _SORTED_INTEGERS if "scheduled" in schema.names and n in schema.names]
        plain = [f.name for f in schema if f.name not in delta]
        self._writer = pq.ParquetWriter(
            path,
            self._schema,
            compression="zstd",
            use_dictionary=plain,
            column_encoding=dict.fromkeys(delta, "DELTA_BINARY_PACKED") or None,
            store_schema=False,
        )
        self._writer.add_key_value_metadata(schema.metadata)

    def add(self, table: pa.Table) -> None:
        self._waiting.append(table)
        self._count += table.num_rows
        if self._count >= self._rows:
            self._flush(self._count // self._rows * self._rows)

    def _flush(self, rows: int) -> None:
        table = pa.concat_tables([self._schema.empty_table(), *self._waiting])
        if rows:
            ready = table.slice(0, rows).unify_dictionaries()
            self._writer.write_table(ready, row_group_size=self._rows)
        self._waiting = [table.slice(rows)]
        self._count = table.num_rows - rows

    def close(self) -> None:
        self._flush(self._count)
        self._writer.close()


class RunWriter:
    """One run on its way into a folder.

    Decoding waits for nothing here: tables are made and compressed by a thread of their
    own, which the interpreter's lock hardly touches.

    Parameters
    ----------
    folder : pathlib.Path
        A new folder; made here.
    run_id : str
        The run's name.
    head : ParsedRun
        What is known before the first piece.
    part : int
        Which part of the run's tables is written.

    Attributes
    ----------
    rejected : int
        Rejects so far.
    first_rejects : list of Reject
        Some of them, for a complaint.
    """

    def __init__(self, folder: Path, run_id: str, head: ParsedRun, part: int = 0) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.run_id = run_id
        self.rejected = 0
        self.first_rejects: list[Reject] = []
        self._head = head
        self._part = part
        self._steps = self._table("steps", ROW_GROUP_ROWS)
        self._requests = self._table("requests", REQUEST_GROUP_ROWS)
        self._rejects_path = folder / rejects_file(run_id, part)
        self._rejects: IO[str] = self._rejects_path.open("w", encoding="utf-8")
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="kernelfit-write")
        self._queue: deque[Future[None]] = deque()

    def __enter__(self) -> Self:
        """Return the writer."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Let go of the thread and the files."""
        self._thread.shutdown(wait=True, cancel_futures=True)
        self._rejects.close()

    def _table(self, name: str, group_rows: int) -> _Table:
        path = self.folder / table_file(name, self._part)
        return _Table(path, SCHEMAS[name], group_rows)

    def add(self, piece: Piece) -> None:
        """Write a piece, or have it written.

        Parameters
        ----------
        piece : Piece
            The next one.

        Raises
        ------
        OSError
            When an earlier piece could not be written.
        """
        if piece.rejects:
            self._rejects.write(rejects_text(piece.rejects))
            self.rejected += len(piece.rejects)
            self._remember(piece.rejects)
        self._submit(lambda: self._write(piece))

    def _remember(self, rejects: Sequence[Reject]) -> None:
        # A row that is bad by itself says more than one that has no partner for it.
        known = [*self.first_rejects, *rejects[: 100 * KEPT_REJECTS]]
        self.first_rejects = sorted(known, key=_said_late)[:KEPT_REJECTS]

    def _write(self, piece: Piece) -> None:
        if piece.steps.count:
            self._steps.add(steps_table(self.run_id, self._head, piece.steps))
        if piece.requests.step.size:
            self._requests.add(requests_table(self.run_id, piece.requests))

    def _submit(self, work: Callable[[], None]) -> None:
        self._queue.append(self._thread.submit(work))
        while len(self._queue) > _QUEUED:
            self._queue.popleft().result()

    def finish(self, summary: ParsedRun) -> None:
        """Write the rest of the tables and close every file.

        Parameters
        ----------
        summary : ParsedRun
            What the run's last piece left.

        Raises
        ------
        OSError
            When a file cannot be written.
        """
        self._submit(lambda: self._close(summary))
        while self._queue:
            self._queue.popleft().result()
        self._rejects.close()
        if self.rejected <= SORTED_REJECTS:
            _sort_rejects(self._rejects_path)

    def _close(self, summary: ParsedRun) -> None:
        self._steps.close()
        self._requests.close()
        others = host_tables(self.run_id, summary)
        others["intervals"] = intervals_table(self.run_id, summary)
        for name, table in others.items():
            file = self._table(name, ROW_GROUP_ROWS)
            file.add(table.cast(packed(table.schema)))
            file.close()


def _said_late(reject: Reject) -> bool:
    return "not joined" in reject.reason or "repeated" in reject.reason


def _sort_rejects(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    order = sorted(lines, key=_place_of)
    if order != lines:
        path.write_text("".join(order), encoding="utf-8")


def _place_of(line: str) -> tuple[str, int]:
    reject = json.loads(line)
    return str(reject["file"]), int(reject["line"])


def write_row(path: Path, row: Mapping[str, object]) -> None:
    """Write a run's row of the ``runs`` table: what makes its folder a run.

    Parameters
    ----------
    path : pathlib.Path
        The file.
    row : mapping of str to object
        Every column of ``RUNS``; what is missing becomes null.

    Raises
    ------
    OSError
        When the file cannot be written.
    """
    table = pa.Table.from_pylist([dict(row)], schema=RUNS)
    pq.write_table(table, path, compression="zstd")


def merge_parts(
    folder: Path, run_id: str, files: Mapping[str, Sequence[Path]], rejects_from: Path
) -> None:
    """Write the parts of a run's tables as one file each, a row group at a time.

    Parameters
    ----------
    folder : pathlib.Path
        Where they are written.
    run_id : str
        The run.
    files : mapping of str to sequence of pathlib.Path
        The parts of each table, in order.
    rejects_from : pathlib.Path
        Folder with the parts of the rejects.

    Raises
    ------
    OSError
        When a file cannot be read or written.
    """
    for name, paths in files.items():
        rows = REQUEST_GROUP_ROWS if name == "requests" else ROW_GROUP_ROWS
        target = _Table(folder / table_file(name), SCHEMAS[name], rows)
        for path in paths:
            with pq.ParquetFile(path) as file:
                for group in range(file.num_row_groups):
                    table = file.read_row_group(group).cast(SCHEMAS[name])
                    target.add(table.cast(packed(SCHEMAS[name])))
        target.close()
    with (folder / rejects_file(run_id)).open("wb") as stream:
        for path in sorted(rejects_from.glob(f"*{REJECTS_SUFFIX}")):
            with path.open("rb") as part:
                shutil.copyfileobj(part, stream)
