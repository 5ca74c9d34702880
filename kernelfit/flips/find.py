"""From kernels and questions to flags."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kernelfit.documents.questions import Question
from kernelfit.flips.about_many import about_many
from kernelfit.flips.about_one import about_one
from kernelfit.flips.asked import Asked
from kernelfit.flips.flag import Flag
from kernelfit.flips.given import Noise, Recorded, concerns
from kernelfit.flips.loads import candidates
from kernelfit.flips.measured import MeasuredShape
from kernelfit.flips.settle import check_noise
from kernelfit.kernel.fitted import FittedKernel


def find_flips(
    kernels: Sequence[FittedKernel],
    questions: Sequence[Question],
    *,
    noise_spread: float,
    inflation: float,
    names: Sequence[str] | None = None,
    measured: Sequence[MeasuredShape] = (),
    recorded: Mapping[str, Recorded] | None = None,
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
    measured : sequence of MeasuredShape
        Measured steps; every view of a pool is made to pass through its own.
    recorded : mapping of str to Recorded, optional
        By digest of the calibration, what it was fitted on; another model, or what else
        needs coefficients of its own, is outside of what was seen.

    Returns
    -------
    tuple of Flag
        For each pool and question, what is asked about it alone; then, for each model, what
        compares its pools. A row that two questions share stands once.

    Raises
    ------
    InvalidArgument
        When the noise is none, there is not one name per kernel, or a price is missing.

    Notes
    -----
    Steady-state arithmetic: requests are spread evenly over their lifetimes. Queueing and
    arrivals are a simulator's; none of them is assumed here.
    """
    check_noise(noise_spread, inflation)
    noise = Noise(noise_spread, inflation)
    asked = [
        Asked.of(
            pool,
            questions,
            measured,
            None if recorded is None else recorded.get(pool.kernel.fitted.calibration),
        )
        for pool in candidates(kernels, names)
    ]
    flags = [flag for pool in asked for flag in about_one(pool, noise)]
    for model in dict.fromkeys(pool.candidate.model for pool in asked):
        members = [pool for pool in asked if pool.candidate.model == model]
        for question in questions:
            mine = [p for p in members if concerns(question, p.candidate)]
            flags += about_many(mine, question, noise)
    rows: dict[tuple[object, ...], Flag] = {}
    for flag in flags:
        key = (flag.gpu, flag.pool, flag.model, flag.conclusion, flag.load)
        rows.setdefault((*key, flag.percentile, flag.objective), flag)
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
    return tuple(q for q in questions if not any(concerns(q, pool) for pool in pools))
