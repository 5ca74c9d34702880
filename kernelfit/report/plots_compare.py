"""Figures of a comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes

from kernelfit.report import figure, units
from kernelfit.report.figure import INK, Drawing, Spots
from kernelfit.report.sides import Side
from kernelfit.report.words import listed

# Characters of a side's name that a figure has room for.
_LONGEST = 24
_LOOKS = (
    (figure.BLUE, "o"),
    (figure.ORANGE, "^"),
    (figure.GREEN, "D"),
    (figure.PURPLE, "s"),
    (figure.RED, "v"),
    (figure.SKY, "P"),
)


def ratios(sides: Sequence[Side], document: Mapping[str, Any]) -> Drawing | None:
    """Draw each coefficient as a ratio to the first side's.

    Parameters
    ----------
    sides : sequence of Side
        The sides, the first one first.
    document : mapping
        From :func:`kernelfit.report.compare.compare`.


    Returns
    -------
    Drawing or None
        None where there is nothing to draw.
    """
    rows = [
        row
        for row in document["coefficients"]
        if row["ratio"] and row["ratio"]["low"] and row["ratio"]["high"]
    ]
    names = list(dict.fromkeys(row["name"] for row in rows))
    if not names:
        return None
    at = []
    others = [side.name for side in sides[1:]]
    with figure.style():
        canvas, (axes,) = figure.new(1.5 + 0.36 * len(names))
        for number, name in enumerate(others):
            colour, marker = _LOOKS[number % len(_LOOKS)]
            for row in (row for row in rows if row["side"] == name):
                ratio = row["ratio"]
                place = names.index(row["name"]) + 0.16 * (number - 0.5 * (len(others) - 1))
                weak = row["difference"] == "unknown"
                axes.plot(
                    [ratio["low"], ratio["high"]],
                    [place, place],
                    color=colour,
                    lw=2.4,
                    alpha=0.25 if weak else 0.6,
                    solid_capstyle="butt",
                )
                axes.plot(
                    [ratio["value"]], [place], marker, color=colour, ms=6, alpha=0.45 if weak else 1
                )
                words = (
                    f"{row['name']} of {name}: {units.number(ratio['value'])} times "
                    f"[{units.number(ratio['low'])}, {units.number(ratio['high'])}], "
                    f"{row['difference']}"
                )
                at.append((float(ratio["value"]), float(place), words))
            axes.plot([], [], marker, color=colour, ms=6, label=_short(name))
        axes.axvline(1.0, color=INK, lw=1.1)
        axes.set_xscale("log")
        figure.plain_ticks(axes, "x")
        axes.set_yticks(range(len(names)), names)
        axes.set_ylim(len(names) - 0.5, -0.5)
        axes.grid(visible=False, axis="y")
        axes.set_xlabel(f"value over that of {_short(sides[0].name)} [1]")
        axes.set_title(f"Ratios with intervals, n = {len(rows)}", pad=24.0)
        _legend(axes)
        apart = [row["name"] for row in rows if row["difference"] == "differs"]
        alt = (
            f"Coefficients of {listed(others)} as ratios to those of {sides[0].name}. Beyond both "
            f"intervals: {', '.join(apart) or 'none'}."
        )
        caption = "Pale where a side kept its prior: the ratio then says nothing about the machine."
        return figure.finish(canvas, "ratios", alt, caption, [Spots(axes, tuple(at))])


def shares(sides: Sequence[Side]) -> Drawing | None:
    """Draw the rates of every side as shares of its own datasheet peak.

    Parameters
    ----------
    sides : sequence of Side
        The sides, the first one first.


    Returns
    -------
    Drawing or None
        None where there is nothing to draw.
    """
    rows = []
    for number, side in enumerate(sides):
        for entry in side.view["calibration"]["coefficients"]:
            share = units.share_of_peak(entry)
            if share is not None:
                rows.append((str(entry["name"]), number, entry, share))
    names = list(dict.fromkeys(name for name, *_ in rows))
    if not names:
        return None
    at = []
    with figure.style():
        canvas, (axes,) = figure.new(1.5 + 0.36 * len(names))
        for name, number, entry, (value, low, high) in rows:
            colour, marker = _LOOKS[number % len(_LOOKS)]
            place = names.index(name) + 0.16 * (number - 0.5 * (len(sides) - 1))
            pale = entry["verdict"] == "prior"
            axes.plot(
                [100 * low, 100 * high],
                [place, place],
                color=colour,
                lw=2.4,
                alpha=0.25 if pale else 0.6,
                solid_capstyle="butt",
            )
            axes.plot([100 * value], [place], marker, color=colour, ms=6, alpha=0.45 if pale else 1)
            words = f"{name} of {sides[number].name}: {units.percent(value)} % of its peak"
            at.append((100.0 * value, float(place), words))
        for number, side in enumerate(sides):
            colour, marker = _LOOKS[number % len(_LOOKS)]
            axes.plot([], [], marker, color=colour, ms=6, label=_short(side.name))
        axes.axvline(100.0, color=INK, lw=1.1)
        axes.set_yticks(range(len(names)), names)
        axes.set_ylim(len(names) - 0.5, -0.5)
        axes.set_xlim(0.0, min(max(100.0, *(100 * row[3][2] for row in rows)), 150.0) * 1.04)
        axes.grid(visible=False, axis="y")
        axes.set_xlabel("share of the own datasheet peak [%]")
        axes.set_title(f"Rates against the datasheets, n = {len(rows)}", pad=24.0)
        _legend(axes)
        alt = (
            f"Rates of {listed([side.name for side in sides])} as shares of their datasheet peaks: "
            + "; ".join(words for _, _, words in at[:12])
        )
        caption = "Each rate against its own GPU type's datasheet; pale where the prior stands."
        return figure.finish(canvas, "shares", alt, caption, [Spots(axes, tuple(at))])


def _legend(axes: Axes) -> None:
    """Set the key above the panel, whatever the names are, without pressing the panel."""
    key = axes.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), borderaxespad=0.1, ncols=3)
    key.set_in_layout(False)


def _short(name: str) -> str:
    """Keep the end of a long name, which tells files apart."""
    return name if len(name) <= _LONGEST else "\N{HORIZONTAL ELLIPSIS}" + name[-_LONGEST:]
