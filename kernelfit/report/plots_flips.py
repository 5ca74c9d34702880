"""Figures of conclusions: which pools and loads are in doubt, and latency against batch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.colors import BoundaryNorm, ListedColormap
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from kernelfit.report import figure
from kernelfit.report.figure import BLUE, GREY, INK, ORANGE, RED, SKY, Drawing

FLAG_LOOKS: tuple[tuple[str, str, str], ...] = (
    ("agree", "#e7edf2", ""),
    ("extrapolated", SKY, "x"),
    ("uncertain", ORANGE, "?"),
    ("measure", RED, "!"),
)
"""Flag, colour and letter, the least doubtful first; the letters tell them apart in grey."""

MOST_CURVES = 24
"""Curves drawn beside a heat map; a page of more is read by nobody."""

_MOST_ROWS = 60
_COMPARED = "compared"
_MS = 1e3
_SHORT = {
    "meets_token_latency": "time per output token",
    "meets_first_token": "time to first token",
    "largest_batch": "largest batch",
    "sustains_rate": "rate",
    "kv_fits": "KV fits",
    "best_pool": "best pool",
    "wider_is_faster": "wider is faster",
    "wider_pays": "wider pays",
    "disaggregation_pays": "prefill apart pays",
    "bottleneck": "bottleneck",
}


def flip_figures(
    flags: Sequence[Mapping[str, Any]], curves: Sequence[Mapping[str, Any]]
) -> tuple[Drawing, ...]:
    """Draw everything that conclusions show.

    Parameters
    ----------
    flags : sequence of mapping
        Rows of a result document.
    curves : sequence of mapping
        Latency against batch, one per pool and load, with times in [s].

    Returns
    -------
    tuple of Drawing
        A heat map per model where anything was asked, then a curve per pool and load, at
        most ``MOST_CURVES``, those whose conclusions are in doubt first.
    """
    models = dict.fromkeys(str(flag["model"]) for flag in flags)
    drawings = [
        heat_map([flag for flag in flags if flag["model"] == model], number)
        for number, model in enumerate(models, 1)
    ]
    doubtful = {
        (flag["gpu"], flag["model"], flag["pool"]) for flag in flags if flag["flag"] != "agree"
    }
    order = sorted(curves, key=lambda c: (c["gpu"], c["model"], c["pool"]) not in doubtful)
    drawings += [latency(curve, number) for number, curve in enumerate(order[:MOST_CURVES], 1)]
    return tuple(drawings)


def heat_map(flags: Sequence[Mapping[str, Any]], number: int = 1) -> Drawing:
    """Draw pools against loads, coloured by the most doubtful flag of each cell.

    Parameters
    ----------
    flags : sequence of mapping
        Flags about one model.
    number : int
        Tells several heat maps apart.

    Returns
    -------
    Drawing
        The figure, higher with more loads; beyond 60 the last ones are left out and the
        caption says so.
    """
    rank = {name: place for place, (name, _, _) in enumerate(FLAG_LOOKS)}
    model = str(flags[0]["model"])
    gpus = {str(flag["gpu"]) for flag in flags}
    cells: dict[tuple[str, str], int] = {}
    for flag in flags:
        pool = str(flag["pool"])
        if ", " in pool:
            pool = _COMPARED
        elif len(gpus) > 1:
            pool = f"{flag['gpu']} {pool}"
        key = (pool, f"{_SHORT.get(str(flag['conclusion']), flag['conclusion'])}: {flag['load']}")
        cells[key] = max(cells.get(key, 0), rank[str(flag["flag"])])
    pools = list(dict.fromkeys(pool for pool, _ in cells))
    loads = list(dict.fromkeys(load for _, load in cells))
    left_out = max(0, len(loads) - _MOST_ROWS)
    loads = loads[:_MOST_ROWS]
    grid = np.full((len(loads), len(pools)), np.nan)
    for (pool, load), value in cells.items():
        if load in loads:
            grid[loads.index(load), pools.index(pool)] = value
    with figure.style():
        drawn, (axes,) = figure.new(1.6 + 0.24 * len(loads))
        colours = ListedColormap([colour for _, colour, _ in FLAG_LOOKS])
        norm = BoundaryNorm(np.arange(len(FLAG_LOOKS) + 1) - 0.5, len(FLAG_LOOKS))
        axes.pcolormesh(
            np.ma.masked_invalid(grid), cmap=colours, norm=norm, edgecolors="white", linewidth=1.0
        )
        for (row, column), value in np.ndenumerate(grid):
            if np.isfinite(value) and FLAG_LOOKS[int(value)][2]:
                axes.text(
                    column + 0.5,
                    row + 0.5,
                    FLAG_LOOKS[int(value)][2],
                    ha="center",
                    va="center",
                    fontsize=8,
                )
        axes.set_yticks(np.arange(len(loads)) + 0.5, loads, fontsize=7)
        axes.set_xticks(np.arange(len(pools)) + 0.5, pools, rotation=90, fontsize=7)
        axes.invert_yaxis()
        axes.grid(visible=False)
        axes.set_title(model)
        drawn.legend(
            handles=[
                Patch(facecolor=colour, edgecolor=GREY, label=f"{name} {letter}".strip())
                for name, colour, letter in FLAG_LOOKS
            ],
            loc="outside lower center",
            ncols=len(FLAG_LOOKS),
            fontsize=8,
        )
        counted = ", ".join(
            f"{sum(value == place for value in cells.values())} {name}"
            for place, (name, _, _) in enumerate(FLAG_LOOKS)
        )
        more = f" {left_out} further loads are in the table." if left_out else ""
        return figure.finish(
            drawn,
            f"flips-{number}",
            f"Pools of {model} against loads, by flag: {counted}.",
            "Every cell is a conclusion about a pool, or several, at a load. The letter says the "
            f"same as the colour.{more}",
        )


def latency(curve: Mapping[str, Any], number: int = 1) -> Drawing:
    """Draw time per output token against requests in flight for one pool and load.

    Parameters
    ----------
    curve : mapping
        One row of curves, with times in [s].
    number : int
        Tells several curves apart.

    Returns
    -------
    Drawing
        Both bounds, the fitted curve with the interval of its draws, target lines, and the
        measured points with their errors.
    """
    requests = np.asarray(curve["requests"], dtype=np.float64)
    times = {
        name: np.asarray(curve[name], dtype=np.float64) * _MS
        for name in ("overlap_s", "no_overlap_s", "fitted_s", "low_s", "high_s")
    }
    with figure.style():
        drawn, (axes,) = figure.new(3.3)
        axes.fill_between(
            requests, times["low_s"], times["high_s"], color=BLUE, alpha=0.25, linewidth=0
        )
        axes.plot(requests, times["overlap_s"], color=INK, linestyle=":", linewidth=1.1)
        axes.plot(requests, times["fitted_s"], color=BLUE, linewidth=1.8)
        # On top: without overlap the fitted curve is the bound.
        axes.plot(requests, times["no_overlap_s"], color=INK, linestyle="--", linewidth=1.1)
        for target in curve["targets_s"]:
            axes.axhline(target * _MS, color=RED, linewidth=1.0)
        points = curve["points"]
        if points:
            axes.errorbar(
                [point["requests"] for point in points],
                [point["time_s"] * _MS for point in points],
                yerr=[1.96 * point["error_s"] * _MS for point in points],
                fmt="o",
                markersize=4,
                color=INK,
                markerfacecolor="white",
                capsize=2,
                linewidth=0.9,
            )
        if requests.size > 1:
            axes.set_xscale("log", base=2)
            figure.plain_ticks(axes, "x")
        axes.set_ylim(bottom=0.0)
        axes.set_xlabel("requests in flight")
        axes.set_ylabel("time per output token [ms]")
        axes.set_title(f"{curve['model']} {curve['pool']} ({curve['gpu']}): {curve['load']}")
        axes.legend(handles=list(_legend(bool(curve["targets_s"]), bool(points))), loc="upper left")
        name = f"{curve['model']} {curve['pool']} on {curve['gpu']}, {curve['load']}"
        return figure.finish(
            drawn,
            f"latency-{number}",
            f"Time per output token of {name}, from {times['fitted_s'][0]:.3g} to "
            f"{times['fitted_s'][-1]:.3g} ms at 1 to {int(requests[-1])} requests.",
            "Where a target line runs between the two bounds, only a measurement can tell; where "
            "it runs through the band, the calibration's draws disagree.",
        )


def _legend(targets: bool, points: bool) -> Iterable[Line2D | Patch]:
    yield Line2D([], [], color=INK, linestyle="--", linewidth=1.1, label="no overlap")
    yield Line2D([], [], color=BLUE, linewidth=1.6, label="fitted")
    yield Patch(facecolor=BLUE, alpha=0.25, label="95 % of the draws")
    yield Line2D([], [], color=INK, linestyle=":", linewidth=1.1, label="overlap")
    if targets:
        yield Line2D([], [], color=RED, linewidth=1.0, label="target")
    if points:
        yield Line2D(
            [],
            [],
            color=INK,
            marker="o",
            markerfacecolor="white",
            linestyle="",
            markersize=4,
            label="measured",
        )
