"""What a plan is for: coefficients that are not known well, and flags that are open."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from kernelfit.fit.identify import PINNED
from kernelfit.fit.judge import NEGLIGIBLE_SHARE
from kernelfit.fit.steps import Floats
from kernelfit.flips.flag import Flag
from kernelfit.flips.settle import CERTAINTY, NORMAL, Proposed
from kernelfit.kernel.fitted import FittedKernel
from kernelfit.kernel.totals import BatchTotals
from kernelfit.plan.episodes import Episode, step_rows
from kernelfit.plan.knowledge import Knowledge, coefficient_rows, spreads

OPEN_VERDICTS: tuple[str, ...] = ("weak", "prior", "at_bound")


@dataclass(frozen=True, slots=True, eq=False)
class FlagGoal:
    """One open flag.

    Attributes
    ----------
    flags : tuple of Flag
        Flags that one measurement is about.
    pool : int
        Number of the pool to measure.
    proposed : Proposed
        The measurement.
    row : ndarray, shape (n_coefficients,)
        Derivatives of ln(time of its step) by ln(unit cost) [1].
    apart_var : float
        Variance of ln(time) that no coefficient explains: between the bounds where they
        disagree, else the fit's own scatter [1].
    wanted : float
        Standard deviation that settles the first flag: a third of its margin [1].
    """

    flags: tuple[Flag, ...]
    pool: int
    proposed: Proposed
    row: Floats
    apart_var: float
    wanted: float


@dataclass(frozen=True, slots=True, eq=False)
class Goals:
    """Everything that a plan is for.

    Attributes
    ----------
    coefficients : tuple of str
        Coefficients that are ``weak``, ``prior`` or at a bound, or that nobody has seen.
    rows : ndarray, shape (n_open, n_coefficients)
        Each as a linear form of ln(unit cost) [1].
    flags : tuple of FlagGoal
        Open flags.
    step_noise : float
        Standard deviation of one measured step of one shape, counting that neighbours
        repeat each other [1].
    """

    coefficients: tuple[str, ...]
    rows: Floats
    flags: tuple[FlagGoal, ...]
    step_noise: float

    def spreads(self, covariance: Floats) -> Floats:
        """Return the standard deviation of every open coefficient.

        Parameters
        ----------
        covariance : ndarray
            Of ln(unit cost) [1].

        Returns
        -------
        ndarray, shape (n_open,)
            Of its logarithm [1].
        """
        return spreads(self.rows, covariance)

    def flag_spreads(self, covariance: Floats, steps: Sequence[int]) -> Floats:
        """Return the standard deviation of every open flag's step time.

        Parameters
        ----------
        covariance : ndarray
            Of ln(unit cost) [1].
        steps : sequence of int
            Steps of the flag's own shape that are measured.

        Returns
        -------
        ndarray, shape (n_flags,)
            Of its logarithm [1]: what coefficients and composition leave open, and the
            mean of the measured steps, weighed by their precisions.
        """
        out = np.zeros(len(self.flags))
        for place, (goal, count) in enumerate(zip(self.flags, steps, strict=True)):
            known = float(goal.row @ covariance @ goal.row) + goal.apart_var
            direct = count / self.step_noise**2 if self.step_noise > 0.0 else np.inf * count
            out[place] = np.sqrt(1.0 / (1.0 / max(known, 1e-30) + (direct if count else 0.0)))
        return out

    def met(self, covariance: Floats, steps: Sequence[int]) -> bool:
        """Return whether nothing is open any more.

        Parameters
        ----------
        covariance : ndarray
            Of ln(unit cost) [1].
        steps : sequence of int
            Steps of each flag's own shape that are measured.

        Returns
        -------
        bool
            Whether every coefficient would be pinned to a twentieth and every flag settled.
        """
        wanted = np.asarray([goal.wanted for goal in self.flags])
        settled = self.flag_spreads(covariance, steps) < wanted
        return bool((self.spreads(covariance) <= PINNED).all() and settled.all())

    def steps_of(self, episode: Episode) -> tuple[int, ...]:
        """Return how many steps of each flag's shape an episode holds.

        Parameters
        ----------
        episode : Episode
            The episode.

        Returns
        -------
        tuple of int
            One count per flag.
        """
        return tuple(
            episode.steps_like(goal.proposed) if goal.pool == episode.pool else 0
            for goal in self.flags
        )


def goals_of(
    knowledge: Knowledge,
    pools: Sequence[FittedKernel],
    labels: Sequence[str],
    flags: Sequence[Flag],
) -> tuple[Goals, tuple[Flag, ...]]:
    """Gather what is open.

    Parameters
    ----------
    knowledge : Knowledge
        What is known.
    pools : sequence of FittedKernel
        Candidate pools.
    labels : sequence of str
        Their labels, as the flags name them.
    flags : sequence of Flag
        Conclusions about them.

    Returns
    -------
    Goals
        Coefficients and flags that steps can settle.
    tuple of Flag
        Open flags that no step time settles by itself: what fits in memory, and which
        resource leads between draws.
    """
    calibration = knowledge.calibration
    seen = {c.name: e for c, e in zip(calibration.coefficients, calibration.evidence, strict=True)}
    verdicts = {c.name: c.verdict for c in calibration.coefficients}
    used = {name for kernel in pools for name in kernel.plan.coefficients}
    wanted = tuple(
        name
        for name in knowledge.names
        if name in used
        and verdicts.get(name, "prior") in OPEN_VERDICTS
        # What makes up no time of what was run may well in a pool that was not.
        and (name not in seen or seen[name].time_share >= NEGLIGIBLE_SHARE or name not in verdicts)
    )
    places = {
        (kernel.plan.chip.name, kernel.plan.model.name, label): number
        for number, (kernel, label) in enumerate(zip(pools, labels, strict=True))
    }
    grouped: dict[Proposed, list[Flag]] = {}
    left = []
    for flag in flags:
        if flag.flag == "agree":
            continue
        by_refit = flag.conclusion == "bottleneck" and flag.flag == "uncertain"
        if flag.proposed is None or by_refit:
            left.append(flag)
            continue
        shape = flag.proposed
        if (shape.gpu, shape.model, shape.pool) in places:
            grouped.setdefault(replace(shape, steps=0), []).append(flag)
        else:
            left.append(flag)
    step_noise = NORMAL * calibration.noise.median_spread * float(np.sqrt(calibration.inflation))
    found = []
    for shape, members in grouped.items():
        number = places[shape.gpu, shape.model, shape.pool]
        found.append(_flag_goal(knowledge, number, pools[number], shape, members))
    rows = coefficient_rows(knowledge.names, wanted)
    return Goals(wanted, rows, tuple(found), step_noise), tuple(left)


def _flag_goal(
    knowledge: Knowledge,
    number: int,
    kernel: FittedKernel,
    shape: Proposed,
    members: Sequence[Flag],
) -> FlagGoal:
    if shape.chunk_tokens:
        decoding = shape.requests - 1
        before = max(0, shape.prompt_tokens - shape.chunk_tokens) // 2
        size = shape.chunk_tokens
        context = before + size
        pairs = size * before + size * (size + 1) // 2
    else:
        decoding, size, context, pairs = shape.requests, 0, 0, 0
    keys = decoding * (shape.context_tokens + 1)
    totals = BatchTotals(
        shape.requests, decoding + size, decoding, keys, keys, context, max(pairs, context)
    )
    rows, _ = step_rows(knowledge, kernel, [totals])
    noise = knowledge.row_noise
    apart = knowledge.calibration.scale**2
    width = 0.0
    for flag in members:
        if flag.flag == "measure" and flag.overlap_s and flag.no_overlap_s:
            width = max(width, float(np.log(flag.no_overlap_s / flag.overlap_s)))
    margins = [flag.margin for flag in members if flag.margin]
    wanted = min(margins, default=1.0) / CERTAINTY
    return FlagGoal(
        tuple(members),
        number,
        replace(shape, steps=max(flag.steps or 0 for flag in members)),
        rows[0, 0] * noise,
        # Anything between the bounds is as likely as anything else.
        apart + width**2 / 12.0,
        max(wanted, 1e-6),
    )
