"""Simulated GPUs where every right answer is known.

A world has coefficients, a share of overlap and noise of its own. Its steps are priced by
the loops of ``tests.fit.simulate`` and not by the package's laws; what is asked about it is
answered from them, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from kernelfit.documents.questions import Question
from kernelfit.fit.calibrate import Options, calibrate
from kernelfit.fit.calibration import Calibration
from kernelfit.fit.steps import RunSteps
from kernelfit.flips.measured import MeasuredShape, measured_shape
from kernelfit.flips.settle import Proposed
from kernelfit.kernel import BatchTotals, FittedKernel, Model, Pool, RequestShape
from kernelfit.kernel.totals import TOTAL_FIELDS
from tests.fit.simulate import TRUTH, price, simulate
from tests.kernel.builders import CHIP, EAGER, dense

NOISE = 0.02
MODELS: tuple[Model, ...] = (
    dense("wide", hidden=4096, layers=8, heads=32, kv_heads=8, intermediate=12288),
    dense("full", hidden=2048, layers=12, heads=16, kv_heads=16, intermediate=5632),
    dense("deep", hidden=1024, layers=48, heads=8, kv_heads=4, intermediate=2816),
)
WIDTHS = (1, 2, 4)


@dataclass(frozen=True)
class World:
    """One GPU type."""

    truth: Mapping[str, float]
    share: float
    seed: int

    def times(self, model: Model, pool: Pool, requests: list[RequestShape]) -> tuple[float, ...]:
        """Return a step's time under full overlap, under none, and as it really is [s]."""
        step = price(model, CHIP, pool, requests, self.truth)
        ahead = step.ahead + (step.schedule if pool.async_scheduling else 0.0)
        waited = step.waited + (0.0 if pool.async_scheduling else step.schedule)

        def joined(share: float) -> float:
            device = sum((1 - share) * sum(s) + share * max(s) for s in step.stages)
            return max(device, ahead) + waited

        none = sum(sum(s) for s in step.stages) + ahead + waited
        return joined(1.0), none, joined(self.share)

    def decode(self, model: Model, pool: Pool, requests: int, context: int) -> tuple[float, ...]:
        """Return a decode step's times [s]."""
        return self.times(model, pool, [RequestShape(1, context, max(1, context - 1))] * requests)

    def runs(self, widths: tuple[int, ...] = (1, 2), steps: int = 700) -> list[RunSteps]:
        """Record every model at some widths."""
        return [
            simulate(
                f"{model.name}-{tp}",
                model,
                CHIP,
                replace(EAGER, tp=tp),
                seed=1000 * self.seed + 10 * number + tp,
                steps=steps,
                share=self.share,
                noise=NOISE,
                truth=self.truth,
                timing="step",
            )
            for number, model in enumerate(MODELS)
            for tp in widths
        ]

    def measure(
        self, model: Model, pool: Pool, wanted: Proposed, rng: np.random.Generator
    ) -> MeasuredShape:
        """Take a proposed measurement, with the noise of so many steps."""
        requests = self.requests_of(wanted)
        totals = BatchTotals.of(requests)
        steps = max(1, wanted.steps)
        error = NOISE / np.sqrt(steps)
        mean_s = self.times(model, pool, requests)[2] * float(np.exp(error * rng.normal()))
        plan = kernel_of(None, model, pool).plan
        columns = {name: float(getattr(totals, name)) for name in TOTAL_FIELDS}
        return measured_shape(plan, columns, mean_s, error, steps)

    @staticmethod
    def requests_of(wanted: Proposed) -> list[RequestShape]:
        """Return the batch that a measurement asks for."""
        context = wanted.context_tokens
        decoding = wanted.requests - (1 if wanted.chunk_tokens else 0)
        requests = [RequestShape(1, context, max(1, context - 1))] * decoding
        if wanted.chunk_tokens:
            before = wanted.prompt_tokens - wanted.chunk_tokens
            requests.append(RequestShape(wanted.chunk_tokens, before, wanted.prompt_tokens))
        return requests


def kernel_of(calibration: Calibration | None, model: Model, pool: Pool) -> FittedKernel:
    """Return a pool's kernel; without a calibration at the planted truth."""
    if calibration is not None:
        return FittedKernel.of(model, CHIP, pool, "0.32.0", calibration.fitted())
    from kernelfit.kernel.catalog import Coefficient, definition
    from kernelfit.kernel.handover import Fitted

    known = tuple(
        Coefficient(n, v, definition(n).unit, CHIP.name, "measured", "identified", (v, v))
        for n, v in TRUTH.items()
    )
    return FittedKernel.of(model, CHIP, pool, "0.32.0", Fitted("none", known, 0.0, (), (), (), ()))


def make_world(seed: int) -> World:
    """Draw a GPU: every coefficient within a factor, overlap anywhere between none and all."""
    rng = np.random.default_rng(seed)
    truth = {}
    for name, value in TRUTH.items():
        moved = value * float(np.exp(0.3 * rng.normal()))
        truth[name] = min(moved, 0.95) if name.endswith("_eff") or "_eff_" in name else moved
    for op in ("allreduce_custom", "allgather"):
        # A slow start is slower than a steady stream.
        steady = truth[f"{op}_eff"]
        truth[f"{op}_transition_eff"] = max(truth[f"{op}_transition_eff"], steady * 1.3)
    share = (0.0, 0.5, 1.0, float(rng.uniform(0.15, 0.85)))[seed % 4]
    return World(truth, share, seed)


def fitted(world: World, draws: int = 40, **words: object) -> tuple[list[RunSteps], Calibration]:
    """Record a world and fit it."""
    runs = world.runs(**words)  # type: ignore[arg-type]
    options = Options(draws=draws, seed=world.seed)
    return runs, calibrate(runs, [run.size for run in runs], options)


@dataclass(frozen=True)
class Case:
    """One question about one pool, or several, with its right answers."""

    conclusion: str
    kernels: tuple[FittedKernel, ...]
    question: Question
    overlap: str
    no_overlap: str
    right: str
    clear: float
    """How far from flipping the truth is: the least relative distance of the right answer,
    and of both bounds, from the point where they change [1]."""


def meets_cases(
    world: World, calibration: Calibration, count: int, rng: np.random.Generator
) -> list[Case]:
    """Ask whether pools meet targets between half and twice what is right."""
    out = []
    for _ in range(count):
        model = MODELS[int(rng.integers(len(MODELS)))]
        pool = replace(EAGER, tp=int(rng.choice(WIDTHS)))
        requests = round(128 ** rng.random())
        context = int(64 * (4000 / 64) ** rng.random())
        over, none, right = world.decode(model, pool, requests, context)
        target = right * float(np.exp(rng.uniform(-0.7, 0.7)))
        words = ["yes" if time <= target else "no" for time in (over, none, right)]
        clear = min(abs(target / time - 1.0) for time in (over, none, right))
        question = Question(context, min(target, 10.0), (requests,))
        kernel = kernel_of(calibration, model, pool)
        out.append(Case("meets_token_latency", (kernel,), question, *words, clear))
    return out


def load_cases(
    world: World, calibration: Calibration, count: int, rng: np.random.Generator
) -> list[Case]:
    """The same with prompts between the decode steps, a chunk a prompt."""
    out = []
    for _ in range(count):
        model = MODELS[int(rng.integers(len(MODELS)))]
        pool = replace(EAGER, tp=int(rng.choice(WIDTHS)))
        requests = round(48 ** rng.random())
        prompt = int(64 * (1500 / 64) ** rng.random())
        answer = int(rng.integers(requests + 2, 300))
        context = prompt + (answer - 2) // 2
        steps = answer - 1
        alone = world.decode(model, pool, requests, context)
        chunk = [RequestShape(prompt, 0, prompt)]
        beside = [RequestShape(1, context, prompt)] * (requests - 1)
        mixed = world.times(model, pool, [*beside, *chunk])
        part = (requests - 1) / steps
        times = [(1 - part) * a + part * m for a, m in zip(alone, mixed, strict=True)]
        target = times[2] * float(np.exp(rng.uniform(-0.7, 0.7)))
        words = ["yes" if time <= target else "no" for time in times]
        clear = min(abs(target / time - 1.0) for time in times)
        question = Question(
            context,
            min(target, 10.0),
            (requests,),
            prompt_tokens=prompt,
            output_tokens=answer,
        )
        kernel = kernel_of(calibration, model, pool)
        out.append(Case("meets_token_latency", (kernel,), question, *words, clear))
    return out


def wider_cases(
    world: World, calibration: Calibration, count: int, rng: np.random.Generator
) -> list[Case]:
    """Ask whether the next wider pool is faster."""
    out = []
    for _ in range(count):
        model = MODELS[int(rng.integers(len(MODELS)))]
        narrow = int(rng.choice(WIDTHS[:2]))
        pools = [replace(EAGER, tp=narrow), replace(EAGER, tp=2 * narrow)]
        requests = round(128 ** rng.random())
        context = int(64 * (4000 / 64) ** rng.random())
        one, two = (world.decode(model, pool, requests, context) for pool in pools)
        words = ["yes" if b <= a else "no" for a, b in zip(one, two, strict=True)]
        clear = min(abs(a / b - 1.0) for a, b in zip(one, two, strict=True))
        kernels = tuple(kernel_of(calibration, model, pool) for pool in pools)
        question = Question(context, 10.0, (requests,))
        out.append(Case("wider_is_faster", kernels, question, *words, clear))
    return out


def best_cases(
    world: World, calibration: Calibration, count: int, rng: np.random.Generator
) -> list[Case]:
    """Ask which width serves most tokens per GPU within a target."""
    out = []
    for _ in range(count):
        model = MODELS[int(rng.integers(len(MODELS)))]
        pools = [replace(EAGER, tp=tp, max_num_seqs=64) for tp in WIDTHS]
        context = int(64 * (4000 / 64) ** rng.random())
        anchor = world.decode(model, pools[0], int(rng.integers(1, 48)), context)[2]
        target = anchor * float(np.exp(rng.uniform(-0.3, 0.5)))
        times = np.asarray(
            [[world.decode(model, p, n, context) for n in range(1, 65)] for p in pools]
        )
        sizes = np.arange(1, 65)[None, :, None]
        gpus = np.asarray(WIDTHS)[:, None, None]
        rates = np.where(times <= target, sizes / (times * gpus), 0.0).max(axis=1)
        labels = [f"tp{tp}" for tp in WIDTHS]
        words = [labels[int(view.argmax())] if view.max() > 0 else "none" for view in rates.T]
        # What 5 % on the leader or on another would change.
        clear = min(_lead(times[:, :, view], target) for view in range(3))
        kernels = tuple(kernel_of(calibration, model, pool) for pool in pools)
        question = Question(context, min(target, 10.0))
        out.append(Case("best_pool", kernels, question, *words, clear))
    return out


def _lead(times: np.ndarray, target: float) -> float:
    sizes, gpus = np.arange(1, 65)[None, :], np.asarray(WIDTHS)[:, None]

    def leader(scale: np.ndarray) -> int:
        moved = times * scale[:, None]
        rates = np.where(moved <= target, sizes / (moved * gpus), 0.0).max(axis=1)
        return int(rates.argmax()) if rates.max() > 0 else -1

    now = leader(np.ones(len(times)))
    for change in (0.02, 0.05, 0.1, 0.2):
        for place in range(len(times)):
            for sign in (1.0, -1.0):
                scale = np.ones(len(times))
                scale[place] += sign * change
                if leader(scale) != now:
                    return change / 2
    return 0.2
