"""Statistics, their errors, and the run that a store holds."""

from __future__ import annotations

import numpy as np
import pytest

from kernelfit.validate.closed_loop.compare import distribution, loop_errors, statistic
from kernelfit.validate.closed_loop.requests import Latencies, latencies


def of(*ttft: float) -> Latencies:
    values = np.asarray(ttft)
    return Latencies(values, np.full(values.size, np.nan), 2.0 * values)


def test_latencies_are_differences() -> None:
    found = latencies([1.0, 2.0], [1.5, 2.25], [3.5, 2.25], [5, 1])
    assert found.ttft_s.tolist() == [0.5, 0.25]
    assert found.e2e_s.tolist() == [2.5, 0.25]
    assert found.tpot_s[0] == 0.5
    assert np.isnan(found.tpot_s[1])


def test_statistics_of_a_hundred_and_one() -> None:
    values = np.arange(101.0)
    assert [statistic(values, name) for name in ("mean", "p50", "p90", "p99")] == [50, 50, 90, 99]
    assert statistic(np.append(values, np.nan), "mean") == 50
    assert np.isnan(statistic(np.array([np.nan]), "p50"))


def test_an_error_is_replayed_over_measured_and_a_repeat_the_worst_of_them() -> None:
    rows = loop_errors(of(1.0, 3.0), {"all": of(1.1, 3.3)}, [of(1.0, 3.2), of(0.9, 2.7)])
    by = {(row.latency, row.statistic): row for row in rows}
    mean = by["ttft_s", "mean"]
    assert (mean.measured_s, mean.replayed_s) == (2.0, pytest.approx(2.2))
    assert mean.error == pytest.approx(0.1)
    assert mean.repeat == pytest.approx(-0.1)
    assert by["e2e_s", "p50"].error == pytest.approx(0.1)
    assert np.isnan(by["tpot_s", "p99"].error)


def test_a_run_without_a_repeat_has_no_spread() -> None:
    assert {row.repeat for row in loop_errors(of(1.0), {"none": of(1.0)})} == {None}


def test_a_distribution_keeps_its_ends_and_not_every_request() -> None:
    assert distribution(np.array([3.0, np.nan, 1.0, 2.0])) == [1.0, 2.0, 3.0]
    many = distribution(np.linspace(0.0, 5.0, 1000))
    assert (len(many), many[0], many[-1]) == (200, 0.0, 5.0)
    assert distribution(np.array([np.nan])) == []
