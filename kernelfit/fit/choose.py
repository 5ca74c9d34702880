"""Predictions of what a fit did not see, and the composition that they choose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kernelfit.fit.calibration import Score
from kernelfit.fit.design import coefficient_names
from kernelfit.fit.given import GivenPrior
from kernelfit.fit.point import fit_runs, predict_run
from kernelfit.fit.solve import HOST_ADDED, RULES, Solution
from kernelfit.fit.splits import make_folds, train_and_test
from kernelfit.fit.steps import Floats, RunSteps
from kernelfit.kernel.stage import LAUNCH_STAGE

SMALLEST_GAIN = 0.05
SMALLEST_GAIN_IN_TIME = 1.0 / 3.0
"""Relative gains in held-out error below which the simpler composition is kept [1]: with a
model or a pool left out or one deployment alone, and where only blocks of time could be held
out of several.

Blocks that lie between those fitted say little about other widths and models. On public
B300 runs the maximum beat the sum between blocks by more than a tenth, and with a
tensor-parallel width left out it was three times worse."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The composition that held-out scores chose.

    Attributes
    ----------
    rule : str
        How resources combine.
    scores : tuple of Score
        Every rule's scores; none where nothing could be held out.
    predicted : tuple of ndarray, shape (n_steps,)
        The rule's held-out predictions of time blocks per run [s].
    solutions : tuple of (str, Solution)
        Every scored rule's quick fit to all runs, in the order of the scores.
    """

    rule: str
    scores: tuple[Score, ...]
    predicted: tuple[Floats, ...]
    solutions: tuple[tuple[str, Solution], ...]


def held_out(
    runs: Sequence[RunSteps],
    split: str,
    rule: str,
    *,
    quick: bool = False,
    start: Solution | None = None,
    given: Sequence[GivenPrior] = (),
) -> tuple[Floats, ...]:
    """Predict every step from a fit that did not see it.

    Parameters
    ----------
    runs : sequence of RunSteps
        Gated runs of one GPU type.
    split : str
        One of ``kernelfit.fit.splits.SPLITS``.
    rule : str
        How resources combine.
    quick : bool
        Leave every coefficient free, its prior only pulling: enough to compare rules.
    start : Solution, optional
        Where the solver starts; it saves time and does not move the optimum.
    given : sequence of GivenPrior
        Priors in place of the catalogue's.

    Returns
    -------
    tuple of ndarray, shape (n_steps,)
        Predictions per run [s]; NaN where no fold holds a step out.
    """
    names = coefficient_names(runs)
    out = [np.full(run.size, np.nan) for run in runs]
    for fold in make_folds(runs, split):
        train, _ = train_and_test(runs, fold)
        if not train:
            continue
        fit = fit_runs(train, names, rule, quick=quick, start=start, given=given)
        for index, (run, test) in enumerate(zip(runs, fold.test, strict=True)):
            if test.any():
                out[index][test] = predict_run(run.take(test), fit)
    return tuple(out)


def hardest_split(runs: Sequence[RunSteps]) -> str:
    """Return the split that asks most of a law among those that the runs allow.

    Parameters
    ----------
    runs : sequence of RunSteps
        Gated runs of one GPU type.

    Returns
    -------
    str
        ``leave_one_pool_out`` with three pools, ``leave_one_model_out`` with two models,
        else ``time_block``. A model that is left out takes coefficients with it that only
        it uses; a pool takes none.
    """
    for split in ("leave_one_pool_out", "leave_one_model_out"):
        if make_folds(runs, split):
            return split
    return "time_block"


def choose_rule(runs: Sequence[RunSteps], given: Sequence[GivenPrior] = ()) -> Choice:
    """Choose how resources combine by what was held out.

    Parameters
    ----------
    runs : sequence of RunSteps
        Gated runs of one GPU type.
    given : sequence of GivenPrior
        Priors in place of the catalogue's.

    Returns
    -------
    Choice
        The rule with the lowest error on the hardest split that the runs allow; ``sum``,
        the simplest, unless another gains enough on it. Whether host work that runs
        ahead hides is decided the same way.
    """
    scores: dict[str, Score] = {}
    predicted: dict[str, tuple[Floats, ...]] = {}
    starts: dict[str, Solution] = {}
    names = coefficient_names(runs)
    split = hardest_split(runs)

    def score(rule: str) -> bool:
        starts[rule] = fit_runs(runs, names, rule, quick=True, given=given).solution
        predicted[rule] = held_out(runs, split, rule, quick=True, start=starts[rule], given=given)
        errors = [
            np.abs(p / run.measured_s - 1.0)[np.isfinite(p)]
            for p, run in zip(predicted[rule], runs, strict=True)
        ]
        errors = [values for values in errors if values.size]
        if errors:
            # Every run counts alike, however long it is.
            median = float(np.mean([np.median(values) for values in errors]))
            mean = float(np.mean([np.mean(values) for values in errors]))
            scores[rule] = Score(rule, median, mean, split)
        return bool(errors)

    if not all(score(rule) for rule in RULES):
        return Choice("sum", (), predicted.popitem()[1], ())
    # With one deployment alone there is nothing else to carry over to.
    alone = len({run.group for run in runs}) == 1
    gain = SMALLEST_GAIN if split != "time_block" or alone else SMALLEST_GAIN_IN_TIME
    best = _better(scores, RULES, gain)
    if any(_runs_ahead(run) for run in runs):
        # Whether launches hide is asked once the device's own rule is known.
        score(best + HOST_ADDED)
        best = _better(scores, (best, best + HOST_ADDED), gain)
    if split != "time_block":
        predicted[best] = held_out(
            runs, "time_block", best, quick=True, start=starts[best], given=given
        )
    solutions = tuple((rule, starts[rule]) for rule in scores)
    return Choice(best, tuple(scores.values()), predicted[best], solutions)


def _runs_ahead(run: RunSteps) -> bool:
    """Whether launches run ahead by the device's doing alone.

    Under asynchronous scheduling the engine hands over a step while the one before it
    runs: that its host work hides is how it works, and not for a score to decide.
    """
    launching = any(term.stage == LAUNCH_STAGE for term in run.plan.terms)
    return launching and not run.plan.resolution.async_scheduling


def _better(scores: Mapping[str, Score], rules: Sequence[str], gain: float) -> str:
    """Return the first rule unless another gains enough on it."""
    best = min(rules, key=lambda rule: scores[rule].median_ape)
    if scores[best].median_ape > (1.0 - gain) * scores[rules[0]].median_ape:
        return rules[0]
    return best
