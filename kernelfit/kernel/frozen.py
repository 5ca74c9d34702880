"""Plain dataclasses to JSON-shaped data and back, and the digest of such data."""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import json
import types
from collections.abc import Mapping
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from kernelfit.kernel.errors import InvalidArgument

T = TypeVar("T")


def to_data(value: Any) -> Any:
    """Turn nested frozen dataclasses into dicts, lists and scalars.

    Parameters
    ----------
    value : object
        A dataclass, tuple or scalar.

    Returns
    -------
    object
        JSON-shaped data.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            f.name: to_data(getattr(value, f.name)) for f in dataclasses.fields(value) if f.init
        }
    if isinstance(value, tuple | list):
        return [to_data(item) for item in value]
    return value


def _convert(kind: Any, value: Any, where: str) -> Any:
    origin = get_origin(kind)
    if origin is tuple:
        items = get_args(kind)
        if not isinstance(value, list):
            raise InvalidArgument(where, value, "a list")
        if len(items) == 2 and items[1] is Ellipsis:
            return tuple(_convert(items[0], v, f"{where}[{i}]") for i, v in enumerate(value))
        if len(items) != len(value):
            raise InvalidArgument(where, value, f"a list of {len(items)}")
        return tuple(
            _convert(k, v, f"{where}[{i}]")
            for i, (k, v) in enumerate(zip(items, value, strict=True))
        )
    if origin in (types.UnionType, Union):
        options = get_args(kind)
        if value is None and type(None) in options:
            return None
        return _convert(next(o for o in options if o is not type(None)), value, where)
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        if value not in {item.value for item in kind}:
            raise InvalidArgument(where, value, ", ".join(str(item.value) for item in kind))
        return kind(value)
    if dataclasses.is_dataclass(kind):
        return from_data(cast(Any, kind), value, where)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise InvalidArgument(where, value, kind.__name__)
    return value


def from_data(cls: type[T], data: Any, where: str = "") -> T:
    """Build a frozen dataclass from JSON-shaped data, strictly.

    Parameters
    ----------
    cls : type
        The dataclass.
    data : object
        What ``to_data`` gave.
    where : str
        Path of the data inside its document, for messages.

    Returns
    -------
    object
        An instance of ``cls``.

    Raises
    ------
    InvalidArgument
        When a key is missing or unknown, or a value has the wrong type.
    """
    path = where or cls.__name__
    if not isinstance(data, Mapping):
        raise InvalidArgument(path, data, "an object")
    hints = get_type_hints(cls)
    known = {f.name: f for f in dataclasses.fields(cast(Any, cls)) if f.init}
    unknown = sorted(set(data) - set(known))
    if unknown:
        raise InvalidArgument(path, ", ".join(unknown), "keys " + ", ".join(known))
    values = {}
    for name, field in known.items():
        if name in data:
            values[name] = _convert(hints[name], data[name], f"{path}.{name}")
        elif field.default is dataclasses.MISSING:
            raise InvalidArgument(f"{path}.{name}", "nothing", "a value")
    return cls(**values)


def list_from_data(cls: type[T], data: Any, where: str) -> tuple[T, ...]:
    """Build a tuple of frozen dataclasses from a JSON-shaped list, strictly.

    Parameters
    ----------
    cls : type
        The dataclass.
    data : object
        A list of what ``to_data`` gave.
    where : str
        Path of the list inside its document, for messages.

    Returns
    -------
    tuple
        Instances of ``cls``.

    Raises
    ------
    InvalidArgument
        When it is no list, or an item is not of the class.
    """
    if not isinstance(data, list):
        raise InvalidArgument(where, data, "a list")
    return tuple(from_data(cls, item, f"{where}[{i}]") for i, item in enumerate(data))


def canonical(data: Any, indent: int | None = None) -> str:
    """Return data as canonical JSON.

    Parameters
    ----------
    data : object
        JSON-shaped data without NaN or infinities.
    indent : int, optional
        Spaces per level; none gives the compact form that digests are taken of.

    Returns
    -------
    str
        JSON with sorted keys.

    Raises
    ------
    ValueError
        When a number is not finite.
    """
    separators = (",", ":") if indent is None else (",", ": ")
    return json.dumps(data, sort_keys=True, allow_nan=False, indent=indent, separators=separators)


def digest(data: Mapping[str, Any]) -> str:
    """Return the digest of a document, without its own ``digest`` key.

    Parameters
    ----------
    data : mapping
        The document.

    Returns
    -------
    str
        ``sha256:`` and the hexadecimal digest of its compact canonical form.
    """
    body = {key: value for key, value in data.items() if key != "digest"}
    return "sha256:" + hashlib.sha256(canonical(body).encode()).hexdigest()
