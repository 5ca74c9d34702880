"""What a user would otherwise take, fitted and scored on the same rows and splits.

=====================  ================================================================
datasheet              datasheet roofline: the largest resource of every layer at peak
datasheet_derated      the same with 0.8 of every peak
nnls_sums              non-negative least squares on a constant, prefill tokens, decode
                       requests and context tokens, relative errors
random_forest          random forest on token counts, logarithm of the time
gradient_boosting      boosted trees on the same counts, logarithm of the time
constant               the median of the training steps
=====================  ================================================================

The learned ones are trained on the training steps of the same deployment where there
are any, else on all training steps: that is what a model never seen leaves them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from scipy.optimize import nnls
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from threadpoolctl import threadpool_limits

from kernelfit.fit.splits import Fold, make_folds, train_and_test
from kernelfit.fit.steps import Floats, RunSteps
from kernelfit.kernel.datasheet import datasheet_values
from kernelfit.kernel.pricing import cells_of, price_many

DERATE = 0.8
TREES = 40
ROUNDS = 150
"""Trees of the boosting, each of at most 31 leaves of at least 20 steps."""

Learner = Callable[[Floats, Floats, Floats], Floats]


def roofline(run: RunSteps, derate: float) -> Floats:
    """Return the datasheet roofline of a run's steps.

    Parameters
    ----------
    run : RunSteps
        The run.
    derate : float
        Share of every peak that is assumed to be reached [1].

    Returns
    -------
    ndarray, shape (n_steps,)
        Time at the largest resource of every layer, no host time [s].
    """
    cells = cells_of(run.plan, datasheet_values(run.plan.coefficients, derate))
    return np.asarray(price_many(run.plan, cells, run.totals).overlap_s)


def _sums(run: RunSteps) -> Floats:
    t = run.totals
    prefill = t["tokens"] - t["decode_requests"]
    context = t["decode_context_tokens"] + t["prefill_context_tokens"]
    return np.column_stack([np.ones(run.size), prefill, t["decode_requests"], context])


def _counts(run: RunSteps) -> Floats:
    return np.column_stack([run.totals[name] for name in sorted(run.totals)])


def _learn_nnls(x: Floats, y: Floats, new: Floats) -> Floats:
    relative = x / y[:, None]
    scale = np.linalg.norm(relative, axis=0)
    scale[scale == 0.0] = 1.0
    weights = nnls(relative / scale, np.ones(y.size))[0] / scale
    return np.asarray(new @ weights)


def _learn_forest(x: Floats, y: Floats, new: Floats) -> Floats:
    forest = RandomForestRegressor(n_estimators=TREES, min_samples_leaf=3, random_state=0)
    return np.asarray(np.exp(forest.fit(x, np.log(y)).predict(new)))


def _learn_boosting(x: Floats, y: Floats, new: Floats) -> Floats:
    # Stopping early would hold out random rows, which scores memory.
    boosting = HistGradientBoostingRegressor(max_iter=ROUNDS, early_stopping=False, random_state=0)
    # Sums over threads differ in their last digits from machine to machine.
    with threadpool_limits(limits=1):
        return np.asarray(np.exp(boosting.fit(x, np.log(y)).predict(new)))


def _learn_constant(_: Floats, y: Floats, new: Floats) -> Floats:
    return np.full(new.shape[0], float(np.median(y)))


LEARNERS: tuple[tuple[str, Callable[[RunSteps], Floats], Learner], ...] = (
    ("nnls_sums", _sums, _learn_nnls),
    ("random_forest", _counts, _learn_forest),
    ("gradient_boosting", _counts, _learn_boosting),
    ("constant", _sums, _learn_constant),
)


def _folds(runs: Sequence[RunSteps], split: str, only: str | None) -> tuple[Fold, ...]:
    return tuple(f for f in make_folds(runs, split) if only is None or f.held_out == only)


def learned(
    runs: Sequence[RunSteps],
    split: str,
    features: Callable[[RunSteps], Floats],
    learner: Learner,
    only: str | None = None,
) -> tuple[Floats, ...]:
    """Predict every step with a learner that did not see it.

    Parameters
    ----------
    runs : sequence of RunSteps
        Gated runs of one GPU type, or of several for ``ACROSS_GPUS``.
    split : str
        One of ``kernelfit.fit.splits.SPLITS``, or ``ACROSS_GPUS``.
    features : callable
        From a run to an array of shape (n_steps, n_features).
    learner : callable
        From training features and times [s] and new features to times [s].
    only : str, optional
        What is held out, where one fold is enough.

    Returns
    -------
    tuple of ndarray, shape (n_steps,)
        Predictions per run [s]; NaN where no fold holds a step out.
    """
    out = [np.full(run.size, np.nan) for run in runs]
    for fold in _folds(runs, split, only):
        train, _ = train_and_test(runs, fold)
        if not train:
            continue
        # Runs of one deployment share a model: the learner is trained once for them.
        trained: dict[tuple[str, ...], list[int]] = {}
        for index, (run, test) in enumerate(zip(runs, fold.test, strict=True)):
            if test.any():
                same = tuple(t.run for t in train if t.group == run.group)
                trained.setdefault(same, []).append(index)
        for same, indices in trained.items():
            used = [t for t in train if not same or t.run in same]
            x = np.concatenate([features(t) for t in used])
            y = np.concatenate([t.measured_s for t in used])
            for index in indices:
                test = fold.test[index]
                out[index][test] = learner(x, y, features(runs[index].take(test)))
    return tuple(out)


def baseline_predictions(
    runs: Sequence[RunSteps], split: str, only: str | None = None
) -> tuple[tuple[str, tuple[Floats, ...]], ...]:
    """Return every baseline's predictions for a split.

    Parameters
    ----------
    runs : sequence of RunSteps
        Gated runs of one GPU type, or of several for ``ACROSS_GPUS``.
    split : str
        One of ``kernelfit.fit.splits.SPLITS``, or ``ACROSS_GPUS``.
    only : str, optional
        What is held out, where one fold is enough.

    Returns
    -------
    tuple of (str, tuple of ndarray)
        Name, and predictions per run [s].
    """
    held = [np.zeros(run.size, dtype=bool) for run in runs]
    for fold in _folds(runs, split, only):
        held = [mask | test for mask, test in zip(held, fold.test, strict=True)]
    rooflines = (("datasheet", 1.0), ("datasheet_derated", DERATE))
    out: list[tuple[str, tuple[Floats, ...]]] = [
        (
            name,
            tuple(
                np.where(mask, roofline(run, derate), np.nan)
                for run, mask in zip(runs, held, strict=True)
            ),
        )
        for name, derate in rooflines
    ]
    out.extend(
        (name, learned(runs, split, features, learner, only))
        for name, features, learner in LEARNERS
    )
    return tuple(out)
