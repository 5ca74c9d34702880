from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelfit.documents.problems import InputError
from kernelfit.documents.yamldoc import load_yaml, parse_json, parse_yaml, read_text
from tests.documents.helpers import one_problem, place_in, problems_of, written

GOOD = """\
a: 989e12
b:
  c: [1, two, 3.5]
  d: {e: true, f: null}
"""


def test_plain_data_with_the_position_of_each_value() -> None:
    document = parse_yaml(GOOD, "f.yaml")
    data = {"a": 989e12, "b": {"c": [1, "two", 3.5], "d": {"e": True, "f": None}}}
    assert document.data == data
    for path, part in {("a",): "989e12", ("b", "c", 1): "two", ("b", "d", "e"): "true"}.items():
        place = document.place(path)
        assert (place.line, place.column) == place_in(GOOD, part)
    key = document.place(("b", "d", "f"), key=True)
    assert (key.line, key.column) == place_in(GOOD, "f: null")


def test_a_path_that_is_not_there_gives_the_place_around_it() -> None:
    document = parse_yaml(GOOD, "f.yaml")
    assert document.place(("b", "d", "missing")) == document.place(("b", "d"))
    assert document.place(("nowhere",)) == document.place(())


def test_every_repeated_key_is_refused_where_it_is_repeated() -> None:
    text = "a: 1\nb: {c: 1, c: 2}\na: 3\n"
    first, second = problems_of(parse_yaml, text, "f.yaml")
    assert first.render() == "f.yaml:2:11: key c is repeated; first given on line 2"
    assert second.render() == "f.yaml:3:1: key a is repeated; first given on line 1"
    assert parse_yaml("a: 1\nb: {c: 1, d: 2}\ne: 3\n", "f.yaml").data["e"] == 3


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("", None, "empty"),
        ("# only a comment\n", None, "empty"),
        ("- a\n- b\n", 1, "mapping"),
        ("just words\n", 1, "mapping"),
        ("a: [1, 2\nb: 3\n", 2, "not valid YAML"),
        ("a: 1\n b: 2\n", 2, "not valid YAML"),
        ("a: 1\n---\nb: 2\n", 2, "not valid YAML"),
        ("a: &x 1\nb: *x\n", 1, "anchors"),
        ("1: one\n", 1, "key must be text"),
        ("? [a]\n: 1\n", 1, "key must be text"),
        ("a: !!python/object:os.system x\n", 1, "cannot be read"),
        ("a: \x07\n", None, "not valid YAML"),
    ],
)
def test_what_is_not_a_document_is_refused(text: str, line: int | None, words: str) -> None:
    problem = problems_of(parse_yaml, text, "f.yaml")[0]
    assert problem.line == line
    assert words in problem.render()


def test_deep_nesting_is_refused_without_a_crash() -> None:
    assert "deeply" in one_problem(parse_yaml, "a: " + "[" * 800, "f.yaml").message
    assert "deeply" in one_problem(parse_json, '{"a": ' + "[" * 200_000, "f.json").message
    assert parse_yaml("a: " + "[" * 20 + "]" * 20, "f.yaml").data["a"]


@settings(max_examples=200)
@given(st.text())
def test_any_text_is_a_document_or_an_input_error(text: str) -> None:
    for parse in (parse_yaml, parse_json):
        try:
            assert isinstance(parse(text, "f").data, dict)
        except InputError as error:
            files = {problem.file for problem in error.problems}
        else:
            files = {"f"}
        assert files == {"f"}


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(categories=("L", "N", "P", "Zs"))),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text("abcxyz", min_size=1), inner, max_size=4)
    ),
    max_leaves=6,
)


@settings(max_examples=50)
@given(st.dictionaries(st.text("abcxyz", min_size=1), VALUES, max_size=4))
def test_json_reads_as_json(data: dict[str, Any]) -> None:
    assert parse_json(json.dumps(data, indent=1), "f.json").data == data


def test_json_positions_and_refusals() -> None:
    text = '{\n "a": 1,\n "b": {"c": [1, 2]}\n}\n'
    place = parse_json(text, "f.json").place(("b", "c", 1))
    assert (place.line, place.column) == place_in(text, "2]")
    tabbed = parse_json(text.replace(" ", "\t"), "f.json")
    assert tabbed.data == {"a": 1, "b": {"c": [1, 2]}}
    for bad, words in {
        '{"a" 1}': "f.json:1:6: not valid JSON",
        '{"a": 1, "a": 2}': "key a is repeated",
        '{"a": NaN}': "must be finite (got NaN)",
        '{"a": -Infinity}': "must be finite (got -Infinity)",
        "[1]": "must be an object",
    }.items():
        assert words in one_problem(parse_json, bad, "f.json").render()


def test_files_that_cannot_be_read_say_why(tmp_path: Path) -> None:
    missing = tmp_path / "missing.yaml"
    assert one_problem(load_yaml, missing).render() == f"{missing}: no such file"
    assert "is a folder" in one_problem(load_yaml, tmp_path).message
    latin = tmp_path / "latin.yaml"
    latin.write_bytes(b"a: 1\nb: \xe9\n")
    problem = one_problem(load_yaml, latin)
    assert (problem.line, problem.message) == (2, "is not UTF-8 text")
    assert read_text(written(tmp_path, "\ufeffa: é\n")) == "a: é\n"
