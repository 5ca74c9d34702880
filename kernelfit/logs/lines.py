"""Lines of plain and gzip-compressed files, however badly they end."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

MAX_TEXT_CHARACTERS = 500


class TruncatedFile(Exception):
    """A compressed file ends early or is damaged; the lines before it were read."""


def read_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a file, one at a time.

    Parameters
    ----------
    path : pathlib.Path
        A text file; compressed when its name ends in ``.gz``.

    Yields
    ------
    tuple of (int, bytes)
        Line number from 1, and the line with its end.

    Raises
    ------
    TruncatedFile
        After the last readable line of a damaged compressed file.
    OSError
        When the file cannot be opened.
    """
    if path.suffix != ".gz":
        with path.open("rb") as plain:
            for number, line in enumerate(plain, start=1):
                yield number, line
        return
    with gzip.open(path, "rb") as packed:
        number = 0
        try:
            for line in packed:
                number += 1
                yield number, line
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise TruncatedFile(str(error)) from error


def read_bytes(path: Path, size: int = 1 << 20) -> Iterator[bytes]:
    """Yield the uncompressed bytes of a file.

    Parameters
    ----------
    path : pathlib.Path
        Compressed when its name ends in ``.gz``.
    size : int
        Bytes that are read at a time.

    Yields
    ------
    bytes
        Never empty [bytes].

    Raises
    ------
    TruncatedFile
        After the last readable line of a damaged compressed file.
    OSError
        When the file cannot be opened.
    """
    if path.suffix == ".gz":
        for _, line in read_lines(path):
            yield line
        return
    with path.open("rb", buffering=0) as stream:
        while data := stream.read(size):
            yield data


def line_texts(path: Path, numbers: Iterable[int]) -> dict[int, str]:
    """Return the text of a few lines, for messages about them.

    Parameters
    ----------
    path : pathlib.Path
        The file.
    numbers : iterable of int
        Line numbers from 1.

    Returns
    -------
    dict of int to str
        The beginning of each line that exists.
    """
    wanted = set(numbers)
    texts: dict[int, str] = {}
    if not wanted:
        return texts
    last = max(wanted)
    try:
        for number, line in read_lines(path):
            if number in wanted:
                texts[number] = clip(line)
            if number >= last:
                break
    except TruncatedFile:
        pass
    return texts


def clip(line: bytes) -> str:
    """Return the beginning of a line as text.

    Parameters
    ----------
    line : bytes
        A line in any encoding.

    Returns
    -------
    str
        At most 500 characters; undecodable bytes are replaced.
    """
    return (
        line[: 4 * MAX_TEXT_CHARACTERS]
        .decode("utf-8", "replace")
        .rstrip("\r\n")[:MAX_TEXT_CHARACTERS]
    )
