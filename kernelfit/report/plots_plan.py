"""Figures of a plan: every open interval before it, and as expected after."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.lines import Line2D

from kernelfit.report import figure
from kernelfit.report.figure import BLUE, GREY, Drawing


def plan_figures(document: Mapping[str, Any]) -> tuple[Drawing, ...]:
    """Draw a plan.

    Parameters
    ----------
    document : mapping
        A plan, schema ``kernelfit.plan/1``.

    Returns
    -------
    tuple of Drawing
        One figure; none where the plan is for no coefficient.
    """
    rows = [row for row in document["coefficients"] if row["wanted"]]
    if not rows:
        return ()
    with figure.style():
        drawn, (axes,) = figure.new(1.2 + 0.3 * len(rows))
        for place, row in enumerate(rows):
            value = row["value"]
            for ends, colour, width in (
                (row["ci95"], GREY, 5.0),
                (row["expected_ci95"], BLUE, 2.5),
            ):
                low, high = (max(end, 1e-300) / value for end in ends)
                axes.plot([low, high], [place, place], color=colour, linewidth=width)
        axes.axvline(1.0, color=GREY, linewidth=0.6)
        axes.set_xscale("log")
        figure.plain_ticks(axes, "x")
        axes.set_yticks(np.arange(len(rows)), [str(row["name"]) for row in rows], fontsize=8)
        axes.invert_yaxis()
        axes.set_xlabel("95 % interval over the fitted value")
        axes.set_title(
            f"{document['gpu']}: {document['gpu_minutes']:.3g} GPU-minutes, expected intervals"
        )
        drawn.legend(
            handles=[
                Line2D([], [], color=GREY, linewidth=5.0, label="now"),
                Line2D([], [], color=BLUE, linewidth=2.5, label="expected after the plan"),
            ],
            loc="outside lower center",
            ncols=2,
        )
        narrowest = min(rows, key=lambda row: float(row["shrinkage"]))
        return (
            figure.finish(
                drawn,
                "plan",
                f"Intervals of {len(rows)} coefficients before and after the plan; "
                f"{narrowest['name']} shrinks most, to {100 * narrowest['shrinkage']:.2g} %.",
                "What the information of the fit's own rows and that of the planned steps make of "
                "each interval; a new fit shows what came of it.",
            ),
        )
