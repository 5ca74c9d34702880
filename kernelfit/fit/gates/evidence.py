"""What the gates judge a step by: the datasheet's bound, and steps of like shape.

The usual time of a step is the median of steps of like shape in the same run, carried
to this step either as it is or in proportion to the datasheet's bound, whichever makes
those steps agree better. Nothing is fitted.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kernelfit.fit.gates.facts import disturbed, shared_prefix, unusable
from kernelfit.fit.steps import Bools, Floats, RunSteps
from kernelfit.kernel.datasheet import datasheet_values
from kernelfit.kernel.pricing import cells_of, price_many

Ints = npt.NDArray[np.int64]

FEWEST_ALIKE = 8
"""Steps of like shape below which the usual time is unknown."""

SMALLEST_SPREAD = 0.02
"""Spread below which no step's usual time is believed to be known [1]."""

FLOOR_SLACK = 0.98
_NORMAL_QUARTILE = 0.6745

# (parts of an octave) of tokens, of requests and of context; None takes the count itself.
_LEVELS: tuple[tuple[float | None, float, float], ...] = (
    (None, 0.0, 4.0),
    (4.0, 4.0, 2.0),
    (2.0, 1.0, 1.0),
    (1.0, 0.5, 0.5),
    (2.0, 0.0, 0.0),
)


@dataclass(frozen=True, slots=True, eq=False)
class Evidence:
    """A run and what its steps are compared with.

    Attributes
    ----------
    run : RunSteps
        The run.
    floor_s : ndarray, shape (n_steps,)
        Datasheet bound of each step [s].
    usual_s : ndarray, shape (n_steps,)
        Usual time of a step of this shape in this run [s]; NaN where too few are alike.
    spread : ndarray, shape (n_steps,)
        Robust standard deviation of the logarithm of the steps that are alike [1]; NaN
        where too few are.
    """

    run: RunSteps
    floor_s: Floats
    usual_s: Floats
    spread: Floats

    @staticmethod
    def of(run: RunSteps) -> Evidence:
        """Gather the evidence on a run.

        Parameters
        ----------
        run : RunSteps
            The run as stored.

        Returns
        -------
        Evidence
            The evidence. Steps that the record itself discredits, those below the
            datasheet's bound and those just before them do not enter the usual times.
        """
        floor = floor_s(run)
        sound = ~(unusable(run) | disturbed(run) | shared_prefix(run))
        with np.errstate(invalid="ignore"):
            short = (run.duration_s > 0.0) & (run.duration_s < FLOOR_SLACK * floor)
        # The step before an impossibly short one may hold its time.
        sound &= ~(short | np.concatenate([short[1:], [False]])[: run.size])
        usual, spread = _usual(run, floor, sound)
        return Evidence(run, floor, usual, spread)

    @property
    def excess(self) -> Floats:
        """Logarithm of duration over usual time [1]; NaN where either is unknown."""
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray(np.log(self.run.duration_s / self.usual_s))


def floor_s(run: RunSteps) -> Floats:
    """Return the least time of each step by the datasheet.

    Parameters
    ----------
    run : RunSteps
        The run.

    Returns
    -------
    ndarray, shape (n_steps,)
        Every peak reached, all resources of a stage at once, no host time [s].
    """
    values = datasheet_values(run.plan.coefficients)
    clean = {name: np.nan_to_num(column) for name, column in run.totals.items()}
    return np.asarray(price_many(run.plan, cells_of(run.plan, values), clean).overlap_s)


def _octaves(values: Floats, parts: float) -> Ints:
    return np.floor(np.log2(np.maximum(values, 0.0) + 1.0) * parts).astype(np.int64)


def _codes(run: RunSteps, level: tuple[float | None, float, float]) -> Ints:
    """Return a number per step; at one level, steps of one number are alike."""
    totals = {name: np.nan_to_num(values) for name, values in run.totals.items()}
    tokens, requests, decode = totals["tokens"], totals["requests"], totals["decode_requests"]
    context = totals["decode_context_tokens"] + totals["prefill_context_tokens"]
    of_tokens, of_requests, of_context = level
    if of_tokens is None:
        first = np.minimum(tokens, 2**24).astype(np.int64)
        second = np.minimum(requests, 2**13).astype(np.int64)
        third = np.minimum(decode, 2**13).astype(np.int64)
    else:
        first, second = _octaves(tokens, of_tokens), _octaves(requests, of_requests)
        third = np.where(decode >= requests, 0, np.where(decode > 0, 1, 2))
    code = (first << 14 | second) << 14 | third
    return np.asarray(code << 9 | _octaves(context, of_context))


def _usual(run: RunSteps, floor: Floats, sound: Bools) -> tuple[Floats, Floats]:
    """Return the usual time of each step and its spread, from the narrowest shape known."""
    usual = np.full(run.size, np.nan)
    spread = np.full(run.size, np.nan)
    with np.errstate(invalid="ignore", divide="ignore"):
        base = np.log(np.where(floor > 0.0, floor, np.nan))
        plain = np.log(run.duration_s)
    sound = sound & np.isfinite(base) & np.isfinite(plain)
    for level in _LEVELS:
        open_rows = np.flatnonzero(np.isnan(usual) & np.isfinite(base))
        if open_rows.size == 0 or not sound.any():
            break
        code = _codes(run, level)
        names, counts, found = _quartiles(code[sound], [plain[sound], (plain - base)[sound]])
        place = np.minimum(np.searchsorted(names, code[open_rows]), names.size - 1)
        enough = (names[place] == code[open_rows]) & (counts[place] >= FEWEST_ALIKE)
        rows, place = open_rows[enough], place[enough]
        # In proportion to the bound where that brings the steps closer together.
        scaled = found[1][1] < found[0][1]
        middle = np.where(scaled[place], found[1][0][place] + base[rows], found[0][0][place])
        usual[rows] = np.exp(middle)
        narrow = np.minimum(found[0][1], found[1][1])[place]
        spread[rows] = np.maximum(narrow, SMALLEST_SPREAD)
    return usual, spread


def _quartiles(code: Ints, values: list[Floats]) -> tuple[Ints, Ints, list[tuple[Floats, Floats]]]:
    """Return the codes, their counts, and per column the median and spread of each code."""
    names, counts = np.unique(code, return_counts=True)
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
    found = []
    for column in values:
        ordered = column[np.lexsort((column, code))]
        low, middle, high = (
            ordered[starts + np.rint(part * (counts - 1)).astype(np.int64)]
            for part in (0.25, 0.5, 0.75)
        )
        # The wider side: a lopsided group is not known better than its wider half.
        found.append((middle, np.maximum(high - middle, middle - low) / _NORMAL_QUARTILE))
    return names, counts, found
