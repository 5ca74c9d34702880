"""How figures look and how they become SVG and PNG, the same bytes every time."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.scale import LogTransform
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

# Okabe and Ito's colours, which stay apart under every common colour blindness.
BLUE, SKY, GREEN, ORANGE = "#0072b2", "#56b4e9", "#009e73", "#e69f00"
RED, PURPLE, YELLOW, GREY = "#d55e00", "#cc79a7", "#f0e442", "#8a939b"
# Ink and grid stand for the page's own colours when a figure is set into it.
INK, GRID = "#23292f", "#d9dee3"

PHASE_LOOKS = {
    "decode": (BLUE, "o"),
    "mixed": (ORANGE, "^"),
    "prefill": (GREEN, "D"),
    "unknown": (GREY, "x"),
}

WIDTH_IN = 5.4
_RASTER_DPI = 150
_PNG_DPI = 160
_POINTS_PER_INCH = 72.0
# Above this many marks a figure draws them as pixels, so that the page stays small.
RASTER_FROM = 400
# Below this a logarithmic axis is marked at 1, 2 and 5 instead of at 1 alone.
_FEW_DECADES = 2.2

_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "kernelfit",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9.0,
    "axes.titlesize": 10.0,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 10.0,
    "axes.labelsize": 9.0,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.minor.size": 0.0,
    "ytick.minor.size": 0.0,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "figure.facecolor": "white",
    "axes.facecolor": "none",
    "path.simplify": True,
    # A name is no formula.
    "text.parse_math": False,
}


@dataclass(frozen=True, slots=True)
class Drawing:
    """One finished figure.

    Attributes
    ----------
    id : str
        Its name; files are ``<id>.svg`` and ``<id>.png``.
    alt : str
        What it shows, for those who do not see it.
    caption : str
        How to read it.
    svg : str
        A standalone file on white.
    inline : str
        The same for the page: page colours, no outside reference.
    png : bytes
        Pixels on white.
    hover : tuple of (float, float, str)
        Places in the coordinates of the drawing, with what stands there in words.
    """

    id: str
    alt: str
    caption: str
    svg: str
    inline: str
    png: bytes
    hover: tuple[tuple[float, float, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Spots:
    """Places of a panel that a reader may ask about.

    Attributes
    ----------
    axes : Axes
        The panel.
    at : tuple of (float, float, str)
        Data coordinates and the words.
    """

    axes: Axes
    at: tuple[tuple[float, float, str], ...]


@contextmanager
def style() -> Iterator[None]:
    """Draw in the house style, whatever the user's own settings are.

    Returns
    -------
    context manager
        Figures are made and finished within it.
    """
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(_STYLE)
        yield


def new(height_in: float, rows: int = 1) -> tuple[Figure, list[Axes]]:
    """Return an empty figure of one column of panels.

    Parameters
    ----------
    height_in : float
        Height in inches.
    rows : int
        Panels, one below the other, with one horizontal axis.

    Returns
    -------
    tuple
        The figure and its panels, top first.
    """
    figure = Figure(figsize=(WIDTH_IN, height_in), layout="constrained")
    grid = figure.subplots(rows, 1, sharex=True, squeeze=False)
    return figure, [axes for row in grid for axes in row]


def finish(
    figure: Figure, name: str, alt: str, caption: str, spots: Sequence[Spots] = ()
) -> Drawing:
    """Turn a figure into its files.

    Parameters
    ----------
    figure : Figure
        Drawn within :func:`style`.
    name : str
        Its id.
    alt, caption : str
        What it shows and how to read it.
    spots : sequence of Spots
        What the page tells a reader who points at a place.

    Returns
    -------
    Drawing
        SVG, inline SVG and PNG.
    """
    # The canvases are driven directly: ``savefig`` would draw everything twice.
    png, svg = io.BytesIO(), io.BytesIO()
    figure.dpi = _PNG_DPI
    pixels: Any = FigureCanvasAgg(figure)
    pixels.print_png(png, metadata={"Software": None})
    # The layout is worked out once; what follows keeps it.
    figure.set_layout_engine("none")
    figure.dpi = _RASTER_DPI
    lines: Any = FigureCanvasSVG(figure)
    lines.print_svg(svg, metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    text = svg.getvalue().decode("utf8")
    hover = _hover(figure, spots)
    return Drawing(name, alt, caption, text, inline(text, name, alt), png.getvalue(), hover)


def _hover(figure: Figure, spots: Sequence[Spots]) -> tuple[tuple[float, float, str], ...]:
    """Return the places in points from the top left corner, as the SVG counts them."""
    height = figure.get_figheight() * _POINTS_PER_INCH
    scale = _POINTS_PER_INCH / figure.dpi
    found = []
    for each in spots:
        # Axes whose ratio is fixed get their place when they are drawn.
        each.axes.apply_aspect()
        for x, y, words in each.at:
            across, up = each.axes.transData.transform((x, y))
            found.append((round(across * scale, 1), round(height - up * scale, 1), words))
    return tuple(found)


def inline(svg: str, name: str, alt: str) -> str:
    """Make a standalone SVG part of a page.

    Parameters
    ----------
    svg : str
        The file's text.
    name : str
        Put before every id, so that two figures on a page do not share one.
    alt : str
        Text for screen readers, already free of markup.

    Returns
    -------
    str
        The ``svg`` element: no prolog, no namespaces, ink and grid in page colours.
    """
    body = svg[svg.index("<svg") :]
    # A style inside an inline figure would hold for the whole page, and the white ground
    # would hide the page's own.
    for part in (
        r"<metadata>.*?</metadata>",
        r"<defs>\s*<style.*?</style>\s*</defs>",
        r'<g id="patch_1">.*?</g>',
    ):
        body = re.sub(part, "", body, count=1, flags=re.DOTALL)
    body = re.sub(r'\s+xmlns(?::\w+)?="[^"]*"', "", body)
    body = body.replace("xlink:href", "href")
    body = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', body)
    body = re.sub(r"url\(#([^)]+)\)", rf"url(#{name}-\1)", body)
    body = re.sub(r'href="#([^"]+)"', rf'href="#{name}-\1"', body)
    body = body.replace(INK, "currentColor").replace(GRID, "var(--grid)")
    body = re.sub(r"'DejaVu Sans'(?:, [^;\"]*)?", "var(--font)", body)
    size = re.search(r'<svg width="([\d.]+)pt" height="([\d.]+)pt"', body)
    if size:
        body = body.replace(size.group(0), "<svg", 1)
    label = alt.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
    return body.replace("<svg", f'<svg role="img" aria-label="{label}"', 1).strip()


def plain_ticks(axes: Axes, which: str, *, thousands: bool = False) -> None:
    """Write the ticks of a logarithmic axis as plain numbers.

    Parameters
    ----------
    axes : Axes
        The panel.
    which : str
        ``x`` or ``y``.
    thousands : bool
        Write 1k for 1,000; for counts.
    """
    axis = axes.xaxis if which == "x" else axes.yaxis
    low, high = sorted(axis.get_view_interval())
    transform = axis.get_transform()
    decimal = isinstance(transform, LogTransform) and transform.base == 10
    if decimal and math.log10(high / low) < _FEW_DECADES:
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(FuncFormatter(_thousands if thousands else _plain))
    axis.set_minor_formatter(NullFormatter())


def _plain(value: float, _: int | None = None) -> str:
    return f"{value:.6g}"


def _thousands(value: float, _: int | None = None) -> str:
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.6g}{letter}"
    return f"{value:.6g}"
