"""Reading of a Parquet file only what a question needs, and saying how much that was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq


@dataclass(frozen=True, slots=True)
class Scan:
    """What a scan found and what it took.

    Attributes
    ----------
    table : pyarrow.Table
        The rows that were wanted, with the columns that were wanted.
    groups, groups_read : int
        Row groups of the files, and those that were read.
    rows, rows_read : int
        Rows of the files, and those in the row groups that were read.
    stored_bytes, read_bytes : int
        Compressed size of all columns, and of what was read [bytes].
    """

    table: pa.Table
    groups: int
    groups_read: int
    rows: int
    rows_read: int
    stored_bytes: int
    read_bytes: int


def scan_files(
    paths: Sequence[Path],
    schema: pa.Schema,
    columns: Sequence[str] | None,
    where: Mapping[str, tuple[float, float]],
) -> Scan:
    """Read what is needed of a table.

    Parameters
    ----------
    paths : sequence of pathlib.Path
        Its files.
    schema : pyarrow.Schema
        Its schema.
    columns : sequence of str or None
        Columns that are read; all for None.
    where : mapping of str to (float, float)
        Least and largest value of a column that is wanted.

    Returns
    -------
    Scan
        The rows, and how much of the files was read for them.

    Raises
    ------
    KeyError
        When the table has no such column.
    """
    wanted = tuple(schema.names if columns is None else columns)
    for name in (*wanted, *where):
        if name not in schema.names:
            raise KeyError(name)
    touched = tuple(dict.fromkeys((*wanted, *where)))
    result = pa.schema([schema.field(name) for name in touched], metadata=schema.metadata)
    tables: list[pa.Table] = []
    groups = rows = stored = groups_read = rows_read = read = 0
    for path in paths:
        with pq.ParquetFile(path) as file:
            chosen = []
            for number in range(file.num_row_groups):
                group = file.metadata.row_group(number)
                chunks = [group.column(place) for place in range(group.num_columns)]
                groups += 1
                rows += group.num_rows
                stored += sum(chunk.total_compressed_size for chunk in chunks)
                if not all(_may_hold(chunks, name, span) for name, span in where.items()):
                    continue
                chosen.append(number)
                groups_read += 1
                rows_read += group.num_rows
                read += sum(c.total_compressed_size for c in chunks if _top(c) in touched)
            if chosen:
                table = file.read_row_groups(chosen, columns=list(touched)).select(touched)
                tables.append(_within(table.cast(result), where))
    table = pa.concat_tables(tables) if tables else result.empty_table()
    return Scan(table.select(wanted), groups, groups_read, rows, rows_read, stored, read)


def _top(chunk: Any) -> str:
    return str(chunk.path_in_schema).partition(".")[0]


def _may_hold(chunks: Sequence[Any], name: str, span: tuple[float, float]) -> bool:
    """Tell from a row group's statistics whether any row can be wanted."""
    chunk = next(chunk for chunk in chunks if _top(chunk) == name)
    statistics = chunk.statistics
    if statistics is None:
        return True
    if not statistics.has_min_max:
        return bool(statistics.null_count is None or statistics.null_count < chunk.num_values)
    return bool(statistics.min <= span[1] and statistics.max >= span[0])


def _within(table: pa.Table, where: Mapping[str, tuple[float, float]]) -> pa.Table:
    for name, (least, most) in where.items():
        column = table.column(name)
        table = table.filter(pc.and_(pc.greater_equal(column, least), pc.less_equal(column, most)))
    return table
