"""The HTML page: what stands in which section, and the template that sets it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from kernelfit.report import tables_checks, tables_fit, tables_host, tables_use, units
from kernelfit.report.figure import Drawing
from kernelfit.report.tables import Cell, Table
from kernelfit.report.words import VERDICTS, plural, split_words

View = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Section:
    """One section of the page.

    Attributes
    ----------
    id, title : str
        Anchor and heading.
    words : tuple of str
        Paragraphs before the tables.
    figures : tuple of Drawing
        Figures, side by side where there is room.
    tables : tuple of Table
        Tables; an empty one is its sentence.
    items : tuple of str
        A list after the paragraphs.
    folded : tuple of Table
        Tables that open on demand; an empty one is left out.
    """

    id: str
    title: str
    words: tuple[str, ...] = ()
    figures: tuple[Drawing, ...] = ()
    tables: tuple[Table, ...] = ()
    items: tuple[str, ...] = ()
    folded: tuple[Table, ...] = ()


def sections(view: View, drawings: Sequence[Drawing]) -> tuple[Section, ...]:
    """Arrange what there is to show.

    Parameters
    ----------
    view : mapping
        What the report knows of one GPU type, its verdict included.
    drawings : sequence of Drawing
        Every figure.

    Returns
    -------
    tuple of Section
        In the order of the page.
    """

    def pick(*prefixes: str) -> tuple[Drawing, ...]:
        return tuple(each for each in drawings if each.id.startswith(prefixes))

    error_tables = tuple(tables_checks.errors(view, split) for split in tables_checks.splits(view))
    step_figures = pick("measured-", "signed-", "residuals")
    bound_figures = pick("bounds")
    host = tables_host.host_words(view)
    known = view["calibration"].get("front_end")
    around: tuple[Table, ...] = (tables_host.front_end(view),) if known else ()
    around += (tables_host.coarse(view),) if view["coarse"] else ()
    host_section = Section(
        "host",
        "What the host takes",
        items=host,
        tables=around,
        folded=(tables_host.event_gates(view),) if around else (),
    )
    return (
        Section(
            "basis",
            "What it rests on",
            _basis(view),
            tables=(tables_fit.runs(view), tables_fit.gate_totals(view)),
        ),
        Section(
            "rates",
            "How fast each resource is",
            _coefficient_words(view),
            pick("coefficients"),
            (tables_fit.coefficients(view),),
        ),
        *((host_section,) if host else ()),
        Section(
            "accuracy",
            "How far off it is",
            _error_words(view),
            pick("errors"),
            error_tables or (tables_checks.errors(view),),
        ),
        Section(
            "steps",
            "Where it errs",
            _step_words(step_figures),
            step_figures,
        ),
        Section(
            "two-bounds",
            "Between the two bounds",
            _bound_words(view),
            bound_figures,
            (tables_checks.bounds(view), tables_fit.composition(view)),
        ),
        Section(
            "parts",
            "What takes the time",
            figures=pick("breakdown"),
            tables=(tables_use.breakdown(view),),
        ),
        Section(
            "intervals",
            "Whether the intervals hold",
            tables=(tables_checks.coverage(view),),
        ),
        Section(
            "measure",
            "What to measure next",
            _flip_words(view),
            tables=(tables_use.open_flips(view),),
            folded=(tables_use.settled_flips(view),),
        ),
        Section(
            "range",
            "Where it holds",
            tables=(tables_fit.domain(view),),
        ),
        Section(
            "warnings",
            "Warnings",
            () if view["calibration"].get("warnings") else ("The fit gave no warning.",),
            items=tuple(str(text) for text in view["calibration"].get("warnings") or ()),
        ),
        Section(
            "again",
            "How to get it again",
            tables=(tables_fit.kernels(view), tables_fit.ingest(view)),
        ),
    )


def _basis(view: View) -> tuple[str, ...]:
    words = []
    noise = view["calibration"].get("noise") or {}
    if noise.get("median_spread") is None or not noise.get("groups", 1):
        words.append(
            "No batch shape occurred often enough to say how noisy the machine was, so there is "
            "no floor to hold the errors against."
        )
    else:
        words.append(
            f"Noise of the machine: steps that did the same work scatter about their median by "
            f"{units.percent(noise['median_spread'])} % at the median and by "
            f"{units.percent(noise.get('p90_spread'))} % in the noisiest tenth, over "
            f"{plural(int(noise.get('groups') or 0), 'group')} of "
            f"{plural(int(noise.get('steps') or 0), 'repeated step')}. No cost model can be "
            "better than this."
        )
    auto = view["calibration"].get("autocorrelation") or {}
    if auto.get("lag1") is not None:
        words.append(
            f"Neighbouring residuals correlate by {float(auto['lag1']):.2f}; the intervals "
            f"resample blocks of {plural(int(auto.get('block_steps') or 1), 'step')}, never "
            "single steps."
        )
    return tuple(words)


def _coefficient_words(view: View) -> tuple[str, ...]:
    found = {str(entry["verdict"]) for entry in view["calibration"]["coefficients"]}
    meanings = [f"{name.replace('_', ' ')}: {VERDICTS[name]}" for name in VERDICTS if name in found]
    return ("Verdicts. " + "; ".join(meanings) + ".",) if meanings else ()


def _error_words(view: View) -> tuple[str, ...]:
    if not view["validation"]:
        return ()
    words = (
        "Absolute error of the predicted step time as a share of the measured one, on steps that "
        "the fit did not see. A bias above zero means that predictions are too long. The "
        "smallest median of a row is set in bold."
    )
    noise = (view["calibration"].get("noise") or {}).get("median_spread")
    floor = "" if noise is None else f" The noise floor is {units.percent(noise)} %."
    return (words + floor,)


def _step_words(figures: tuple[Drawing, ...]) -> tuple[str, ...]:
    if figures:
        text = (
            "An error above zero means that the prediction is too long. A running median that "
            "leaves zero as an axis grows shows a law that bends the wrong way."
        )
        return (text,)
    return ("The result holds no single steps, so there is nothing to draw here.",)


def _bound_words(view: View) -> tuple[str, ...]:
    composition = view["calibration"].get("composition") or {}
    rule, share = composition.get("rule"), composition.get("overlap_share")
    text = (
        "Overlap takes the largest resource of each layer, NoOverlap the sum of all; the truth "
        "should lie between."
    )
    words = [text]
    rule, _, added = str(rule).partition("+") if rule is not None else (None, "", "")
    if rule == "share" and share is not None:
        words.append(
            f"The fit puts the step {units.percent(share)} % of the way from NoOverlap to Overlap."
        )
    elif rule is not None:
        meaning = {"sum": "nothing overlaps", "max": "everything within a layer overlaps"}
        words.append(
            f"The rule chosen by held-out error is {rule}: {meaning.get(str(rule), str(rule))}."
        )
    if added:
        words.append("Launches do not hide behind the device in these runs: they are added.")
    return (" ".join(words),)


def _flip_words(view: View) -> tuple[str, ...]:
    flags = [str(flag["flag"]) for flag in view["flips"]]
    if not flags:
        return ()
    words = {
        "measure": "differ between the two bounds, and a measurement settles them",
        "uncertain": "differ within the calibration's own spread",
        "extrapolated": "lie beyond what the logs hold",
        "agree": "hold under both bounds",
    }
    parts = [f"{flags.count(flag)} {text}" for flag, text in words.items() if flag in flags]
    return (f"Of {plural(len(flags), 'conclusion')}: {'; '.join(parts)}.",)


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
    environment = Environment(
        loader=PackageLoader("kernelfit.report", "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=StrictUndefined,
    )
    environment.filters["micro"] = _micro
    environment.filters["raw"] = _raw
    environment.filters["tie"] = _tie
    environment.filters["breaks"] = _breaks
    environment.globals["figure_markup"] = lambda drawing: Markup(drawing.inline)
    folder = resources.files("kernelfit.report").joinpath("templates")
    return environment.get_template("report.html.j2").render(
        view=view,
        sections=sections(view, drawings),
        splits=[split_words(split) for split in tables_checks.splits(view)],
        css=Markup(folder.joinpath("report.css").read_text("utf8")),
        script=Markup(folder.joinpath("report.js").read_text("utf8")),
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
