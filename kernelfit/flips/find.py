"""From kernels and questions to flags."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from kernelfit.documents.questions import Question
from kernelfit.flips import conclude
from kernelfit.flips.conclude import Answer
from kernelfit.flips.flag import Flag, flag_word
from kernelfit.flips.loads import (
    Candidate,
    candidates,
    decode_columns,
    in_domain,
    limit_of,
    load_text,
)
from kernelfit.flips.ranking import rank_pools
from kernelfit.flips.settle import aim_of, check_noise, measurement, steps_needed, tie_margin
from kernelfit.flips.views import Views, drawn, look, owed
from kernelfit.kernel.fitted import FittedKernel

NOT_HELD = "not held"


def find_flips(
    kernels: Sequence[FittedKernel],
    questions: Sequence[Question],
    *,
    noise_spread: float,
    inflation: float,
    names: Sequence[str] | None = None,
) -> tuple[Flag, ...]:
    """Draw every conclusion under every view, and flag those that hang on the view.

    Parameters
    ----------
    kernels : sequence of FittedKernel
        The pools.
    questions : sequence of Question
        What is asked about them.
    noise_spread : float
        Median absolute relative deviation of measured steps of the same shape [1].
    inflation : float
        Factor by which autocorrelation inflates the variance of a mean [1].
    names : sequence of str, optional
        Names of the pools; without, their widths.

    Returns
    -------
    tuple of Flag
        For each pool and question, whether each concurrency meets the target and what
        limits it, and the largest batch that meets it; then, for each model with several
        pools, which pool is best. A row that two questions share stands once.

    Raises
    ------
    InvalidArgument
        When the noise is none, or there is not one name per kernel.

    Notes
    -----
    Steady-state arithmetic: every request decodes one token a step at the same context.
    Queueing, arrivals and prefill are a simulator's; none of them is assumed here.
    """
    check_noise(noise_spread, inflation)
    noise = _Noise(noise_spread, inflation)
    asked = [_Pool.of(pool, questions) for pool in candidates(kernels, names)]
    flags = [flag for pool in asked for flag in _about_one(pool, noise)]
    for model in dict.fromkeys(pool.candidate.model for pool in asked):
        members = [pool for pool in asked if pool.candidate.model == model]
        for question in questions:
            flags += _about_all([p for p in members if question in p.questions], question, noise)
    rows: dict[tuple[str, ...], Flag] = {}
    for flag in flags:
        rows.setdefault((flag.gpu, flag.pool, flag.model, flag.conclusion, flag.load), flag)
    return tuple(rows.values())


def unanswered(
    kernels: Sequence[FittedKernel],
    questions: Sequence[Question],
    names: Sequence[str] | None = None,
) -> tuple[Question, ...]:
    """Return the questions that are about none of the pools.

    Parameters
    ----------
    kernels : sequence of FittedKernel
        The pools.
    questions : sequence of Question
        What is asked.
    names : sequence of str, optional
        Names of the pools; without, their widths.

    Returns
    -------
    tuple of Question
        Those whose model or pools are not there.
    """
    pools = candidates(kernels, names)
    return tuple(q for q in questions if not any(_concerns(q, pool) for pool in pools))


def _concerns(question: Question, pool: Candidate) -> bool:
    return question.model in (None, pool.model) and (
        not question.pools or pool.label in question.pools
    )


@dataclass(frozen=True, slots=True)
class _Noise:
    spread: float
    inflation: float

    def steps(self, answer: Answer) -> int:
        return steps_needed(answer.resolution, self.spread, self.inflation)

    def aim(self, conclusion: str, flag: str, answer: Answer) -> str:
        return aim_of(conclusion, flag, answer.resolution, tie_margin(self.spread, self.inflation))


@dataclass(frozen=True, slots=True)
class _Pool:
    """A pool with its questions, priced."""

    candidate: Candidate
    draws: tuple[FittedKernel, ...]
    questions: tuple[Question, ...]
    views: dict[int, Views]

    @staticmethod
    def of(candidate: Candidate, questions: Sequence[Question]) -> _Pool:
        mine = tuple(q for q in questions if _concerns(q, candidate))
        draws = drawn(candidate.kernel) if mine else ()
        contexts = list(dict.fromkeys(q.context_tokens for q in mine))
        views = look(candidate.kernel, draws, contexts) if mine else {}
        return _Pool(candidate, draws, mine, views)

    @property
    def where(self) -> str:
        return f"{self.candidate.model} {self.candidate.label} ({self.candidate.gpu})"

    def knows(self, requests: int, context: int) -> bool:
        return in_domain(self.candidate.kernel, requests, context)


def _about_one(pool: _Pool, noise: _Noise) -> Iterator[Flag]:
    for question in pool.questions:
        context, target_s = question.context_tokens, question.target_s
        views, load = pool.views[context], (context, target_s)
        for requests in question.concurrency:
            if requests > views.fitted_s.size:
                yield _not_held(pool, "meets_token_latency", question, requests)
                continue
            answer = conclude.meets(views, requests, target_s)
            yield _flag(pool, "meets_token_latency", load, requests, answer, noise)
        if views.fitted_s.size:
            answer = conclude.largest_batch(views, target_s)
            yield _flag(pool, "largest_batch", load, None, answer, noise)
        else:
            yield _not_held(pool, "largest_batch", question, None)
    yield from _bottlenecks(pool, noise)


def _bottlenecks(pool: _Pool, noise: _Noise) -> Iterator[Flag]:
    """Bottlenecks do not depend on a target, so each load is asked about once."""
    loads = dict.fromkeys(
        (q.context_tokens, requests)
        for q in pool.questions
        for requests in q.concurrency
        if requests <= pool.views[q.context_tokens].fitted_s.size
    )
    if not loads:
        return
    contexts, requests = zip(*loads, strict=True)
    windows = pool.candidate.kernel.plan.basis.windows
    shares = owed(pool.candidate.kernel, pool.draws, decode_columns(requests, contexts, windows))
    for at, (context, count) in enumerate(loads):
        answer = conclude.relieve(shares, at, count)
        tell = None
        if flag_word(answer, True) == "uncertain":
            tell = _telling(pool, context, count)
        yield _flag(pool, "bottleneck", (context, None), count, answer, noise, tell)


def _telling(pool: _Pool, context: int, requests: int) -> int:
    """Return the batch, of powers of two, that says most about what leads at a load."""
    views = pool.views[context]
    most = views.fitted_s.size
    sizes = [requests, *(1 << k for k in range(most.bit_length()) if 1 << k <= most)]
    windows = pool.candidate.kernel.plan.basis.windows
    shares = owed(
        pool.candidate.kernel, pool.draws, decode_columns(sizes, [context] * len(sizes), windows)
    )
    places = np.asarray(sizes) - 1
    best = conclude.telling_batch(shares, views.fitted_s[places], views.draws_s[:, places], 0)
    return sizes[best]


def _flag(
    pool: _Pool,
    conclusion: str,
    load: tuple[int, float | None],
    requests: int | None,
    answer: Answer,
    noise: _Noise,
    tell: int | None = None,
) -> Flag:
    context, target_s = load
    known = pool.knows(answer.requests, context)
    word = flag_word(answer, known)
    sentence, steps = None, None
    if word != "agree":
        shape = load_text(context, tell or answer.requests, None)
        steps = noise.steps(answer)
        aim = noise.aim(conclusion, word, answer)
        sentence = measurement(pool.where, shape, steps, aim)
    views, at = pool.views[context], answer.requests - 1
    return Flag(
        gpu=pool.candidate.gpu,
        pool=pool.candidate.label,
        model=pool.candidate.model,
        load=load_text(context, requests, target_s),
        conclusion=conclusion,
        flag=word,
        overlap=answer.overlap,
        no_overlap=answer.no_overlap,
        fitted=answer.fitted,
        margin=answer.margin,
        probability=answer.probability,
        measurement=sentence,
        steps=steps,
        in_domain=known,
        limit=limit_of(pool.candidate.kernel, context).reason,
        context_tokens=context,
        target_s=target_s,
        requests=answer.requests,
        overlap_s=float(views.overlap_s[at]),
        no_overlap_s=float(views.no_overlap_s[at]),
        fitted_s=float(views.fitted_s[at]),
    )


def _not_held(pool: _Pool, conclusion: str, question: Question, requests: int | None) -> Flag:
    """Return the row of a load that an engine never runs: it has no step time in any view."""
    return Flag(
        gpu=pool.candidate.gpu,
        pool=pool.candidate.label,
        model=pool.candidate.model,
        load=load_text(question.context_tokens, requests, question.target_s),
        conclusion=conclusion,
        flag="agree",
        overlap=NOT_HELD,
        no_overlap=NOT_HELD,
        fitted=NOT_HELD,
        margin=None,
        probability=None,
        measurement=None,
        steps=None,
        in_domain=None,
        limit=limit_of(pool.candidate.kernel, question.context_tokens).reason,
        context_tokens=question.context_tokens,
        target_s=question.target_s,
        requests=0,
    )


def _about_all(pools: Sequence[_Pool], question: Question, noise: _Noise) -> Iterator[Flag]:
    context = question.context_tokens
    if len(pools) < 2 or not any(p.views[context].fitted_s.size for p in pools):
        return
    gpus = list(dict.fromkeys(p.candidate.gpu for p in pools))
    labels = [
        p.candidate.label if len(gpus) == 1 else f"{p.candidate.gpu} {p.candidate.label}"
        for p in pools
    ]
    widths = [p.candidate.kernel.resolved().tensor_parallel_width for p in pools]
    ranking = rank_pools([p.views[context] for p in pools], widths, labels, question.target_s)
    answer = ranking.answer
    measured = pools[ranking.measure]
    runs = [(p, batch) for p, batch in zip(pools, ranking.batches, strict=True) if batch]
    known = all(p.knows(n, context) for p, n in runs or [(measured, answer.requests)])
    word = flag_word(answer, known)
    count = answer.requests
    unknown = [(p, n) for p, n in runs if not p.knows(n, context)]
    if word == "extrapolated" and unknown:
        measured, count = unknown[0]
    sentence, steps = None, None
    if word != "agree":
        shape = load_text(context, count, None)
        steps = noise.steps(answer)
        aim = noise.aim("best_pool", word, answer)
        sentence = measurement(measured.where, shape, steps, aim)
    views, at = measured.views[context], count - 1
    yield Flag(
        gpu=", ".join(gpus),
        pool=", ".join(labels),
        model=measured.candidate.model,
        load=load_text(context, None, question.target_s),
        conclusion="best_pool",
        flag=word,
        overlap=answer.overlap,
        no_overlap=answer.no_overlap,
        fitted=answer.fitted,
        margin=answer.margin,
        probability=answer.probability,
        measurement=sentence,
        steps=steps,
        in_domain=known,
        limit=None,
        context_tokens=context,
        target_s=question.target_s,
        requests=count,
        overlap_s=float(views.overlap_s[at]),
        no_overlap_s=float(views.no_overlap_s[at]),
        fitted_s=float(views.fitted_s[at]),
        overlap_gpu_tokens_per_s=ranking.overlap_gpu_tokens_per_s,
        no_overlap_gpu_tokens_per_s=ranking.no_overlap_gpu_tokens_per_s,
        fitted_gpu_tokens_per_s=ranking.fitted_gpu_tokens_per_s,
    )
