"""What only several runs together tell: the usual speed of a machine, and copies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from kernelfit.fit.gates.facts import COPIED, unusable
from kernelfit.fit.steps import Bools, Floats, RunSteps

FEWEST_COPIES = 20
FEWEST_DISTINCT = 10
COPIED_SHARE = 0.9
RATIO_TOLERANCE = 1e-6
COARSEST = 1e-3
"""Resolution of durations, relative to them, beyond which equal ratios prove nothing [1]."""


def with_probe_reference(runs: Sequence[RunSteps]) -> tuple[RunSteps, ...]:
    """Tell every run what the speed probe usually takes on its machine.

    Parameters
    ----------
    runs : sequence of RunSteps
        All runs of one GPU type.

    Returns
    -------
    tuple of RunSteps
        The runs; the reference is the median of all their probes [s], so that a run that
        was disturbed throughout is told from the others.

    Notes
    -----
    Not the fastest probes: a core of a shared host runs at several speeds, and what is
    usual there is what its steps were made at.
    """
    probes = [run.probe_s[np.isfinite(run.probe_s)] for run in runs]
    if not any(values.size for values in probes):
        return tuple(runs)
    reference = float(np.median(np.concatenate(probes)))
    return tuple(replace(run, probe_reference_s=reference) for run in runs)


@dataclass(frozen=True, slots=True, eq=False)
class _Keyed:
    """The usable steps of a run, each under the number of its shape's occurrence."""

    key: npt.NDArray[np.uint64]
    row: npt.NDArray[np.int64]
    duration_s: Floats
    resolution_s: float


def with_copies(runs: Sequence[RunSteps]) -> tuple[RunSteps, ...]:
    """Mark the steps that are an exact multiple of the steps of an earlier run.

    Parameters
    ----------
    runs : sequence of RunSteps
        All runs of a fit, the more trusted first.

    Returns
    -------
    tuple of RunSteps
        The runs; steps that are copies carry the mark ``copied``, which the gate of that
        name drops. Of a run and its copy, the one given first is kept.

    Notes
    -----
    Occurrence by occurrence, the steps of one shape in two runs are set against each
    other. They are copies where at least 20 pairs with ten different durations exist and
    nine in ten of them have the same ratio, within 1e-6 or what the rounding of the
    durations explains. Two measurements never agree so: the noise of a step is percents.
    Durations rounded to more than a thousandth of their size are not judged.
    """
    keyed = [_keyed(run) for run in runs]
    out: list[RunSteps] = []
    for index, run in enumerate(runs):
        copies = np.zeros(run.size, dtype=bool)
        for earlier in keyed[:index]:
            copies |= _copies(keyed[index], earlier, run.size)
        if not copies.any():
            out.append(run)
            continue
        marks = tuple(
            (*own, COPIED) if copy and COPIED not in own else own
            for own, copy in zip(run.marks, copies, strict=True)
        )
        out.append(replace(run, marks=marks))
    return tuple(out)


def _keyed(run: RunSteps) -> _Keyed:
    row = np.flatnonzero(~unusable(run))
    shape = np.zeros(row.size, dtype=np.uint64)
    for name in sorted(run.totals):
        shape = _mixed(shape ^ run.totals[name][row].astype(np.float64).view(np.uint64))
    order = np.argsort(shape, kind="stable")
    ordered = shape[order]
    place = np.arange(row.size)
    first = np.concatenate([[True], ordered[1:] != ordered[:-1]])[: row.size]
    nth = place - np.maximum.accumulate(np.where(first, place, 0))
    key = _mixed(ordered ^ _mixed(nth.astype(np.uint64)))
    duration = run.duration_s[row]
    steps = np.diff(np.unique(duration))
    # What rounding in binary leaves between two equal decimals is no step.
    steps = steps[steps > 1e-9 * np.max(duration, initial=0.0)]
    return _Keyed(key, row[order], duration[order], float(np.min(steps, initial=np.inf)))


def _mixed(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Spread the bits of 64-bit integers (the finaliser of the SplitMix64 generator)."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def _copies(new: _Keyed, old: _Keyed, size: int) -> Bools:
    """Return which steps of the new run are copies of the old one's."""
    out = np.zeros(size, dtype=bool)
    _, mine, theirs = np.intersect1d(new.key, old.key, assume_unique=True, return_indices=True)
    if mine.size < FEWEST_COPIES or np.unique(new.duration_s[mine]).size < FEWEST_DISTINCT:
        return out
    ours, other = new.duration_s[mine], old.duration_s[theirs]
    rounding = max(
        new.resolution_s / float(np.median(ours)), old.resolution_s / float(np.median(other))
    )
    if rounding > COARSEST:
        return out
    ratio = np.log(ours / other)
    usual = float(np.median(ratio))
    tolerance = np.maximum(RATIO_TOLERANCE, new.resolution_s / ours + old.resolution_s / other)
    alike = np.abs(ratio - usual) <= tolerance
    if np.mean(alike) >= COPIED_SHARE:
        out[new.row[mine[alike]]] = True
    return out
