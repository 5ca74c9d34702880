"""What a question and a calibration give: noise, what was recorded, what is wanted."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernelfit.documents.questions import Question
from kernelfit.fit.calibration import Calibration
from kernelfit.flips.conclude import Answer
from kernelfit.flips.loads import Candidate
from kernelfit.flips.objective import Goal
from kernelfit.flips.settle import aim_of, steps_needed, tie_margin
from kernelfit.kernel.fitted import FittedKernel


@dataclass(frozen=True, slots=True)
class Noise:
    """How far steps of one shape scatter.

    Attributes
    ----------
    spread : float
        Median absolute relative deviation [1].
    inflation : float
        Factor by which autocorrelation inflates the variance of a mean [1].
    """

    spread: float
    inflation: float

    def steps(self, answer: Answer) -> int:
        """Return how many steps settle a conclusion.

        Parameters
        ----------
        answer : Answer
            The conclusion.

        Returns
        -------
        int
            Steps of its batch.
        """
        return steps_needed(answer.resolution, self.spread, self.inflation)

    def aim(self, conclusion: str, flag: str, answer: Answer) -> str:
        """Say what the steps are good for.

        Parameters
        ----------
        conclusion, flag : str
            The conclusion and its flag.
        answer : Answer
            What came out.

        Returns
        -------
        str
            The end of a sentence.
        """
        return aim_of(conclusion, flag, answer.resolution, tie_margin(self.spread, self.inflation))


@dataclass(frozen=True, slots=True)
class Recorded:
    """What stands behind a calibration.

    Attributes
    ----------
    models : frozenset of str
        Models whose steps it was fitted on.
    coefficients : frozenset of str
        Coefficients that their deployments use.
    """

    models: frozenset[str]
    coefficients: frozenset[str]

    @staticmethod
    def of(calibration: Calibration) -> Recorded:
        """Return what stands behind a calibration.

        Parameters
        ----------
        calibration : Calibration
            The calibration.

        Returns
        -------
        Recorded
            Its models and coefficients.
        """
        return Recorded(
            frozenset(run.model for run in calibration.runs),
            frozenset(c.name for c in calibration.coefficients),
        )

    def covers(self, kernel: FittedKernel) -> bool:
        """Return whether a pool is of a model, and uses coefficients, that were recorded.

        Parameters
        ----------
        kernel : FittedKernel
            The pool's kernel.

        Returns
        -------
        bool
            Whether nothing in it rests on a prior alone because nobody ran it.
        """
        plan = kernel.plan
        return plan.model.name in self.models and self.coefficients.issuperset(plan.coefficients)


def concerns(question: Question, pool: Candidate) -> bool:
    """Return whether a question is about a pool.

    Parameters
    ----------
    question : Question
        The question.
    pool : Candidate
        The pool.

    Returns
    -------
    bool
        Whether model and pools name it, or nothing.
    """
    return question.model in (None, pool.model) and (
        not question.pools or pool.label in question.pools
    )


def goal_of(question: Question, concurrency: int | None, rate_per_s: float | None) -> Goal:
    """Return what a question wants of a pool.

    Parameters
    ----------
    question : Question
        The question.
    concurrency : int or None
        Requests in flight that must be served.
    rate_per_s : float or None
        Requests a second that must be served [1/s].

    Returns
    -------
    Goal
        Its targets and objective.
    """
    return Goal(
        np.inf if question.target_s is None else question.target_s,
        np.inf if question.first_token_target_s is None else question.first_token_target_s,
        question.objective,
        rate_per_s,
        concurrency,
    )
