"""The learned baselines: what they can learn, and that they answer the same every time."""

from __future__ import annotations

import numpy as np
import pytest

from kernelfit.fit.splits import ACROSS_GPUS
from kernelfit.validate.baselines import LEARNERS, baseline_predictions, learned
from tests.fit.simulate import simulate
from tests.kernel.builders import CHIP, EAGER, dense

RUNS = (
    simulate("a", dense("one"), CHIP, EAGER, seed=1, steps=450, outliers=0.0),
    simulate("b", dense("one"), CHIP, EAGER, seed=2, steps=450, outliers=0.0),
)
BY_NAME = {name: (features, learner) for name, features, learner in LEARNERS}


@pytest.mark.parametrize("name", ["random_forest", "gradient_boosting"])
def test_trees_learn_a_law_that_they_have_seen(name: str) -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(1.0, 100.0, (2000, 2))
    y = 1e-3 + 1e-5 * x[:, 0] + 4e-5 * x[:, 1]
    new = rng.uniform(1.0, 100.0, (300, 2))
    predicted = BY_NAME[name][1](x, y, new)
    truth = 1e-3 + 1e-5 * new[:, 0] + 4e-5 * new[:, 1]
    assert np.median(np.abs(predicted / truth - 1.0)) < 0.02
    # Trees know nothing beyond what they saw: the largest time is all there is.
    far = BY_NAME[name][1](x, y, np.asarray([[1e4, 1e4]]))
    assert far[0] <= y.max() * 1.05


@pytest.mark.parametrize("name", sorted(BY_NAME))
def test_a_learner_answers_the_same_every_time(name: str) -> None:
    features, learner = BY_NAME[name]
    one, two = (learned(RUNS, "leave_one_run_out", features, learner) for _ in range(2))
    for first, second in zip(one, two, strict=True):
        assert np.array_equal(first, second)
        assert np.all(np.isfinite(first))
        assert np.all(first > 0.0)


def test_one_fold_alone_is_what_it_is_among_the_others() -> None:
    features, learner = BY_NAME["gradient_boosting"]
    whole = learned(RUNS, "leave_one_run_out", features, learner)
    alone = learned(RUNS, "leave_one_run_out", features, learner, only="b")
    assert np.isnan(alone[0]).all()
    assert np.array_equal(alone[1], whole[1])


def test_every_baseline_predicts_what_is_held_out_and_nothing_else() -> None:
    found = dict(baseline_predictions(RUNS, "time_block"))
    assert set(found) == {
        "datasheet",
        "datasheet_derated",
        "nnls_sums",
        "random_forest",
        "gradient_boosting",
        "constant",
    }
    for name, values in found.items():
        assert all(np.isfinite(v).all() for v in values), name
    for name, values in baseline_predictions(RUNS, ACROSS_GPUS):
        assert all(np.isnan(v).all() for v in values), name
    with pytest.raises(ValueError, match="split"):
        baseline_predictions(RUNS, "random")
