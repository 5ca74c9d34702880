"""What stands in which section of the page, and the sentences before its tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernelfit.report import (
    tables_basis,
    tables_checks,
    tables_fit,
    tables_host,
    tables_plan,
    tables_use,
    units,
)
from kernelfit.report.figure import Drawing
from kernelfit.report.select import step_share
from kernelfit.report.tables import Table
from kernelfit.report.words import VERDICTS, plural

View = Mapping[str, Any]

# A longer table than this opens on demand: it is looked up, not read.
_MANY_ROWS = 40
_BREAKDOWNS_SHOWN = 4


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
    more : tuple of Drawing
        Figures that open on demand with the folded tables.
    """

    id: str
    title: str
    words: tuple[str, ...] = ()
    figures: tuple[Drawing, ...] = ()
    tables: tuple[Table, ...] = ()
    items: tuple[str, ...] = ()
    folded: tuple[Table, ...] = ()
    more: tuple[Drawing, ...] = ()


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
    error_figures = pick("errors")
    step_figures = pick("measured-", "signed-", "residuals", "autocorrelation")
    parts = pick("breakdown")
    conclusions = tables_use.open_flips(view)
    few = len(conclusions.rows) <= _MANY_ROWS
    return (
        Section(
            "basis",
            "What it rests on",
            _basis(view),
            tables=(tables_basis.evidence(view), tables_basis.gate_totals(view)),
            folded=(tables_basis.runs(view),),
        ),
        Section(
            "rates",
            "How fast each resource is",
            _coefficient_words(view),
            pick("coefficients"),
            (tables_fit.coefficients(view),),
        ),
        *_host(view),
        Section(
            "accuracy",
            "How far off it is",
            _error_words(view),
            error_figures,
            error_tables[:1] or (tables_checks.errors(view),),
            folded=error_tables[1:],
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
            pick("bounds"),
            (tables_fit.composition(view), *_unless_many(tables_checks.bounds(view))),
            folded=_if_many(tables_checks.bounds(view)),
        ),
        Section(
            "parts",
            "What takes the time",
            _part_words(view),
            figures=parts[:_BREAKDOWNS_SHOWN],
            tables=(tables_use.breakdown(view),),
            more=parts[_BREAKDOWNS_SHOWN:],
        ),
        Section(
            "intervals",
            "Whether the intervals hold",
            figures=pick("coverage"),
            tables=_unless_many(tables_checks.coverage(view)),
            folded=_if_many(tables_checks.coverage(view)),
        ),
        Section(
            "measure",
            "What hangs on what nobody measured",
            _flip_words(view),
            tables=(conclusions,) if few else (),
            folded=(() if few else (conclusions,)) + (tables_use.settled_flips(view),),
        ),
        Section(
            "plan",
            "What to measure next",
            tables_plan.words(view.get("plan")),
            tables=tables_plan.tables(view.get("plan")),
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
            tables=(tables_basis.kernels(view), tables_basis.ingest(view)),
        ),
    )


def _host(view: View) -> tuple[Section, ...]:
    """Return the section on host work; none where the result says nothing of it."""
    words = tables_host.host_words(view)
    if not words:
        return ()
    known = view["calibration"].get("front_end")
    around: tuple[Table, ...] = (tables_host.front_end(view),) if known else ()
    around += (tables_host.coarse(view),) if view["coarse"] else ()
    folded = (tables_host.event_gates(view),) if around else ()
    return (Section("host", "What the host takes", items=words, tables=around, folded=folded),)


def _unless_many(table: Table) -> tuple[Table, ...]:
    return () if len(table.rows) > _MANY_ROWS else (table,)


def _if_many(table: Table) -> tuple[Table, ...]:
    return (table,) if len(table.rows) > _MANY_ROWS else ()


def _basis(view: View) -> tuple[str, ...]:
    words = [_kept_words(view)]
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


def _kept_words(view: View) -> str:
    """Say how much was read, kept and dropped, and how much of the time is measured."""
    runs = view["calibration"].get("runs") or ()
    steps, kept = (sum(int(run[key]) for run in runs) for key in ("steps", "kept"))
    entries = view["calibration"]["coefficients"]
    shares = {str(entry["name"]): step_share(view, entry) for entry in entries}
    priced = {name: share for name, share in shares.items() if share is not None}
    models = len({str(run["model"]) for run in runs})
    words = (
        f"{plural(len(runs), 'run')} of {plural(models, 'model')} "
        f"gave {plural(steps, 'step')}; the gates dropped {units.count(steps - kept)} and kept "
        f"{units.count(kept)}."
    )
    if priced:
        measured = sum(
            priced.get(str(entry["name"]), 0.0)
            for entry in entries
            if entry["method"] == "measured"
        )
        words += (
            f" Coefficients that these runs measured price {units.percent(min(measured, 1.0))} % "
            "of the step time; the rest stands on literature, datasheets and assumptions."
        )
    return words


def _part_words(view: View) -> tuple[str, ...]:
    if not view["breakdown"]:
        return ()
    return (
        "Decode batches of growing width at the median context of the logs, priced with the "
        "fitted coefficients. A dotted vertical line stands where another resource begins to take "
        "the most time: from there on it is the one to relieve.",
    )


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
