"""One conclusion with its flag, as a value and as a row of the result document."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from kernelfit.flips.conclude import Answer, Outcome
from kernelfit.flips.ranking import Ranked
from kernelfit.flips.settle import Proposed

FLAGS: tuple[str, ...] = ("measure", "uncertain", "extrapolated", "agree")
"""In the order of precedence."""

CONCLUSIONS: tuple[str, ...] = (
    "meets_token_latency",
    "meets_first_token",
    "largest_batch",
    "sustains_rate",
    "kv_fits",
    "best_pool",
    "wider_is_faster",
    "wider_pays",
    "disaggregation_pays",
    "bottleneck",
)

DOUBT = 0.05
"""Share of draws that may disagree before a conclusion is called uncertain [1]."""


@dataclass(frozen=True, slots=True)
class Flag:
    """A conclusion about one pool (or several, for ``best_pool``) at one load.

    Attributes
    ----------
    gpu, pool, model : str
        The deployment; where several are compared, every one, separated by commas.
    load : str
        The load in words.
    conclusion : str
        One of ``CONCLUSIONS``.
    flag : str
        One of ``FLAGS``: ``measure`` when the views disagree, else ``uncertain`` when more
        than 5 % of the draws disagree with the fitted conclusion, else ``extrapolated``
        when the batch lies outside what the calibration has seen, else ``agree``.
    overlap, no_overlap, fitted : str or int
        The conclusion under each bound and as fitted: ``yes``, ``no``, a number of
        requests, a pool, a resource, ``none`` (no pool meets the target), ``not held``
        (the engine never decodes so many at once) or ``needs arrivals`` (only a simulator
        that knows when requests come can tell).
    margin : float or None
        Relative change of the fitted step time at which the conclusion changes [1].
    probability : float or None
        Share of the draws that give the fitted conclusion [1].
    measurement : str or None
        The measurement that settles it, in one sentence; None when it agrees.
    steps : int or None
        Decode steps that it takes; None when it agrees.
    in_domain : bool or None
        Whether the calibration has seen batches like this; None when none runs.
    limit : str or None
        What sets the most requests that decode together; None for ``best_pool``.
    context_tokens : int
        Context of every request [tokens].
    target_s : float or None
        The target [s]; None for ``bottleneck``.
    requests : int
        Requests of the batch that the conclusion hangs on; 0 when none runs.
    overlap_s, no_overlap_s, fitted_s : float or None
        Its step time under each bound and as fitted [s], in the pool to measure for
        ``best_pool``.
    overlap_gpu_tokens_per_s, no_overlap_gpu_tokens_per_s, fitted_gpu_tokens_per_s : float or None
        Output tokens per second and GPU of the best pool [tokens/s]; None for the others.
    first_token_target_s : float or None
        The target to first token [s].
    rate_per_s : float or None
        Requests a second that were asked about [1/s].
    percentile : float or None
        Share of tokens that must meet the targets [1]; None for means without queueing.
    objective : str or None
        What made a pool the best; None for other conclusions.
    ranking : tuple of Ranked
        Every compared pool, the best as fitted first.
    proposed : Proposed or None
        The measurement, for programs; None when it agrees.
    note : str or None
        What else must be known.
    measured : bool
        Whether measured steps at this load stand behind it.
    """

    gpu: str
    pool: str
    model: str
    load: str
    conclusion: str
    flag: str
    overlap: Outcome
    no_overlap: Outcome
    fitted: Outcome
    margin: float | None
    probability: float | None
    measurement: str | None
    steps: int | None
    in_domain: bool | None
    limit: str | None
    context_tokens: int
    target_s: float | None
    requests: int
    overlap_s: float | None = None
    no_overlap_s: float | None = None
    fitted_s: float | None = None
    overlap_gpu_tokens_per_s: float | None = None
    no_overlap_gpu_tokens_per_s: float | None = None
    fitted_gpu_tokens_per_s: float | None = None
    first_token_target_s: float | None = None
    rate_per_s: float | None = None
    percentile: float | None = None
    objective: str | None = None
    ranking: tuple[Ranked, ...] = ()
    proposed: Proposed | None = None
    note: str | None = None
    measured: bool = False


def flag_word(answer: Answer, in_domain: bool) -> str:
    """Return the flag of a conclusion.

    Parameters
    ----------
    answer : Answer
        The conclusion under every view.
    in_domain : bool
        Whether the calibration has seen batches like its own.

    Returns
    -------
    str
        The first of ``FLAGS`` that applies.
    """
    if answer.differ:
        return "measure"
    if answer.probability is not None and 1.0 - answer.probability > DOUBT + 1e-12:
        return "uncertain"
    return "agree" if in_domain else "extrapolated"


def flip_rows(flags: Iterable[Flag]) -> list[dict[str, Any]]:
    """Return flags as rows of a result document.

    Parameters
    ----------
    flags : iterable of Flag
        What ``find_flips`` gave.

    Returns
    -------
    list of dict
        JSON-shaped, one per flag, with the names of ``Flag``; SI units, shares as fractions.
    """
    return [
        {**dataclasses.asdict(flag), "ranking": [dataclasses.asdict(r) for r in flag.ranking]}
        for flag in flags
    ]
