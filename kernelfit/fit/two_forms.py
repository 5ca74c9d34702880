"""Rates of collectives that could be that of small or that of large messages.

A collective takes the longer of ``floor + bytes / transition`` and ``bytes / rate``. Where
the floor does not show, both are a straight line through nothing: one rate is seen, and no
row tells which of the two it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kernelfit.fit.calibration import Evidence
from kernelfit.kernel.catalog import Coefficient, definition
from kernelfit.kernel.definitions import MOST

_SMALL = "_transition_eff"
_MEASURED = ("identified", "weak")


def tell_forms_apart(
    coefficients: Sequence[Coefficient], evidence: Sequence[Evidence], least_share: float
) -> tuple[tuple[Coefficient, ...], tuple[Evidence, ...], tuple[str, ...]]:
    """Make aliases of a collective's two rates where only one shows, and no floor.

    Parameters
    ----------
    coefficients : sequence of Coefficient
        Judged one by one.
    evidence : sequence of Evidence
        Theirs, in the same order.
    least_share : float
        Share of the measured time from which a floor shows [1].

    Returns
    -------
    tuple of Coefficient
        In the same order: the rate that was measured is ``weak``, with an interval from its
        own lower end to the fastest that is allowed and the method of its prior, and the
        other's reaches down to it.
    tuple of Evidence
        With each as the other's alias.
    tuple of str
        One warning per collective.
    """
    judged, known, notes = list(coefficients), list(evidence), []
    place = {c.name: k for k, c in enumerate(judged)}
    for name, small in place.items():
        if not name.endswith(_SMALL):
            continue
        op = name.removesuffix(_SMALL)
        floor, pair = place[f"{op}_floor_s"], (small, place[f"{op}_eff"])
        shows = judged[floor].verdict in _MEASURED and known[floor].time_share >= least_share
        seen = [k for k in pair if judged[k].verdict in _MEASURED]
        if shows or len(seen) != 1:
            continue
        low = judged[seen[0]].ci95[0]
        for k, other in (pair, pair[::-1]):
            c, most = judged[k], MOST.get(judged[k].name, 1.0)
            measured = k == seen[0]
            judged[k] = replace(
                c,
                method=definition(c.name).method if measured else c.method,
                verdict="weak" if measured else c.verdict,
                ci95=(min(low, c.ci95[0]), most if measured else c.ci95[1]),
            )
            known[k] = replace(known[k], alias=(*known[k].alias, judged[other].name))
        notes.append(
            f"{op}: one rate shows and no floor beside it; whether it is that of small messages "
            f"({name}) or of large ones ({op}_eff) is not known, only that each is at least as fast"
        )
    return tuple(judged), tuple(known), tuple(notes)
