"""Candidate runs: a grid of pools and batch shapes, what each costs and would say."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from kernelfit.fit.design import build_design, predict
from kernelfit.fit.point import FIRST_BLOCK_STEPS
from kernelfit.fit.steps import Floats, make_run
from kernelfit.flips.loads import limit_of
from kernelfit.flips.measured import LIKE, NEAR_REQUESTS
from kernelfit.flips.settle import Proposed
from kernelfit.kernel.fitted import FittedKernel
from kernelfit.kernel.tables import table_of
from kernelfit.kernel.totals import BatchTotals
from kernelfit.plan.knowledge import Knowledge

DECODE_STEPS = 32
"""Decode steps of an episode; the context grows by as many tokens [tokens]."""

PROMPTS = 8
"""Prompts of an episode of prompts, one after the other."""

REQUESTS: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
CONTEXTS: tuple[int, ...] = (64, 256, 1024, 4096, 16384)
"""The grid of batch shapes, as far as a pool holds them."""

SECONDS_PER_MINUTE = 60.0


@dataclass(frozen=True, slots=True)
class Shape:
    """What an episode asks of the engine.

    Attributes
    ----------
    requests : int
        Requests that start together, or prompts that come one after the other.
    prompt_tokens, output_tokens : int
        Length of each prompt and answer [tokens].
    one_by_one : bool
        Whether each prompt comes when the one before is done.
    """

    requests: int
    prompt_tokens: int
    output_tokens: int
    one_by_one: bool = False

    @property
    def text(self) -> str:
        """The shape in words."""
        if self.one_by_one:
            return f"{self.requests} prompts of {self.prompt_tokens:,d} tokens, one by one"
        return (
            f"{self.requests} x {self.prompt_tokens:,d} tokens, "
            f"{self.output_tokens - 1} decode steps"
        )


@dataclass(frozen=True, slots=True, eq=False)
class Episode:
    """One candidate: a shape in a pool.

    Attributes
    ----------
    pool : int
        Number of the pool.
    shape : Shape
        What is run.
    steps : tuple of (BatchTotals, int)
        Kinds of its steps, and how many of each.
    rows : ndarray, shape (n_rows, n_coefficients)
        Derivatives of ln(time) by ln(unit cost), each in units of a step's noise and times
        the root of the number of steps.
    gpu_s : float
        Time of its steps times the pool's GPUs [s].
    """

    pool: int
    shape: Shape
    steps: tuple[tuple[BatchTotals, int], ...]
    rows: Floats
    gpu_s: float

    def steps_like(self, wanted: Proposed) -> int:
        """Return how many of its steps are those that a flag proposes to measure.

        Parameters
        ----------
        wanted : Proposed
            The proposal, of the same pool.

        Returns
        -------
        int
            Steps of the same kind, requests within a tenth and tokens within a twentieth.
        """
        return sum(count for totals, count in self.steps if _like(totals, wanted))


def _like(totals: BatchTotals, wanted: Proposed) -> bool:
    prefilling = totals.requests - totals.decode_requests
    if abs(totals.requests - wanted.requests) > NEAR_REQUESTS * wanted.requests + 1e-9:
        return False
    if wanted.chunk_tokens:
        chunk = totals.tokens - totals.decode_requests
        near = abs(chunk - wanted.chunk_tokens) <= LIKE * wanted.chunk_tokens + 0.5
        return prefilling == 1 and near
    if prefilling:
        return False
    context = totals.decode_context_tokens / totals.requests - 1.0
    return abs(context - wanted.context_tokens) <= LIKE * wanted.context_tokens + 0.5


def gpus_of(kernel: FittedKernel) -> int:
    """Return the GPUs of a pool.

    Parameters
    ----------
    kernel : FittedKernel
        Its kernel.

    Returns
    -------
    int
        All ranks of it.
    """
    pool = kernel.plan.pool
    return pool.tp * pool.pp * pool.dp * pool.pcp


def shapes_for(kernel: FittedKernel, proposed: Iterable[Proposed] = ()) -> tuple[Shape, ...]:
    """Return the shapes that are worth looking at in a pool.

    Parameters
    ----------
    kernel : FittedKernel
        The pool's kernel.
    proposed : iterable of Proposed
        Measurements that flags ask for in it.

    Returns
    -------
    tuple of Shape
        Decode batches over the grid of requests and contexts, prompts alone, and the
        proposed shapes, as far as scheduler, model and memory hold them.
    """
    resolution = kernel.resolved()
    longest = kernel.plan.pool.max_model_len or max(CONTEXTS) + 2 * DECODE_STEPS
    found: dict[Shape, None] = {}
    for context in CONTEXTS:
        if context + DECODE_STEPS > longest:
            continue
        most = limit_of(kernel, context + DECODE_STEPS).requests
        for requests in REQUESTS:
            if requests <= most:
                found[Shape(requests, context, DECODE_STEPS + 1)] = None
        if most:
            found[Shape(PROMPTS, context, 2, one_by_one=True)] = None
    for wanted in proposed:
        if wanted.chunk_tokens:
            chunk = min(wanted.chunk_tokens, resolution.max_num_batched_tokens)
            found[Shape(PROMPTS, chunk, 2, one_by_one=True)] = None
            continue
        start = max(1, wanted.context_tokens - DECODE_STEPS // 2)
        fits = limit_of(kernel, start + DECODE_STEPS).requests
        if 0 < wanted.requests <= fits:
            found[Shape(wanted.requests, start, DECODE_STEPS + 1)] = None
    return tuple(found)


def steps_of(shape: Shape, max_num_batched_tokens: int) -> tuple[tuple[BatchTotals, int], ...]:
    """Return the steps that a shape makes.

    Parameters
    ----------
    shape : Shape
        The shape.
    max_num_batched_tokens : int
        Most tokens in a step [tokens].

    Returns
    -------
    tuple of (BatchTotals, int)
        Steps with prompts, then decode steps at their mean context. Prompts that start
        together are cut into equal steps; which of them decode meanwhile is not followed.
    """
    tokens, budget = shape.prompt_tokens, max_num_batched_tokens
    decode_steps = shape.output_tokens - 1
    if shape.one_by_one:
        chunks = -(-tokens // budget)
        prompt = _prompt_step(1, tokens, chunks)
        context = tokens + (decode_steps + 1) // 2
        decode = BatchTotals(1, 1, 1, context, context)
        return ((prompt, chunks * shape.requests), (decode, decode_steps * shape.requests))
    at_once = max(1, min(shape.requests, budget // tokens))
    chunks = max(-(-shape.requests // at_once), -(-(shape.requests * tokens) // budget))
    per_prompt = -(-tokens // budget) if tokens > budget else 1
    prompt = _prompt_step(at_once, tokens, per_prompt)
    keys = shape.requests * (tokens + (decode_steps + 1) // 2)
    decode = BatchTotals(shape.requests, shape.requests, shape.requests, keys, keys)
    return ((prompt, chunks), (decode, decode_steps))


def _prompt_step(prompts: int, tokens: int, chunks: int) -> BatchTotals:
    size = max(1, tokens // chunks)
    context = prompts * (size * (chunks + 1) // 2)
    pairs = prompts * (size * size * (chunks - 1) // 2 + size * (size + 1) // 2)
    return BatchTotals(prompts, prompts * size, 0, 0, 0, context, max(pairs, context))


def episodes_of(
    knowledge: Knowledge, pool: int, kernel: FittedKernel, shapes: Sequence[Shape]
) -> tuple[Episode, ...]:
    """Price candidate shapes of a pool, and say what each would tell.

    Parameters
    ----------
    knowledge : Knowledge
        What is known; it must hold every coefficient of the pool.
    pool : int
        Number of the pool.
    kernel : FittedKernel
        Its kernel.
    shapes : sequence of Shape
        The shapes.

    Returns
    -------
    tuple of Episode
        One per shape.
    """
    if not shapes:
        return ()
    budget = kernel.resolved().max_num_batched_tokens
    kinds = [steps_of(shape, budget) for shape in shapes]
    flat = [totals for steps in kinds for totals, _ in steps]
    rows, times = step_rows(knowledge, kernel, flat)
    episodes, at = [], 0
    for shape, steps in zip(shapes, kinds, strict=True):
        part = slice(at, at + len(steps))
        counts = np.asarray([count for _, count in steps], dtype=np.float64)
        weighted = rows[:, part] * np.sqrt(counts)[:, None]
        gpu_s = float(counts @ times[part]) * gpus_of(kernel)
        flat_rows = weighted.reshape(-1, rows.shape[2])
        episodes.append(Episode(pool, shape, steps, flat_rows, gpu_s))
        at += len(steps)
    return tuple(episodes)


def step_rows(
    knowledge: Knowledge, kernel: FittedKernel, steps: Sequence[BatchTotals]
) -> tuple[Floats, Floats]:
    """Return what single steps would say.

    Parameters
    ----------
    knowledge : Knowledge
        What is known.
    kernel : FittedKernel
        The pool's kernel.
    steps : sequence of BatchTotals
        The steps, without sliding windows.

    Returns
    -------
    ndarray, shape (n_kinds, n_steps, n_coefficients)
        Derivatives of ln(time) by ln(unit cost) in units of a step's noise: of the
        duration, and of the host time where it is recorded beside it.
    ndarray, shape (n_steps,)
        Time of each whole step as fitted [s].
    """
    columns = dict(table_of(steps))
    size = len(steps)
    columns["duration_s"] = np.ones(size)
    if knowledge.host_apart:
        columns["host_s"] = np.ones(size)
    plan = kernel.plan
    run = make_run(
        "planned",
        plan.model,
        plan.chip,
        plan.pool,
        plan.engine_version,
        knowledge.timing,
        columns,
    )
    design = build_design([run], knowledge.names, FIRST_BLOCK_STEPS, knowledge.host_rule)
    share = knowledge.calibration.overlap_share
    predicted, slope, _ = predict(design, knowledge.log_cost, share)
    jacobian = slope / predicted[:, None] / knowledge.row_noise
    whole = predicted[:size].copy()
    whole[design.origin[size:]] += predicted[size:]
    kinds = [jacobian[:size]]
    if jacobian.shape[0] > size:
        host = np.zeros_like(jacobian[:size])
        host[design.origin[size:]] = jacobian[size:]
        kinds.append(host)
    return np.stack(kinds), np.asarray(whole)
