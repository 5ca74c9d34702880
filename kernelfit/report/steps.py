"""The held-out steps behind the figures, and how they are marked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from kernelfit.report import figure
from kernelfit.report.figure import PHASE_LOOKS
from kernelfit.report.words import plural

View = Mapping[str, Any]
Floats = NDArray[np.float64]


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


def phases_of(steps: Steps) -> list[str]:
    """Return the phases that occur, in the order of the key.

    Parameters
    ----------
    steps : Steps
        The steps.

    Returns
    -------
    list of str
        Known phases first.
    """
    found = set(steps.phase.tolist())
    return [name for name in PHASE_LOOKS if name in found] + sorted(found - set(PHASE_LOOKS))


def marks(axes: Axes, steps: Steps, x: Floats, y: Floats) -> None:
    """Draw a mark a step, by colour and shape of its phase.

    Parameters
    ----------
    axes : Axes
        The panel.
    steps : Steps
        The steps.
    x, y : ndarray, shape (n,)
        Where each is drawn.
    """
    total = len(x)
    size = 22.0 if total <= 200 else 12.0 if total <= 2000 else 6.0
    for phase in phases_of(steps):
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


def legend(axes: Axes, entries: int, *, at_most: int = 5) -> None:
    """Set the key between the title and the panel.

    Parameters
    ----------
    axes : Axes
        The panel, its title set.
    entries : int
        Entries of the key.
    at_most : int
        Entries in one line of the key.
    """
    lines = -(-entries // at_most)
    axes.legend(
        loc="lower left",
        bbox_to_anchor=(0.0, 1.0),
        borderaxespad=0.1,
        borderpad=0.1,
        ncols=min(entries, at_most),
        handletextpad=0.3,
        columnspacing=1.1,
    )
    axes.set_title(axes.get_title(loc="left"), loc="left", pad=10.0 + 14.0 * lines)


def part_of(steps: Steps, keep: NDArray[np.bool_]) -> Steps:
    """Return some of the steps.

    Parameters
    ----------
    steps : Steps
        The steps.
    keep : ndarray of bool
        Which of them.

    Returns
    -------
    Steps
        Those.
    """
    columns = {name: values[keep] for name, values in steps.columns.items()}
    return Steps(steps.phase[keep], steps.run[keep], columns)


def at_edge(outside: int) -> str:
    """Say how many marks were moved to the edge of the figure.

    Parameters
    ----------
    outside : int
        Their number, at least 1.

    Returns
    -------
    str
        A sentence that begins with a blank.
    """
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
    place = bins_of(x, most)
    filled = np.unique(place)
    centre = np.array([np.median(x[place == each]) for each in filled])
    return centre, np.array([np.median(y[place == each]) for each in filled])


def bins_of(x: Floats, most: int = 14) -> NDArray[np.int64]:
    """Return the bin of each point, about as many points in each.

    Parameters
    ----------
    x : ndarray, shape (n,)
        Points, n at least 1.
    most : int
        Bins at most.

    Returns
    -------
    ndarray of int, shape (n,)
        Number of the bin.
    """
    bins = max(1, min(most, len(x) // 12))
    edges = np.unique(np.quantile(x, np.linspace(0.0, 1.0, bins + 1)))
    place = np.searchsorted(edges, x, side="right") - 1
    return np.clip(place, 0, max(len(edges) - 2, 0)).astype(np.int64)
