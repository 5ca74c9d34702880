"""A plan: runs to record, and what each coefficient and flag would be afterwards."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernelfit.documents.workloads import (
    RequestGroup,
    Workload,
    WorkloadEpisode,
    WorkloadRun,
    workload_document,
)
from kernelfit.fit.calibration import Calibration
from kernelfit.fit.judge import NORMAL_95
from kernelfit.fit.steps import Floats, RunSteps
from kernelfit.flips.flag import Flag
from kernelfit.kernel.fitted import FittedKernel
from kernelfit.plan.choose import STARTUP_MINUTES, Chosen, choose
from kernelfit.plan.commands import bench_commands
from kernelfit.plan.episodes import (
    SECONDS_PER_MINUTE,
    Episode,
    Shape,
    episodes_of,
    gpus_of,
    shapes_for,
)
from kernelfit.plan.goals import Goals, goals_of
from kernelfit.plan.knowledge import Knowledge, coefficient_rows, know, spreads

SCHEMA = "kernelfit.plan/1"


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """What to record, and what it is worth.

    Attributes
    ----------
    knowledge : Knowledge
        What is known before.
    pools : tuple of FittedKernel
        Pools that runs were chosen from.
    labels : tuple of str
        Their labels.
    goals : Goals
        What the plan is for.
    left : tuple of Flag
        Open flags that no step time settles.
    episodes : tuple of Episode
        Candidates.
    chosen : Chosen
        The choice among them.
    startup_minutes : float
        Time of an engine's start that it counts with [min].
    """

    knowledge: Knowledge
    pools: tuple[FittedKernel, ...]
    labels: tuple[str, ...]
    goals: Goals
    left: tuple[Flag, ...]
    episodes: tuple[Episode, ...]
    chosen: Chosen
    startup_minutes: float

    def by_pool(self) -> dict[int, list[tuple[Episode, int]]]:
        """Return the chosen episodes and their repeats, pool by pool.

        Returns
        -------
        dict of int to list of (Episode, int)
            Pools and episodes in the order in which they were chosen.
        """
        out: dict[int, list[tuple[Episode, int]]] = {}
        for number, count in self.chosen.repeats:
            episode = self.episodes[number]
            out.setdefault(episode.pool, []).append((episode, count))
        return out

    def workload(self) -> Workload:
        """Return the runs as a workload that the recorder executes.

        Returns
        -------
        Workload
            One run per pool.
        """
        runs = []
        for number, members in self.by_pool().items():
            kernel = self.pools[number]
            cost = sum(episode.gpu_s * count for episode, count in members) / SECONDS_PER_MINUTE
            label = self.labels[number].replace(" ", "-")
            runs.append(
                WorkloadRun(
                    name=f"{kernel.plan.model.name}-{label}",
                    gpu=kernel.plan.chip.name,
                    model=kernel.plan.model.name,
                    engine_version=kernel.plan.engine_version,
                    pool=kernel.plan.pool,
                    gpu_minutes=cost + self.startup_minutes * gpus_of(kernel),
                    episodes=tuple(_episode(e.shape, count) for e, count in members),
                )
            )
        return Workload(f"plan-{self.knowledge.calibration.chip.name}", tuple(runs))


def _episode(shape: Shape, repeat: int) -> WorkloadEpisode:
    group = RequestGroup(shape.requests, shape.prompt_tokens, shape.output_tokens)
    return WorkloadEpisode(repeat, shape.one_by_one, (group,))


def make_plan(
    runs: Sequence[RunSteps],
    calibration: Calibration,
    pools: Sequence[FittedKernel],
    labels: Sequence[str],
    flags: Sequence[Flag],
    *,
    criterion: str = "d",
    gpu_minutes: float | None = None,
    startup_minutes: float = STARTUP_MINUTES,
) -> Plan:
    """Plan the next runs of one GPU type.

    Parameters
    ----------
    runs : sequence of RunSteps
        Gated runs behind the calibration.
    calibration : Calibration
        The calibration.
    pools : sequence of FittedKernel
        Pools that may be run; those on other GPU types are left out.
    labels : sequence of str
        Their labels, as the flags name them.
    flags : sequence of Flag
        Conclusions about them.
    criterion : str
        ``d`` for the volume of what is open, ``i`` for its mean squared interval.
    gpu_minutes : float, optional
        What may be spent [min]; without, as little as settles what can be.
    startup_minutes : float
        Time of an engine's start [min].

    Returns
    -------
    Plan
        The plan; it may hold no run where nothing is open.

    Raises
    ------
    InvalidArgument
        When no run is of the calibration's GPU type.
    """
    mine = [
        (kernel, label)
        for kernel, label in zip(pools, labels, strict=True)
        if kernel.plan.chip.name == calibration.chip.name
    ]
    kernels = tuple(kernel for kernel, _ in mine)
    names = tuple(label for _, label in mine)
    further = tuple(name for kernel in kernels for name in kernel.plan.coefficients)
    knowledge = know(runs, calibration, further)
    about = [flag for flag in flags if calibration.chip.name in flag.gpu.split(", ")]
    goals, left = goals_of(knowledge, kernels, names, about)
    episodes: list[Episode] = []
    for number, kernel in enumerate(kernels):
        wanted = [goal.proposed for goal in goals.flags if goal.pool == number]
        episodes += episodes_of(knowledge, number, kernel, shapes_for(kernel, wanted))
    chosen = choose(
        knowledge.covariance,
        goals,
        episodes,
        [gpus_of(kernel) for kernel in kernels],
        criterion=criterion,
        gpu_minutes=gpu_minutes,
        startup_minutes=startup_minutes,
    )
    return Plan(knowledge, kernels, names, goals, left, tuple(episodes), chosen, startup_minutes)


def coefficient_expectations(plan: Plan) -> list[dict[str, Any]]:
    """Return every coefficient's interval before, and as expected after, the plan.

    Parameters
    ----------
    plan : Plan
        The plan.

    Returns
    -------
    list of dict
        JSON-shaped: ``name``, ``unit``, ``verdict``, ``value``, ``ci95`` before,
        ``expected_ci95``, ``shrinkage`` (half-width of the logarithm after over before [1])
        and ``wanted``, whether the plan is for it. The published interval shrinks by as much
        as the information matrix says.
    """
    knowledge = plan.knowledge
    published = {c.name: c for c in knowledge.calibration.coefficients}
    rows = coefficient_rows(knowledge.names, knowledge.names)
    before = spreads(rows, knowledge.covariance)
    after = spreads(rows, plan.chosen.covariance)
    handed = {c.name: c for kernel in plan.pools for c in kernel.fitted.coefficients} | published
    out = []
    for name, one, two in zip(knowledge.names, before, after, strict=True):
        coefficient = handed.get(name)
        if coefficient is None:
            continue
        shrinkage = float(two / one) if one > 0.0 else 1.0
        value = coefficient.value
        low, high = coefficient.ci95
        out.append(
            {
                "name": name,
                "unit": coefficient.unit,
                "verdict": coefficient.verdict,
                "value": value,
                "ci95": [low, high],
                "expected_ci95": [
                    value * (low / value) ** shrinkage,
                    value * (high / value) ** shrinkage,
                ],
                "shrinkage": shrinkage,
                "wanted": name in plan.goals.coefficients,
            }
        )
    return out


def flag_expectations(plan: Plan) -> list[dict[str, Any]]:
    """Return every open flag's interval before, and as expected after, the plan.

    Parameters
    ----------
    plan : Plan
        The plan.

    Returns
    -------
    list of dict
        JSON-shaped: the flag's own names, ``before`` and ``expected`` (half-width of 95 % of
        its step time [1]), ``margin``, ``steps`` of its shape in the plan, ``settled``
        (whether three standard deviations are expected below the margin).
    """
    none = [0] * len(plan.goals.flags)
    before = plan.goals.flag_spreads(plan.knowledge.covariance, none)
    after = plan.goals.flag_spreads(plan.chosen.covariance, plan.chosen.steps)
    out: list[dict[str, Any]] = []
    for goal, one, two, steps in zip(
        plan.goals.flags, before, after, plan.chosen.steps, strict=True
    ):
        for flag in goal.flags:
            wanted = flag.margin / 3.0 if flag.margin else None
            out.append(
                {
                    **_named(flag),
                    "before": NORMAL_95 * float(one),
                    "expected": NORMAL_95 * float(two),
                    "steps": int(steps),
                    "settled": wanted is not None and bool(two < wanted),
                }
            )
    out += [
        {**_named(flag), "before": None, "expected": None, "steps": 0, "settled": False}
        for flag in plan.left
    ]
    return out


def _named(flag: Flag) -> dict[str, Any]:
    return {
        "gpu": flag.gpu,
        "model": flag.model,
        "pool": flag.pool,
        "load": flag.load,
        "conclusion": flag.conclusion,
        "flag": flag.flag,
        "margin": flag.margin,
        "measurement": flag.measurement,
    }


def plan_document(plan: Plan) -> dict[str, Any]:
    """Return a plan as a result document.

    Parameters
    ----------
    plan : Plan
        The plan.

    Returns
    -------
    dict
        Schema ``kernelfit.plan/1``: ``gpu``, ``calibration`` (digest), ``criterion`` free of
        units, ``runs`` with their episodes, steps, GPU-minutes and commands,
        ``coefficients``, ``flags``, ``gpu_minutes``, ``workload``.
    """
    workload = plan.workload()
    runs = []
    for run, (number, members) in zip(workload.runs, plan.by_pool().items(), strict=True):
        runs.append(
            {
                "name": run.name,
                "gpu": run.gpu,
                "model": run.model,
                "pool": plan.labels[number],
                "gpus": gpus_of(plan.pools[number]),
                "gpu_minutes": run.gpu_minutes,
                "steps": sum(n * count for e, count in members for _, n in e.steps),
                "episodes": [
                    {
                        "shape": episode.shape.text,
                        "repeat": count,
                        "gpu_minutes": count * episode.gpu_s / SECONDS_PER_MINUTE,
                    }
                    for episode, count in members
                ],
                "commands": list(bench_commands(run)),
            }
        )
    calibration = plan.knowledge.calibration
    return {
        "schema": SCHEMA,
        "gpu": calibration.chip.name,
        "calibration": calibration.digest,
        "gpu_minutes": plan.chosen.gpu_minutes,
        "met": plan.chosen.met,
        "runs": runs,
        "coefficients": coefficient_expectations(plan),
        "flags": flag_expectations(plan),
        "workload": workload_document(workload),
    }


def compare(document: dict[str, Any], after: Calibration) -> list[dict[str, Any]]:
    """Return the shrinkage that a plan expected beside the one that came.

    Parameters
    ----------
    document : dict
        From ``plan_document``, before the runs.
    after : Calibration
        The fit with the plan's runs added.

    Returns
    -------
    list of dict
        JSON-shaped: ``name``, ``verdict`` before and ``verdict_after``, ``ci95``,
        ``expected_ci95``, ``ci95_after``, ``expected`` and ``real`` (width of the interval's
        logarithm after over before [1]). What the later fit lacks is left out.
    """
    found = {c.name: c for c in after.coefficients}
    rows = []
    for entry in document["coefficients"]:
        later = found.get(entry["name"])
        if later is None:
            continue
        low, high = entry["ci95"]
        width = math.log(high / low)
        rows.append(
            {
                "name": entry["name"],
                "verdict": entry["verdict"],
                "verdict_after": later.verdict,
                "ci95": [low, high],
                "expected_ci95": list(entry["expected_ci95"]),
                "ci95_after": list(later.ci95),
                "expected": float(entry["shrinkage"]),
                "real": math.log(later.ci95[1] / later.ci95[0]) / width if width > 0.0 else None,
                "wanted": bool(entry["wanted"]),
            }
        )
    return rows


def widths(calibration: Calibration, names: Sequence[str]) -> Floats:
    """Return the widths of some coefficients' intervals.

    Parameters
    ----------
    calibration : Calibration
        The calibration.
    names : sequence of str
        Its coefficients.

    Returns
    -------
    ndarray, shape (n_names,)
        ln(high / low) [1].
    """
    found = {c.name: c.ci95 for c in calibration.coefficients}
    return np.asarray([math.log(found[name][1] / found[name][0]) for name in names])
