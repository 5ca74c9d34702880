"""Figures of conclusions and plans from plain rows."""

from __future__ import annotations

from typing import Any

import pytest

from kernelfit.report.plots_flips import FLAG_LOOKS, MOST_CURVES, flip_figures, heat_map, latency
from kernelfit.report.plots_plan import plan_figures
from kernelfit.report.text_plan import compare_text, plan_text


def flag(pool: str, load: str, word: str, **words: Any) -> dict[str, Any]:
    """Return one row."""
    row = {
        "gpu": "g",
        "model": "m",
        "pool": pool,
        "load": load,
        "conclusion": "largest_batch",
        "flag": word,
    }
    return {**row, **words}


FLAGS = [
    flag("tp1", "256 tokens", "agree"),
    flag("tp1", "1,024 tokens", "measure"),
    flag("tp2", "256 tokens", "uncertain"),
    flag("tp2", "1,024 tokens", "extrapolated"),
    flag("tp1, tp2", "256 tokens", "agree", conclusion="best_pool"),
]


def curve(**words: Any) -> dict[str, Any]:
    """Return one row of a curve."""
    row = {
        "gpu": "g",
        "model": "m",
        "pool": "tp1",
        "load": "256 tokens",
        "requests": [1, 2, 4],
        "overlap_s": [0.010, 0.011, 0.012],
        "no_overlap_s": [0.015, 0.017, 0.020],
        "fitted_s": [0.012, 0.013, 0.015],
        "low_s": [0.011, 0.012, 0.014],
        "high_s": [0.013, 0.014, 0.016],
        "targets_s": [0.014],
        "points": [{"requests": 2.0, "time_s": 0.0128, "error_s": 0.0001}],
    }
    return {**row, **words}


def test_a_heat_map_counts_and_marks_without_colour() -> None:
    drawn = heat_map(FLAGS)
    assert drawn.alt == (
        "Pools of m against loads, by flag: 2 agree, 1 extrapolated, 1 uncertain, 1 measure."
    )
    for _, colour, letter in FLAG_LOOKS:
        assert colour in drawn.svg
        assert f">{letter}<" in drawn.svg or not letter
    assert ">compared<" in drawn.svg
    assert heat_map(FLAGS).svg == drawn.svg
    assert heat_map(FLAGS).png == drawn.png


def test_the_most_doubtful_conclusion_colours_a_cell() -> None:
    twice = [flag("tp1", "x", "agree"), flag("tp1", "x", "measure")]
    assert "0 agree, 0 extrapolated, 0 uncertain, 1 measure" in heat_map(twice).alt


def test_more_loads_than_can_be_read_are_counted() -> None:
    many = [flag("tp1", f"{n} tokens", "agree") for n in range(70)]
    assert "10 further loads are in the table" in heat_map(many).caption


@pytest.mark.parametrize("points", [[], None])
def test_a_curve_has_both_bounds_its_interval_target_and_points(points: list[Any] | None) -> None:
    drawn = latency(curve() if points is None else curve(points=points))
    for word in ("no overlap", "overlap", "fitted", "95 % of the draws", "target"):
        assert f">{word}<" in drawn.svg
    assert (">measured<" in drawn.svg) == (points is None)
    assert "12 to 15 ms at 1 to 4 requests" in drawn.alt


def test_doubtful_pools_are_drawn_first_and_not_too_many() -> None:
    curves = [curve(pool=f"tp{n}") for n in range(MOST_CURVES + 5)]
    flags = [flag(f"tp{MOST_CURVES + 4}", "x", "measure")]
    drawings = flip_figures(flags, curves)
    assert len(drawings) == 1 + MOST_CURVES
    assert f"tp{MOST_CURVES + 4} on g" in drawings[1].alt
    assert flip_figures([], []) == ()


PLAN: dict[str, Any] = {
    "gpu": "g",
    "gpu_minutes": 4.25,
    "met": False,
    "runs": [
        {
            "model": "m",
            "pool": "tp2",
            "steps": 1234,
            "episodes": [{"shape": "8 x 256 tokens", "repeat": 3, "gpu_minutes": 0.25}],
            "commands": ["vllm bench latency"],
        }
    ],
    "coefficients": [
        {
            "name": "hbm_kv_eff",
            "verdict": "weak",
            "value": 0.5,
            "ci95": [0.4, 0.8],
            "expected_ci95": [0.45, 0.6],
            "shrinkage": 0.4,
            "wanted": True,
        }
    ],
    "flags": [
        {
            "model": "m",
            "pool": "tp2",
            "load": "x",
            "conclusion": "largest_batch",
            "flag": "measure",
            "margin": 0.05,
            "before": 0.4,
            "expected": 0.02,
            "settled": False,
        }
    ],
}


def test_a_plan_in_words_and_as_a_figure() -> None:
    text = plan_text(PLAN)
    assert text.startswith("g: 1 run, 1,234 steps, 4.25 GPU-minutes with the engines' start\n")
    assert "0.400 to 0.800  0.450 to 0.600        40 %" in text
    assert "5 %    40 %          2 %  no" in text
    assert text.isascii()
    (drawn,) = plan_figures(PLAN)
    assert "hbm_kv_eff shrinks most, to 40 %" in drawn.alt
    assert plan_figures({**PLAN, "coefficients": []}) == ()
    assert plan_text({**PLAN, "runs": []}) == "g: no run would settle anything that is open.\n"


def test_expected_beside_real() -> None:
    row = {
        "name": "a",
        "verdict": "weak",
        "verdict_after": "identified",
        "ci95": [1.0, 2.0],
        "expected_ci95": [1.2, 1.5],
        "ci95_after": [1.2, 1.6],
        "expected": 0.3,
        "real": 0.4,
        "wanted": True,
    }
    lines = compare_text([{**row, "name": "b", "wanted": False, "real": None}, row]).splitlines()
    assert [line.split()[0] for line in lines[2:]] == ["a", "b"]
    assert lines[2].split()[-4:] == ["30", "%", "40", "%"]
