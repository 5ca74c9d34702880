"""A seeded workload that spans what a cost model has to see.

Pure: from a seed to a list of episodes. One episode is a set of requests that run
together; most are decode batches of a chosen width and context, some have prompts
arriving while others decode (mixed steps, chunked prefill), some repeat an earlier
prompt's beginning (prefix-cache hits).
"""

from __future__ import annotations

import random
from dataclasses import dataclass

BATCHES = (1, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
VOCABULARY = 4000


@dataclass(frozen=True)
class PlannedRequest:
    """One request of an episode.

    Attributes
    ----------
    prompt : tuple of int
        Token ids, random; they mean nothing.
    output_tokens : int
        How many tokens to generate [tokens].
    after_steps : int
        Engine steps of the episode before the request is added.
    """

    prompt: tuple[int, ...]
    output_tokens: int
    after_steps: int


@dataclass(frozen=True)
class Limits:
    """The span of the workload.

    Attributes
    ----------
    shortest_tokens, longest_tokens : int
        Bounds of a prompt's length [tokens].
    episode_tokens : int
        Sum of prompt lengths that a decode batch or a set of arrivals keeps to, unless its
        shortest prompts exceed it [tokens]; prompts that repeat a beginning come on top.
    steps : int
        Roughly how many engine steps the workload makes.
    """

    shortest_tokens: int = 16
    longest_tokens: int = 4000
    episode_tokens: int = 10_000
    steps: int = 1200


def _log_uniform(rng: random.Random, low: int, high: int) -> int:
    span: float = (high / low) ** rng.random()
    return round(low * span)


def _tokens(rng: random.Random, count: int) -> tuple[int, ...]:
    return tuple(rng.randrange(10, VOCABULARY) for _ in range(count))


def _decode_batch(rng: random.Random, limits: Limits) -> list[PlannedRequest]:
    batch = rng.choice(BATCHES)
    longest = min(
        limits.longest_tokens, max(limits.shortest_tokens, limits.episode_tokens // batch)
    )
    centre = _log_uniform(rng, limits.shortest_tokens, longest)
    steps = rng.randrange(14, 30)
    requests = []
    for _ in range(batch):
        length = min(longest, max(limits.shortest_tokens, round(centre * rng.uniform(0.6, 1.4))))
        requests.append(PlannedRequest(_tokens(rng, length), steps + rng.randrange(0, 6), 0))
    return requests


def _arrivals(rng: random.Random, limits: Limits) -> list[PlannedRequest]:
    requests = []
    budget = limits.episode_tokens
    for _ in range(rng.randrange(2, 24)):
        length = _log_uniform(rng, limits.shortest_tokens, min(400, limits.longest_tokens))
        budget -= length
        requests.append(PlannedRequest(_tokens(rng, length), rng.randrange(20, 36), 0))
    for _ in range(rng.randrange(3, 8)):
        length = _log_uniform(rng, limits.shortest_tokens, limits.longest_tokens)
        if length > budget:
            continue
        budget -= length
        requests.append(
            PlannedRequest(_tokens(rng, length), rng.randrange(4, 14), rng.randrange(2, 20))
        )
    return requests


def _prefix_hits(
    rng: random.Random, limits: Limits, seen: list[tuple[int, ...]]
) -> list[PlannedRequest]:
    requests = []
    for _ in range(rng.randrange(2, 10)):
        base = rng.choice(seen)
        keep = rng.randrange(len(base) // 2, len(base) + 1)
        room = limits.longest_tokens - keep
        tail = _tokens(rng, min(room, _log_uniform(rng, 16, 400)))
        requests.append(
            PlannedRequest(base[:keep] + tail, rng.randrange(6, 20), rng.randrange(0, 8))
        )
    return requests


def plan(seed: int, limits: Limits) -> tuple[tuple[PlannedRequest, ...], ...]:
    """Return the episodes of one workload.

    Parameters
    ----------
    seed : int
        Seed of every choice; the same seed gives the same workload.
    limits : Limits
        The span of the workload.

    Returns
    -------
    tuple of tuple of PlannedRequest
        Episodes in order. Kinds are shuffled throughout, so that every block of
        consecutive steps holds all of them.
    """
    rng = random.Random(seed)
    episodes: list[tuple[PlannedRequest, ...]] = []
    seen: list[tuple[int, ...]] = []
    steps = 0
    while steps < limits.steps:
        kind = rng.random()
        if kind < 0.55 or not seen:
            requests = _decode_batch(rng, limits)
        elif kind < 0.8:
            requests = _arrivals(rng, limits)
        else:
            requests = _prefix_hits(rng, limits, seen)
        seen = [*seen, *(r.prompt for r in requests if len(r.prompt) >= 256)][-12:]
        episodes.append(tuple(requests))
        steps += max(r.output_tokens + r.after_steps for r in requests)
    return tuple(episodes)
