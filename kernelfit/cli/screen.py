"""What a command writes: results on standard output, everything else on standard error."""

from __future__ import annotations

import contextlib
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelfit.documents.canonical import dumps

if TYPE_CHECKING:
    from kernelfit.report.tables import Table

Progress = Callable[[int, int, str], None]
"""A callback: how much is done, how much there is, the name of what comes next."""


@dataclass(frozen=True, slots=True)
class Screen:
    """Where a command's words go.

    Attributes
    ----------
    json : bool
        Whether the result is one JSON document instead of words.
    quiet : bool
        Whether notes and progress are left out.
    debug : bool
        Whether a crash shows its traceback.
    words : tuple of str
        What the user typed after the program's name.
    left : list of str
        Files written so far, for the words of an interrupted run.
    """

    json: bool = False
    quiet: bool = False
    debug: bool = False
    words: tuple[str, ...] = ()
    left: list[str] = field(default_factory=list, compare=False)

    @property
    def command(self) -> str:
        """The command as the user typed it, quoted where a shell would need it."""
        return shlex.join(("kernelfit", *self.words))

    def line(self, text: str = "") -> None:
        """Write one line of the result.

        Parameters
        ----------
        text : str
            The line.
        """
        print(text)

    def text(self, text: str) -> None:
        """Write a text as the result, as it is.

        Parameters
        ----------
        text : str
            The text with its line ends.
        """
        sys.stdout.write(text)

    def document(self, document: Mapping[str, Any]) -> None:
        """Write the result as JSON.

        Parameters
        ----------
        document : mapping
            JSON-shaped data.
        """
        sys.stdout.write(dumps(document))

    def note(self, text: str) -> None:
        """Say what is happening, unless the user wants quiet.

        Parameters
        ----------
        text : str
            One line.
        """
        if not self.quiet:
            print(text, file=sys.stderr)

    def error(self, text: str) -> None:
        """Say what is wrong.

        Parameters
        ----------
        text : str
            One line.
        """
        print(text, file=sys.stderr)

    def flush(self) -> None:
        """Hand on what was written so far to whoever reads standard output."""
        sys.stdout.flush()

    def wrote(self, path: Path) -> None:
        """Remember a file that was written whole.

        Parameters
        ----------
        path : pathlib.Path
            The file.
        """
        self.left.append(str(path))

    def table(
        self,
        columns: Sequence[str],
        rows: Sequence[Sequence[str]],
        *,
        left: int = 1,
        left_at: Sequence[int] = (),
    ) -> None:
        """Write a table as part of the result.

        Parameters
        ----------
        columns : sequence of str
            Heads of the columns.
        rows : sequence of sequence of str
            Cells, already in words.
        left : int
            Number of leading columns that hold words; the rest are numbers.
        left_at : sequence of int
            Further columns that hold words.
        """
        from kernelfit.report.tables import Cell, Column, Table

        heads = tuple(
            Column(name, numeric=n >= left and n not in left_at) for n, name in enumerate(columns)
        )
        cells = tuple(tuple(Cell(text) for text in row) for row in rows)
        self.show(Table("table", "", heads, cells, "nothing to show"))
        self.line()

    def show(self, table: Table) -> None:
        """Write a table as part of the result: rich on a terminal, plain in a pipe.

        Parameters
        ----------
        table : Table
            The table.
        """
        from kernelfit.cli.pretty import draw, on_terminal
        from kernelfit.report.tables import plain

        if on_terminal():
            draw(table)
        else:
            self.text(plain(table))

    @contextlib.contextmanager
    def progress(self, what: str) -> Iterator[Progress]:
        """Show how far the work is, on a terminal only.

        Parameters
        ----------
        what : str
            What is being done, for example ``reading``.

        Yields
        ------
        callable
            Called with how much is done, how much there is, and the name of what comes next.
        """
        if self.quiet or not sys.stderr.isatty():
            yield _silent
            return
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bars

        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}", markup=False),
            TimeRemainingColumn(elapsed_when_finished=True),
        )
        # Markup off: a run's name may hold brackets.
        console = Console(file=sys.stderr, markup=False, highlight=False, emoji=False)
        with Bars(*columns, console=console, transient=True) as bars:
            task = bars.add_task(what, total=None, rate="")

            def show(done: int, total: int, name: str) -> None:
                words = f"{what} {name}" if name else what
                speed = bars.tasks[0].speed
                bars.update(
                    task,
                    description=words,
                    completed=done,
                    total=total,
                    rate=f"{speed:.3g}/s" if speed else "",
                )

            yield show


def _silent(done: int, total: int, name: str) -> None:
    del done, total, name
