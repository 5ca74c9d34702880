"""A fit's result on the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kernelfit.cli.screen import Screen

DETAILED = ("time_block", "leave_one_model_out")
"""Splits whose phases and groups are printed; the report holds all of them."""


def show_result(screen: Screen, document: Mapping[str, Any]) -> None:
    """Print a result document as tables.

    Parameters
    ----------
    screen : Screen
        Where it is printed.
    document : mapping
        The result document.
    """
    from kernelfit.cli.flips_verb import show_flips
    from kernelfit.report import text
    from kernelfit.report.tables_checks import errors
    from kernelfit.report.tables_fit import coefficients

    steps = sum(entry["steps"] for entry in document["ingest"])
    rejected = sum(entry["rejected"] for entry in document["ingest"])
    screen.line(f"{len(document['ingest'])} logs, {steps:,} steps, {rejected:,} lines rejected")
    if (words := gates_text(document["gates"])) is not None:
        screen.line(words)
    screen.line()
    for _, view in text.views(document):
        screen.text(text.verdict_text(view))
        screen.line()
        screen.show(coefficients(view))
        screen.text(text.warning_text(view))
        screen.line()
        screen.show(errors({**view, "validation": _short(view["validation"])}))
        screen.line()
        screen.text(text.view_scatter(view))
        screen.line()
    # What requests alone say is of use where nothing better was recorded.
    recorded = any(entry.get("front_end") for entry in document["calibrations"])
    coarse = "" if recorded else text.coarse_table(document)
    for words in (text.host_words(document), coarse):
        if words:
            screen.text(words)
            screen.line()
    show_flips(screen, document["flips"]["flags"], all_of_them=False)


def gates_text(gates: Sequence[Mapping[str, Any]]) -> str | None:
    """Return a line on what the gates did.

    Parameters
    ----------
    gates : sequence of mapping
        The document's ``gates``, one per run and gate.

    Returns
    -------
    str or None
        What was dropped, gate by gate, and what was kept with another duration; None
        where it is nothing.
    """
    dropped: dict[str, int] = {}
    for gate in gates:
        if gate["rows"]:
            dropped[gate["id"]] = dropped.get(gate["id"], 0) + gate["rows"]
    told = []
    if dropped:
        words = ", ".join(f"{name} {rows:,}" for name, rows in dropped.items())
        told.append(f"gates dropped {sum(dropped.values()):,} steps: {words}")
    repaired = sum(gate["repaired"] for gate in gates)
    if repaired:
        told.append(f"{repaired:,} steps were given back the time of a step beside them")
    return "; ".join(told) or None


def _short(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the errors that fit on a screen."""
    return [
        row
        for row in rows
        if (row["group"] == "all" and row["phase"] == "all")
        or (row["split"] in DETAILED and "all" in (row["group"], row["phase"]))
    ]
