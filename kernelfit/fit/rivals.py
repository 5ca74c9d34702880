"""What other compositions would have made of the same runs.

An interval is drawn under one rule. Where the runs hardly prefer that rule, its neighbours'
values are possible too, and a coefficient that they move is not identified.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from kernelfit.fit.choose import SMALLEST_GAIN_IN_TIME, Choice
from kernelfit.fit.identify import PINNED
from kernelfit.fit.priors import to_values
from kernelfit.kernel.catalog import Coefficient, definition
from kernelfit.kernel.chip import Chip
from kernelfit.kernel.definitions import MOST

FARTHEST = 2.0 * PINNED
"""Distance of ln value between two rules above which a coefficient is not identified [1]:
what an interval of one that just is reaches either way."""


@dataclass(frozen=True, slots=True)
class Rival:
    """A composition that the runs do not rule out.

    Attributes
    ----------
    rule : str
        How resources combine.
    median_ape : float
        Its held-out error [1].
    ratios : tuple of (str, float)
        Each coefficient's value under it over that under the chosen rule [1].
    """

    rule: str
    median_ape: float
    ratios: tuple[tuple[str, float], ...]


def find_rivals(choice: Choice, names: Sequence[str], chip: Chip) -> tuple[Rival, ...]:
    """Return the compositions that held-out data do not rule out.

    Parameters
    ----------
    choice : Choice
        The chosen composition and those it was held against.
    names : sequence of str
        Coefficients, in column order.
    chip : Chip
        The GPU type.

    Returns
    -------
    tuple of Rival
        Every other rule on whose held-out error the chosen one gains less than
        ``SMALLEST_GAIN_IN_TIME``.
    """
    errors = {score.rule: score.median_ape for score in choice.scores}
    values = {
        rule: to_values(names, np.exp(solution.log_cost), chip)
        for rule, solution in choice.solutions
    }
    return tuple(
        Rival(
            rule,
            error,
            tuple((name, values[rule][name] / values[choice.rule][name]) for name in names),
        )
        for rule, error in errors.items()
        if rule != choice.rule and errors[choice.rule] > (1.0 - SMALLEST_GAIN_IN_TIME) * error
    )


def allow_for(
    coefficients: Sequence[Coefficient], rivals: Sequence[Rival]
) -> tuple[tuple[Coefficient, ...], tuple[str, ...]]:
    """Widen intervals to what rivals make of them, and say so.

    Parameters
    ----------
    coefficients : sequence of Coefficient
        Judged under the chosen rule.
    rivals : sequence of Rival
        Compositions that the runs do not rule out.

    Returns
    -------
    tuple of Coefficient
        In the same order: where a measured one's value under a rival lies outside of its
        interval, the interval reaches there; farther off than ``FARTHEST``, the verdict is
        ``weak``.
    tuple of str
        One warning per rival that moved any.
    """
    out = list(coefficients)
    notes = []
    for rival in rivals:
        ratios, moved = dict(rival.ratios), []
        for k, c in enumerate(coefficients):
            if c.verdict not in ("identified", "weak"):
                continue
            most = MOST.get(c.name, 1.0) if definition(c.name).kind == "efficiency" else np.inf
            there = min(c.value * ratios[c.name], most)
            if c.ci95[0] <= there <= c.ci95[1]:
                continue
            low, high = out[k].ci95
            far = abs(np.log(there / c.value)) > FARTHEST
            out[k] = replace(
                out[k],
                verdict="weak" if far else out[k].verdict,
                ci95=(min(low, there), max(high, there)),
            )
            moved.append(c.name)
        if moved:
            notes.append(
                f"how resources combine is not settled: {rival.rule} (held-out error "
                f"{100.0 * rival.median_ape:.1f} %) is nearly as good as the chosen rule and "
                f"puts these elsewhere, so their intervals reach there: {', '.join(moved)}"
            )
    return tuple(out), tuple(notes)
