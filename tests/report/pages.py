"""Reading a page back: its tables, links, ids and references."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = {"meta", "link", "br", "wbr", "img", "input", "hr"}
LOADING = {"src", "srcset", "poster", "data", "action", "formaction", "background", "manifest"}


@dataclass
class Table:
    """A table of the page: its caption, headings and (text, value) cells."""

    caption: str = ""
    heads: list[str] = field(default_factory=list)
    rows: list[list[tuple[str, str | None]]] = field(default_factory=list)
    scopes: list[str | None] = field(default_factory=list)


class Page(HTMLParser):
    """What a page holds; raises on tags that do not close in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tables: dict[str, Table] = {}
        self.ids: list[str] = []
        self.references: list[tuple[str, str, str]] = []
        self.figures: list[str] = []
        self.labels: list[str] = []
        self.open: list[str] = []
        self.headings: list[str] = []
        self._table: Table | None = None
        self._small = 0
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a tag."""
        self._note(tag, dict(attrs))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a tag that closes itself."""
        self._note(tag, dict(attrs))

    def _note(self, tag: str, attrs: dict[str, str | None]) -> None:
        if attrs.get("id"):
            self.ids.append(str(attrs["id"]))
        self.references += [
            (tag, name, str(value))
            for name, value in attrs.items()
            if name in LOADING | {"href", "xlink:href", "style"}
        ]
        if tag == "svg":
            self.figures.append(str(attrs.get("role")))
            self.labels.append(str(attrs.get("aria-label")))
        if tag == "table":
            self._table = Table()
            self.tables[str(attrs["id"])] = self._table
        if tag == "small":
            self._small += 1
        if tag == "tr" and self._table is not None and "tbody" in self.open:
            self._table.rows.append([])
        if tag in {"th", "td"} and self._table is not None:
            if tag == "th":
                self._table.scopes.append(attrs.get("scope"))
            if "tbody" in self.open:
                self._table.rows[-1].append(("", attrs.get("data-value")))
            else:
                self._table.heads.append("")

    def handle_endtag(self, tag: str) -> None:
        """Close a tag, in order."""
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag
        if tag == "small":
            self._small -= 1
        if tag == "table":
            self._table = None

    def handle_data(self, data: str) -> None:
        """Gather text."""
        if "h2" in self.open:
            self.headings.append(data)
        if self._table is None or self._small:
            return
        if "caption" in self.open:
            self._table.caption += data
        elif "tbody" in self.open and {"th", "td"} & set(self.open):
            text, value = self._table.rows[-1][-1]
            self._table.rows[-1][-1] = (text + data, value)
        elif "th" in self.open:
            self._table.heads[-1] += data
