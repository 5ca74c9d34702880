"""One of the recorder's files on its way into the join: decoded, put in order, handed on."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Generic

import numpy as np

from kernelfit.documents.problems import InputError, Problem
from kernelfit.logs.columns import Ints, Reject
from kernelfit.logs.decode import Block, decode_block
from kernelfit.logs.lines import TruncatedFile, bare_name, clip, read_blocks, split_lines
from kernelfit.logs.row_columns import Columns, StepColumns, WorkerColumns, concatenated
from kernelfit.logs.rows import FORMAT_NAME, FORMAT_VERSION, Header
from kernelfit.logs.stream import Disordered

_STRAY = {
    "engine": "a worker row in an engine file",
    "worker": "a step row in a worker file",
}


class Feed(Generic[Columns]):
    """A file of which only what waits for its partners is in memory.

    Parameters
    ----------
    path : pathlib.Path
        An ``engine-*`` or ``worker-*`` file.
    role : str
        ``engine`` or ``worker``.
    blocks : iterator of (int, bytes), optional
        Stretches of the file; without it the file is read from its beginning to its end.
    late : bool
        Whether a row that belongs before one that was taken is rejected, because what was
        taken cannot be had back.

    Attributes
    ----------
    seen : int
        Largest ordinal so far; -1 before the first.
    grows : bool
        Whether lines may follow where the file ends now.
    ended : bool
        Whether the last line was read.
    damage : str or None
        Why the file ends early; None when it does not.
    lines, recognised : int
        Lines so far, and the header, clock, dummy, blank and cut ones among them.
    cut : int
        1 when the last line is cut short, as a killed process leaves it.
    rejects : list of Reject
        Lines that are no row of this file, since they were last taken away.
    headers : list of (int, Header)
        Header rows and their lines.
    waiting, waiting_requests : int
        Rows, and requests in them, that were not taken yet.
    """

    def __init__(
        self,
        path: Path,
        role: str,
        blocks: Iterator[tuple[int, bytes]] | None = None,
        *,
        late: bool = False,
    ) -> None:
        self.path = path
        self.role = role
        self.seen = -1
        self.ended = False
        self.damage: str | None = None
        self.lines = 0
        self.recognised = 0
        self.cut = 0
        self.rejects: list[Reject] = []
        self.headers: list[tuple[int, Header]] = []
        self.waiting = 0
        self.waiting_requests = 0
        self._blocks = read_blocks(path) if blocks is None else blocks
        self._parts: list[Columns] = []
        self._held: deque[Block] = deque()
        self._split: tuple[int, list[bytes]] = (0, [])
        self._taken = -1
        self.grows = late

    @property
    def name(self) -> str:
        """Name of the file."""
        return self.path.name

    def advance(self) -> bool:
        """Read the next stretch.

        Returns
        -------
        bool
            False at the end of the file.

        Raises
        ------
        InputError
            When a header is not one of this format.
        """
        if self.ended:
            return False
        try:
            first, data = next(self._blocks)
        except StopIteration:
            self.ended = True
            return False
        except TruncatedFile as error:
            self.ended = True
            self.damage = str(error)
            self.lines += 1
            return False
        self._add(decode_block(first, data))
        return True

    def _add(self, block: Block) -> None:
        self.lines += block.lines
        self.recognised += block.recognised
        self.cut += block.cut
        self.headers += block.headers
        problems = [p for h in block.headers for p in header_problems(self.path, self.role, h)]
        if problems:
            raise InputError(problems)
        self._held.append(block)
        for line, reason in block.bad:
            self.reject(line, reason)
        found = (block.steps, block.workers)
        own, other = found if self.role == "engine" else found[::-1]
        if other is not None:
            for line in other.line.tolist():
                self.reject(line, _STRAY[self.role])
        if own is not None:
            self._parts.append(own)  # type: ignore[arg-type]
            self.waiting += own.count
            self.waiting_requests += _requests_in(own)
            self.seen = max(self.seen, int(own.ordinal.max()))

    def moments_after(self, ordinal: int) -> Ints:
        """Return when the rows began that wait and lie behind an ordinal.

        Parameters
        ----------
        ordinal : int
            The ordinal.

        Returns
        -------
        ndarray of int64, shape (rows,)
            Monotonic clock [ns], in the file's order.
        """
        begins: list[Ints] = [np.empty(0, dtype=np.int64)]
        begins += [part.begin_ns[part.ordinal > ordinal] for part in self._parts]
        return np.concatenate(begins)

    def take(self, upto: int | None) -> Columns | None:
        """Take rows away, ordinals rising.

        Parameters
        ----------
        upto : int or None
            Largest ordinal that is taken; None for all.

        Returns
        -------
        StepColumns or WorkerColumns or None
            The rows; None without any.

        Raises
        ------
        Disordered
            When a row belongs before one that was taken already.
        """
        if not self._parts:
            return None
        rows = concatenated(self._parts)
        rising = rows.ordinal[1:] >= rows.ordinal[:-1]
        if not rising.all():
            # Of equal ordinals the first row stays in front.
            rows = rows.take(np.argsort(rows.ordinal, kind="stable"))
        if int(rows.ordinal[0]) <= self._taken:
            if not self.grows:
                raise Disordered
            begin = int(np.searchsorted(rows.ordinal, self._taken, side="right"))
            for line in rows.line[:begin].tolist():
                self.reject(line, "it came after later steps had been stored")
            rows = rows.part(begin, rows.count)
        end = rows.count
        if upto is not None:
            end = int(np.searchsorted(rows.ordinal, upto, side="right"))
        rest = rows.take(np.arange(end, rows.count)) if end < rows.count else None
        self._parts = [] if rest is None else [rest]
        self.waiting = 0 if rest is None else rest.count
        self.waiting_requests = _requests_in(rest)
        if end == 0:
            return None
        self._taken = int(rows.ordinal[end - 1])
        return rows.part(0, end)

    def forget(self) -> None:
        """Let go of the text of lines that were dealt with."""
        needed = min((int(part.line.min()) for part in self._parts), default=None)
        while self._held:
            block = self._held[0]
            if needed is not None and block.first + block.lines > needed:
                break
            self._held.popleft()

    def reject(self, line: int, reason: str) -> None:
        """Note a line that cannot be used.

        Parameters
        ----------
        line : int
            Its number.
        reason : str
            Why.
        """
        self.rejects.append(Reject(self.name, line, reason, clip(self._text(line))))

    def _text(self, line: int) -> bytes:
        first, lines = self._split
        if not first <= line < first + len(lines):
            block = next((b for b in self._held if b.first <= line < b.first + b.lines), None)
            if block is None:
                return b""
            first, lines = self._split = (block.first, split_lines(block.data))
        return lines[line - first]

    def rejected(self) -> list[Reject]:
        """Return the rejects since the last time.

        Returns
        -------
        list of Reject
            In the order in which they were met.
        """
        found, self.rejects = self.rejects, []
        return found


def header_problems(path: Path, role: str, found: tuple[int, Header]) -> list[Problem]:
    """Say what is wrong with a header row.

    Parameters
    ----------
    path : pathlib.Path
        The file.
    role : str
        What its name says that it is.
    found : tuple of (int, Header)
        Line and row.

    Returns
    -------
    list of Problem
        Empty when it is a header of this format.
    """
    line, header = found
    place = str(path)
    if header.format != FORMAT_NAME or not 1 <= header.version <= FORMAT_VERSION:
        got = f"{header.format} version {header.version}"
        allowed = f"{FORMAT_NAME} version 1 to {FORMAT_VERSION}"
        return [Problem(place, line, None, "unknown recorder format", got=got, allowed=allowed)]
    if header.role != role:
        message = "the header's role does not fit the file's name"
        return [Problem(place, line, None, message, got=header.role, allowed=role)]
    return []


def recorder_files(folder: Path, role: str) -> tuple[Path, ...]:
    """Return the files of one role in a recording.

    Parameters
    ----------
    folder : pathlib.Path
        The recording.
    role : str
        ``engine`` or ``worker``.

    Returns
    -------
    tuple of pathlib.Path
        ``<role>-*.jsonl``, plain or compressed, sorted by name.
    """
    found = (p for p in folder.glob(f"{role}-*.jsonl*") if bare_name(p.name).endswith(".jsonl"))
    return tuple(sorted(found))


def _requests_in(rows: StepColumns | WorkerColumns | None) -> int:
    return int(rows.scheduled.size) if isinstance(rows, StepColumns) else 0
