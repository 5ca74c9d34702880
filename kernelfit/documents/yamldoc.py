"""YAML and JSON documents with the position of every value.

ruamel's pure loader composes nodes, which carry their marks; plain data are built from
the nodes here, so that a repeated key is refused at its own line and every later
complaint can name a line and a column.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from kernelfit.documents.problems import InputError, Place, Problem, shown

Keys = tuple[str | int, ...]
Position = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Document:
    """A parsed document and where each of its values stands.

    Attributes
    ----------
    file : str
        The file as the user named it.
    data : object
        Plain data: dicts, lists and scalars.
    keys : mapping
        Position (line, column; from 1) of each key, by path.
    values : mapping
        Position (line, column; from 1) of each value, by path.
    """

    file: str
    data: Any
    keys: Mapping[Keys, Position] = field(default_factory=dict)
    values: Mapping[Keys, Position] = field(default_factory=dict)

    def place(self, path: Iterable[str | int], *, key: bool = False) -> Place:
        """Return the place of a value, or of the nearest thing around it.

        Parameters
        ----------
        path : iterable of str or int
            Keys and indices from the root.
        key : bool
            Whether the key is meant instead of the value.

        Returns
        -------
        Place
            Its place; without line where positions are not known.
        """
        parts = tuple(path)
        if key and parts in self.keys:
            return Place(self.file, *self.keys[parts])
        while parts and parts not in self.values:
            parts = parts[:-1]
        if parts in self.values:
            return Place(self.file, *self.values[parts])
        return Place(self.file)


def read_text(path: Path) -> str:
    """Read a text file, or say why not.

    Parameters
    ----------
    path : pathlib.Path
        The file.

    Returns
    -------
    str
        Its text.

    Raises
    ------
    InputError
        When it is missing, a folder, unreadable or not UTF-8.
    """
    place = Place(str(path))
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        raise InputError([Problem.at(place, "no such file")]) from None
    except IsADirectoryError:
        raise InputError([Problem.at(place, "is a folder, a file is needed")]) from None
    except OSError as error:
        message = f"cannot be read: {error.strerror or error}"
        raise InputError([Problem.at(place, message)]) from None
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        problem = Problem(str(path), line, None, "is not UTF-8 text")
        raise InputError([problem]) from None


class _Builder:
    """Plain data out of composed nodes, with positions and problems on the way."""

    def __init__(self, file: str, yaml: YAML) -> None:
        self.file = file
        self.yaml = yaml
        self.keys: dict[Keys, Position] = {}
        self.values: dict[Keys, Position] = {}
        self.problems: list[Problem] = []

    def fail(self, node: Node, message: str, **words: str | None) -> None:
        line, column = _position(node)
        self.problems.append(Problem(self.file, line, column, message, **words))

    def build(self, node: Node, path: Keys) -> Any:
        self.values[path] = _position(node)
        if node.anchor is not None:
            self.fail(node, "anchors and aliases are not read", hint="write the value out")
            return None
        if isinstance(node, MappingNode):
            return self.mapping(node, path)
        if isinstance(node, SequenceNode):
            return [self.build(child, (*path, i)) for i, child in enumerate(node.value)]
        assert isinstance(node, ScalarNode)
        return self.scalar(node)

    def mapping(self, node: MappingNode, path: Keys) -> dict[str, Any]:
        out: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = self.scalar(key_node) if isinstance(key_node, ScalarNode) else None
            if not isinstance(key, str):
                self.fail(key_node, "a key must be text", got=shown(key_node.value))
                continue
            if key in out:
                first = self.keys[(*path, key)][0]
                self.fail(key_node, f"key {key} is repeated", hint=f"first given on line {first}")
                continue
            self.keys[(*path, key)] = _position(key_node)
            out[key] = self.build(value_node, (*path, key))
        return out

    def scalar(self, node: ScalarNode) -> Any:
        try:
            return self.yaml.constructor.construct_object(node, deep=True)
        except (YAMLError, ValueError, OverflowError):
            self.fail(node, "a value that cannot be read", got=shown(node.value))
            return None


def _position(node: Node) -> Position:
    return node.start_mark.line + 1, node.start_mark.column + 1


def _compose(file: str, text: str) -> tuple[YAML, Node | None]:
    yaml = YAML(typ="safe", pure=True)
    try:
        return yaml, yaml.compose(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark is not None else None
        column = mark.column + 1 if mark is not None else None
        message = f"not valid YAML: {error.problem or error.context}"
        raise InputError([Problem(file, line, column, message)]) from None
    except YAMLError as error:
        first = str(error).strip().splitlines()[0]
        raise InputError([Problem(file, None, None, f"not valid YAML: {first}")]) from None
    except RecursionError:
        raise InputError([Problem(file, None, None, "nested too deeply")]) from None


def parse_yaml(text: str, file: str) -> Document:
    """Parse YAML 1.2 text that holds one mapping.

    Parameters
    ----------
    text : str
        The text.
    file : str
        Its name, for problems.

    Returns
    -------
    Document
        Data with positions.

    Raises
    ------
    InputError
        When it is not YAML, empty, not a mapping, repeats a key, or uses anchors.
    """
    yaml, node = _compose(file, text)
    if node is None:
        raise InputError([Problem(file, None, None, "the document is empty")])
    builder = _Builder(file, yaml)
    if not isinstance(node, MappingNode):
        builder.fail(node, "a document must be a mapping of keys to values")
        raise InputError(builder.problems)
    try:
        data = builder.build(node, ())
    except RecursionError:
        raise InputError([Problem(file, None, None, "nested too deeply")]) from None
    if builder.problems:
        raise InputError(builder.problems)
    return Document(file, data, builder.keys, builder.values)


def load_yaml(path: Path) -> Document:
    """Read and parse a YAML file; see :func:`parse_yaml`.

    Parameters
    ----------
    path : pathlib.Path
        The file.

    Returns
    -------
    Document
        Data with positions.

    Raises
    ------
    InputError
        When it cannot be read or parsed.
    """
    return parse_yaml(read_text(path), str(path))


def parse_json(text: str, file: str) -> Document:
    """Parse JSON text that holds one object.

    Parameters
    ----------
    text : str
        The text.
    file : str
        Its name, for problems.

    Returns
    -------
    Document
        Data with positions (without, where the text is JSON but not YAML).

    Raises
    ------
    InputError
        When it is not JSON, not an object, repeats a key, or holds NaN or infinity.
    """

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        out: dict[str, Any] = {}
        for key, value in items:
            if key in out:
                raise InputError([Problem(file, None, None, f"key {key} is repeated")])
            out[key] = value
        return out

    def constant(word: str) -> Any:
        raise InputError([Problem(file, None, None, "a number must be finite", got=word)])

    try:
        data = json.loads(text, object_pairs_hook=pairs, parse_constant=constant)
    except json.JSONDecodeError as error:
        message = f"not valid JSON: {error.msg}"
        raise InputError([Problem(file, error.lineno, error.colno, message)]) from None
    except RecursionError:
        raise InputError([Problem(file, None, None, "nested too deeply")]) from None
    if not isinstance(data, dict):
        raise InputError([Problem(file, 1, 1, "a document must be an object", got=shown(data))])
    try:
        # JSON is YAML but for corners such as tabs; positions are then not known.
        marked = parse_yaml(text, file)
    except InputError:
        return Document(file, data)
    return Document(file, data, marked.keys, marked.values)


def load_json(path: Path) -> Document:
    """Read and parse a JSON file; see :func:`parse_json`.

    Parameters
    ----------
    path : pathlib.Path
        The file.

    Returns
    -------
    Document
        Data with positions where known.

    Raises
    ------
    InputError
        When it cannot be read or parsed.
    """
    return parse_json(read_text(path), str(path))


def problem_at(
    document: Document, path: Iterable[str | int], message: str, **words: str | None
) -> Problem:
    """Return a problem at a value of a document.

    Parameters
    ----------
    document : Document
        The document.
    path : iterable of str or int
        Keys and indices from the root.
    message : str
        What is wrong.
    **words : str
        ``got``, ``allowed``, ``hint`` as in :class:`Problem`.

    Returns
    -------
    Problem
        The problem.
    """
    return Problem.at(document.place(path), message, **words)
