"""A closed loop as a table and as figures, from plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from kernelfit.documents.canonical import dumps, write_atomic
from kernelfit.report import figure
from kernelfit.report.figure import BLUE, GREY, INK, ORANGE, SKY, Drawing
from kernelfit.report.tables import Cell, Column, Table, plain
from kernelfit.report.units import percent, seconds

Loop = Mapping[str, Any]

LATENCY_WORDS = {
    "ttft_s": "time to first token",
    "tpot_s": "time per output token",
    "e2e_s": "end to end",
}
HOST_WORDS = {
    "all": "all host terms",
    "step": "without the front end",
    "none": "without host terms",
    "paced": "at the run's own pace",
}
STATISTICS = ("mean", "p50", "p90", "p99")


def loop_table(loop: Loop) -> Table:
    """Return what a replay made of a run beside what the run measured.

    Parameters
    ----------
    loop : mapping
        One entry of ``closed_loop``.

    Returns
    -------
    Table
        One row per latency and statistic.
    """
    columns = (
        Column("Latency", short="latency"),
        Column("Statistic", short="of"),
        Column("Measured", numeric=True, short="measured"),
        Column("Replayed", numeric=True, short="replayed"),
        Column("Error [%]", numeric=True, short="error %"),
        Column("Repeated run [%]", numeric=True, short="repeat %"),
        Column("Error without the front end [%]", numeric=True, short="no front end %"),
        Column("Error without host terms [%]", numeric=True, short="no host %"),
        Column("Error at the run's own pace [%]", numeric=True, short="own pace %"),
    )
    by = {(row["host"], row["latency"], row["statistic"]): row for row in loop["errors"]}
    rows = []
    for latency, words in LATENCY_WORDS.items():
        for statistic in STATISTICS:
            row = by.get(("all", latency, statistic))
            if row is None:
                continue
            others = [by.get((host, latency, statistic), {}) for host in ("step", "none", "paced")]
            rows.append(
                (
                    Cell(words, latency),
                    Cell(statistic, statistic),
                    Cell(seconds(row["measured_s"]), row["measured_s"]),
                    Cell(seconds(row["replayed_s"]), row["replayed_s"]),
                    _share(row["error"]),
                    _share(row["repeat"]),
                    *(_share(other.get("error")) for other in others),
                )
            )
    caption = f"{loop['run']}: {loop['requests']} requests, replayed"
    return Table("closed-loop", caption, columns, tuple(rows), "No request was served.")


def _share(value: float | None) -> Cell:
    return Cell(percent(value, signed=True), value)


def loop_text(loop: Loop) -> str:
    """Return a closed loop for the terminal.

    Parameters
    ----------
    loop : mapping
        One entry of ``closed_loop``.

    Returns
    -------
    str
        What it rests on, and the table.
    """
    lines = [f"{loop['run']}: {loop['requests']} requests as the {loop['observer']} saw them"]
    busy = (
        f"engine busy {percent(loop['engine_busy'])} %, front end busy "
        f"{percent(loop['front_end_busy'])} %"
    )
    if loop["step_bias"] is not None:
        bias = percent(loop["step_bias"], signed=True)
        busy += f"; error of the kernel on the run's own steps, all together: {bias} %"
    lines.append(busy)
    if loop["out_of_domain"]:
        share = percent(loop["out_of_domain"])
        lines.append(f"{share} % of the run's steps lie outside of what the calibration has seen")
    if loop["preempted_steps"] or loop["replayed_preemptions"]:
        lines.append(
            f"requests made way in {loop['preempted_steps']} steps; "
            f"{loop['replayed_preemptions']} times in the replay"
        )
    if loop["left_out"]:
        lines.append(f"{loop['left_out']} requests are left out: a time or a count is not known")
    return "\n".join([*lines, plain(loop_table(loop)).rstrip("\n"), ""])


def loop_drawing(loop: Loop) -> Drawing:
    """Draw the distributions of the three latencies, measured and replayed.

    Parameters
    ----------
    loop : mapping
        One entry of ``closed_loop``.

    Returns
    -------
    Drawing
        One panel per latency, cumulative shares of the requests.
    """
    found = loop["distributions"]
    looks: list[tuple[str, str, str, float, str]] = [
        *(
            (name, GREY, "-", 1.0, "the same load again")
            for name in found
            if name.startswith("repeat_")
        ),
        ("replayed_none", SKY, "--", 1.2, HOST_WORDS["none"]),
        ("replayed_all", ORANGE, "-", 1.6, "replayed"),
        ("measured", BLUE, "-", 1.6, "measured"),
    ]
    with figure.style():
        drawn = Figure(figsize=(figure.WIDTH_IN, 6.2), layout="constrained")
        panels = drawn.subplots(len(LATENCY_WORDS), 1)
        for axes, (latency, words) in zip(panels, LATENCY_WORDS.items(), strict=True):
            for name, colour, line, width, label in looks:
                values = np.asarray(found[name][latency])
                if values.size:
                    shares = np.linspace(0.0, 1.0, values.size)
                    axes.plot(values, shares, color=colour, ls=line, lw=width, label=label)
            axes.set_xscale("log")
            axes.set_ylim(0.0, 1.0)
            axes.set_xlabel(f"{words} [s]", color=INK)
            axes.set_ylabel("share of requests")
            figure.plain_ticks(axes, "x")
        handles, labels = panels[0].get_legend_handles_labels()
        once = dict(zip(labels, handles, strict=True))
        panels[0].legend(once.values(), once.keys(), loc="lower right")
        alt = (
            f"Cumulative distributions of three latencies of {loop['run']}, measured, replayed "
            "and replayed without host terms"
        )
        caption = (
            "Share of the requests whose latency is at most so long. Where the replayed line lies "
            "on the measured one, the kernel and the scheduler say what the engine did."
        )
        return figure.finish(drawn, f"closed-loop-{loop['run']}", alt, caption)


def write_loops(loops: Sequence[Loop], folder: Path) -> tuple[Path, ...]:
    """Write figures and numbers of closed loops.

    Parameters
    ----------
    loops : sequence of mapping
        Entries of ``closed_loop``.
    folder : pathlib.Path
        Where to write; made when it does not exist.

    Returns
    -------
    tuple of pathlib.Path
        Every file written; the same input gives the same bytes.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    for loop in loops:
        drawing = loop_drawing(loop)
        contents: tuple[tuple[str, str | bytes], ...] = (
            (f"{drawing.id}.svg", drawing.svg),
            (f"{drawing.id}.png", drawing.png),
            (f"{drawing.id}.json", dumps(dict(loop))),
        )
        for name, content in contents:
            write_atomic(folder / name, content)
            written.append(folder / name)
    return tuple(written)
