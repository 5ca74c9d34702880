"""The choice of runs: what gains most per GPU-minute, one episode after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from kernelfit.fit.steps import Floats
from kernelfit.plan.episodes import SECONDS_PER_MINUTE, Episode
from kernelfit.plan.goals import Goals

CRITERIA: tuple[str, ...] = ("d", "i")
"""``d``: the volume of what is open (determinant); ``i``: its mean squared interval."""

MOST_EPISODES = 400
LEAST_GAIN = 2e-3
"""Gain of the criterion [1] below which an episode is not worth its while where no budget
asks to be spent."""

STARTUP_MINUTES = 2.0
"""Time until an engine serves [min]: it loads weights and captures graphs; assumed."""

JITTER = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class Chosen:
    """Episodes and what they make of the covariance.

    Attributes
    ----------
    repeats : tuple of (int, int)
        Number of an episode among the candidates, and how often it runs.
    covariance : ndarray
        Of ln(unit cost), once they are fitted [1].
    steps : tuple of int
        Steps of each flag's own shape among them.
    gpu_minutes : float
        What they cost, with an engine start per pool [min].
    met : bool
        Whether nothing would be open any more.
    """

    repeats: tuple[tuple[int, int], ...]
    covariance: Floats
    steps: tuple[int, ...]
    gpu_minutes: float
    met: bool


def choose(
    covariance: Floats,
    goals: Goals,
    episodes: Sequence[Episode],
    gpus: Sequence[int],
    *,
    criterion: str = "d",
    gpu_minutes: float | None = None,
    startup_minutes: float = STARTUP_MINUTES,
    most_repeats: int | None = None,
) -> Chosen:
    """Choose episodes.

    Parameters
    ----------
    covariance : ndarray
        Of ln(unit cost) now [1].
    goals : Goals
        What is open.
    episodes : sequence of Episode
        Candidates.
    gpus : sequence of int
        GPUs of each pool.
    criterion : str
        One of ``CRITERIA``.
    gpu_minutes : float, optional
        What may be spent [min]; without, episodes are added until nothing is open or the
        next one gains next to nothing.
    startup_minutes : float
        Time of an engine's start [min].
    most_repeats : int, optional
        How often one episode may run; as often as it pays without.

    Returns
    -------
    Chosen
        The choice, in the order it was made.

    Raises
    ------
    ValueError
        When the criterion is unknown.

    Notes
    -----
    Greedy: each time the episode with the most gain per GPU-minute, its pool's start
    included where it is the first there. What is known already is worth less, so that a
    gain hardly ever grows by waiting: an episode is looked at again only where its last
    gain would still make it the best.
    """
    if criterion not in CRITERIA:
        raise ValueError(f"criterion: got {criterion!r}; allowed {', '.join(CRITERIA)}")
    like = [goals.steps_of(episode) for episode in episodes]
    counts: dict[int, int] = {}
    started: set[int] = set()
    steps = [0] * len(goals.flags)
    spent = 0.0
    now = covariance
    value = _value(now, goals, steps, criterion)
    # What each gained when it was last looked at; it will hardly gain more now.
    latest = np.full(len(episodes), np.inf)

    def cost_of(number: int) -> float:
        pool = episodes[number].pool
        start = 0.0 if pool in started else startup_minutes * gpus[pool]
        return episodes[number].gpu_s / SECONDS_PER_MINUTE + start

    for _ in range(MOST_EPISODES):
        if gpu_minutes is None and goals.met(now, steps):
            break
        costs = np.asarray([cost_of(number) for number in range(len(episodes))])
        allowed = np.ones(len(episodes), dtype=bool)
        if gpu_minutes is not None:
            allowed = spent + costs <= gpu_minutes + 1e-9
        if most_repeats is not None:
            allowed &= np.asarray([counts.get(n, 0) < most_repeats for n in range(len(episodes))])
        best: tuple[float, float, int, Floats, list[int]] | None = None
        for number in sorted(np.flatnonzero(allowed).tolist(), key=lambda n: -latest[n] / costs[n]):
            if best is not None and latest[number] / costs[number] <= best[0]:
                break
            after = updated(now, episodes[number].rows)
            total = [a + b for a, b in zip(steps, like[number], strict=True)]
            gain = value - _value(after, goals, total, criterion)
            latest[number] = gain
            if best is None or gain / costs[number] > best[0]:
                best = (gain / costs[number], gain, int(number), after, total)
        if best is None or best[1] <= (LEAST_GAIN if gpu_minutes is None else 0.0):
            break
        _, gain, chosen, now, steps = best
        value -= gain
        spent += float(costs[chosen])
        started.add(episodes[chosen].pool)
        counts[chosen] = counts.get(chosen, 0) + 1
    return Chosen(tuple(counts.items()), now, tuple(steps), spent, goals.met(now, steps))


def updated(covariance: Floats, rows: Floats) -> Floats:
    """Return the covariance once rows were fitted, too.

    Parameters
    ----------
    covariance : ndarray, shape (n, n)
        Before [1].
    rows : ndarray, shape (n_rows, n)
        In units of their noise.

    Returns
    -------
    ndarray, shape (n, n)
        ``C - C R' (1 + R C R')^-1 R C`` [1].
    """
    across = covariance @ rows.T
    inner = np.eye(rows.shape[0]) + rows @ across
    return np.asarray(covariance - across @ np.linalg.solve(inner, across.T))


def _value(covariance: Floats, goals: Goals, steps: Sequence[int], criterion: str) -> float:
    """Return what is open [1]; less is better."""
    return _CRITERIA[criterion](covariance, goals, goals.flag_spreads(covariance, steps))


def _volume(covariance: Floats, goals: Goals, flag_spreads: Floats) -> float:
    value = float(np.log(np.maximum(flag_spreads, _floor(goals))).sum())
    if goals.coefficients:
        inner = goals.rows @ covariance @ goals.rows.T
        inner += JITTER * np.eye(len(goals.coefficients))
        value += 0.5 * float(np.linalg.slogdet(inner)[1])
    return value


def _mean_square(covariance: Floats, goals: Goals, flag_spreads: Floats) -> float:
    value = float((np.maximum(flag_spreads, _floor(goals)) ** 2).sum())
    return value + float((goals.spreads(covariance) ** 2).sum())


def _floor(goals: Goals) -> Floats:
    # A flag that is settled cannot be settled better.
    return np.asarray([goal.wanted for goal in goals.flags])


_CRITERIA: dict[str, Callable[[Floats, Goals, Floats], float]] = {
    "d": _volume,
    "i": _mean_square,
}
