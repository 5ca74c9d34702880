"""Fits that do not see what they are scored on, and the scores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from kernelfit.fit.choose import choose_rule
from kernelfit.fit.design import coefficient_names
from kernelfit.fit.gates import apply_gates
from kernelfit.fit.point import PointFit, fit_runs, predict_run
from kernelfit.fit.steps import Bools, Floats, RunSteps
from kernelfit.validate.baselines import DERATE, LEARNERS, roofline


@dataclass(frozen=True, slots=True)
class Score:
    """Errors of one predictor on one group of steps.

    Attributes
    ----------
    steps : int
        Steps scored.
    median, mean, bias : float
        Median and mean absolute relative error, and median signed error [1].
    """

    steps: int
    median: float
    mean: float
    bias: float


def score(measured: Floats, predicted: Floats) -> Score:
    """Return the errors of predictions.

    Parameters
    ----------
    measured, predicted : ndarray, shape (n_steps,)
        Times [s]; steps without a prediction are NaN and left out.

    Returns
    -------
    Score
        The errors.
    """
    error = predicted / measured - 1.0
    error = error[np.isfinite(error)]
    if error.size == 0:
        return Score(0, float("nan"), float("nan"), float("nan"))
    return Score(
        int(error.size),
        float(np.median(np.abs(error))),
        float(np.mean(np.abs(error))),
        float(np.median(error)),
    )


@dataclass(frozen=True, slots=True, eq=False)
class HeldOut:
    """Predictions of steps that their fit did not see.

    Attributes
    ----------
    runs : tuple of RunSteps
        The runs, gated.
    predicted : tuple of ndarray
        Per run [s]; NaN where a step was not held out.
    baselines : tuple of (str, tuple of ndarray)
        The same by what a user would otherwise use.
    fits : tuple of PointFit
        The fits behind the predictions.
    rule : str
        The composition, chosen on the steps that were fitted.
    """

    runs: tuple[RunSteps, ...]
    predicted: tuple[Floats, ...]
    baselines: tuple[tuple[str, tuple[Floats, ...]], ...]
    fits: tuple[PointFit, ...]
    rule: str

    def score(self, run: RunSteps, phase: str = "all", of: str = "kernelfit") -> Score:
        """Return the errors on one run.

        Parameters
        ----------
        run : RunSteps
            One of ``runs``.
        phase : str
            A phase, or ``all``; ``prompt`` joins mixed and prefill.
        of : str
            ``kernelfit`` or a baseline.

        Returns
        -------
        Score
            The errors.
        """
        index = self.runs.index(run)
        values = self.predicted if of == "kernelfit" else dict(self.baselines)[of]
        wanted = {"all": ("decode", "mixed", "prefill"), "prompt": ("mixed", "prefill")}
        phases = wanted.get(phase, (phase,))
        mask = np.asarray([p in phases for p in run.phase], dtype=bool)
        return score(run.measured_s[mask], values[index][mask])


def held_out(
    runs: Sequence[RunSteps],
    folds: Sequence[Sequence[Bools]],
    rule: str | None = None,
    baselines: bool = True,
) -> HeldOut:
    """Fit without each fold and predict it.

    Parameters
    ----------
    runs : sequence of RunSteps
        Gated runs of one GPU type.
    folds : sequence of sequence of ndarray of bool
        Per fold and run, which steps are held out.
    rule : str, optional
        The composition; chosen on the first fold's training steps where not given.
    baselines : bool
        Whether the baselines are scored too.

    Returns
    -------
    HeldOut
        The predictions.
    """
    predicted = [np.full(run.size, np.nan) for run in runs]
    learned = {name: [np.full(run.size, np.nan) for run in runs] for name, _, _ in LEARNERS}
    names = coefficient_names(runs)
    fits = []
    for fold in folds:
        train = [run.take(~test) for run, test in zip(runs, fold, strict=True)]
        train = [run for run in train if run.size]
        if rule is None:
            rule = choose_rule(train).rule
        fit = fit_runs(train, names, rule)
        fits.append(fit)
        for index, (run, test) in enumerate(zip(runs, fold, strict=True)):
            if test.any():
                predicted[index][test] = predict_run(run.take(test), fit)
        if baselines:
            _learn(runs, fold, train, learned)
    plain: list[tuple[str, tuple[Floats, ...]]] = []
    if baselines:
        held = [np.isfinite(p) for p in predicted]
        for name, derate in (("datasheet", 1.0), ("datasheet_derated", DERATE)):
            rows = zip(runs, held, strict=True)
            plain.append(
                (name, tuple(np.where(mask, roofline(run, derate), np.nan) for run, mask in rows))
            )
        plain.extend((name, tuple(values)) for name, values in learned.items())
    return HeldOut(tuple(runs), tuple(predicted), tuple(plain), tuple(fits), rule or "")


def _learn(
    runs: Sequence[RunSteps],
    fold: Sequence[Bools],
    train: Sequence[RunSteps],
    learned: dict[str, list[Floats]],
) -> None:
    for index, (run, test) in enumerate(zip(runs, fold, strict=True)):
        if not test.any():
            continue
        # As a user would: on the deployment itself where it was seen, else on all others.
        same = [t for t in train if t.group == run.group] or list(train)
        for name, features, learner in LEARNERS:
            x = np.concatenate([features(t) for t in same])
            y = np.concatenate([t.measured_s for t in same])
            learned[name][index][test] = learner(x, y, features(run.take(test)))


def gated(
    runs: Sequence[RunSteps], wanted: Callable[[RunSteps], bool], off: Sequence[str] = ()
) -> tuple[tuple[RunSteps, ...], int]:
    """Return the gated runs that are wanted, and how many steps the gates dropped.

    Parameters
    ----------
    runs : sequence of RunSteps
        All runs.
    wanted : callable
        Which of them.
    off : sequence of str
        Gates that are switched off.

    Returns
    -------
    tuple of RunSteps
        The runs.
    int
        Steps dropped.
    """
    chosen = [run for run in runs if wanted(run)]
    kept = [apply_gates(run, off)[0] for run in chosen]
    dropped = sum(r.size for r in chosen) - sum(r.size for r in kept)
    return tuple(kept), dropped


def blocks(run: RunSteps, fold: int = 2, steps: int = 150, folds: int = 3) -> Bools:
    """Return every third block of 150 steps.

    Parameters
    ----------
    run : RunSteps
        The run.
    fold : int
        Which of the three.
    steps, folds : int
        Length of a block [steps], and how many folds there are.

    Returns
    -------
    ndarray of bool, shape (n_steps,)
        The steps held out.
    """
    return np.asarray(np.arange(run.size) // steps % folds == fold)
