"""Conclusions that compare pools: the best, the next wider one, and prefill apart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from kernelfit.documents.questions import Question
from kernelfit.flips.asked import Asked
from kernelfit.flips.conclude import Answer, agreement, yes_or_no
from kernelfit.flips.flag import Flag, flag_word
from kernelfit.flips.given import Noise, goal_of
from kernelfit.flips.loads import Floats, load_text
from kernelfit.flips.objective import Goal, scores_of, served
from kernelfit.flips.ranking import rank_pools, room
from kernelfit.flips.views import Four, Seen
from kernelfit.kernel.errors import Refusal
from kernelfit.kernel.pool import Placement

NOT_PRICED = "not priced"


def about_many(pools: Sequence[Asked], question: Question, noise: Noise) -> Iterator[Flag]:
    """Draw every conclusion that compares pools of one model.

    Parameters
    ----------
    pools : sequence of Asked
        The pools in question.
    question : Question
        What is asked.
    noise : Noise
        Noise of a measurement.

    Yields
    ------
    Flag
        One per conclusion, and per demand where the fewest GPUs are wanted.
    """
    if len(pools) > 1 and any(pool.at(question).size for pool in pools):
        for goal in _goals(question):
            yield _best(pools, question, goal, noise)
    yield from _wider(pools, question, noise)
    if question.transfer is not None:
        for pool in pools:
            if pool.at(question).size:
                yield _apart(pool, question, noise)


def _goals(question: Question) -> list[Goal]:
    if question.objective != "fewest_gpus":
        return [goal_of(question, None, None)]
    return [
        *(goal_of(question, None, rate) for rate in question.rates_per_s),
        *(goal_of(question, n, None) for n in question.concurrency if not question.rates_per_s),
    ]


@dataclass(frozen=True, slots=True)
class _Measure:
    """The pool and batch that a comparison hangs on."""

    pool: Asked
    requests: int
    chunk: bool | None = None


def _compared(
    pools: Sequence[Asked],
    question: Question,
    conclusion: str,
    answer: Answer,
    measure: _Measure,
    runs: Sequence[tuple[Asked, int]],
    noise: Noise,
    *,
    requests: int | None = None,
    goal: Goal | None = None,
    targets: tuple[float | None, float | None] | None = None,
) -> Flag:
    """Flag a conclusion about several pools; ``runs`` are the batches it rests on."""
    gpus = list(dict.fromkeys(p.candidate.gpu for p in pools))
    unknown = [(p, n) for p, n in runs if not p.known_at(p.at(question), n)]
    word = flag_word(answer, not unknown)
    pool, count, chunk = measure.pool, measure.requests, measure.chunk
    if word == "extrapolated":
        pool, count = unknown[0]
        chunk = None
        if pool.at(question).load.prompt_tokens:
            chunk = pool.knows(pool.at(question), count, chunk=False)
    seen = pool.at(question)
    proposed, sentence = None, None
    if word != "agree":
        chunk = pool.doubtful_chunk(seen, count) if chunk is None else chunk
        proposed = pool.propose(seen, count, noise.steps(answer), chunk=chunk)
        sentence = proposed.sentence(noise.aim(conclusion, word, answer))
    at = count - 1
    per_token, first = targets or (question.target_s, question.first_token_target_s)
    rate = None if goal is None else goal.rate_per_s
    needed = requests if goal is None or goal.concurrency is None else goal.concurrency
    return Flag(
        gpu=", ".join(gpus),
        pool=", ".join(names_of(pools)),
        model=pool.candidate.model,
        load=load_text(seen.load.text, needed, per_token, first, rate_per_s=rate),
        conclusion=conclusion,
        flag=word,
        overlap=answer.overlap,
        no_overlap=answer.no_overlap,
        fitted=answer.fitted,
        margin=answer.margin,
        probability=answer.probability,
        measurement=sentence,
        steps=None if proposed is None else proposed.steps,
        in_domain=not unknown,
        limit=None,
        context_tokens=seen.load.context_tokens,
        target_s=per_token,
        requests=count,
        overlap_s=float(seen.views.overlap_s[at]),
        no_overlap_s=float(seen.views.no_overlap_s[at]),
        fitted_s=float(seen.views.fitted_s[at]),
        first_token_target_s=first,
        rate_per_s=rate,
        percentile=question.percentile,
        objective=question.objective,
        proposed=proposed,
        measured=any(p.is_measured(p.at(question)) for p in pools),
    )


def names_of(pools: Sequence[Asked]) -> list[str]:
    """Return labels that tell pools apart, with their GPU type where there are several.

    Parameters
    ----------
    pools : sequence of Asked
        The pools.

    Returns
    -------
    list of str
        In their order.
    """
    gpus = {p.candidate.gpu for p in pools}
    return [
        p.candidate.label if len(gpus) == 1 else f"{p.candidate.gpu} {p.candidate.label}"
        for p in pools
    ]


def _best(pools: Sequence[Asked], question: Question, goal: Goal, noise: Noise) -> Flag:
    views = [p.at(question).views for p in pools]
    stakes = [p.stake(question) for p in pools]
    ranking = rank_pools(views, stakes, names_of(pools), goal)
    answer = ranking.answer
    measured = pools[ranking.measure]
    runs = [(p, n) for p, n in zip(pools, ranking.batches, strict=True) if n]
    flag = _compared(
        pools,
        question,
        "best_pool",
        answer,
        _Measure(measured, answer.requests),
        runs or [(measured, answer.requests)],
        noise,
        goal=goal,
    )
    flag = replace(flag, ranking=ranking.order)
    if goal.objective != "throughput_per_gpu":
        return flag
    overlap, no_overlap, fitted = (value or 0.0 for value in ranking.best)
    return replace(
        flag,
        overlap_gpu_tokens_per_s=overlap,
        no_overlap_gpu_tokens_per_s=no_overlap,
        fitted_gpu_tokens_per_s=fitted,
    )


def _wider(pools: Sequence[Asked], question: Question, noise: Noise) -> Iterator[Flag]:
    """Compare each pool with the next wider one that is otherwise the same."""
    by_rest: dict[object, list[Asked]] = {}
    for pool in pools:
        stated = pool.candidate.kernel.plan.pool
        rest = (pool.candidate.gpu, *(getattr(stated, name) for name in _SAME))
        by_rest.setdefault(rest, []).append(pool)
    for members in by_rest.values():
        members.sort(key=lambda p: p.candidate.kernel.plan.pool.tp)
        for narrow, wide in pairwise(members):
            if narrow.candidate.kernel.plan.pool.tp == wide.candidate.kernel.plan.pool.tp:
                continue
            for requests in question.concurrency:
                if requests <= min(narrow.at(question).size, wide.at(question).size):
                    yield _faster(narrow, wide, question, requests, noise)
            if wide.at(question).size:
                for goal in _goals(question):
                    yield _pays(narrow, wide, question, goal, noise)


_SAME = (
    "dp",
    "pp",
    "pcp",
    "enable_expert_parallel",
    "enforce_eager",
    "async_scheduling",
    "cache_dtype",
    "quantization",
    "speculative_method",
)
"""What two pools must share for the wider one to be the same with more GPUs."""


def _faster(narrow: Asked, wide: Asked, question: Question, requests: int, noise: Noise) -> Flag:
    at = slice(requests - 1, requests)
    ratio = _ratio(wide.at(question).views.times, narrow.at(question).views.times, at)
    answer = replace(yes_or_no(ratio, 1), requests=requests)
    return _compared(
        [narrow, wide],
        question,
        "wider_is_faster",
        answer,
        _Measure(_less_known(narrow, wide, question, requests), requests),
        [(narrow, requests), (wide, requests)],
        noise,
        requests=requests,
        targets=(None, None),
    )


def _ratio(one: Four, other: Four, at: slice) -> Four:
    count = min(one[3].shape[0], other[3].shape[0])
    return (
        one[0][at] / other[0][at],
        one[1][at] / other[1][at],
        one[2][at] / other[2][at],
        one[3][:count, at] / other[3][:count, at],
    )


def _less_known(one: Asked, other: Asked, question: Question, requests: int) -> Asked:
    def width(pool: Asked) -> float:
        views = pool.at(question).views
        at = requests - 1
        bounds = float(np.log(views.no_overlap_s[at] / views.overlap_s[at]))
        draws = views.draws_s[:, at]
        return bounds + (float(draws.std() / draws.mean()) if draws.size else 0.0)

    # The wider one on a tie: it is the one that is to be bought.
    return one if width(one) > width(other) else other


def _pays(narrow: Asked, wide: Asked, question: Question, goal: Goal, noise: Noise) -> Flag:
    members = [narrow, wide]
    views = [p.at(question).views for p in members]
    stakes = [p.stake(question) for p in members]
    three, under, batches = scores_of(views, stakes, goal)
    words = ["yes" if better else "no" for better in three[1] > three[0]]
    changes = [
        room(v, s, goal, float(three[1 - place, 2]))
        for place, (v, s) in enumerate(zip(views, stakes, strict=True))
    ]
    finite = [change for change, _ in changes if np.isfinite(change)]
    margin = min(finite) if finite else None
    count = batches[1] or changes[1][1] or 1
    pool = wide
    if batches[0] and batches[0] <= wide.at(question).size:
        pool = _less_known(narrow, wide, question, batches[0])
        count = batches[0] if pool is narrow else count
    answer = Answer(
        overlap=words[0],
        no_overlap=words[1],
        fitted=words[2],
        differ=len(set(words)) > 1,
        probability=agreement((under[1] > under[0]) == (three[1, 2] > three[0, 2])),
        margin=margin,
        resolution=margin,
        requests=count,
    )
    runs = [(p, n) for p, n in zip(members, batches, strict=True) if n]
    return _compared(
        members,
        question,
        "wider_pays",
        answer,
        _Measure(pool, count),
        runs or [(wide, count)],
        noise,
        goal=goal,
    )


def _apart(pool: Asked, question: Question, noise: Noise) -> Flag:
    """Say whether prompts on engines of their own need less GPU time per request."""
    seen = pool.at(question)
    node = Placement(node=0 if question.transfer == "nvlink" else 1)
    goal = replace(goal_of(question, 1, None), objective="throughput_per_gpu")
    try:
        moved_s = pool.candidate.kernel.pd_transfer_time(seen.load.prompt_tokens, Placement(), node)
    except Refusal as refusal:
        flag = pool.not_held("disaggregation_pays", question, None)
        words = (NOT_PRICED,) * 3
        return replace(
            flag, overlap=words[0], no_overlap=words[1], fitted=words[2], note=str(refusal)
        )
    together, batch = _together(pool, question, goal)
    apart = _split(seen, goal, moved_s)
    uses: list[Floats] = []
    for one, other in zip(together, apart, strict=True):
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(other > 0.0, one / other, np.inf)
        uses.append(np.atleast_1d(ratio))
    four: Four = (uses[0], uses[1], uses[2], uses[3][:, None])
    answer = yes_or_no(four, 1)
    margin = answer.margin if np.isfinite(uses[2][0]) and uses[2][0] > 0.0 else None
    answer = replace(answer, margin=margin, resolution=margin, requests=batch)
    flag = _compared(
        [pool],
        question,
        "disaggregation_pays",
        answer,
        _Measure(pool, batch, chunk=True),
        [(pool, batch)],
        noise,
    )
    note = f"moving a prompt's KV over {question.transfer} takes {moved_s * 1e3:.3g} ms; "
    return replace(flag, limit=pool.limits[seen.load].reason, note=note + "links at an assumed 0.8")


def _together(pool: Asked, question: Question, goal: Goal) -> tuple[list[Floats], int]:
    """Return requests per second of an engine that does both, and its batch."""
    views = pool.at(question).views
    uses = views.uses(goal.target_s, goal.first_target_s)
    best = [served(rate, use) for rate, use in zip(views.rates(), uses, strict=True)]
    tokens = float(views.output_tokens)
    return [np.asarray(rate / tokens) for rate, _ in best], int(best[2][1]) or 1


def _split(seen: Seen, goal: Goal, moved_s: float) -> list[Floats]:
    """Return requests per second and engine where prompts have engines of their own."""
    steps = float(seen.load.decode_steps)
    sizes = np.arange(1, seen.size + 1, dtype=np.float64)
    found = []
    for token, chunk in zip(seen.decode.times, seen.chunk.times, strict=True):
        # One prompt at a time: the first batch of the load's chunks has nobody beside it.
        prompt = chunk[..., 0] * float(seen.steady.chunks[0])
        rate, _ = served(sizes / (steps * token), token / goal.target_s)
        with np.errstate(divide="ignore"):
            each = 1.0 / (prompt + 1.0 / rate)
        met = (prompt + moved_s <= goal.first_target_s) & (rate > 0.0)
        found.append(np.asarray(np.where(met, each, 0.0)))
    return found
