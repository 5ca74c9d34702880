"""Lines of plain, gzip and Zstandard files, in stretches of bounded size, however they end."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa

MAX_TEXT_CHARACTERS = 500

BLOCK_BYTES = 1 << 20
"""Size of a stretch of lines [bytes]: it and what is made of it stay in a core's cache."""

CODECS = (".gz", ".zst")
"""How the name of a compressed file ends."""

_GZIP = 31
"""What zlib calls the largest window of a stream with gzip's head."""

_ZSTANDARD_BYTES = 1 << 17

MAGIC = {b"\x1f\x8b": ".gz", b"\x28\xb5\x2f\xfd": ".zst"}
"""First bytes of a compressed file, and how its name should end."""


class TruncatedFile(Exception):
    """A compressed file ends early or is damaged; the lines before it were read."""


def bare_name(name: str) -> str:
    """Return a file's name without the end that says how it is compressed.

    Parameters
    ----------
    name : str
        For example ``engine.log.zst``.

    Returns
    -------
    str
        For example ``engine.log``.
    """
    for suffix in CODECS:
        name = name.removesuffix(suffix)
    return name


def read_bytes(path: Path, size: int = BLOCK_BYTES) -> Iterator[bytes]:
    """Yield the uncompressed bytes of a file.

    Parameters
    ----------
    path : pathlib.Path
        Compressed when its name ends in ``.gz`` or ``.zst``; several compressed streams
        one after the other are one file.
    size : int
        Bytes that are read at a time.

    Yields
    ------
    bytes
        A stretch, never empty [bytes].

    Raises
    ------
    TruncatedFile
        After the last readable byte of a damaged compressed file.
    OSError
        When the file cannot be opened or read.
    """
    if path.suffix == ".gz":
        yield from _inflated(path, size)
    elif path.suffix == ".zst":
        yield from _zstandard(path)
    else:
        with path.open("rb", buffering=0) as stream:
            while data := stream.read(size):
                yield data


def _inflated(path: Path, size: int) -> Iterator[bytes]:
    # Not through the gzip module: it loses what it had inflated when the end is damaged.
    unpack = zlib.decompressobj(_GZIP)
    started = False
    with path.open("rb", buffering=0) as stream:
        while packed := stream.read(size // 4):
            while packed:
                try:
                    data = unpack.decompress(packed, size)
                except zlib.error as error:
                    raise TruncatedFile(str(error)) from error
                if data:
                    yield data
                started = True
                packed = unpack.unconsumed_tail
                if unpack.eof:
                    # Zeros between or after streams are padding.
                    packed = unpack.unused_data.lstrip(b"\0")
                    unpack = zlib.decompressobj(_GZIP)
                    started = bool(packed)
    if started:
        raise TruncatedFile("the compressed stream has no end")


def _zstandard(path: Path) -> Iterator[bytes]:
    with pa.CompressedInputStream(pa.OSFile(str(path)), "zstd") as stream:
        while True:
            try:
                # Small: what was read so far is lost when a stream ends early.
                data = stream.read(_ZSTANDARD_BYTES)
            except OSError as error:
                raise TruncatedFile(str(error)) from error
            if not data:
                return
            yield data


def read_blocks(path: Path, size: int = BLOCK_BYTES) -> Iterator[tuple[int, bytes]]:
    """Yield a file as stretches of whole lines.

    Parameters
    ----------
    path : pathlib.Path
        A text file, plain or compressed.
    size : int
        Bytes that are read at a time; a longer line makes a longer stretch.

    Yields
    ------
    tuple of (int, bytes)
        Number of the stretch's first line, from 1, and its bytes; only the file's last
        line may lack its end.

    Raises
    ------
    TruncatedFile
        After the last readable byte of a damaged compressed file.
    OSError
        When the file cannot be opened.
    """
    first = 1
    held: list[bytes] = []
    for data in read_bytes(path, size):
        end = data.rfind(b"\n") + 1
        if not end:
            held.append(data)
            continue
        block = b"".join((*held, data[:end]))
        held = [data[end:]] if end < len(data) else []
        yield first, block
        first += block.count(b"\n")
    # Of a damaged file the part of a line at its end is no line, and never gets here.
    if held:
        yield first, b"".join(held)


def read_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a file, one at a time.

    Parameters
    ----------
    path : pathlib.Path
        A text file; compressed when its name ends in ``.gz`` or ``.zst``.

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
    for first, block in read_blocks(path):
        yield from enumerate(split_lines(block), start=first)


def split_lines(block: bytes) -> list[bytes]:
    """Return the lines of a stretch, each with its end.

    Parameters
    ----------
    block : bytes
        Whole lines; the last may lack its end.

    Returns
    -------
    list of bytes
        Split at line feeds only.
    """
    lines = [line + b"\n" for line in block.split(b"\n")]
    if block.endswith(b"\n"):
        lines.pop()
    elif lines:
        lines[-1] = lines[-1][:-1]
    return lines


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
