"""The cells of measured against predicted: every step is in one, and none is too strong."""

from __future__ import annotations

import re

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kernelfit.report.plots_match import _hexagons, measured_against_predicted
from kernelfit.report.select import one_gpu
from tests.report.samples import small_result


@given(st.lists(st.tuples(st.floats(-3, 3), st.floats(-3, 3)), min_size=1, max_size=60))
def test_every_point_is_counted_once_in_a_cell_that_holds_it(
    points: list[tuple[float, float]],
) -> None:
    x, y = (np.array(column) for column in zip(*points, strict=True))
    size = 0.1
    centres, counts = _hexagons(x, y, size)
    assert counts.sum() == len(points)
    # Nobody is further from the nearest centre than a corner of its cell.
    gaps = np.hypot(x[:, None] - centres[None, :, 0], y[:, None] - centres[None, :, 1])
    assert gaps.min(axis=1).max() <= size / np.sqrt(3.0) + 1e-9


def test_thirteen_steps_in_the_fullest_cell_can_be_drawn() -> None:
    # log1p of an array and of a number differ by an ulp there, which made an opacity above 1.
    result = small_result()
    points = result["points"][0]
    chosen = [0] * 13 + [1, 1] + [2] * 300
    for key, values in points.items():
        if isinstance(values, list):
            points[key] = [values[index] for index in chosen]
    # The 300 are spread so thinly that each has a cell of its own.
    for place in range(15, 315):
        points["measured_s"][place] = 10.0 ** (place / 100.0)
        points["predicted_s"][place] = 10.0 ** ((place * 7 % 300) / 100.0)
    drawing = measured_against_predicted(one_gpu(result, "H100-SXM"))
    assert drawing is not None
    words = [text for _, _, text in drawing.hover]
    assert any(text.startswith("13 steps near") for text in words)
    total = sum(int(re.match(r"([\d,]+)", text)[1].replace(",", "")) for text in words)  # type: ignore[index]
    assert total == 315


def test_few_steps_are_marks_with_their_run() -> None:
    drawing = measured_against_predicted(one_gpu(small_result(), "H100-SXM"))
    assert drawing is not None
    assert len(drawing.hover) == 4
    assert drawing.hover[0][2] == "decode step of run-a: measured 10 ms, predicted 10.2 ms"
