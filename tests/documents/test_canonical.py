from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelfit.documents.canonical import digest, dumps, write_atomic

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
)
KEYS = st.text(max_size=4)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=6,
)
DOCUMENTS = st.dictionaries(KEYS, VALUES, max_size=4)
FEW = settings(max_examples=50)


def reordered(value: Any) -> Any:
    """Return the same data with every mapping's keys in the opposite order."""
    if isinstance(value, dict):
        return {key: reordered(value[key]) for key in reversed(list(value))}
    if isinstance(value, list):
        return [reordered(item) for item in value]
    return value


@FEW
@given(DOCUMENTS)
def test_neither_text_nor_digest_depends_on_the_order_of_keys(document: dict[str, Any]) -> None:
    other = reordered(document)
    assert dumps(document) == dumps(other)
    assert digest(document) == digest(other)


@FEW
@given(DOCUMENTS)
def test_what_is_written_reads_back_exactly(document: dict[str, Any]) -> None:
    text = dumps(document)
    assert text.endswith("\n")
    assert text.isascii()
    assert json.loads(text) == document
    assert digest(json.loads(text)) == digest(document)


@FEW
@given(DOCUMENTS, st.text())
def test_the_digest_leaves_itself_out(document: dict[str, Any], old: str) -> None:
    bare = {key: value for key, value in document.items() if key != "digest"}
    assert digest({**bare, "digest": old}) == digest(bare)


def test_the_digest_is_the_hash_of_the_compact_text() -> None:
    expected = hashlib.sha256(b'{"a":[1,2.5],"b":"\\u00b5"}').hexdigest()
    assert digest({"b": "µ", "a": [1, 2.5], "digest": "x"}) == f"sha256:{expected}"
    assert digest({"b": "µ", "a": [1, 2.6]}) != f"sha256:{expected}"


def test_the_core_digests_alike() -> None:
    frozen = pytest.importorskip("kernelfit.kernel.frozen")
    document = {"x": [1.5, None, "µ"], "a": {"c": 1, "b": True}}
    assert frozen.digest(document) == digest(document)
    assert frozen.canonical(document, indent=1) + "\n" == dumps(document)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_numbers_that_are_not_finite_are_refused(bad: float) -> None:
    for write in (dumps, digest):
        with pytest.raises(ValueError, match="not JSON compliant"):
            write({"a": [1.0, {"b": bad}]})
        write({"a": [1.0, {"b": 1e308}]})


def test_keys_that_would_turn_into_others_are_refused() -> None:
    with pytest.raises(TypeError, match=r"\$\.a: key 1 is not text"):
        dumps({"a": {1: "x", "1": "y"}})
    assert json.loads(dumps({"a": {"1": "y"}})) == {"a": {"1": "y"}}


def test_a_file_is_written_whole_and_nothing_else_is_left(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "er" / "file.json"
    write_atomic(target, "µ one\n")
    assert target.read_text(encoding="utf-8") == "µ one\n"
    write_atomic(target, b"two")
    assert target.read_bytes() == b"two"
    assert [path.name for path in target.parent.iterdir()] == ["file.json"]


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: Any) -> None:
    target = tmp_path / "file.json"
    write_atomic(target, "old")

    def no_space(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(OSError, match="No space"):
        write_atomic(target, "new")
    assert target.read_text(encoding="utf-8") == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["file.json"]


def test_a_link_is_followed(tmp_path: Path) -> None:
    target, link = tmp_path / "real.json", tmp_path / "link.json"
    target.write_text("old", encoding="utf-8")
    link.symlink_to(target)
    write_atomic(link, "new")
    assert link.is_symlink()
    assert target.read_text(encoding="utf-8") == "new"
