"""Data-quality gates: which steps are kept, and why the others are not.

Every gate looks at the data alone or at the datasheet, never at a fitted model, so that
a step cannot be dropped for being badly predicted. Rows are marked, not deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from kernelfit.fit.steps import Bools, RunSteps
from kernelfit.kernel.datasheet import datasheet_values
from kernelfit.kernel.pricing import cells_of, price_many

WARM_UP_STEPS = 5
FLOOR_SLACK = 0.98
CEILING_RATIO = 500.0
BURST_RATIO = 1.5
BURST_WINDOW_STEPS = 9
RECORDER_COST_LIMIT = 0.01
CONTENTION_RATIO = 1.25


@dataclass(frozen=True, slots=True)
class Gate:
    """One rule.

    Attributes
    ----------
    id : str
        Short name.
    rule : str
        The rule in one sentence.
    drops : callable
        From a run to a mask of the steps that the rule drops.
    """

    id: str
    rule: str
    drops: Callable[[RunSteps], Bools]


@dataclass(frozen=True, slots=True)
class GateCount:
    """What one gate dropped from one run.

    Attributes
    ----------
    id : str
        The gate.
    run : str
        The run.
    rows : int
        Steps dropped by this gate and by none before it.
    rule : str
        The gate's rule.
    examples : tuple of int
        Up to three step indices.
    """

    id: str
    run: str
    rows: int
    rule: str
    examples: tuple[int, ...]


def _unusable(run: RunSteps) -> Bools:
    bad = ~np.isfinite(run.duration_s) | (run.duration_s <= 0.0)
    for values in run.totals.values():
        bad |= ~np.isfinite(values)
    return bad | (run.totals["tokens"] < 1)


def _warm_up(run: RunSteps) -> Bools:
    return np.arange(run.size) < WARM_UP_STEPS


def _disturbed(run: RunSteps) -> Bools:
    marks = {"resumed", "preempted", "spec", "resume_or_spec", "in_flight", "warmup"}
    return np.asarray([bool(marks.intersection(m)) for m in run.marks], dtype=bool)


def _floor_s(run: RunSteps) -> np.ndarray:
    values = datasheet_values(run.plan.coefficients)
    clean = {name: np.nan_to_num(column) for name, column in run.totals.items()}
    return np.asarray(price_many(run.plan, cells_of(run.plan, values), clean).overlap_s)


def _below_floor(run: RunSteps) -> Bools:
    return np.asarray(run.duration_s < FLOOR_SLACK * _floor_s(run))


def _above_ceiling(run: RunSteps) -> Bools:
    floor = _floor_s(run)
    high = run.duration_s > CEILING_RATIO * floor
    # A share of odd rows is noise; most of the rows is a duration of something else.
    return np.asarray(high if np.mean(high) > 0.5 else np.zeros(run.size, dtype=bool))


def _bursts(run: RunSteps) -> Bools:
    """Find steps far slower than the median of neighbours of the same shape."""
    tokens, requests = run.totals["tokens"], run.totals["requests"]
    out = np.zeros(run.size, dtype=bool)
    half = BURST_WINDOW_STEPS // 2
    for i in range(run.size):
        low, high = max(0, i - half), min(run.size, i + half + 1)
        same = (tokens[low:high] == tokens[i]) & (requests[low:high] == requests[i])
        same[i - low] = False
        if np.count_nonzero(same) < half:
            continue
        usual = float(np.median(run.duration_s[low:high][same]))
        out[i] = run.duration_s[i] > BURST_RATIO * usual
    return out


def _contended(run: RunSteps) -> Bools:
    """Find steps beside which fixed work took far longer than usual."""
    slow = run.probe_s > CONTENTION_RATIO * run.probe_reference_s
    # The probe follows its step; the one before it tells how the step began.
    return np.asarray(slow | np.concatenate([[False], slow[:-1]]))


def _recorder_cost(run: RunSteps) -> Bools:
    return np.full(run.size, run.recorder_cost_share > RECORDER_COST_LIMIT)


GATES: tuple[Gate, ...] = (
    Gate("unusable", "no finite positive duration, or counts missing", _unusable),
    Gate(
        "recorder_cost",
        f"recording took more than {RECORDER_COST_LIMIT:.0%} of the run's time",
        _recorder_cost,
    ),
    Gate("warm_up", f"one of the first {WARM_UP_STEPS} steps of a run", _warm_up),
    Gate(
        "disturbed",
        "preempted, resumed, speculative, or more than one step in flight",
        _disturbed,
    ),
    Gate(
        "below_floor",
        "shorter than the datasheet's own lower bound, so the duration is not the step's",
        _below_floor,
    ),
    Gate(
        "above_ceiling",
        f"most steps of the run exceed {CEILING_RATIO:.0f} times the datasheet's bound",
        _above_ceiling,
    ),
    Gate(
        "contended",
        "the speed probe before or after it ran more than "
        f"{CONTENTION_RATIO - 1:.0%} slower than usual on this machine",
        _contended,
    ),
    Gate(
        "burst",
        f"{BURST_RATIO} times slower than the median of its neighbours of the same shape",
        _bursts,
    ),
)


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
    probes = np.concatenate([run.probe_s[np.isfinite(run.probe_s)] for run in runs])
    if probes.size == 0:
        return tuple(runs)
    reference = float(np.median(probes))
    return tuple(replace(run, probe_reference_s=reference) for run in runs)


def apply_gates(run: RunSteps, off: Sequence[str] = ()) -> tuple[RunSteps, tuple[GateCount, ...]]:
    """Return the steps of a run that pass every gate.

    Parameters
    ----------
    run : RunSteps
        The run as stored.
    off : sequence of str
        Ids of gates that are switched off.

    Returns
    -------
    RunSteps
        The kept steps.
    tuple of GateCount
        What each gate dropped; a step counts for the first gate that drops it.
    """
    dropped = np.zeros(run.size, dtype=bool)
    counts: list[GateCount] = []
    for gate in GATES:
        if gate.id in off:
            continue
        new = gate.drops(run) & ~dropped
        dropped |= new
        rows = int(np.count_nonzero(new))
        if rows:
            examples = tuple(int(run.step[i]) for i in np.flatnonzero(new)[:3])
            counts.append(GateCount(gate.id, run.run, rows, gate.rule, examples))
    return run.take(~dropped), tuple(counts)
