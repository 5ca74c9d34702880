"""Every public name says what it is, names its parameters and states its units.

The test walks the package itself, so that a new module is held to it without being listed.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest

import kernelfit

SUFFIXES = ("_s", "_bytes", "_flop", "_tokens", "_per_s")
UNIT = re.compile(r"\[[^\]\n]+\]")
# A method may point to the protocol that says what its parameters are.
REFERENCE = re.compile(r"[Pp]arameters\b[^.]* as ``\w+\.\w+``")
SECTION = re.compile(r"^(\w[\w ]*)\n-{3,}$", re.MULTILINE)
ENTRY = re.compile(r"^(?P<names>\*{0,2}\w+(?:, \*{0,2}\w+)*)(?: : .*)?$")


def _modules() -> tuple[ModuleType, ...]:
    found = pkgutil.walk_packages(kernelfit.__path__, "kernelfit.")
    return tuple(
        importlib.import_module(info.name)
        for info in found
        if not any(part.startswith("_") for part in info.name.split("."))
    )


def sections(docstring: str) -> dict[str, str]:
    """Split a numpydoc docstring into its sections; the summary is under the empty name."""
    text = inspect.cleandoc(docstring)
    heads = list(SECTION.finditer(text))
    found = {"": text[: heads[0].start()] if heads else text}
    ends = [*(head.start() for head in heads[1:]), len(text)]
    for head, end in zip(heads, ends, strict=False):
        found[head.group(1)] = text[head.end() : end]
    return found


def entries(section: str) -> dict[str, str]:
    """Return each name of a section with its type line and description."""
    found: dict[str, str] = {}
    names: tuple[str, ...] = ()
    for line in section.splitlines():
        entry = ENTRY.match(line)
        if entry:
            names = tuple(name.strip("* ") for name in entry.group("names").split(","))
        for name in names:
            found[name] = f"{found.get(name, '')}{line}\n"
    return found


def _unit_faults(where: str, described: dict[str, str]) -> Iterator[str]:
    for name, text in described.items():
        if name.endswith(SUFFIXES) and not UNIT.search(text):
            yield f"{where}: {name} has a unit suffix but no unit in [..]"


def _returns_something(annotation: object) -> bool:
    return str(annotation) not in {"None", "<class 'NoneType'>", "NoReturn", "Never", "typing.Any"}


def function_faults(where: str, function: Callable[..., Any]) -> Iterator[str]:
    """Say what is missing in a function's docstring."""
    if not function.__doc__:
        yield f"{where}: no docstring"
        return
    if REFERENCE.search(function.__doc__):
        return
    found = sections(function.__doc__)
    signature = inspect.signature(function)
    wanted = [name for name in signature.parameters if name not in {"self", "cls"}]
    described = entries(found.get("Parameters", ""))
    yield from (
        f"{where}: parameter {name} is not described"
        for name in wanted
        if name not in described and not name.startswith("_")
    )
    yield from (
        f"{where}: describes {name}, which is no parameter"
        for name in described
        if name not in signature.parameters
    )
    yield from _unit_faults(where, described)
    returned = signature.return_annotation
    if returned is inspect.Signature.empty or not _returns_something(returned):
        return
    text = found.get("Returns", "") + found.get("Yields", "")
    if not text:
        yield f"{where}: returns {returned} but has no Returns section"
    elif (where.endswith(SUFFIXES) or str(returned) == "float") and not UNIT.search(text):
        yield f"{where}: Returns has no unit in [..]"


def _own_methods(cls: type) -> Iterator[tuple[str, Callable[..., Any]]]:
    for name, member in vars(cls).items():
        if name.startswith("_"):
            continue
        inner = member.__func__ if isinstance(member, staticmethod | classmethod) else member
        if inspect.isfunction(inner) and inner.__module__ == cls.__module__:
            yield name, inner


def class_faults(where: str, cls: type) -> Iterator[str]:
    """Say what is missing in a class's docstring and in those of its methods."""
    if not vars(cls).get("__doc__"):
        yield f"{where}: no docstring"
        return
    found = sections(cls.__doc__ or "")
    if dataclasses.is_dataclass(cls):
        described = entries(found.get("Attributes", "") + "\n" + found.get("Parameters", ""))
        public = [field.name for field in dataclasses.fields(cls) if not field.name.startswith("_")]
        inherited = {field for base in cls.__mro__[1:] for field in vars(base).get("__slots__", ())}
        yield from (
            f"{where}: attribute {name} is not described"
            for name in public
            if name not in described and name not in inherited
        )
        yield from _unit_faults(where, described)
    elif inspect.isfunction(vars(cls).get("__init__")) and not getattr(cls, "_is_protocol", False):
        wanted = [name for name in inspect.signature(cls.__init__).parameters if name != "self"]
        described = entries(found.get("Parameters", "")) or entries(found.get("Attributes", ""))
        yield from (
            f"{where}: parameter {name} is not described"
            for name in wanted
            if name not in described
        )
        yield from _unit_faults(where, described)
    for name, method in _own_methods(cls):
        yield from function_faults(f"{where}.{name}", method)


def module_faults(module: ModuleType) -> Iterator[str]:
    """Say what is missing in a module."""
    if not module.__doc__:
        yield f"{module.__name__}: no docstring"
    for name, member in vars(module).items():
        if name.startswith("_") or getattr(member, "__module__", None) != module.__name__:
            continue
        where = f"{module.__name__}.{name}"
        if inspect.isclass(member):
            yield from class_faults(where, member)
        elif inspect.isfunction(member):
            yield from function_faults(where, member)


@pytest.mark.parametrize("module", _modules(), ids=lambda module: module.__name__)
def test_every_public_name_is_documented(module: ModuleType) -> None:
    assert list(module_faults(module)) == []


def test_the_walk_reaches_the_package() -> None:
    names = {module.__name__ for module in _modules()}
    assert {"kernelfit.kernel.batch", "kernelfit.record.hooks", "kernelfit.cli.main"} <= names


def _rate(size_bytes: float, span_s: float) -> float:
    """Divide.

    Parameters
    ----------
    size_bytes : float
        Size [bytes].
    span_s : float
        Time [s].

    Returns
    -------
    float
        Rate [byte/s].
    """
    return size_bytes / span_s


def _planted(old: str, new: str) -> Callable[..., Any]:
    def copy(size_bytes: float, span_s: float) -> float:
        return size_bytes / span_s

    assert old in (_rate.__doc__ or "")
    copy.__doc__ = (_rate.__doc__ or "").replace(old, new)
    return copy


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("Size [bytes].", "Size.", "size_bytes has a unit suffix"),
        ("    span_s : float\n        Time [s].\n", "", "span_s is not described"),
        ("span_s : float", "time_s : float", "time_s, which is no parameter"),
        ("Rate [byte/s].", "Rate.", "no unit"),
        ("Returns\n    -------\n", "", "no Returns section"),
    ],
)
def test_a_planted_fault_is_found(old: str, new: str, fault: str) -> None:
    assert list(function_faults("f", _rate)) == []
    assert any(fault in found for found in function_faults("f", _planted(old, new)))


def test_a_dataclass_without_attributes_is_found() -> None:
    @dataclasses.dataclass(frozen=True)
    class Span:
        """A span of time."""

        length_s: float

    assert list(class_faults("Span", Span)) == ["Span: attribute length_s is not described"]
