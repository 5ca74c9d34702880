"""Figures of single steps: signed errors, drift over time, correlation of neighbours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kernelfit.report import figure
from kernelfit.report.figure import GREY, INK, Drawing, Spots
from kernelfit.report.plots_match import bounds, measured_against_predicted
from kernelfit.report.steps import (
    Floats,
    Steps,
    at_edge,
    bins_of,
    legend,
    marks,
    part_of,
    phases_of,
    running_median,
    steps_of,
)
from kernelfit.report.tables_checks import rank
from kernelfit.report.units import count, percent
from kernelfit.report.words import SPLITS, plural, split_words

View = Mapping[str, Any]

_MAX_STRIPS = 12
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
        known = np.isfinite(steps[column])
        if known.any():
            part = part_of(steps, known)
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
        marks(axes, steps, x, np.clip(error, -reach, reach))
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
        legend(axes, len(phases_of(steps)) + 1)
        low, high = float(np.min(middle)), float(np.max(middle))
        alt = (
            f"Signed error of {plural(len(x), 'held-out step')} of {view['gpu']} against {words}. "
            f"The running median lies between {low:+.1f} and {high:+.1f} %."
        )
        caption = "The line is the running median."
        if outside:
            caption += at_edge(outside)
        spots = Spots(axes, _error_spots(x, error, reach, label))
        return figure.finish(canvas, f"signed-error-{name}", alt, caption, [spots])


def _error_spots(
    x: Floats, error: Floats, reach: float, label: str
) -> tuple[tuple[float, float, str], ...]:
    """Say what each bin of the running median holds."""
    place = bins_of(x)
    found = []
    for each in np.unique(place):
        mine = place == each
        ends = [count(float(x[mine].min())), count(float(x[mine].max()))]
        span = ends[0] if ends[0] == ends[1] else " to ".join(ends)
        middle = float(np.median(error[mine]))
        quarter = np.quantile(error[mine], [0.1, 0.9])
        words = (
            f"{span} {label}: median error {middle:+.1f} %, eight in ten steps between "
            f"{quarter[0]:+.1f} and {quarter[1]:+.1f} %, n = {int(mine.sum()):,d}"
        )
        found.append((float(np.median(x[mine])), float(np.clip(middle, -reach, reach)), words))
    return tuple(found)


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
    spots = []
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
            at = tuple(
                (
                    float(x),
                    float(np.clip(y, -reach, reach)),
                    f"{name} near step {x:,.0f}: {y:+.1f} %",
                )
                for x, y in zip(centre, middle, strict=True)
            )
            spots.append(Spots(axes, at))
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
        return figure.finish(canvas, "residuals", alt, caption, spots)


def autocorrelation(view: View) -> Drawing | None:
    """Draw how errors of steps correlate with those of the steps after them.

    Parameters
    ----------
    view : mapping
        What the report knows of one GPU type.

    Returns
    -------
    Drawing or None
        A thin line a run and a thick one for all of them; None where it was not computed.
    """
    rows = [row for row in view.get("correlation") or () if len(row["correlation"]) > 1]
    if not rows:
        return None
    whole = next((row for row in rows if row["run"] == "all"), rows[0])
    block = (view["calibration"].get("autocorrelation") or {}).get("block_steps")
    with figure.style():
        canvas, (axes,) = figure.new(3.3)
        for row in rows:
            if row is not whole:
                lags = np.arange(1, len(row["correlation"]))
                axes.plot(lags, row["correlation"][1:], color=GREY, lw=0.8, alpha=0.6, zorder=2)
        lags = np.arange(1, len(whole["correlation"]))
        values = np.asarray(whole["correlation"][1:], dtype=np.float64)
        axes.plot(lags, values, color=figure.BLUE, lw=2.0, zorder=4, label="all runs")
        if len(rows) > 1:
            axes.plot([], [], color=GREY, lw=0.8, alpha=0.6, label="one run")
        axes.axhline(0.0, color=INK, lw=0.8, zorder=3)
        if block and block <= lags[-1]:
            axes.axvline(block, color=INK, lw=1.0, ls=(0, (3, 2)), label="block of the resampling")
        axes.set_xlim(1, lags[-1])
        axes.set_xlabel("steps apart")
        axes.set_ylabel("correlation of the errors [1]")
        axes.set_title(f"How long errors stay alike, n = {int(whole['n']):,d}")
        legend(axes, 3)
        gone = np.flatnonzero(values < 0.1)
        words = (
            f"falls below 0.1 after {plural(int(lags[gone[0]]), 'step')}"
            if gone.size
            else f"stays above 0.1 over {plural(len(lags), 'step')}"
        )
        alt = (
            f"Autocorrelation of the held-out errors of {view['gpu']}: {values[0]:.2f} between "
            f"neighbours; it {words}."
        )
        caption = (
            f"Neighbours correlate by {values[0]:.2f}; the correlation {words}. Rows are therefore "
            "no independent evidence, and blocks longer than this are resampled."
        )
        at = tuple(
            (float(lag), float(value), f"{plural(int(lag), 'step')} apart: {value:+.2f}")
            for lag, value in zip(lags, values, strict=True)
        )
        return figure.finish(canvas, "autocorrelation", alt, caption, [Spots(axes, at)])


def coverage(view: View) -> Drawing | None:
    """Draw how often intervals held the measurement against how often they should.

    Parameters
    ----------
    view : mapping
        What the report knows of one GPU type.

    Returns
    -------
    Drawing or None
        A row a group, a mark a split, all phases together; None where nothing was checked.
    """
    rows = [row for row in view["coverage"] if row["phase"] == "all"]
    if not rows:
        return None
    level = max(float(row["level"]) for row in rows)
    rows = [row for row in rows if float(row["level"]) == level]
    groups = sorted({str(row["group"]) for row in rows}, key=lambda name: (name != "all", name))
    splits = sorted({str(row["split"]) for row in rows}, key=lambda name: rank(name, tuple(SPLITS)))
    looks = ((figure.BLUE, "o"), (figure.ORANGE, "^"), (figure.GREEN, "D"), (figure.PURPLE, "s"))
    at = []
    steps = max(int(row["n"]) for row in rows if row["group"] == groups[0])
    with figure.style():
        canvas, (axes,) = figure.new(1.5 + 0.3 * len(groups))
        for number, split in enumerate(splits):
            colour, marker = looks[number % len(looks)]
            found = {str(row["group"]): row for row in rows if row["split"] == split}
            places, shares = [], []
            for place, group in enumerate(groups):
                if group in found:
                    n, covered = int(found[group]["n"]), float(found[group]["covered"])
                    share = covered / n if covered > 1.0 else covered
                    places.append(place)
                    shares.append(100.0 * share)
                    words = f"{group}, {split_words(split)}: {percent(share)} % of {n:,d} steps"
                    at.append((100.0 * share, float(place), words))
            axes.plot(shares, places, marker, color=colour, ms=6.5, ls="", label=split_words(split))
        axes.axvline(100.0 * level, color=INK, lw=1.1, ls=(0, (3, 2)), label="stated")
        axes.set_yticks(range(len(groups)), groups)
        axes.set_ylim(len(groups) - 0.5, -0.5)
        axes.grid(visible=False, axis="y")
        left, right = axes.get_xlim()
        axes.set_xlim(max(0.0, min(left, 100.0 * level - 5.0)), min(100.5, max(right, 100.0)))
        axes.set_xlabel("steps inside their prediction interval [%]")
        axes.set_title(f"Whether {percent(level)} % intervals hold, n = {steps:,d}")
        legend(axes, len(splits) + 1, at_most=2)
        words = "; ".join(text for _, _, text in at[:12])
        alt = f"Share of held-out steps inside their {percent(level)} % interval. {words}."
        caption = (
            "Left of the dashed line intervals are too narrow, right of it wider than they need be."
        )
        return figure.finish(canvas, "coverage", alt, caption, [Spots(axes, tuple(at))])


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
    found = [
        measured_against_predicted(view),
        *signed_errors(view),
        residuals(view),
        autocorrelation(view),
        bounds(view),
        coverage(view),
    ]
    return [drawing for drawing in found if drawing is not None]
