"""How fast a run was, moment by moment."""

from __future__ import annotations

import pytest

from kernelfit.validate.closed_loop.close import WINDOW_S, StepAccount


def test_each_moment_has_the_pace_of_its_window_or_of_the_nearest() -> None:
    account = StepAccount(None, None, {20: 1.0, 21: 1.5, 24: 2.0})
    pace = account.pace(20 * WINDOW_S)
    moments = (0.0, WINDOW_S - 0.1, WINDOW_S, 2.0 * WINDOW_S, 3.0 * WINDOW_S, 99.0 * WINDOW_S)
    assert [pace(moment) for moment in moments] == [1.0, 1.0, 1.5, 1.5, 2.0, 2.0]
    assert account.pace(0.0)(0.0) == pytest.approx(1.0)
