"""What is known of host work inside the step, and what cannot be told from the device's."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kernelfit.fit.calibration import Evidence
from kernelfit.fit.steps import RunSteps
from kernelfit.kernel.catalog import Coefficient
from kernelfit.kernel.laws import SCHEDULE_COEFFICIENTS


def inside_step(
    runs: Sequence[RunSteps], coefficients: Sequence[Coefficient], evidence: Sequence[Evidence]
) -> tuple[str, ...]:
    """Say which host work inside the step was measured, and how.

    Parameters
    ----------
    runs : sequence of RunSteps
        Gated runs of one GPU type.
    coefficients : sequence of Coefficient
        What was fitted to them.
    evidence : sequence of Evidence
        In the same order.

    Returns
    -------
    tuple of str
        One sentence on scheduling and updating, one on launching, and one on each group that
        cannot be told apart.
    """
    told = []
    known = {c.name: c for c in coefficients}
    schedule = [known[name] for name in SCHEDULE_COEFFICIENTS if name in known]
    launches = [c for c in coefficients if c.name.startswith("launch_")]
    if schedule:
        told.append(f"Scheduling and updating ({_verdicts(schedule)}): {_schedule(runs)}.")
    if launches:
        told.append(f"Launching ({_verdicts(launches)}): {_launch(runs)}.")
    host = {c.name for c in (*schedule, *launches)}
    groups = {
        tuple(sorted((c.name, *e.alias)))
        for c, e in zip(coefficients, evidence, strict=True)
        if c.name in host and e.alias
    }
    told += [
        f"{', '.join(group)}: the timing does not tell them apart, their sum alone is known."
        for group in sorted(groups)
    ]
    return tuple(told)


def _verdicts(coefficients: Sequence[Coefficient]) -> str:
    return ", ".join(f"{c.name} {c.verdict}" for c in coefficients)


def _schedule(runs: Sequence[RunSteps]) -> str:
    alone = [run for run in runs if run.timing == "device" and np.isfinite(run.host_s).any()]
    ahead = [run for run in runs if run.plan.resolution.async_scheduling]
    within = [run for run in runs if run.timing != "device"]
    words = []
    if alone:
        rows = sum(int(np.count_nonzero(np.isfinite(run.host_s))) for run in alone)
        words.append(
            f"measured by themselves, outside of the device's span, in {_of(alone, runs)} "
            f"({rows:,} steps)"
        )
    if within:
        words.append(
            f"part of the duration in {_of(within, runs)}, told from the device's time there only "
            "by growing with steps and requests"
        )
    if not alone and not within:
        words.append("outside of the measured spans and not recorded")
    words.append(
        f"hidden behind the device in {_of(ahead, runs)} with asynchronous scheduling, where only "
        "what outlasts the device shows"
        if ahead
        else "no run schedules ahead, so none of it is hidden"
    )
    return "; ".join(words)


def _launch(runs: Sequence[RunSteps]) -> str:
    if runs[0].plan.chip.kind == "cpu":
        return (
            "the same cores launch and compute, so a launch is what a step takes beyond its work; "
            "it is told from that by growing with layers, steps and requests, not with tokens"
        )
    return (
        "inside of the measured duration together with the device's time; it is told from that "
        "only by growing with layers, graphs, steps and requests, and what hides behind the device "
        "shows in no timing"
    )


def _of(some: Sequence[RunSteps], runs: Sequence[RunSteps]) -> str:
    return f"{len(some)} of {len(runs)} run{'' if len(runs) == 1 else 's'}"
