"""Plain ASCII tables of a result, the same on a terminal and in a pipe."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Mapping
from typing import Any

from kernelfit.report import tables_basis, tables_checks, tables_fit, tables_host, tables_use
from kernelfit.report.select import one_gpu
from kernelfit.report.tables import Table, plain
from kernelfit.report.units import seconds
from kernelfit.report.verdict import verdict

Result = Mapping[str, Any]

_LETTERS = {"decode": "d", "mixed": "m", "prefill": "p"}
_WIDTH, _HEIGHT = 61, 17
_LINE = 100


def coefficient_table(result: Result) -> str:
    """Draw the coefficients of every calibration.

    Parameters
    ----------
    result : mapping
        The result document of a fit.

    Returns
    -------
    str
        One table a GPU type.
    """
    return _each(result, tables_fit.coefficients, "No GPU type was calibrated.")


def host_words(result: Result) -> str:
    """Say what is known of host work, and what it rests on.

    Parameters
    ----------
    result : mapping
        The result document of a fit.

    Returns
    -------
    str
        Sentences and one table a GPU type; empty where the calibrations say nothing.
    """

    def draw(view: Mapping[str, Any]) -> str:
        lines = [f"host: {text}\n" for text in tables_host.host_words(view)]
        if view["calibration"].get("front_end"):
            lines.append(plain(tables_host.front_end(view)))
        return "".join(lines)

    said = any(entry.get("inside_step") for entry in result.get("calibrations") or ())
    return _sections(result, draw, "") if said else ""


def coarse_table(result: Result) -> str:
    """Draw what request-level sources say of the host.

    Parameters
    ----------
    result : mapping
        The result document of a fit.

    Returns
    -------
    str
        One table for the whole result, then what stays unknown; empty without such sources.
    """
    sources = list(result.get("coarse") or ())
    if not sources:
        return ""
    lines = [plain(tables_host.coarse({"coarse": sources}))]
    told = dict.fromkeys(text for source in sources for text in source["unknown"])
    return "".join([*lines, *(f"unknown: {text}\n" for text in told)])


def error_table(result: Result) -> str:
    """Draw the held-out errors beside the baselines, medians in percent.

    Parameters
    ----------
    result : mapping
        The result document of a fit.

    Returns
    -------
    str
        One table a GPU type; the baselines' columns are medians too.
    """
    return _each(result, tables_checks.errors, "No GPU type was calibrated.")


def gate_table(result: Result) -> str:
    """Draw what the gates dropped.

    Parameters
    ----------
    result : mapping
        The result document of a fit.

    Returns
    -------
    str
        One table for the whole result.
    """
    return plain(tables_basis.gates({"gates": list(result.get("gates") or ())}))


def flip_table(result: Result) -> str:
    """Draw the conclusions under both bounds, and what to measure.

    Parameters
    ----------
    result : mapping
        A result document with ``flips``.

    Returns
    -------
    str
        The table, then one line for each measurement that settles something.
    """
    flags = list((result.get("flips") or {}).get("flags") or ())
    table = tables_use.flips({"flips": flags})
    lines = [plain(table)]
    for row in table.rows:
        pool, load, conclusion, *_, measurement = (cell.text for cell in row)
        if measurement != "-":
            lines.append(f"measure: {measurement} ({pool}, {load}: {conclusion})\n")
    return "".join(lines)


def scatter(result: Result) -> str:
    """Draw measured against predicted step times of every GPU type, as text.

    Parameters
    ----------
    result : mapping
        The result document of a fit, with ``points``.

    Returns
    -------
    str
        Log-log scatter; the letter of the phase that most steps of a cell have, a
        capital from ten steps up, dots where both are equal.
    """
    return _sections(result, view_scatter, "No GPU type was calibrated.")


def view_scatter(view: Mapping[str, Any]) -> str:
    """Draw measured against predicted step times of one GPU type, as text.

    Parameters
    ----------
    view : mapping
        What a report knows of one GPU type.

    Returns
    -------
    str
        As :func:`scatter` draws it.
    """
    points = view["points"]
    kept = [
        (float(predicted), float(measured), _LETTERS.get(str(phase), "x"))
        for predicted, measured, phase in zip(
            points["predicted_s"], points["measured_s"], points["phase"], strict=True
        )
        if predicted and measured and predicted > 0 and measured > 0
    ]
    if not kept:
        return "There are no held-out steps to draw.\n"
    return _scatter(kept)


def verdict_text(view: Mapping[str, Any]) -> str:
    """Write the verdict on one GPU type.

    Parameters
    ----------
    view : mapping
        What a report knows of it.

    Returns
    -------
    str
        Lines that fit a terminal, each ending in a newline.
    """
    return textwrap.fill(f"{view['gpu']}: {verdict(view)['sentence']}", _LINE) + "\n"


def warning_text(view: Mapping[str, Any]) -> str:
    """Write what the fit warns of.

    Parameters
    ----------
    view : mapping
        What a report knows of one GPU type.

    Returns
    -------
    str
        One paragraph a warning, each line ending in a newline; empty without.
    """
    return "".join(
        textwrap.fill(f"warning: {text}", _LINE, subsequent_indent="  ", break_on_hyphens=False)
        + "\n"
        for text in view["calibration"].get("warnings") or ()
    )


def views(result: Result) -> tuple[tuple[str, dict[str, Any]], ...]:
    """Return what a result knows of each GPU type.

    Parameters
    ----------
    result : mapping
        The result document of a fit.

    Returns
    -------
    tuple of (str, dict)
        The GPU type, empty where there is only one, and its view.
    """
    names = [str(entry["gpu"]) for entry in result.get("calibrations") or ()]
    return tuple((name if len(names) > 1 else "", one_gpu(result, name)) for name in names)


def _each(result: Result, build: Callable[[Mapping[str, Any]], Table], none: str) -> str:
    return _sections(result, lambda view: plain(build(view)), none)


def _sections(result: Result, draw: Callable[[Mapping[str, Any]], str], none: str) -> str:
    names = [str(entry["gpu"]) for entry in result.get("calibrations") or ()]
    if not names:
        return none + "\n"
    parts = [draw(one_gpu(result, name)) for name in names]
    if len(names) == 1:
        return parts[0]
    return "\n".join(f"{name}\n{part}" for name, part in zip(names, parts, strict=True))


def _scatter(points: list[tuple[float, float, str]]) -> str:
    """Draw (predicted, measured, letter) on equal logarithmic axes."""
    edges = [value for x, y, _ in points for value in (x, y)]
    low, high = math.log10(min(edges)), math.log10(max(edges))
    span = max(high - low, 0.05)
    cells: dict[tuple[int, int], dict[str, int]] = {}
    for x, y, letter in points:
        column = round((math.log10(x) - low) / span * (_WIDTH - 1))
        row = round((math.log10(y) - low) / span * (_HEIGHT - 1))
        tally = cells.setdefault((column, row), {})
        tally[letter] = tally.get(letter, 0) + 1
    labels = {0: seconds(10**low), _HEIGHT - 1: seconds(10 ** (low + span))}
    margin = max(len(label) for label in labels.values())
    lines = ["measured (up) against predicted (right), log scales"]
    for row in range(_HEIGHT - 1, -1, -1):
        line = []
        for column in range(_WIDTH):
            found = cells.get((column, row))
            if found:
                letter = max(sorted(found), key=lambda name: found[name])
                line.append(letter.upper() if sum(found.values()) >= 10 else letter)
            else:
                equal = round(column / (_WIDTH - 1) * (_HEIGHT - 1)) == row
                line.append("." if equal else " ")
        lines.append(f"{labels.get(row, '').rjust(margin)} |{''.join(line)}".rstrip())
    lines.append(" " * margin + " +" + "-" * _WIDTH)
    left, right = labels[0], labels[_HEIGHT - 1]
    lines.append(" " * (margin + 2) + left + right.rjust(_WIDTH - len(left)))
    letters = {letter for _, _, letter in points}
    names = [f"{letter} {phase}" for phase, letter in _LETTERS.items() if letter in letters]
    names += ["x phase unknown"] if "x" in letters else []
    lines.append(
        f"n = {len(points):,d}; {', '.join(names)}; capital: 10 steps or more; dots: equal"
    )
    return "\n".join(lines) + "\n"
