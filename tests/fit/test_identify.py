"""Identifiability on designs small enough to work out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from kernelfit.fit.blocks import Block
from kernelfit.fit.design import Design
from kernelfit.fit.identify import identify
from kernelfit.fit.solve import Solution


def design(host: np.ndarray) -> Design:
    """Build a design of host work alone: the prediction is linear in every cost."""
    rows, columns = host.shape
    # One function of the batch per coefficient, and each coefficient prices its own.
    none = np.zeros((columns, columns))
    return Design(
        names=tuple(f"c{k}" for k in range(columns)),
        blocks=(Block(host, (), none, np.eye(columns)),),
        measured_s=host.sum(axis=1),
        block=np.arange(rows),
        run=np.zeros(rows, dtype=np.int64),
        origin=np.arange(rows),
        weight=np.ones(rows),
        steps=rows,
    )


def solution(columns: int, scale: float = 0.1) -> Solution:
    return Solution(np.zeros(columns), 0.0, scale, True, 1)


def test_one_coefficient_is_as_sure_as_the_mean_of_its_rows() -> None:
    # ln(prediction) moves one to one: the spread is scale / sqrt(n), times sqrt(inflation).
    found = identify(design(np.ones((400, 1))), solution(1), inflation=4.0)
    assert found.data_spread[0] == pytest.approx(0.1 / 20 * 2)
    assert found.vif[0] == pytest.approx(1.0)
    assert found.share[0] == pytest.approx(1.0)


def test_a_term_of_a_tenth_of_the_time_is_ten_times_less_sure() -> None:
    # Two kinds of row: the first holds the constant alone, the second a tenth of c1.
    host = np.array([[1.0, 0.0]] * 200 + [[0.9, 0.1]] * 200)
    found = identify(design(host), solution(2), inflation=1.0)
    # Information: J'J with rows (1, 0) and (0.9, 0.1); inverse by hand.
    a, b, c = 200 + 200 * 0.81, 200 * 0.09, 200 * 0.01
    determinant = a * c - b * b
    assert found.data_spread[1] == pytest.approx(0.1 * np.sqrt(a / determinant))
    assert found.data_spread[0] == pytest.approx(0.1 * np.sqrt(c / determinant))
    assert found.vif[1] == pytest.approx(a * c / determinant)


def test_columns_that_always_move_together_are_aliases() -> None:
    rng = np.random.default_rng(0)
    free = rng.uniform(0.5, 2.0, 300)
    host = np.column_stack([free, 2.0 * free, rng.uniform(0.5, 2.0, 300)])
    found = identify(design(host), solution(3), inflation=1.0)
    assert found.aliases == ((1,), (0,), ())
    assert found.data_spread[0] > 100
    assert found.data_spread[2] < 0.05
    # With one of the two known, the other is as sure as any.
    known = identify(design(host), solution(3), inflation=1.0, without=(0,))
    assert known.data_spread[1] < 0.05
    assert known.aliases == ((), (), ())


def test_more_than_two_columns_that_always_move_together_are_all_aliases() -> None:
    # Four multiples of one column: no two of their estimates correlate beyond a third.
    # Beside them a pair, and one column of its own.
    rng = np.random.default_rng(2)
    one, two, three = rng.uniform(0.5, 2.0, (3, 400))
    host = np.column_stack([one, two, 2.0 * one, three, 0.3 * one, 5.0 * two, 0.1 * one])
    found = identify(design(host), solution(7), inflation=1.0)
    assert found.aliases == ((2, 4, 6), (5,), (0, 4, 6), (), (0, 2, 6), (1,), (0, 2, 4))
    # A sum of two others is as unknown as they are.
    host = np.column_stack([one, two, one + two, three])
    found = identify(design(host), solution(4), inflation=1.0)
    assert found.aliases == ((1, 2), (0, 2), (0, 1), ())


def test_a_correlation_of_099_is_no_alias_but_blurs() -> None:
    rng = np.random.default_rng(1)
    free = rng.uniform(0.2, 2.0, 2000)
    twin = free * np.exp(0.05 * rng.standard_normal(2000))
    host = np.column_stack([free, twin, np.full(2000, 0.5)])
    assert np.corrcoef(free, twin)[0, 1] > 0.99
    found = identify(design(host), solution(3), inflation=1.0)
    assert found.vif[0] > 50
    assert found.aliases[0] == (1,)
    assert np.isfinite(found.data_spread).all()


def test_a_column_without_work_is_unseen() -> None:
    host = np.column_stack([np.ones(50), np.zeros(50)])
    found = identify(design(host), solution(2), inflation=1.0)
    assert np.isinf(found.data_spread[1])
    assert np.isinf(found.vif[1])
    assert found.share[1] == 0.0
    assert np.isfinite(found.data_spread[0])
