"""Splits along what an answer must generalise over. Random rows are refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from kernelfit.fit.steps import Bools, RunSteps

SPLITS: tuple[str, ...] = (
    "time_block",
    "leave_one_run_out",
    "leave_one_pool_out",
    "leave_one_model_out",
)
"""Splits of one GPU type's runs."""

ACROSS_GPUS = "leave_one_gpu_out"
"""The split of the runs of several GPU types."""

TIME_BLOCK_STEPS = 150
TIME_FOLDS = 3
FEWEST_GROUPS: Mapping[str, int] = MappingProxyType({"leave_one_pool_out": 3})
"""Groups that a split needs where two are not enough: with one pool left, the time of its
collectives cannot be told from that of its launches, and nothing would be tested."""


@dataclass(frozen=True, slots=True, eq=False)
class Fold:
    """One split of the steps of several runs.

    Attributes
    ----------
    split : str
        One of ``SPLITS``, or ``ACROSS_GPUS``.
    held_out : str
        What is held out.
    test : tuple of ndarray of bool
        Per run, which steps are held out; the others may be fitted on.
    """

    split: str
    held_out: str
    test: tuple[Bools, ...]


def make_folds(runs: Sequence[RunSteps], split: str) -> tuple[Fold, ...]:
    """Return the folds of a split.

    Parameters
    ----------
    runs : sequence of RunSteps
        Gated runs: of one GPU type, or of several for ``ACROSS_GPUS``.
    split : str
        One of ``SPLITS``, or ``ACROSS_GPUS``.

    Returns
    -------
    tuple of Fold
        Every step is held out in at most one fold. Empty where the runs do not differ
        in what the split holds out.

    Raises
    ------
    ValueError
        When the split is unknown; random rows are refused, because neighbouring steps
        are nearly copies and a random row split scores memory, not a law.

    Notes
    -----
    ``time_block`` cuts every run into blocks of 150 steps and holds out every third.
    """
    allowed = (*SPLITS, ACROSS_GPUS)
    if split not in allowed:
        raise ValueError(f"split: got {split!r}; allowed {', '.join(allowed)}")
    if split == "time_block":
        block = [np.arange(run.size) // TIME_BLOCK_STEPS % TIME_FOLDS for run in runs]
        return tuple(
            Fold(split, f"blocks {fold + 1} of {TIME_FOLDS}", tuple(b == fold for b in block))
            for fold in range(TIME_FOLDS)
            if any((b == fold).any() for b in block)
        )
    keys = [_key(run, split) for run in runs]
    groups = tuple(dict.fromkeys(keys))
    if len(groups) < FEWEST_GROUPS.get(split, 2):
        return ()
    return tuple(
        Fold(
            split,
            group,
            tuple(np.full(r.size, k == group) for r, k in zip(runs, keys, strict=True)),
        )
        for group in groups
    )


def _key(run: RunSteps, split: str) -> str:
    if split == "leave_one_run_out":
        return run.run
    if split == "leave_one_pool_out":
        return run.pool_label
    if split == ACROSS_GPUS:
        return run.plan.chip.name
    return run.plan.model.name


def train_and_test(
    runs: Sequence[RunSteps], fold: Fold
) -> tuple[tuple[RunSteps, ...], tuple[RunSteps, ...]]:
    """Return the two sides of a fold.

    Parameters
    ----------
    runs : sequence of RunSteps
        The runs that the fold was made for.
    fold : Fold
        The fold.

    Returns
    -------
    tuple of RunSteps
        Runs to fit on; those without steps are left out.
    tuple of RunSteps
        Runs to predict; those without steps are left out.
    """
    pairs = list(zip(runs, fold.test, strict=True))
    train = tuple(run.take(~test) for run, test in pairs if not test.all())
    test = tuple(run.take(held) for run, held in pairs if held.any())
    return train, test
