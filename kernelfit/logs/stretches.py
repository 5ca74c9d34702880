"""A file as stretches of whole lines in one buffer, so that nothing is copied twice."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

from kernelfit.logs.lines import CODECS, read_bytes


class _Source(Protocol):
    def readinto(self, room: memoryview, /) -> int | None: ...


class _Unpacked:
    """A compressed file as something to read from."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._rest = memoryview(b"")

    def readinto(self, room: memoryview) -> int:
        if not self._rest:
            self._rest = memoryview(next(self._pieces, b""))
        size = min(len(self._rest), len(room))
        room[:size] = self._rest[:size]
        self._rest = self._rest[size:]
        return size


def stretches(path: Path, size: int, margin: int) -> Iterator[memoryview]:
    """Yield a file as whole lines, each stretch in the place of the one before.

    Parameters
    ----------
    path : pathlib.Path
        A text file, plain or compressed.
    size : int
        Bytes that are read at a time; a longer line makes a longer stretch.
    margin : int
        Bytes that follow each stretch, of no meaning.

    Yields
    ------
    memoryview
        Whole lines and the margin; valid until the next is asked for. Only the last line
        of the file may lack its end.

    Raises
    ------
    TruncatedFile
        After the last whole line of a damaged compressed file.
    OSError
        When the file cannot be opened or read.
    """
    with ExitStack() as stack:
        source: _Source
        if path.suffix in CODECS:
            source = _Unpacked(read_bytes(path, size))
        else:
            source = stack.enter_context(path.open("rb", buffering=0))
        buffer = bytearray(size + margin)
        held = 0
        while True:
            if held == len(buffer) - margin:  # a line that fills it
                buffer = buffer[:held] + bytes(len(buffer))
            view = memoryview(buffer)
            upto = held + (source.readinto(view[held : len(buffer) - margin]) or 0)
            if upto == held:
                break
            end = buffer.rfind(b"\n", held, upto) + 1
            if end:
                yield view[: end + margin]
                buffer[: upto - end] = buffer[end:upto]
                upto -= end
            held = upto
        if held:
            yield view[: held + margin]
