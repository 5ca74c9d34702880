"""What a command writes: results on standard output, everything else on standard error."""

from __future__ import annotations

import contextlib
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TextIO

from kernelfit.documents.canonical import dumps

PIPED_WIDTH = 160
"""Width of a table where there is no terminal to ask [characters]."""

Progress = Callable[[str, int, int], None]
"""A callback: what is being done, how much is done, how much there is."""


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
    """

    json: bool = False
    quiet: bool = False
    debug: bool = False
    words: tuple[str, ...] = ()

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

    def table(
        self,
        columns: Sequence[str],
        rows: Sequence[Sequence[str]],
        *,
        title: str = "",
        left: int = 1,
    ) -> None:
        """Write a table as part of the result.

        Parameters
        ----------
        columns : sequence of str
            Heads of the columns.
        rows : sequence of sequence of str
            Cells, already in words.
        title : str
            A line above the table.
        left : int
            Number of leading columns that hold words and stand to the left; the rest are
            numbers and stand to the right.
        """
        from rich import box
        from rich.table import Table

        console = _console(sys.stdout)
        table = Table(
            box=box.SIMPLE_HEAD if sys.stdout.isatty() else None,
            header_style="bold",
            pad_edge=False,
            show_edge=False,
        )
        for number, name in enumerate(columns):
            table.add_column(
                name, justify="left" if number < left else "right", overflow="fold", no_wrap=False
            )
        for row in rows:
            table.add_row(*row)
        if title:
            print(title)
        console.print(table)
        print()

    @contextlib.contextmanager
    def progress(self) -> Iterator[Progress]:
        """Show how far the work is, on a terminal only.

        Yields
        ------
        callable
            Called with what is being done, how much is done and how much there is.
        """
        if self.quiet or not sys.stderr.isatty():
            yield _silent
            return
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bars

        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
        )
        with Bars(*columns, console=_console(sys.stderr), transient=True) as bars:
            known: dict[str, Any] = {}

            def show(what: str, done: int, total: int) -> None:
                if what not in known:
                    known[what] = bars.add_task(what, total=total)
                bars.update(known[what], completed=done, total=total)

            yield show


def _silent(what: str, done: int, total: int) -> None:
    del what, done, total


def _console(stream: TextIO) -> Any:
    from rich.console import Console

    width = None if stream.isatty() else PIPED_WIDTH
    # Markup and highlighting off: a file name may hold brackets, and numbers need no colour.
    return Console(file=stream, width=width, markup=False, highlight=False, emoji=False)
