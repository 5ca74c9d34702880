"""A plan against a random choice and a full grid of the same cost, by what the refit gives."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.accuracy.__main__ import load_runs
from benchmarks.accuracy.measure import gated
from kernelfit.fit.calibrate import Options, calibrate
from kernelfit.fit.calibration import Calibration
from kernelfit.fit.steps import RunSteps
from kernelfit.flips import Flag
from kernelfit.flips.loads import candidates
from kernelfit.kernel import BatchTotals, FittedKernel, RequestShape
from kernelfit.kernel.tables import table_of
from kernelfit.plan.choose import choose
from kernelfit.plan.episodes import Episode, episodes_of, gpus_of, shapes_for, step_rows
from kernelfit.plan.goals import goals_of
from kernelfit.plan.knowledge import Knowledge, know
from kernelfit.plan.plan import widths
from tests.fit.simulate import simulate
from tests.flips.worlds import MODELS, NOISE, World, kernel_of, make_world
from tests.kernel.builders import CHIP, EAGER

DRAWS = 40
BLOCK = 40
"""Recorded steps that are chosen together."""


@dataclass(frozen=True)
class Problem:
    """A fit with little data, and what may be added to it."""

    base: tuple[RunSteps, ...]
    calibration: Calibration
    knowledge: Knowledge
    goals: object
    episodes: tuple[Episode, ...]
    gpus: tuple[int, ...]
    record: Callable[[Sequence[tuple[int, int]]], list[RunSteps]]
    once: bool = False
    """Whether an episode was recorded, and can be taken once only."""


def chosen_by_plan(problem: Problem, budget: float, criterion: str = "d") -> list[tuple[int, int]]:
    """Return the plan's episodes within so many GPU-minutes."""
    found = choose(
        problem.knowledge.covariance,
        problem.goals,  # type: ignore[arg-type]
        problem.episodes,
        problem.gpus,
        criterion=criterion,
        gpu_minutes=budget,
        startup_minutes=0.0,
        most_repeats=1 if problem.once else None,
    )
    return list(found.repeats)


def chosen_at_random(problem: Problem, budget: float, seed: int) -> list[tuple[int, int]]:
    """Return episodes at random until the next one does not fit."""
    rng = np.random.default_rng(seed)
    counts: dict[int, int] = {}
    spent = 0.0
    for number in rng.permutation(
        np.tile(np.arange(len(problem.episodes)), 1 if problem.once else 50)
    ):
        cost = problem.episodes[number].gpu_s / 60.0
        if spent + cost > budget:
            continue
        spent += cost
        counts[int(number)] = counts.get(int(number), 0) + 1
    return list(counts.items())


def chosen_by_grid(
    problem: Problem, budget: float, *, cheapest: bool = False
) -> list[tuple[int, int]]:
    """Return every point of the grid equally often, then as many as the rest pays for.

    They are evenly spaced over the grid, or, which takes a look at the costs, the cheapest.
    """
    costs = np.asarray([e.gpu_s / 60.0 for e in problem.episodes])
    turns = 0 if problem.once else int(budget // costs.sum())
    counts = dict.fromkeys(range(costs.size), turns) if turns else {}
    left = budget - turns * float(costs.sum())
    chosen: list[int] = []
    for size in range(1, costs.size + 1):
        order = np.unique(np.linspace(0, costs.size - 1, size).astype(int))
        if cheapest:
            order = np.argsort(costs)[:size]
        if costs[order].sum() <= left:
            chosen = order.tolist()
    for number in chosen:
        counts[number] = counts.get(number, 0) + 1
    return list(counts.items())


def refit(problem: Problem, repeats: Sequence[tuple[int, int]], seed: int) -> Calibration:
    """Add the episodes' steps and fit again, with the same composition."""
    runs = [*problem.base, *problem.record(repeats)]
    options = Options(draws=DRAWS, seed=seed, rule=problem.calibration.rule)
    return calibrate(runs, [run.size for run in runs], options)


def compared(problem: Problem, budget: float, seed: int) -> tuple[dict[str, np.ndarray], str]:
    """Return the intervals' widths after each choice, and a line about expectations."""
    wanted = problem.goals.coefficients  # type: ignore[attr-defined]
    wanted = tuple(n for n in wanted if n in {c.name for c in problem.calibration.coefficients})
    before = widths(problem.calibration, wanted)
    out = {"before": before}
    picks = {
        "plan d": chosen_by_plan(problem, budget),
        "plan i": chosen_by_plan(problem, budget, "i"),
        "grid": chosen_by_grid(problem, budget),
        "cheapest": chosen_by_grid(problem, budget, cheapest=True),
    }
    for name, repeats in picks.items():
        out[name] = widths(refit(problem, repeats, seed), wanted)
    out["random"] = np.exp(
        np.mean(
            [
                np.log(
                    widths(
                        refit(problem, chosen_at_random(problem, budget, 7 * seed + k), seed),
                        wanted,
                    )
                )
                for k in range(2)
            ],
            axis=0,
        )
    )
    rows = problem.goals.rows  # type: ignore[attr-defined]
    now = _spread(rows, problem.knowledge.covariance)
    after = problem.knowledge.covariance
    from kernelfit.plan.choose import updated

    for number, count in picks["plan d"]:
        after = updated(after, problem.episodes[number].rows * math.sqrt(count))
    keep = [n in wanted for n in problem.goals.coefficients]  # type: ignore[attr-defined]
    expected = float(np.exp(np.mean(np.log((_spread(rows, after) / now)[keep]))))
    real = float(np.exp(np.mean(np.log(out["plan d"] / before))))
    return out, f"expected shrinkage {expected:.2f}, real {real:.2f}"


def _spread(rows: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    return np.sqrt(np.einsum("ij,jk,ik->i", rows, covariance, rows))


def simulated(seed: int) -> Problem:
    """A world of which two short runs of one model on one GPU, decoding little, are known."""
    world = make_world(seed)
    base = []
    for number, tp in enumerate((1, 2)):
        batches = [
            [RequestShape(1, context, context - 1)] * requests
            for requests, context in zip(
                np.random.default_rng(seed).integers(1, 9, 300).tolist(),
                np.random.default_rng(seed + 1).integers(100, 900, 300).tolist(),
                strict=True,
            )
        ]
        batches += [[RequestShape(size, 0, size)] for size in (64, 200, 500, 900) * 3]
        base.append(_recorded(world, 0, tp, batches, seed * 10 + number))
    calibration = calibrate(base, [r.size for r in base], Options(draws=DRAWS, rule="share"))
    pools = [(m, replace(EAGER, tp=tp)) for m in range(len(MODELS)) for tp in (1, 2)]
    kernels = [kernel_of(calibration, MODELS[m], pool) for m, pool in pools]

    def record(repeats: Sequence[tuple[int, int]]) -> list[RunSteps]:
        by_pool: dict[int, list[list[RequestShape]]] = {}
        for number, count in repeats:
            episode = episodes[number]
            by_pool.setdefault(episode.pool, []).extend(_batches(episode) * count)
        return [
            _recorded(world, pools[p][0], pools[p][1].tp, batches, 100 * seed + p)
            for p, batches in by_pool.items()
        ]

    problem = _problem(base, calibration, kernels, record)
    episodes = problem.episodes
    return problem


def _recorded(
    world: World, model: int, tp: int, batches: list[list[RequestShape]], seed: int
) -> RunSteps:
    return simulate(
        f"r{model}-{tp}-{seed}",
        MODELS[model],
        CHIP,
        replace(EAGER, tp=tp),
        seed=seed,
        share=world.share,
        noise=NOISE,
        outliers=0.0,
        truth=world.truth,
        timing="step",
        batches=batches,
    )


def _batches(episode: Episode) -> list[list[RequestShape]]:
    """Return the episode's own steps, request by request."""
    out = []
    for totals, count in episode.steps:
        if totals.decode_requests:
            context = totals.decode_context_tokens // totals.requests - 1
            batch = [RequestShape(1, context, max(1, context - 1))] * totals.requests
        else:
            size = totals.tokens // totals.requests
            before = max(0, totals.prefill_context_tokens // totals.requests - size)
            batch = [RequestShape(size, before, before + size)] * totals.requests
        out += [batch] * count
    return out


def _problem(
    base: Sequence[RunSteps],
    calibration: Calibration,
    kernels: Sequence[FittedKernel],
    record: Callable[[Sequence[tuple[int, int]]], list[RunSteps]],
) -> Problem:
    knowledge = know(base, calibration, tuple(n for k in kernels for n in k.plan.coefficients))
    labels = [pool.label for pool in candidates(kernels)]
    goals, _ = goals_of(knowledge, kernels, labels, _no_flags())
    episodes = tuple(
        episode
        for number, kernel in enumerate(kernels)
        for episode in episodes_of(knowledge, number, kernel, shapes_for(kernel))
    )
    gpus = tuple(gpus_of(kernel) for kernel in kernels)
    return Problem(tuple(base), calibration, knowledge, goals, episodes, gpus, record)


def _no_flags() -> list[Flag]:
    return []


def recorded(kept: Sequence[RunSteps], seed: int, name: str) -> Problem:
    """Recorded runs: a short stretch of each is known, blocks of the rest may be added."""
    rng = np.random.default_rng(seed)
    base, rest = [], []
    for run in kept:
        start = int(rng.integers(0, max(1, run.size - 120)))
        at = np.arange(run.size)
        mine = (at >= start) & (at < start + 120)
        base.append(run.take(mine))
        rest.append(run.take(~mine))
    calibration = calibrate(base, [r.size for r in base], Options(draws=DRAWS))
    kernels = [FittedKernel.from_plan(run.plan, calibration.fitted()) for run in base]
    blocks = [
        (number, slice(start, start + BLOCK))
        for number, run in enumerate(rest)
        for start in range(0, run.size - BLOCK + 1, BLOCK)
    ]
    knowledge = know(base, calibration)
    labels = [pool.label for pool in candidates(kernels)]
    goals, _ = goals_of(knowledge, kernels, labels, _no_flags())
    episodes = []
    for number, part in blocks:
        run = rest[number]
        steps = [
            BatchTotals(**{key: int(run.totals[key][at]) for key in _FIELDS})
            for at in range(part.start, part.stop)
        ]
        rows, times = step_rows(knowledge, kernels[number], steps)
        episodes.append(
            Episode(
                number,
                shapes_for(kernels[number])[0],
                (),
                rows.reshape(-1, rows.shape[2]),
                float(times.sum()) * gpus_of(kernels[number]),
            )
        )

    def record(repeats: Sequence[tuple[int, int]]) -> list[RunSteps]:
        masks = [np.zeros(run.size, dtype=bool) for run in rest]
        for number, _ in repeats:
            where, part = blocks[number]
            masks[where][part] = True
        return [
            replace(run.take(mask), run=f"{run.run}-{name}")
            for run, mask in zip(rest, masks, strict=True)
            if mask.any()
        ]

    gpus = tuple(gpus_of(kernel) for kernel in kernels)
    found = tuple(episodes)
    return Problem(tuple(base), calibration, knowledge, goals, found, gpus, record, once=True)


_FIELDS = tuple(name for name in table_of([BatchTotals()]) if "window" not in name)


def run(shared: Path, seeds: int, parts: Sequence[str]) -> Iterator[str]:
    """Compare on simulated worlds and on recorded runs, line by line."""
    results: list[dict[str, np.ndarray]] = []
    for seed in range(1, seeds + 1) if "simulated" in parts else ():
        problem = simulated(seed)
        budget = 0.004 * sum(e.gpu_s for e in problem.episodes) / 60.0
        found, said = compared(problem, budget, seed)
        results.append(found)
        yield f"  simulated {seed}: {budget * 60:.1f} GPU-s; {said}; {_ratios(found)}"
    if results:
        yield f"  simulated, all: {_ratios(_joined(results))}"
    groups: list[tuple[str, Path, Callable[[RunSteps], bool]]] = []
    if "traces" in parts:
        groups.append(("own traces", Path("none"), lambda r: r.plan.chip.kind == "cpu"))
    if "b300" in parts and (shared / "data").is_dir():
        groups.append(("B300", shared, lambda r: r.run.startswith("b300-qwen3-32b")))
    for name, where, wanted in groups:
        with tempfile.TemporaryDirectory() as work:
            runs = load_runs(where, Path(work))[0]
        kept, _ = gated(runs, wanted)
        mine = []
        for seed in range(1, seeds + 1):
            problem = recorded(kept, seed, "more")
            budget = 0.08 * sum(e.gpu_s for e in problem.episodes) / 60.0
            found, said = compared(problem, budget, seed)
            mine.append(found)
            yield f"  {name} {seed}: {budget * 60:.1f} GPU-s; {said}; {_ratios(found)}"
        yield f"  {name}, all: {_ratios(_joined(mine))}"


def _joined(results: Sequence[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    return {name: np.concatenate([r[name] for r in results]) for name in results[0]}


def _ratios(found: dict[str, np.ndarray]) -> str:
    """Return geometric means of the widths after over before, and the plan's over the others'."""
    mean = {name: float(np.exp(np.mean(np.log(w)))) for name, w in found.items()}
    parts = [f"{name} {mean[name] / mean['before']:.2f}" for name in mean if name != "before"]
    return (
        f"widths left: {', '.join(parts)}; plan d / random {mean['plan d'] / mean['random']:.2f}, "
        f"/ grid {mean['plan d'] / mean['grid']:.2f}, "
        f"/ its cheapest points {mean['plan d'] / mean['cheapest']:.2f}"
    )
