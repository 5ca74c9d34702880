"""Tables as data: the terminal and the page draw the same cells."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Column:
    """One column.

    Attributes
    ----------
    title : str
        Heading, with the unit.
    numeric : bool
        Align to the right.
    short : str
        Heading in the terminal; empty means the title.
    terminal : bool
        Whether the terminal shows it.
    """

    title: str
    numeric: bool = False
    short: str = ""
    terminal: bool = True


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell.

    Attributes
    ----------
    text : str
        What is shown, ASCII.
    value : float, str or None
        The number behind the text, in SI units, as the JSON has it.
    note : str
        A line below it on the page.
    kind : str
        What it is, for its look on the page (a verdict, a flag, code).
    link : str
        Where a click leads on the page; a file beside it.
    """

    text: str
    value: float | str | None = None
    note: str = ""
    kind: str = ""
    link: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """One table.

    Attributes
    ----------
    id : str
        Unique on the page.
    caption : str
        What it shows.
    columns : tuple of Column
        The columns; the first one names the row.
    rows : tuple of tuple of Cell
        The rows.
    empty : str
        The sentence that stands for it when it has no rows.
    """

    id: str
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    empty: str


def plain(table: Table) -> str:
    """Draw a table as plain ASCII text.

    Parameters
    ----------
    table : Table
        The table.

    Returns
    -------
    str
        Heading, rule and one line a row, each ending in a newline; the sentence of an
        empty table.
    """
    if not table.rows:
        return table.empty + "\n"
    keep = [index for index, column in enumerate(table.columns) if column.terminal]
    heads = [table.columns[index].short or table.columns[index].title for index in keep]
    body = [[row[index].text for index in keep] for row in table.rows]
    widths = [
        max(len(head), *(len(line[place]) for line in body)) for place, head in enumerate(heads)
    ]
    right = [table.columns[index].numeric for index in keep]
    lines = [_line(heads, widths, right), _line(["-" * width for width in widths], widths, right)]
    lines.extend(_line(line, widths, right) for line in body)
    return "\n".join(lines) + "\n"


def _line(texts: list[str], widths: list[int], right: list[bool]) -> str:
    parts = (
        text.rjust(width) if end else text.ljust(width)
        for text, width, end in zip(texts, widths, right, strict=True)
    )
    return "  ".join(parts).rstrip()
