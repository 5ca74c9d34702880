from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelfit.documents.problems import InputError, Place, Problem, did_you_mean, nearest, shown

LINES = st.none() | st.integers(1, 99)
PROBLEMS = st.builds(
    Problem, st.sampled_from(["a.yaml", "b.yaml"]), LINES, LINES, st.text(min_size=1)
)


def test_a_problem_is_one_line_with_everything_that_is_known() -> None:
    full = Problem("f.yaml", 3, 7, "is wrong", got="x", allowed="y", hint="try y")
    assert full.render() == "f.yaml:3:7: is wrong (got x); allowed y; try y"
    assert Problem("f.yaml", 3, None, "is wrong").render() == "f.yaml:3: is wrong"
    assert Problem("f.yaml", None, None, "is wrong").render() == "f.yaml: is wrong"
    assert Problem.at(Place("f", 1, 2), "bad", hint="h").render() == "f:1:2: bad; h"


@given(st.text(), st.text())
def test_a_problem_stays_one_line_whatever_a_file_holds(message: str, got: str) -> None:
    assert len(Problem("f", 1, 1, message, got=got).render().splitlines()) == 1


@given(st.lists(PROBLEMS, min_size=1))
def test_problems_are_sorted_by_place_and_not_repeated(problems: list[Problem]) -> None:
    found = InputError(problems + problems).problems
    assert set(found) == set(problems)
    assert len(found) == len(set(problems))
    places = [(p.file, p.line or 0, p.column or 0) for p in found]
    assert places == sorted(places)


def test_an_error_without_a_problem_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="at least one"):
        InputError([])


def test_the_nearest_word_ignores_case_and_keeps_the_known_spelling() -> None:
    assert nearest("h100-sxn", ["A100-SXM-80GB", "H100-SXM"]) == "H100-SXM"
    assert nearest("zebra", ["H100-SXM"]) is None
    assert did_you_mean("hbm_byte", ["hbm_bytes"]) == "did you mean hbm_bytes?"
    assert did_you_mean("zebra", ["hbm_bytes"]) is None


def test_long_values_are_cut() -> None:
    assert shown("a" * 100) == "'" + "a" * 56 + "..."
    assert shown([1, 2]) == "[1, 2]"
    assert shown(list(range(20))) == "a list of 20"
    assert shown({"a": 1}) == "a mapping"
