"""The HTML page: the template that sets it, and how its words are written."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from kernelfit.report import units
from kernelfit.report.figure import Drawing
from kernelfit.report.sections import Section, sections
from kernelfit.report.tables import Cell

View = Mapping[str, Any]


def environment() -> Environment:
    """Return the templates with the house's filters.

    Returns
    -------
    jinja2.Environment
        Everything that is set into them is escaped.
    """
    templates = Environment(
        loader=PackageLoader("kernelfit.report", "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=StrictUndefined,
    )
    templates.filters["micro"] = _micro
    templates.filters["raw"] = _raw
    templates.filters["tie"] = _tie
    templates.filters["breaks"] = _breaks
    templates.globals["figure_markup"] = lambda drawing: Markup(drawing.inline)
    templates.globals["hover"] = _hover
    return templates


def page(view: View, drawings: Sequence[Drawing]) -> str:
    """Set the page.

    Parameters
    ----------
    view : mapping
        What the report knows of one GPU type, its verdict included.
    drawings : sequence of Drawing
        Every figure.

    Returns
    -------
    str
        One HTML document that needs nothing else.
    """
    return set_page("report.html.j2", sections(view, drawings), view=view)


def set_page(template: str, parts: Sequence[Section], **words: Any) -> str:
    """Set a page of the house: its style and script come with it.

    Parameters
    ----------
    template : str
        Name of the template.
    parts : sequence of Section
        Its sections.
    **words : object
        What else the template asks for.

    Returns
    -------
    str
        One HTML document that needs nothing else.
    """
    folder = resources.files("kernelfit.report").joinpath("templates")
    return (
        environment()
        .get_template(template)
        .render(
            sections=parts,
            css=Markup(folder.joinpath("report.css").read_text("utf8")),
            script=Markup(folder.joinpath("report.js").read_text("utf8")),
            **words,
        )
    )


def _hover(drawing: Drawing) -> Markup:
    """Return what a figure says at its places, as data that no markup can leave."""
    spots = [(x, y, re.sub(r"(?<=\d) us\b", " µs", words)) for x, y, words in drawing.hover]
    return Markup(
        json.dumps(spots, ensure_ascii=True, separators=(",", ":")).replace("<", "\\u003c")
    )


def _micro(text: str) -> str:
    """Write microseconds and a missing value as a typesetter would."""
    if text == units.MISSING:
        return "\N{EN DASH}"
    return _tie(re.sub(r"\bus\b", "µs", text))


def _tie(text: str) -> str:
    """Keep a number and its unit on one line."""
    return re.sub(r"(?<=\d) (?=(?:%|s|ms|us|µs)(?:\W|$))", "\N{NO-BREAK SPACE}", text)


def _raw(cell: Cell) -> str:
    """Return the value behind a cell, as the JSON has it."""
    return repr(cell.value) if isinstance(cell.value, float) else str(cell.value)


def _breaks(text: str) -> Markup:
    """Allow an identifier to break after its separators."""
    return Markup(re.sub(r"([_/:])", r"\1<wbr>", str(Markup.escape(text))))
