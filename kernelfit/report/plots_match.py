"""Figures of measured against predicted time, and of the two bounds around it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_rgba

from kernelfit.report import figure
from kernelfit.report.figure import BLUE, INK, Drawing, Spots
from kernelfit.report.steps import (
    Floats,
    Steps,
    at_edge,
    legend,
    marks,
    part_of,
    phases_of,
    running_median,
    steps_of,
)
from kernelfit.report.units import percent, seconds
from kernelfit.report.words import plural

View = Mapping[str, Any]

_MS = 1e3
# From here on marks would hide each other, and cells say how many there are.
_CELLS_FROM = 300
_CELLS_ACROSS = 42
_PALEST = 0.2
# Corners of a cell of width 1 with a point at the top.
_HEXAGON = np.array(
    [(0.5 * np.sin(k * np.pi / 3), 0.5 * np.cos(k * np.pi / 3)) for k in range(6)]
) * (2.0 / np.sqrt(3.0))


def measured_against_predicted(view: View) -> Drawing | None:
    """Draw measured against predicted step times on equal logarithmic axes, with both bounds.

    Parameters
    ----------
    view : mapping
        What the report knows of one GPU type.

    Returns
    -------
    Drawing or None
        Six-sided cells whose strength says how many steps they hold, marks where there are
        few; None without steps.
    """
    steps = steps_of(view)
    x, y = steps["predicted_s"] * _MS, steps["measured_s"] * _MS
    if not len(x):
        return None
    many = len(x) >= _CELLS_FROM
    with figure.style():
        canvas, (axes,) = figure.new(5.0)
        low, high = min(x.min(), y.min()) / 1.25, max(x.max(), y.max()) * 1.25
        axes.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low, high), aspect="equal")
        at = _cells(axes, x, y, (low, high)) if many else _few(axes, steps, x, y)
        axes.plot([low, high], [low, high], color=INK, lw=1.1, label="equal", zorder=3)
        _bound_lines(axes, steps)
        axes.set_xlabel("predicted step time [ms]")
        axes.set_ylabel("measured step time [ms]")
        axes.set_title(f"Measured against predicted, n = {len(x):,d}")
        for which in "xy":
            figure.plain_ticks(axes, which)
        legend(axes, 3 if many else len(phases_of(steps)) + 3, at_most=4)
        error = np.abs(x / y - 1.0)
        alt = (
            f"{'Cells' if many else 'Scatter'} of measured against predicted step times of "
            f"{plural(len(x), 'held-out step')} of {view['gpu']}, logarithmic axes in "
            f"milliseconds. The median absolute error is {percent(float(np.median(error)))} %; "
            f"nine in ten steps lie within {percent(float(np.quantile(error, 0.9)))} %."
        )
        what = (
            "The stronger a cell, the more held-out steps it holds."
            if many
            else "One mark a held-out step."
        )
        caption = (
            f"{what} On the line the prediction is exact; above it the step took longer than "
            "predicted. The median bounds of the steps predicted alike are dashed (Overlap) and "
            "dotted (NoOverlap)."
        )
        name = "measured-against-predicted"
        return figure.finish(canvas, name, alt, caption, [Spots(axes, at)])


def _few(axes: Axes, steps: Steps, x: Floats, y: Floats) -> tuple[tuple[float, float, str], ...]:
    marks(axes, steps, x, y)
    return tuple(
        (float(a), float(b), f"{phase} step of {run}: measured {_ms(b)}, predicted {_ms(a)}")
        for a, b, phase, run in zip(x, y, steps.phase, steps.run, strict=True)
    )


def _cells(
    axes: Axes, x: Floats, y: Floats, ends: tuple[float, float]
) -> tuple[tuple[float, float, str], ...]:
    """Draw cells as strong as the logarithm of their count, and return what each holds."""
    first, last = np.log10(ends)
    size = (last - first) / _CELLS_ACROSS
    centres, counts = _hexagons(np.log10(x), np.log10(y), size)
    corners = [10.0 ** (centre + size * _HEXAGON) for centre in centres]
    # Strength of one ink reads on white and on black; a map of colours does not.
    strength = _PALEST + (1.0 - _PALEST) * np.log1p(counts) / max(np.log1p(counts.max()), 1e-9)
    # An ulp above 1 is no opacity.
    colours = [(*to_rgba(BLUE)[:3], min(float(each), 1.0)) for each in strength]
    axes.add_collection(PolyCollection(corners, facecolors=colours, edgecolors="none", zorder=2))
    axes.set(xlim=ends, ylim=ends)
    return tuple(
        (a, b, f"{plural(int(count), 'step')} near {_ms(b)} measured, {_ms(a)} predicted")
        for (a, b), count in zip((10.0**centres).tolist(), counts, strict=True)
    )


def _hexagons(x: Floats, y: Floats, size: float) -> tuple[Floats, Floats]:
    """Count points in six-sided cells of a width: two grids of centres, the nearer one counts."""
    step = np.array([size, size * np.sqrt(3.0)])
    points = np.column_stack([x, y])
    straight = np.round(points / step)
    shifted = np.floor(points / step) + 0.5
    nearer = ((points - straight * step) ** 2).sum(axis=1) <= ((points - shifted * step) ** 2).sum(
        axis=1
    )
    cells = np.where(nearer[:, None], straight, shifted)
    places, counts = np.unique(cells, axis=0, return_counts=True)
    return places * step, counts.astype(np.float64)


def _ms(value: float) -> str:
    return seconds(float(value) / _MS)


def _bound_lines(axes: Axes, steps: Steps) -> None:
    known = (steps["overlap_s"] > 0) & (steps["no_overlap_s"] > 0)
    if not known.any():
        return
    part = part_of(steps, known)
    for key, label, look in (
        ("overlap_s", "Overlap", (0, (4, 2))),
        ("no_overlap_s", "NoOverlap", (0, (1, 1.4))),
    ):
        centre, middle = running_median(part["predicted_s"] * _MS, part[key] * _MS, most=16)
        axes.plot(centre, middle, color=figure.RED, lw=1.5, ls=look, label=label, zorder=4)


def bounds(view: View) -> Drawing | None:
    """Draw the measurements between the two bounds.

    Parameters
    ----------
    view : mapping
        What the report knows of one GPU type.

    Returns
    -------
    Drawing or None
        None without steps that have bounds.
    """
    steps = steps_of(view)
    known = (steps["overlap_s"] > 0) & (steps["no_overlap_s"] > 0)
    if not known.any():
        return None
    part = part_of(steps, known)
    x = part["overlap_s"] / part["no_overlap_s"]
    y = part["measured_s"] / part["no_overlap_s"]
    low, top = 0.96 * float(x.min()), float(np.clip(np.quantile(y, 0.99) * 1.1, 1.15, 3.0))
    floor = float(max(min(low, np.quantile(y, 0.01)) * 0.95, 0.0))
    with figure.style():
        canvas, (axes,) = figure.new(4.3)
        edge = np.array([low, 1.0])
        axes.fill_between(edge, edge, 1.0, color=figure.SKY, alpha=0.28, lw=0, zorder=1)
        axes.plot(edge, [1.0, 1.0], color=INK, lw=1.2, zorder=3)
        axes.plot(edge, edge, color=INK, lw=1.2, ls=(0, (4, 2)), zorder=3)
        marks(axes, part, x, np.clip(y, floor, top))
        axes.set(xlim=(low, 1.0 + 0.02 * (1.0 - low)), ylim=(floor, top))
        axes.set_xlabel("Overlap over NoOverlap [1]")
        axes.set_ylabel("measured over NoOverlap [1]")
        axes.set_title(f"Measurements between the two bounds, n = {len(x):,d}")
        legend(axes, len(phases_of(part)))
        inside = float(((y >= x) & (y <= 1.0)).mean())
        alt = (
            f"Measured step times of {view['gpu']} between the bounds Overlap and NoOverlap: "
            f"{percent(inside)} % of {plural(len(x), 'step')} lie in the shaded wedge."
        )
        caption = (
            "The shaded wedge lies between Overlap (dashed) and NoOverlap (solid). Further to the "
            "left the bounds are further apart; marks above the solid line took longer than the "
            "sum of all parts."
        )
        outside = int(((y < floor) | (y > top)).sum())
        if outside:
            caption += at_edge(outside)
        at = _bound_spots(x, y, (floor, top))
        return figure.finish(canvas, "bounds", alt, caption, [Spots(axes, at)])


def _bound_spots(
    x: Floats, y: Floats, ends: tuple[float, float]
) -> tuple[tuple[float, float, str], ...]:
    """Say, for steps whose bounds lie alike, how many are between them."""
    edges = np.unique(np.quantile(x, np.linspace(0.0, 1.0, 15)))
    place = np.clip(np.searchsorted(edges, x, side="right") - 1, 0, max(len(edges) - 2, 0))
    found = []
    for each in np.unique(place):
        mine = place == each
        between = float(((y[mine] >= x[mine]) & (y[mine] <= 1.0)).mean())
        middle = float(np.median(y[mine]))
        words = (
            f"{plural(int(mine.sum()), 'step')} with Overlap near "
            f"{percent(float(np.median(x[mine])))} % of NoOverlap: median measured "
            f"{percent(middle)} % of NoOverlap, {percent(between)} % between the bounds"
        )
        found.append((float(np.median(x[mine])), float(np.clip(middle, *ends)), words))
    return tuple(found)
