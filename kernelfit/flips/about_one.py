"""Conclusions about one pool: targets, counts, rates, memory, and what to relieve."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from kernelfit.documents.questions import Question
from kernelfit.flips import conclude
from kernelfit.flips.asked import Asked
from kernelfit.flips.conclude import Answer
from kernelfit.flips.flag import Flag, flag_word
from kernelfit.flips.given import Noise
from kernelfit.flips.loads import decode_columns, load_text
from kernelfit.flips.owed import owed
from kernelfit.flips.relieve import relieve, telling_batch
from kernelfit.flips.steady import Load
from kernelfit.flips.views import Four, Seen, longest_step
from kernelfit.kernel.memory import kv_room_bytes

ARRIVALS = "when requests come decides; a simulator that calls this kernel must tell"
MEMORY = "buffers are assumed: the bounds take them as nothing and as twice as much"


def about_one(pool: Asked, noise: Noise) -> Iterator[Flag]:
    """Draw every conclusion about one pool.

    Parameters
    ----------
    pool : Asked
        The pool with its questions.
    noise : Noise
        Noise of a measurement.

    Yields
    ------
    Flag
        One per conclusion and load.
    """
    for question in pool.questions:
        seen = pool.at(question)
        per_token, first = _targets(question)
        for requests in question.concurrency:
            yield from _at_concurrency(pool, question, seen, requests, noise)
        if seen.size:
            answer = conclude.largest_batch(seen.views, per_token, first)
            yield pool.flag("largest_batch", question, answer, noise, requests=None)
        else:
            yield pool.not_held("largest_batch", question, None)
        for rate in question.rates_per_s:
            yield from _at_rate(pool, question, seen, rate, noise)
    yield from _memory(pool)
    yield from _bottlenecks(pool, noise)


def _targets(question: Question) -> tuple[float, float]:
    per_token, first = question.target_s, question.first_token_target_s
    return (math.inf if per_token is None else per_token, math.inf if first is None else first)


def _at_concurrency(
    pool: Asked, question: Question, seen: Seen, requests: int, noise: Noise
) -> Iterator[Flag]:
    wanted = []
    if question.target_s is not None:
        wanted.append("meets_token_latency")
    if question.first_token_target_s is not None:
        wanted.append("meets_first_token")
    if requests > seen.size:
        yield from (pool.not_held(conclusion, question, requests) for conclusion in wanted)
        return
    per_token, first = _targets(question)
    percentile = question.percentile is not None and bool(seen.load.prompt_tokens)
    at = slice(requests - 1, requests)
    if question.target_s is not None:
        if percentile:
            least = _cut(seen.decode.times, at)
            most = longest_step(pool.pricer, seen.load, requests)
            answer = conclude.at_every_percentile(least, most, per_token, requests)
        else:
            answer = conclude.meets(seen.views, requests, per_token)
        flag = pool.flag(
            "meets_token_latency",
            question,
            answer,
            noise,
            requests=requests,
            targets=(question.target_s, None),
        )
        yield _with_note(flag)
    if seen.views.first is not None and question.first_token_target_s is not None:
        if percentile:
            steps = _steps_of_all(pool, seen.load, requests)
            longest = longest_step(pool.pricer, seen.load, requests)
            most = (steps * longest[0], steps * longest[1], steps * longest[2], steps * longest[3])
            least = _cut(seen.views.first.times, at)
            answer = conclude.at_every_percentile(least, most, first, requests)
        else:
            answer = conclude.meets(seen.views.first, requests, first)
        flag = pool.flag(
            "meets_first_token",
            question,
            answer,
            noise,
            requests=requests,
            chunk=True,
            targets=(None, question.first_token_target_s),
        )
        yield _with_note(flag)


def _steps_of_all(pool: Asked, load: Load, requests: int) -> float:
    """Return the steps until the last of as many prompts is done that come at once."""
    most = pool.candidate.kernel.resolved().max_num_batched_tokens
    return float(math.ceil(requests * load.new_tokens / (most - requests + 1)))


def _at_rate(
    pool: Asked, question: Question, seen: Seen, rate_per_s: float, noise: Noise
) -> Iterator[Flag]:
    if not seen.size:
        yield pool.not_held("sustains_rate", question, None, rate_per_s)
        return
    per_token, first = _targets(question)
    engines = pool.candidate.kernel.resolved().data_parallel_width
    answer = conclude.sustains(seen.views, rate_per_s / engines, per_token, first)
    yield pool.flag("sustains_rate", question, answer, noise, requests=None, rate_per_s=rate_per_s)
    if question.percentile is None:
        return
    one = slice(0, 1)
    asked = [("meets_token_latency", _cut(seen.decode.times, one), per_token, False)]
    if seen.views.first is not None:
        asked.append(("meets_first_token", _cut(seen.views.first.times, one), first, True))
    for conclusion, least, target_s, chunk in asked:
        if not math.isfinite(target_s):
            continue
        answer = conclude.at_every_percentile(least, least, target_s, 1, closed=False)
        targets = (None, target_s) if chunk else (target_s, None)
        yield _with_note(
            pool.flag(
                conclusion,
                question,
                answer,
                noise,
                requests=None,
                rate_per_s=rate_per_s,
                chunk=chunk,
                targets=targets,
            )
        )


def _cut(times: Four, part: slice) -> Four:
    return times[0][part], times[1][part], times[2][part], times[3][:, part]


def _with_note(flag: Flag) -> Flag:
    if flag.fitted != conclude.SIMULATE:
        return flag
    return replace(flag, note=ARRIVALS)


def _memory(pool: Asked) -> Iterator[Flag]:
    """Whether so many requests fit at their longest, whatever the targets are."""
    asked = dict.fromkeys(
        (Load.of(q), n) for q in pool.questions if q.prompt_tokens for n in q.concurrency
    )
    kernel = pool.candidate.kernel
    room = kv_room_bytes(kernel.plan)
    parts = kernel.fixed_bytes()
    assumed = parts.activation_peak_bytes + parts.cuda_graph_bytes + parts.comm_buffers_bytes
    for load, requests in asked:
        one = kernel.sequence_fixed_bytes() + kernel.sequence_variable_bytes(load.longest_tokens)
        need = one * requests
        words = ["yes" if need <= space else "no" for space in (room + assumed, room - assumed)]
        fitted = "yes" if need <= room else "no"
        differ = len({*words, fitted}) > 1
        sentence = None
        if differ:
            where = f"{pool.candidate.model} {pool.candidate.label} ({pool.candidate.gpu})"
            sentence = (
                f"Start {where} once and read how many tokens its KV cache holds: "
                f"{requests * load.longest_tokens:,d} are needed."
            )
        yield Flag(
            gpu=pool.candidate.gpu,
            pool=pool.candidate.label,
            model=pool.candidate.model,
            load=load_text(load.text, requests),
            conclusion="kv_fits",
            flag="measure" if differ else "agree",
            overlap=words[0],
            no_overlap=words[1],
            fitted=fitted,
            margin=abs(room / need - 1.0),
            probability=None,
            measurement=sentence,
            steps=1 if differ else None,
            in_domain=None,
            limit=pool.limits[load].reason,
            context_tokens=load.context_tokens,
            target_s=None,
            requests=requests,
            note=MEMORY if differ else None,
        )


def _bottlenecks(pool: Asked, noise: Noise) -> Iterator[Flag]:
    """Bottlenecks do not depend on a target, so each load is asked about once."""
    by_load: dict[tuple[Load, int], Question] = {}
    for question in pool.questions:
        load = Load.of(question)
        for requests in question.concurrency:
            if requests <= pool.seen[load].size:
                by_load.setdefault((load, requests), question)
    if not by_load:
        return
    contexts = [load.context_tokens for load, _ in by_load]
    counts = [requests for _, requests in by_load]
    kernel = pool.candidate.kernel
    shares = owed(kernel, decode_columns(counts, contexts, kernel.plan.basis.windows))
    for at, ((load, count), question) in enumerate(by_load.items()):
        seen = pool.seen[load]
        measured = None
        if pool.anchors is not None and pool.anchors.seen(seen.steady, count, chunk=False):
            shapes = pool.anchors.on_line(seen.steady, chunk=False)
            error = min(shape.error for shape in shapes)
            measured = (float(seen.decode.fitted_s[count - 1]), error)
        answer: Answer = relieve(shares, at, count, measured)
        tell = None
        if flag_word(answer, True) == "uncertain":
            tell = _telling(pool, load, count)
        yield pool.flag(
            "bottleneck",
            question,
            answer,
            noise,
            requests=count,
            tell=tell,
            chunk=False,
            targets=(None, None),
        )


def _telling(pool: Asked, load: Load, requests: int) -> int:
    """Return the batch, of powers of two, that says most about what leads at a load."""
    seen = pool.seen[load]
    most = seen.size
    sizes = [requests, *(1 << k for k in range(most.bit_length()) if 1 << k <= most)]
    kernel = pool.candidate.kernel
    contexts = [load.context_tokens] * len(sizes)
    shares = owed(kernel, decode_columns(sizes, contexts, kernel.plan.basis.windows))
    places = np.asarray(sizes) - 1
    best = telling_batch(shares, seen.decode.fitted_s[places], seen.decode.draws_s[:, places], 0)
    return sizes[best]
