"""CSV and Parquet files as columns of text or numbers, with a line for every row."""

from __future__ import annotations

import codecs
import gzip
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pcsv
import pyarrow.parquet as pq

from kernelfit.documents.problems import InputError, Problem, did_you_mean
from kernelfit.logs.columns import Reject
from kernelfit.logs.lines import TruncatedFile, line_texts, read_bytes

CSV_SUFFIXES = (".csv", ".csv.gz", ".tsv", ".tsv.gz")
PARQUET_SUFFIXES = (".parquet",)


@dataclass(frozen=True, slots=True)
class RawTable:
    """The mapped columns of a file, before their values are checked.

    Attributes
    ----------
    columns : pyarrow.Table
        The mapped columns; text for CSV.
    lines : tuple of int
        Line (CSV) or row (Parquet) number of every row, from 1.
    rejects : tuple of Reject
        Rows with the wrong number of fields.
    headers : int
        Lines that are no data: the header and blank lines of a CSV.
    """

    columns: pa.Table
    lines: tuple[int, ...]
    rejects: tuple[Reject, ...]
    headers: int


def is_table(path: Path) -> bool:
    """Whether a file's name is one that the table reader takes.

    Parameters
    ----------
    path : pathlib.Path
        The file; it is not opened.

    Returns
    -------
    bool
        True for CSV, TSV (plain or gzip) and Parquet.
    """
    return path.name.lower().endswith(CSV_SUFFIXES + PARQUET_SUFFIXES)


def read_table(path: Path, wanted: Sequence[str], quoted: bool = True) -> RawTable:
    """Read the wanted columns of a table.

    Parameters
    ----------
    path : pathlib.Path
        A CSV (plain or gzip) or Parquet file.
    wanted : sequence of str
        Names of columns.
    quoted : bool
        Whether a CSV's quotes mean anything. A file of numbers needs none, and without
        them every line is a row of its own, however it was damaged.

    Returns
    -------
    RawTable
        The columns.

    Raises
    ------
    InputError
        When the file is empty or damaged, or lacks a column.
    """
    place = str(path)
    if path.stat().st_size == 0:
        raise InputError([Problem(place, None, None, "the table is empty")])
    try:
        if path.name.lower().endswith(PARQUET_SUFFIXES):
            return _parquet(path, wanted)
        return _csv(path, wanted, quoted)
    except (pa.ArrowException, OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        first = str(error).splitlines()[0][:200]
        raise InputError(
            [Problem(place, None, None, f"the table cannot be read: {first}")]
        ) from error


def column_names(path: Path) -> tuple[str, ...]:
    """Return the names of a table's columns.

    Parameters
    ----------
    path : pathlib.Path
        A CSV (plain or gzip) or Parquet file.

    Returns
    -------
    tuple of str
        In the file's order; none when it cannot be read as a table.
    """
    try:
        if path.name.lower().endswith(PARQUET_SUFFIXES):
            return tuple(pq.ParquetFile(path).schema_arrow.names)
        with pcsv.open_csv(path, parse_options=_parsing(path)) as stream:
            return tuple(stream.schema.names)
    except (pa.ArrowException, OSError, UnicodeDecodeError):
        return ()


def _parsing(path: Path, quoted: bool = True) -> pcsv.ParseOptions:
    delimiter = "\t" if ".tsv" in path.name.lower() else ","
    # Blank lines are kept as rows, so that line numbers stay right.
    return pcsv.ParseOptions(
        delimiter=delimiter, ignore_empty_lines=False, quote_char='"' if quoted else False
    )


def _check(path: Path, names: Sequence[str], wanted: Sequence[str]) -> None:
    line = 1 if not path.name.endswith(PARQUET_SUFFIXES) else None
    problems = [
        Problem(
            str(path),
            line,
            None,
            f"the table has no column {name}",
            allowed=", ".join(names[:20]),
            hint=did_you_mean(name, names),
        )
        for name in wanted
        if name not in names
    ]
    if problems:
        raise InputError(problems)


def _parquet(path: Path, wanted: Sequence[str]) -> RawTable:
    file = pq.ParquetFile(path)
    _check(path, file.schema_arrow.names, wanted)
    table = file.read(columns=list(wanted))
    return RawTable(table, tuple(range(1, table.num_rows + 1)), (), 0)


def _undecodable(path: Path) -> bool:
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for data in read_bytes(path):
            decoder.decode(data)
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return True
    except TruncatedFile:
        return False
    return False


def _repaired(path: Path) -> bytes:
    """Return a file's text with undecodable bytes replaced, so that they spoil one row."""
    raw = path.read_bytes()
    if path.name.lower().endswith(".gz"):
        raw = gzip.decompress(raw)
    try:
        raw.decode()
    except UnicodeDecodeError:
        raw = raw.decode("utf-8", "replace").encode()
    return raw


def _csv(path: Path, wanted: Sequence[str], quoted: bool) -> RawTable:
    rejects: list[Reject] = []

    def wrong_fields(row: pcsv.InvalidRow) -> str:
        reason = f"{row.actual_columns} fields where the header has {row.expected_columns}"
        # The row's text is left out: which field is which is not known.
        rejects.append(Reject(path.name, int(row.number), reason, ""))
        return "skip"

    parse = _parsing(path, quoted)
    parse.invalid_row_handler = wrong_fields
    read = pcsv.ReadOptions(use_threads=False)
    # A row that is no text would not even reach the handler above.
    data = _repaired(path) if _undecodable(path) else None

    def whole() -> Path | BytesIO:
        return path if data is None else BytesIO(data)

    with pcsv.open_csv(whole(), read_options=read, parse_options=parse) as stream:
        _check(path, stream.schema.names, wanted)
    rejects.clear()
    table = pcsv.read_csv(
        whole(),
        read_options=read,
        parse_options=parse,
        convert_options=pcsv.ConvertOptions(
            include_columns=list(wanted),
            column_types={name: pa.string() for name in wanted},
            strings_can_be_null=True,
            null_values=[""],
        ),
    )
    bad = {reject.line for reject in rejects}
    total = table.num_rows + len(bad)
    lines = [line for line in range(2, total + 2) if line not in bad]
    empty = np.ones(table.num_rows, dtype=bool)
    for column in table.columns:
        empty &= column.is_null().to_numpy(zero_copy_only=False)
    hollow = [lines[place] for place in np.flatnonzero(empty).tolist()]
    # Values may stand in columns that are not mapped: such a row is not blank.
    blank = {line for line, text in line_texts(path, hollow).items() if not text.strip()}
    keep = np.array([line not in blank for line in lines], dtype=bool)
    return RawTable(
        table.filter(pa.array(keep)),
        tuple(line for line in lines if line not in blank),
        tuple(rejects),
        1 + len(blank),
    )
