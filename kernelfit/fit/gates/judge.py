"""All gates in order, and what they make of a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from kernelfit.fit.gates import facts, neighbours, order, physics
from kernelfit.fit.gates.base import Gate, GateCount
from kernelfit.fit.gates.evidence import FEWEST_ALIKE, Evidence
from kernelfit.fit.steps import Bools, RunSteps


def _of_run(rule: Callable[[RunSteps], Bools]) -> Callable[[Evidence], Bools]:
    return lambda seen: rule(seen.run)


def _gap_notes(seen: Evidence) -> Bools:
    return order.gaps(seen) if seen.run.timing != "cycle" else np.zeros(seen.run.size, dtype=bool)


# The first gate that drops a step counts it: what the record says comes before what is
# inferred, and a pair is named as one before a half of it is dropped for something else.
GATES: tuple[Gate, ...] = (
    Gate("unusable", "no finite positive duration, or counts missing", _of_run(facts.unusable)),
    Gate(
        "recorder_cost",
        f"recording took more than {facts.RECORDER_COST_LIMIT:.0%} of the run's time",
        _of_run(facts.recorder_cost),
    ),
    Gate(
        "chunks_per_token",
        "the client counted chunks that are not tokens: more than "
        f"{facts.CHUNK_TOLERANCE:.0%} away from one a token",
        _of_run(facts.chunks_per_token),
    ),
    Gate(
        "copied",
        "an exact multiple of the steps of another run, so not a measurement of its own",
        _of_run(facts.copied),
    ),
    Gate(
        "not_step_time",
        "most steps of the run are shorter than the datasheet's own lower bound, so the "
        "column is no step time (a dispatch, or a wait)",
        physics.not_step_time,
    ),
    Gate(
        "warm_up",
        f"one of the first {order.WARM_UP_STEPS} steps after a start, or of a stretch "
        f"from there most of which is {order.WARM_UP_RATIO} times slower than the same "
        "shapes later",
        order.warm_up,
    ),
    Gate(
        "gap",
        "a cycle beside missing step ids spans more than one step (other timings are only noted)",
        order.gap,
        _gap_notes,
    ),
    Gate(
        "clock",
        "its start goes back, or it ends after the second step that follows it has begun",
        order.clock,
    ),
    Gate(
        "disturbed",
        "preempted, resumed, speculative, or more than one step in flight",
        _of_run(facts.disturbed),
    ),
    Gate(
        "merged",
        f"of two neighbours one is {neighbours.MERGED_RATIO} times too slow and the other "
        "too fast by as much, and their sum is right; or one is impossibly short and the "
        "one before it holds its time: the times are swapped or merged",
        neighbours.merged,
    ),
    Gate(
        "spilled",
        "a decode step beside a prompt, where such steps of the run are "
        f"{neighbours.SPILL_RATIO} times slower than others of their shape: part of the "
        "prompt's time is theirs, and is given back to it",
        neighbours.spilled,
    ),
    Gate(
        "shared_prefix",
        "its requests read the same KV blocks, so their contexts do not add up",
        _of_run(facts.shared_prefix),
    ),
    Gate(
        "below_floor",
        "shorter than the datasheet's own lower bound, so the duration is not the step's",
        physics.below_floor,
    ),
    Gate(
        "above_ceiling",
        f"most steps of the run exceed {physics.CEILING_RATIO:.0f} times the datasheet's bound",
        physics.above_ceiling,
    ),
    Gate(
        "contended",
        "the speed probe before or after it ran more than "
        f"{neighbours.CONTENTION_RATIO - 1:.0%} slower than usual on this machine",
        neighbours.contended,
    ),
    Gate(
        "burst",
        f"{neighbours.BURST_RATIO} times slower than the median of its neighbours of "
        "the same shape",
        neighbours.bursts,
    ),
    Gate(
        "stray",
        f"{neighbours.STRAY_RATIO:g} times slower or faster than the median of the steps of "
        f"like shape in the run, and {neighbours.STRAY_SPREADS:g} of their spreads "
        f"away (at least {FEWEST_ALIKE} alike)",
        neighbours.stray,
    ),
)


def _judge(
    run: RunSteps, off: Sequence[str]
) -> tuple[npt.NDArray[np.int64], tuple[GateCount, ...]]:
    """Return for each step the place of the gate that drops it, or -1, and the counts."""
    place = np.full(run.size, -1, dtype=np.int64)
    if run.size == 0:
        return place, ()
    seen = Evidence.of(run)
    counts: list[GateCount] = []
    for index, gate in enumerate(GATES):
        if gate.id in off:
            continue
        new = gate.drops(seen) & (place < 0)
        place[new] = index
        rows = int(np.count_nonzero(new))
        shown = new if rows or gate.notes is None else gate.notes(seen)
        examples = tuple(int(run.step[i]) for i in np.flatnonzero(shown)[:3])
        if examples:
            counts.append(GateCount(gate.id, run.run, rows, gate.rule, examples))
    return place, tuple(counts)


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
        What each gate dropped; a step counts for the first gate that drops it, and steps
        kept with another duration are counted apart. A gate that only notes something
        counts no rows and gives examples.
    """
    place, counts = _judge(run, off)
    mended, counts = _returned(run, place, counts)
    return mended.take(place < 0), counts


def _returned(
    run: RunSteps, place: npt.NDArray[np.int64], counts: tuple[GateCount, ...]
) -> tuple[RunSteps, tuple[GateCount, ...]]:
    """Give prompts the time back that decode steps beside them took."""
    spilled = place == next(i for i, gate in enumerate(GATES) if gate.id == "spilled")
    if not spilled.any():
        return run, counts
    duration = neighbours.returned(Evidence.of(run), spilled)
    moved = int(np.count_nonzero((duration != run.duration_s) & (place < 0)))
    told = tuple(replace(c, repaired=moved) if c.id == "spilled" else c for c in counts)
    return replace(run, duration_s=duration), told


def gate_marks(run: RunSteps, off: Sequence[str] = ()) -> tuple[str | None, ...]:
    """Return which gate drops each step of a run.

    Parameters
    ----------
    run : RunSteps
        The run as stored.
    off : sequence of str
        Ids of gates that are switched off.

    Returns
    -------
    tuple of (str or None), length n_steps
        Id of the first gate that drops the step; None where it is kept.
    """
    names: list[str | None] = [*(gate.id for gate in GATES), None]
    return tuple(names[index] for index in _judge(run, off)[0])
