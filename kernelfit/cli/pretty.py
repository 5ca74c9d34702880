"""Tables on a terminal: the same cells as in a pipe, with weight and colour."""

from __future__ import annotations

import os
import sys

from kernelfit.report.tables import Cell, Table

_STYLES = {
    "verdict-identified": "green",
    "verdict-weak": "yellow",
    "verdict-prior": "dim",
    "verdict-at_bound": "bold red",
    "flag-agree": "green",
    "flag-measure": "bold red",
    "flag-uncertain": "yellow",
    "flag-extrapolated": "yellow",
    "best": "bold",
    "code": "cyan",
}


def on_terminal() -> bool:
    """Return whether standard output is a terminal that can show more than plain text.

    Returns
    -------
    bool
        False in a pipe and on a terminal that calls itself dumb.
    """
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def draw(table: Table) -> None:
    """Draw a table on the terminal behind standard output.

    Parameters
    ----------
    table : Table
        The table; colours are left out where ``NO_COLOR`` is set.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table as Rich
    from rich.text import Text

    console = Console(markup=False, highlight=False, emoji=False)
    if not table.rows:
        console.print(Text(table.empty, style="dim"))
        return
    keep = [index for index, column in enumerate(table.columns) if column.terminal]
    drawn = Rich(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for index in keep:
        column = table.columns[index]
        drawn.add_column(
            column.short or column.title,
            justify="right" if column.numeric else "left",
            overflow="fold",
        )
    for row in table.rows:
        drawn.add_row(*(Text(row[index].text, style=_style(row[index])) for index in keep))
    console.print(drawn)


def _style(cell: Cell) -> str:
    return _STYLES.get(cell.kind, "")
