"""The account of a text log: every line is a row, recognised or rejected."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from kernelfit.logs.columns import Counts, Reject
from kernelfit.logs.lines import TruncatedFile, read_lines

MAX_LINE_BYTES = 1 << 20
"""Longer lines are not looked into: no engine prints one, a binary file may [bytes]."""


@dataclass(slots=True)
class Tally:
    """Lines of one run by what became of them.

    Attributes
    ----------
    file : str
        Name of the log, for rejects.
    lines, recognised : int
        Lines read so far, and those that are known and are no step.
    rejects : list of Reject
        Lines that could not be used.
    """

    file: str
    lines: int = 0
    recognised: int = 0
    rejects: list[Reject] = field(default_factory=list)

    def know(self, lines: int = 1) -> None:
        """Count lines that are known and are no step.

        Parameters
        ----------
        lines : int
            How many.
        """
        self.lines += lines
        self.recognised += lines

    def reject(self, number: int, reason: str, text: str) -> None:
        """Count a line that cannot be used.

        Parameters
        ----------
        number : int
            Its number, from 1.
        reason : str
            What is wrong with it.
        text : str
            The line; only its form is kept.
        """
        self.lines += 1
        self.rejects.append(Reject(self.file, number, reason, text))

    def absorb(self, other: Tally) -> None:
        """Take over another account.

        Parameters
        ----------
        other : Tally
            The account of lines that turned out to belong to this run.
        """
        self.lines += other.lines
        self.recognised += other.recognised
        self.rejects += other.rejects

    def counts(self) -> Counts:
        """Return the account.

        Returns
        -------
        Counts
            What is neither recognised nor rejected became a step.
        """
        rejected = len(self.rejects)
        return Counts(
            self.lines, self.lines - self.recognised - rejected, self.recognised, rejected
        )


def log_lines(path: Path) -> Iterator[tuple[int, bytes, str | None]]:
    """Yield the lines of a log, and what is wrong with its end.

    Parameters
    ----------
    path : pathlib.Path
        The log, plain or compressed.

    Yields
    ------
    tuple of (int, bytes, str or None)
        Line number from 1, the line, and a complaint for the line that could not be
        read because the compressed file ends early; the line is then empty.

    Raises
    ------
    OSError
        When the file cannot be opened.
    """
    number = 0
    try:
        for number, line in read_lines(path):
            yield number, line, None
    except TruncatedFile as error:
        yield number + 1, b"", f"the compressed file ends early or is damaged: {error}"
