"""Canonical JSON, its digest, and writing a file whole or not at all."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def _check_keys(obj: Any, path: str = "$") -> None:
    """Refuse keys that JSON would turn into text: two of them could become one."""
    if isinstance(obj, Mapping):
        for key, value in obj.items():
            if not isinstance(key, str):
                raise TypeError(f"{path}: key {key!r} is not text")
            _check_keys(value, f"{path}.{key}")
    elif isinstance(obj, list | tuple):
        for index, value in enumerate(obj):
            if not isinstance(value, float | int | str):
                _check_keys(value, f"{path}[{index}]")


def dumps(obj: Any) -> str:
    """Return an object as canonical JSON, for a file.

    Parameters
    ----------
    obj : object
        JSON-shaped data: dicts with text keys, lists or tuples, text, finite
        numbers, booleans, None.

    Returns
    -------
    str
        ASCII with sorted keys, one space of indent, floats in their shortest exact
        form, a newline at the end.

    Raises
    ------
    ValueError
        When a number is NaN or infinite.
    TypeError
        When something has no JSON form, or a key is not text.
    """
    _check_keys(obj)
    return json.dumps(obj, sort_keys=True, allow_nan=False, indent=1) + "\n"


def compact(obj: Any) -> str:
    """Return an object as canonical JSON without blanks: what a digest covers.

    Parameters
    ----------
    obj : object
        As in :func:`dumps`.

    Returns
    -------
    str
        ASCII text with sorted keys.

    Raises
    ------
    ValueError
        When a number is NaN or infinite.
    TypeError
        When something has no JSON form, or a key is not text.
    """
    _check_keys(obj)
    return json.dumps(obj, sort_keys=True, allow_nan=False, separators=(",", ":"))


def digest(obj: Mapping[str, Any]) -> str:
    """Return the digest of a document, its own ``digest`` entry left out.

    Parameters
    ----------
    obj : mapping
        JSON-shaped data, as in :func:`dumps`.

    Returns
    -------
    str
        ``sha256:`` and 64 hexadecimal digits; the order of keys does not matter.

    Raises
    ------
    ValueError
        When a number is NaN or infinite.
    TypeError
        When something has no JSON form, or a key is not text.
    """
    bare = {key: value for key, value in obj.items() if key != "digest"}
    return "sha256:" + hashlib.sha256(compact(bare).encode("ascii")).hexdigest()


def write_atomic(path: Path, text: str | bytes) -> None:
    """Write a file so that a reader sees the old one or the new one, never a part.

    Parameters
    ----------
    path : pathlib.Path
        Where; missing folders are made.
    text : str or bytes
        The whole content; text is written as UTF-8.

    Raises
    ------
    OSError
        When it cannot be written; an existing file is then untouched.
    """
    target = Path(os.path.realpath(path))
    target.parent.mkdir(parents=True, exist_ok=True)
    data = text.encode("utf-8") if isinstance(text, str) else text
    part = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    try:
        with part.open("xb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        part.replace(target)
    except BaseException:
        with contextlib.suppress(OSError):
            part.unlink()
        raise
