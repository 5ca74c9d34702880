"""Figures of single steps: measured against predicted, signed errors, drift, bounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from kernelfit.report import figure
from kernelfit.report.figure import GREY, INK, PHASE_LOOKS, Drawing
from kernelfit.report.units import percent
from kernelfit.report.words import plural

View = Mapping[str, Any]
Floats = NDArray[np.float64]

_MAX_STRIPS = 12
_MS = 1e3


@dataclass(frozen=True, slots=True)
class Steps:
    """The held-out steps as columns, all of one length.

    Attributes
    ----------
    phase, run : ndarray of str
        Phase (``unknown`` where the log does not tell) and run of each step.
    columns : dict
        Numbers by name; NaN where unknown.
    """

    phase: NDArray[np.str_]
    run: NDArray[np.str_]
    columns: dict[str, Floats]

    def __getitem__(self, name: str) -> Floats:
        return self.columns[name]


def steps_of(view: View) -> Steps:
    """Return the steps that have a measured and a predicted time.

    Parameters
    ----------
    view : mapping
        What the report knows of one GPU type.

    Returns
    -------
    Steps
        In the order of the document.
    """
    points = view["points"]
    texts = ("phase", "run", "model")
    columns = {
        name: np.array([np.nan if value is None else value for value in values], dtype=np.float64)
        for name, values in points.items()
        if name not in texts
    }
    good = (columns["measured_s"] > 0) & (columns["predicted_s"] > 0)
    phase = np.array([value or "unknown" for value in points["phase"]], dtype=np.str_)
    run = np.array([str(value or "") for value in points["run"]], dtype=np.str_)
    return Steps(phase[good], run[good], {name: values[good] for name, values in columns.items()})


def _phases(steps: Steps) -> list[str]:
    found = set(steps.phase.tolist())
    return [name for name in PHASE_LOOKS if name in found] + sorted(found - set(PHASE_LOOKS))


def _marks(axes: Axes, steps: Steps, x: Floats, y: Floats) -> None:
    """Draw a mark a step, by colour and shape of its phase, in an order free of phase."""
    total = len(x)
    size = 22.0 if total <= 200 else 12.0 if total <= 2000 else 6.0
    for phase in _phases(steps):
        colour, marker = PHASE_LOOKS.get(phase, PHASE_LOOKS["unknown"])
        mine = steps.phase == phase
        edge = 1.0 if marker == "x" else 0.0
        axes.scatter(
            x[mine],
            y[mine],
            s=size,
            c=colour,
            marker=marker,
            alpha=0.75 if total <= 400 else 0.45,
            rasterized=total > figure.RASTER_FROM,
            zorder=2,
            linewidths=edge,
        )
        # The key is drawn apart: its marks stay sharp and opaque.
        label = f"{phase} ({int(mine.sum()):,d})"
        axes.scatter([], [], s=26, c=colour, marker=marker, label=label, linewidths=edge)


def _legend(axes: Axes, entries: int) -> None:
    axes.legend(
        loc="lower left",
        bbox_to_anchor=(0.0, 1.0),
        borderaxespad=0.1,
        borderpad=0.1,
        ncols=entries,
        handletextpad=0.3,
        columnspacing=1.1,
    )
    axes.set_title(axes.get_title(loc="left"), loc="left", pad=24.0)


def measured_against_predicted(view: View) -> Drawing | None:
    """Draw measured against predicted step times on equal logarithmic axes.

    Parameters
    ----------
    view : mapping
        What the report knows of one GPU type.

    Returns
    -------
    Drawing or None
        None without steps.
    """
    steps = steps_of(view)
    x, y = steps["predicted_s"] * _MS, steps["measured_s"] * _MS
    if not len(x):
        return None
    with figure.style():
        canvas, (axes,) = figure.new(4.9)
        _marks(axes, steps, x, y)
        low, high = min(x.min(), y.min()) / 1.25, max(x.max(), y.max()) * 1.25
        axes.plot([low, high], [low, high], color=INK, lw=1.1, label="equal", zorder=3)
        axes.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low, high), aspect="equal")
        axes.set_xlabel("predicted step time [ms]")
        axes.set_ylabel("measured step time [ms]")
        axes.set_title(f"Measured against predicted, n = {len(x):,d}")
        for which in "xy":
            figure.plain_ticks(axes, which)
        _legend(axes, len(_phases(steps)) + 1)
        error = np.abs(x / y - 1.0)
        alt = (
            f"Scatter of measured against predicted step times of {plural(len(x), 'held-out step')}"
            f" of {view['gpu']}, logarithmic axes in milliseconds. The median absolute error is "
            f"{percent(float(np.median(error)))} %; nine in ten steps lie within "
            f"{percent(float(np.quantile(error, 0.9)))} %."
        )
        caption = (
            "One mark a held-out step. On the line the prediction is exact; above it the step "
            "took longer than predicted."
        )
        return figure.finish(canvas, "measured-against-predicted", alt, caption)


_ERROR_AXES = (
    ("requests", "batch", "requests in the step", "batch size"),
    ("context_tokens", "context", "context tokens in the step", "context"),
    ("tokens", "tokens", "scheduled tokens in the step", "scheduled tokens"),
)


def signed_errors(view: View) -> list[Drawing]:
    """Draw the signed error against batch size, context and scheduled tokens.

    Parameters
    ----------
    view : mapping
        What the report knows of one GPU type.

    Returns
    -------
    list of Drawing
        One for each quantity that the steps state.
    """
    steps = steps_of(view)
    drawings = []
    for column, name, label, words in _ERROR_AXES:
        x = steps[column]
        known = np.isfinite(x)
        if known.any():
            part = Steps(
                steps.phase[known],
                steps.run[known],
                {key: values[known] for key, values in steps.columns.items()},
            )
            drawings.append(_signed_error(view, part, part[column], name, label, words))
    return drawings


def _signed_error(
    view: View, steps: Steps, x: Floats, name: str, label: str, words: str
) -> Drawing:
    error = 100.0 * (steps["predicted_s"] / steps["measured_s"] - 1.0)
    # A few wild steps must not flatten the rest; the caption counts what lies outside.
    reach = float(max(np.quantile(np.abs(error), 0.98) * 1.2, 5.0))
    outside = int((np.abs(error) > reach).sum())
    with figure.style():
        canvas, (axes,) = figure.new(3.5)
        _marks(axes, steps, x, np.clip(error, -reach, reach))
        axes.axhline(0.0, color=INK, lw=1.0, zorder=3)
        centre, middle = running_median(x, error)
        axes.plot(centre, middle, color=INK, lw=1.8, zorder=4, label="median")
        if x.max() > 20 * max(x.min(), 1.0):
            if x.min() >= 1.0:
                axes.set_xscale("log")
            else:
                axes.set_xscale("symlog", linthresh=1.0)
                axes.set_xlim(left=0.0)
            figure.plain_ticks(axes, "x", thousands=True)
        axes.set_ylim(-reach * 1.06, reach * 1.06)
        axes.set_xlabel(label)
        axes.set_ylabel("predicted over measured, less 1 [%]")
        axes.set_title(f"Signed error against {words}, n = {len(x):,d}")
        _legend(axes, len(_phases(steps)) + 1)
        low, high = float(np.min(middle)), float(np.max(middle))
        alt = (
            f"Signed error of {plural(len(x), 'held-out step')} of {view['gpu']} against {words}. "
            f"The running median lies between {low:+.1f} and {high:+.1f} %."
        )
        caption = "The line is the running median."
        if outside:
            caption += _at_edge(outside)
        return figure.finish(canvas, f"signed-error-{name}", alt, caption)


def _at_edge(outside: int) -> str:
    """Say how many marks were moved to the edge of the figure."""
    verbs = ("lies", "is") if outside == 1 else ("lie", "are")
    return f" {plural(outside, 'step')} {verbs[0]} outside and {verbs[1]} drawn at the edge."


def running_median(x: Floats, y: Floats, most: int = 14) -> tuple[Floats, Floats]:
    """Return medians of y over bins of x that hold about the same number of points.

    Parameters
    ----------
    x, y : ndarray, shape (n,)
        Points, n at least 1.
    most : int
        Bins at most.

    Returns
    -------
    tuple of ndarray
        Median x and median y of each bin.
    """
    bins = max(1, min(most, len(x) // 12))
    edges = np.unique(np.quantile(x, np.linspace(0.0, 1.0, bins + 1)))
    place = np.clip(np.searchsorted(edges, x, side="right") - 1, 0, max(len(edges) - 2, 0))
    filled = np.unique(place)
    centre = np.array([np.median(x[place == each]) for each in filled])
    return centre, np.array([np.median(y[place == each]) for each in filled])


def residuals(view: View) -> Drawing | None:
    """Draw the signed error over the steps of each run.

    Parameters
    ----------
    view : mapping
        What the report knows of one GPU type.

    Returns
    -------
    Drawing or None
        One strip a run, at most twelve; None without steps.
    """
    steps = steps_of(view)
    order = steps["step"]
    names = list(dict.fromkeys(steps.run.tolist()))
    if not names or not np.isfinite(order).any():
        return None
    shown = names[:_MAX_STRIPS]
    error = 100.0 * (steps["predicted_s"] / steps["measured_s"] - 1.0)
    reach = float(max(np.quantile(np.abs(error), 0.97) * 1.1, 5.0))
    drawn = int(np.isin(steps.run, shown).sum())
    with figure.style():
        canvas, panels = figure.new(1.0 + 0.72 * len(shown), len(shown))
        for axes, name in zip(panels, shown, strict=True):
            mine = np.flatnonzero(steps.run == name)
            mine = mine[np.argsort(order[mine], kind="stable")]
            axes.scatter(
                order[mine],
                np.clip(error[mine], -reach, reach),
                s=3.0,
                c=GREY,
                linewidths=0,
                rasterized=len(order) > figure.RASTER_FROM,
            )
            centre, middle = running_median(order[mine], error[mine], most=40)
            axes.plot(centre, middle, color=figure.BLUE, lw=1.6)
            axes.axhline(0.0, color=INK, lw=0.7)
            axes.set_ylim(-reach * 1.06, reach * 1.06)
            axes.set_title(name, fontsize=8.5, fontweight="normal", pad=2.0)
        panels[-1].set_xlabel("step of the run")
        canvas.supylabel("predicted over measured, less 1 [%]", fontsize=9.0, color=INK)
        canvas.suptitle(
            f"Signed error over time, n = {drawn:,d}",
            x=0.012,
            ha="left",
            fontsize=10.0,
            fontweight="bold",
        )
        lag = (view["calibration"].get("autocorrelation") or {}).get("lag1")
        alt = f"Signed error over the step number for {plural(len(shown), 'run')}, one strip each."
        if lag is not None:
            alt += f" Neighbouring residuals correlate by {lag:.2f}."
        caption = (
            "The line is the running median. A drift or a jump means that the machine changed, "
            "not the batch."
        )
        if len(names) > len(shown):
            caption += f" The first {len(shown)} of {len(names)} runs are drawn."
        return figure.finish(canvas, "residuals", alt, caption)


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
    part = Steps(
        steps.phase[known],
        steps.run[known],
        {key: values[known] for key, values in steps.columns.items()},
    )
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
        _marks(axes, part, x, np.clip(y, floor, top))
        axes.set(xlim=(low, 1.0 + 0.02 * (1.0 - low)), ylim=(floor, top))
        axes.set_xlabel("Overlap over NoOverlap [1]")
        axes.set_ylabel("measured over NoOverlap [1]")
        axes.set_title(f"Measurements between the two bounds, n = {len(x):,d}")
        _legend(axes, len(_phases(part)))
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
            caption += _at_edge(outside)
        return figure.finish(canvas, "bounds", alt, caption)


def all_steps(view: View) -> Sequence[Drawing]:
    """Return every figure of single steps.

    Parameters
    ----------
    view : mapping
        What the report knows of one GPU type.

    Returns
    -------
    sequence of Drawing
        Those that the document has data for.
    """
    found = [measured_against_predicted(view), *signed_errors(view), residuals(view), bounds(view)]
    return [drawing for drawing in found if drawing is not None]
