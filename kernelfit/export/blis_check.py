"""The published loading and validity rules of a BLIS ``CoefficientSet``, applied strictly.

Written from the registry's page on the file format (blis-registry, ``docs/reference/format.md``,
for blis-schemas v0.2.2), with its naming rule and the two that its own tests add: what is
measured cites a source, what is assumed says why.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from kernelfit.documents.problems import Problem, shown

UNITS = (
    "dimensionless",
    "us_per_layer",
    "us_per_request",
    "us_per_step",
    "us_per_hop",
    "bytes_per_us",
    "bytes_per_rank",
    "us_per_load",
    "us_per_transfer",
    "tokens",
    "sm_count",
    "us_per_token",
)
METHODS = ("measured", "literature", "vendor_spec", "copied", "assumed", "not_charged")
SCOPE_STRINGS = ("hardware", "model")
SCOPE_INTEGERS = ("tp", "ep", "nodes_spanned")
SOURCE_KINDS = ("discussion", "publication", "datasheet", "model", "vendor_doc")
SOURCE_ROLES = ("primary", "supporting", "upper_bound")

_SET_KEYS = ("kind", "name", "coefficients")
_ENTRY_KEYS = (
    "name",
    "value",
    "units",
    "method",
    "fitted",
    "scope",
    "ci95",
    "sources",
    "rationale",
    "copied_from",
    "supersedes",
    "validated",
    "unsupported",
)
_SOURCE_KEYS = ("kind", "cite", "role")
_NEEDS_RATIONALE = ("literature", "vendor_spec", "copied", "assumed", "not_charged")
_NEEDS_SOURCES = ("measured", "literature", "vendor_spec")
_NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")


def validate_coefficient_set(text: str, file: str = "coefficients.yaml") -> tuple[Problem, ...]:
    """Check the text of a coefficient set against the published rules.

    Parameters
    ----------
    text : str
        The YAML text.
    file : str
        What the problems call the file.

    Returns
    -------
    tuple of Problem
        Everything that is wrong, sorted by place; empty for a valid set.
    """
    try:
        document = YAML(typ="rt", pure=True).load(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = (None, None) if mark is None else (mark.line + 1, mark.column + 1)
        return (_problem(file, place, f"not readable as YAML: {error.problem}"),)
    except YAMLError as error:
        return (_problem(file, (None, None), f"not readable as YAML: {error}"),)
    check = _Check(file)
    check.document(document)
    return tuple(sorted(check.problems))


def _problem(
    file: str,
    place: tuple[int | None, int | None],
    message: str,
    got: object = None,
    allowed: str | None = None,
) -> Problem:
    text = None if got is None else shown(got)
    return Problem(file, place[0], place[1], message, got=text, allowed=allowed)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


class _Check:
    """Collects the problems of one document."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.problems: list[Problem] = []

    def add(
        self,
        node: Any,
        key: Any,
        message: str,
        got: object = None,
        allowed: str | None = None,
    ) -> None:
        """Note a problem at a key of a mapping or an item of a list."""
        place: tuple[int | None, int | None] = (None, None)
        if isinstance(node, (CommentedMap, CommentedSeq)):
            data = node.lc.data or {}
            line, column = data[key][:2] if key in data else (node.lc.line, node.lc.col)
            place = (line + 1, column + 1)
        self.problems.append(_problem(self.file, place, message, got, allowed))

    def closed(self, node: CommentedMap, keys: Iterable[str], what: str) -> None:
        """Refuse keys that a mapping does not declare."""
        known = tuple(keys)
        for key in node:
            if key not in known:
                self.add(node, key, f"unknown key in {what}", key, ", ".join(known))

    def document(self, document: object) -> None:
        """Check the set and every entry of it."""
        if not isinstance(document, CommentedMap):
            self.add(None, None, "a coefficient set is a mapping", type(document).__name__)
            return
        self.closed(document, _SET_KEYS, "the set")
        if document.get("kind") != "CoefficientSet":
            self.add(document, "kind", "wrong kind", document.get("kind"), "CoefficientSet")
        self.text(document, "name", "the set's name", required=True)
        entries = document.get("coefficients")
        if not isinstance(entries, CommentedSeq) or not entries:
            self.add(document, "coefficients", "a set holds a list of at least one entry")
            return
        seen: set[tuple[object, ...]] = set()
        for index, item in enumerate(entries):
            if not isinstance(item, CommentedMap) or len(item) != 1:
                self.add(entries, index, "an entry is a map with one key, its name")
                continue
            name, entry = next(iter(item.items()))
            if not isinstance(name, str) or not name.strip():
                self.add(item, name, "an entry needs a name", name)
            elif not _NAME.fullmatch(name):
                self.add(item, name, "an entry's name", name, "snake_case, as in hbm_derate")
            if not isinstance(entry, CommentedMap):
                self.add(item, name, f"entry {name} is not a mapping", type(entry).__name__)
                continue
            self.entry(str(name), entry)
            identity = (name, _scope_key(entry.get("scope")))
            if identity in seen:
                self.add(item, name, f"entry {name} repeats a name and scope")
            seen.add(identity)

    def entry(self, name: str, entry: CommentedMap) -> None:
        """Check one entry."""
        self.closed(entry, _ENTRY_KEYS, f"entry {name}")
        method = entry.get("method")
        for key, allowed in (("units", UNITS), ("method", METHODS)):
            if entry.get(key) not in allowed:
                self.add(entry, key, f"{name}: {key}", entry.get(key), ", ".join(allowed))
        self.value(name, entry)
        if not isinstance(entry.get("fitted"), bool):
            message = f"{name}: fitted must be present and be true or false"
            self.add(entry, "fitted", message, entry.get("fitted"))
        elif entry["fitted"] and method in METHODS and method != "measured":
            self.add(entry, "fitted", f"{name}: fitted is true with method {method}", got=True)
        self.scope(name, entry)
        self.interval(name, entry)
        self.sources(name, entry, required=method in _NEEDS_SOURCES)
        self.text(entry, "rationale", f"{name}: rationale", required=method in _NEEDS_RATIONALE)
        self.text(entry, "copied_from", f"{name}: copied_from", required=method == "copied")
        self.text(entry, "supersedes", f"{name}: supersedes", required=False)
        for key in ("validated", "unsupported"):
            metrics = entry.get(key, "")
            listed = isinstance(metrics, CommentedSeq) and all(
                isinstance(metric, str) for metric in metrics
            )
            if not isinstance(metrics, str) and not listed:
                self.add(entry, key, f"{name}: {key} is neither a string nor a list of them")

    def text(self, node: CommentedMap, key: str, what: str, *, required: bool) -> None:
        """Check a string that may be required."""
        if key not in node and not required:
            return
        value = node.get(key)
        if not isinstance(value, str) or (required and not value.strip()):
            self.add(node, key, f"{what} is missing or not text", value)

    def value(self, name: str, entry: CommentedMap) -> None:
        """Check that the value is finite, and zero exactly when nothing is charged."""
        value = entry.get("value", 0.0)
        charged = entry.get("method") != "not_charged"
        if not _is_number(value) or not math.isfinite(value):
            self.add(entry, "value", f"{name}: value", value, "a finite number")
        elif charged and value == 0:
            message = f"{name}: a value that is missing or 0 needs method not_charged"
            self.add(entry, "value", message, entry.get("value"))
        elif not charged and value != 0:
            self.add(entry, "value", f"{name}: not_charged needs a value of 0", value)

    def scope(self, name: str, entry: CommentedMap) -> None:
        """Check that the scope states at least one dimension, each a typed list."""
        scope = entry.get("scope")
        if not isinstance(scope, CommentedMap):
            self.add(entry, "scope", f"{name}: scope is a mapping with at least one dimension")
            return
        self.closed(scope, (*SCOPE_STRINGS, *SCOPE_INTEGERS), f"scope of {name}")
        for key, values in scope.items():
            whole = key in SCOPE_INTEGERS
            if not isinstance(values, CommentedSeq) or not all(
                _is_number(item) and isinstance(item, int) if whole else isinstance(item, str)
                for item in values
            ):
                allowed = "a list of integers" if whole else "a list of strings"
                self.add(scope, key, f"{name}: scope.{key}", values, allowed)
        if not any(scope.get(key) for key in (*SCOPE_STRINGS, *SCOPE_INTEGERS)):
            self.add(entry, "scope", f"{name}: an empty scope says nothing about where it holds")

    def interval(self, name: str, entry: CommentedMap) -> None:
        """Check that the interval is a finite pair around the value."""
        if "ci95" not in entry:
            return
        pair = entry["ci95"]
        if not isinstance(pair, CommentedSeq) or len(pair) != 2 or not all(map(_is_number, pair)):
            self.add(entry, "ci95", f"{name}: ci95 is a list of two numbers", pair)
            return
        low, high = pair
        value = entry.get("value", 0.0)
        if not (math.isfinite(low) and math.isfinite(high)):
            self.add(entry, "ci95", f"{name}: ci95 has an end that is not finite", list(pair))
        elif low > high:
            self.add(entry, "ci95", f"{name}: ci95 has low above high", list(pair))
        elif _is_number(value) and math.isfinite(value) and not low <= value <= high:
            self.add(entry, "ci95", f"{name}: ci95 does not contain the value", list(pair))

    def sources(self, name: str, entry: CommentedMap, *, required: bool) -> None:
        """Check the citations."""
        if "sources" not in entry and not required:
            return
        sources = entry.get("sources")
        if not isinstance(sources, CommentedSeq) or not sources:
            self.add(entry, "sources", f"{name}: sources is a list of at least one citation")
            return
        for index, source in enumerate(sources):
            if not isinstance(source, CommentedMap):
                self.add(sources, index, f"{name}: a source is a mapping", source)
                continue
            self.closed(source, _SOURCE_KEYS, f"a source of {name}")
            for key, allowed in (("kind", SOURCE_KINDS), ("role", SOURCE_ROLES)):
                if source.get(key) not in allowed:
                    what = f"{name}: source {key}"
                    self.add(source, key, what, source.get(key), ", ".join(allowed))
            self.text(source, "cite", f"{name}: source cite", required=True)


def _scope_key(scope: object) -> tuple[object, ...]:
    """Return the scope without regard to order."""
    if not isinstance(scope, CommentedMap):
        return ()
    return tuple(
        (key, tuple(sorted(map(str, values))))
        for key, values in sorted(scope.items(), key=lambda item: str(item[0]))
        if isinstance(values, CommentedSeq) and values
    )
