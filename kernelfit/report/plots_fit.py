"""Figures of the fit: coefficients, errors beside baselines, breakdown over batch size."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from kernelfit.report import figure, units
from kernelfit.report.figure import (
    BLUE,
    GREEN,
    GREY,
    INK,
    ORANGE,
    PURPLE,
    RED,
    SKY,
    YELLOW,
    Drawing,
    Spots,
)
from kernelfit.report.tables_checks import baselines, by_key, splits
from kernelfit.report.tables_use import bottlenecks
from kernelfit.report.words import PREDICTORS, RESOURCES, plural, split_words

View = Mapping[str, Any]

_VERDICT_LOOKS = {
    "identified": (BLUE, "o"),
    "weak": (ORANGE, "^"),
    "prior": (GREY, "s"),
    "at_bound": (RED, "D"),
}
_PREDICTOR_LOOKS = {
    "kernelfit": (BLUE, "o"),
    "datasheet": (RED, "s"),
    "datasheet_derated": (ORANGE, "D"),
    "nnls_sums": (PURPLE, "^"),
    "random_forest": (GREEN, "v"),
    "gradient_boosting": (SKY, "P"),
    "constant": (GREY, "x"),
}
_RESOURCE_COLOURS = {
    "sm": BLUE,
    "hbm": ORANGE,
    "nvlink": GREEN,
    "nic": PURPLE,
    "pcie": SKY,
    "copy_engine": YELLOW,
    "host": GREY,
}
_MAX_BREAKDOWNS = 8


def coefficient_shares(view: View) -> Drawing | None:
    """Draw the intervals of the rates as shares of the datasheet peak.

    Parameters
    ----------
    view : mapping
        What the report knows of one GPU type.

    Returns
    -------
    Drawing or None
        None when no coefficient has a peak.
    """
    rows = []
    for entry in view["calibration"]["coefficients"]:
        share = units.share_of_peak(entry)
        if share is not None:
            rows.append((entry, *share))
    if not rows:
        return None
    with figure.style():
        canvas, (axes,) = figure.new(1.35 + 0.34 * len(rows))
        seen: set[str] = set()
        for place, (entry, value, low, high) in enumerate(rows):
            verdict = str(entry["verdict"])
            colour, marker = _VERDICT_LOOKS.get(verdict, (INK, "o"))
            label = None if verdict in seen else verdict.replace("_", " ")
            seen.add(verdict)
            axes.plot(
                [100 * low, 100 * high],
                [place, place],
                color=colour,
                lw=3.0,
                alpha=0.55,
                solid_capstyle="butt",
                zorder=2,
            )
            axes.plot(
                [100 * value], [place], marker, color=colour, ms=6.5, label=label, ls="", zorder=3
            )
        axes.axvline(100.0, color=INK, lw=1.1)
        axes.set_yticks(range(len(rows)), [str(row[0]["name"]) for row in rows])
        axes.set_ylim(len(rows) - 0.5, -0.5)
        right = max(100.0, *(100 * row[3] for row in rows))
        axes.set_xlim(0.0, min(right, 150.0) * 1.04)
        axes.grid(visible=False, axis="y")
        axes.set_xlabel("share of the datasheet peak [%]")
        axes.set_title(f"Rates with 95 % intervals, n = {len(rows)}", pad=24.0)
        axes.legend(
            loc="lower left",
            bbox_to_anchor=(0.0, 1.0),
            borderaxespad=0.1,
            borderpad=0.1,
            ncols=4,
            handletextpad=0.3,
            columnspacing=1.1,
        )
        words = "; ".join(f"{row[0]['name']} {units.percent(row[1])} %" for row in rows)
        alt = f"Rates of {view['gpu']} as shares of the datasheet peak, with intervals: {words}."
        caption = (
            "The line at 100 % is the datasheet peak, which no rate may beat but that of experts, "
            "whose reads may count experts that the batch did not touch."
        )
        at = tuple(
            (100.0 * value, float(place), _rate_words(entry, value, low, high))
            for place, (entry, value, low, high) in enumerate(rows)
        )
        return figure.finish(canvas, "coefficients", alt, caption, [Spots(axes, at)])


def _rate_words(entry: Mapping[str, Any], value: float, low: float, high: float) -> str:
    shown = units.show(entry)
    return (
        f"{entry['name']}: {shown.value} {shown.unit} [{shown.low}, {shown.high}], "
        f"{units.percent(value)} % of the peak [{units.percent(low)}, {units.percent(high)}], "
        f"{str(entry['verdict']).replace('_', ' ')}"
    )


def errors(view: View) -> list[Drawing]:
    """Draw the median errors beside the baselines, one figure a split.

    Parameters
    ----------
    view : mapping
        What the report knows of one GPU type.

    Returns
    -------
    list of Drawing
        In the order of the page.
    """
    drawings = []
    for split in splits(view):
        drawing = _errors(view, split)
        if drawing is not None:
            drawings.append(drawing)
    return drawings


def _errors(view: View, split: str) -> Drawing | None:
    rows = [
        (group, found) for (_, group, phase), found in by_key(view, split).items() if phase == "all"
    ]
    rows = [(group, found) for group, found in rows if found.get("kernelfit")]
    if not rows:
        return None
    steps = sum(int(found["kernelfit"]["n"]) for group, found in rows if group != "all") or sum(
        int(found["kernelfit"]["n"]) for _, found in rows
    )
    noise = (view["calibration"].get("noise") or {}).get("median_spread")
    with figure.style():
        canvas, (axes,) = figure.new(1.6 + 0.34 * len(rows))
        for name in (*reversed(baselines(view)), "kernelfit"):
            colour, marker = _PREDICTOR_LOOKS.get(name, (INK, "+"))
            dots = [
                (100.0 * float(found[name]["median_ape"]), place)
                for place, (_, found) in enumerate(rows)
                if found.get(name, {}).get("median_ape")
            ]
            axes.plot(
                [x for x, _ in dots],
                [y for _, y in dots],
                marker,
                color=colour,
                ms=8.0 if name == "kernelfit" else 6.0,
                ls="",
                label=PREDICTORS.get(name, name),
                zorder=4 if name == "kernelfit" else 3,
            )
        if noise:
            axes.axvline(100.0 * noise, color=INK, lw=1.1, ls=(0, (3, 2)), label="noise floor")
        axes.set_xscale("log")
        figure.plain_ticks(axes, "x")
        axes.set_yticks(range(len(rows)), [group for group, _ in rows])
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.grid(visible=False, axis="y")
        axes.set_xlabel("median absolute error of the step time [%]")
        handles, labels = axes.get_legend_handles_labels()
        order = sorted(range(len(labels)), key=lambda place: labels[place] != "kernelfit")
        lines = -(-len(labels) // 3)
        axes.set_title(f"Errors with {split_words(split)}, n = {steps:,d}", pad=10.0 + 14.0 * lines)
        axes.legend(
            [handles[place] for place in order],
            [labels[place] for place in order],
            loc="lower left",
            bbox_to_anchor=(-0.16, 1.0),
            borderaxespad=0.1,
            borderpad=0.1,
            ncols=3,
            handletextpad=0.3,
            columnspacing=0.8,
            fontsize=8.0,
        )
        words = "; ".join(
            f"{group} {units.percent(found['kernelfit']['median_ape'])} %" for group, found in rows
        )
        alt = f"Median absolute error of each predictor, {split_words(split)}. kernelfit: {words}."
        caption = "Every predictor is judged on the same steps. Further to the left is better."
        at = tuple(
            (
                100.0 * float(entry["median_ape"]),
                float(place),
                f"{group}, {PREDICTORS.get(name, name)}: median "
                f"{units.percent(entry['median_ape'])} %, n = {int(entry['n']):,d}",
            )
            for place, (group, found) in enumerate(rows)
            for name, entry in found.items()
            if entry.get("median_ape")
        )
        name = f"errors-{split.replace('_', '-')}"
        return figure.finish(canvas, name, alt, caption, [Spots(axes, at)])


def breakdowns(view: View) -> list[Drawing]:
    """Draw the time on each resource over batch size.

    Parameters
    ----------
    view : mapping
        What the report knows of one GPU type.

    Returns
    -------
    list of Drawing
        At most eight; the table on the page lists them all.
    """
    entries = [entry for entry in view["breakdown"] if len(entry["requests"]) > 1]
    return [_breakdown(entry, place) for place, entry in enumerate(entries[:_MAX_BREAKDOWNS], 1)]


def _breakdown(entry: Mapping[str, Any], order: int) -> Drawing:
    x = np.array(entry["requests"], dtype=np.float64)
    parts = {
        name: np.array(entry["per_resource_s"][name], dtype=np.float64)
        for name in sorted(
            entry["per_resource_s"],
            key=lambda name: (
                RESOURCES.index(name) if name in RESOURCES else len(RESOURCES),
                name,
            ),
        )
    }
    parts = {name: values for name, values in parts.items() if values.any()}
    scale = units.scale_for("s", float(max(entry["no_overlap_s"])))
    with figure.style():
        canvas, (axes,) = figure.new(3.7)
        colours = [_RESOURCE_COLOURS.get(name, GREY) for name in parts]
        axes.stackplot(
            x,
            [values * scale.factor for values in parts.values()],
            labels=list(parts),
            colors=colours,
            alpha=0.55,
            lw=0,
        )
        for key, label, look in (
            ("no_overlap_s", "NoOverlap", "-"),
            ("fitted_s", "fitted", (0, (1, 1))),
            ("overlap_s", "Overlap", (0, (4, 2))),
        ):
            axes.plot(
                x, np.array(entry[key]) * scale.factor, color=INK, lw=1.5, ls=look, label=label
            )
        axes.set_xscale("log", base=2)
        figure.plain_ticks(axes, "x")
        axes.set_xlim(x.min(), x.max())
        axes.set_ylim(bottom=0.0)
        for name, start in bottlenecks(entry)[1:]:
            # Where another resource begins to take the most time.
            axes.axvline(start, color=INK, lw=0.8, ls=(0, (1, 3)))
            axes.annotate(
                f" {name} from {start}",
                (start, 0.97),
                xycoords=("data", "axes fraction"),
                fontsize=8.0,
                va="top",
            )
        axes.set_xlabel("requests in the batch")
        axes.set_ylabel(f"time of the step [{scale.unit.replace('us', 'µs')}]")
        labels = axes.get_legend_handles_labels()[1]
        lines = -(-len(labels) // 4)
        context = units.count(entry["context_tokens"])
        axes.set_title(
            f"{entry['model']}, {entry['pool']}, {context} tokens each, n = {len(x)} batch sizes",
            pad=10.0 + 14.0 * lines,
            fontsize=9.0,
        )
        axes.legend(
            loc="lower left",
            bbox_to_anchor=(0.0, 1.0),
            borderaxespad=0.1,
            borderpad=0.1,
            ncols=4,
            handletextpad=0.4,
            columnspacing=1.1,
        )
        words = ", then ".join(
            name if place == 0 else f"{name} from {plural(start, 'request')}"
            for place, (name, start) in enumerate(bottlenecks(entry))
        )
        alt = (
            f"Time on each resource over batch size for {entry['model']} on {entry['pool']} at "
            f"{context} tokens of context. The most time goes to {words}."
        )
        caption = f"Computed, not measured. The most time goes to {words}."
        at = tuple(
            (
                float(requests),
                float(entry["fitted_s"][place]) * scale.factor,
                _batch_words(entry, parts, place),
            )
            for place, requests in enumerate(x)
        )
        return figure.finish(canvas, f"breakdown-{order}", alt, caption, [Spots(axes, at)])


def _batch_words(entry: Mapping[str, Any], parts: Mapping[str, Any], place: int) -> str:
    """Say what a batch of one size takes, by resource."""
    total = sum(float(values[place]) for values in parts.values())
    shares = sorted(((float(values[place]), name) for name, values in parts.items()), reverse=True)
    words = ", ".join(
        f"{name} {units.seconds(time)} ({units.percent(time / total)} %)"
        for time, name in shares
        if time > 0
    )
    return (
        f"{plural(int(entry['requests'][place]), 'request')}: fitted "
        f"{units.seconds(entry['fitted_s'][place])}; {words}"
    )


def all_fit(view: View) -> list[Drawing]:
    """Return every figure of the fit.

    Parameters
    ----------
    view : mapping
        What the report knows of one GPU type.

    Returns
    -------
    list of Drawing
        Those that the document has data for.
    """
    first = coefficient_shares(view)
    return [*([first] if first is not None else []), *errors(view), *breakdowns(view)]
