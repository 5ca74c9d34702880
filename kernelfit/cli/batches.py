"""Batches as a user writes them: ``32x1024`` on the command line, JSON in a file."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from kernelfit.documents.problems import InputError, Problem, shown
from kernelfit.kernel.batch import Batch, RequestShape
from kernelfit.kernel.errors import InvalidArgument

_SHAPE = re.compile(r"^(?P<requests>\d+)x(?P<tokens>\d+)(?:\+(?P<computed>\d+))?$")
_FIELDS = ("scheduled", "computed", "prompt_len", "cached_tokens")
_KEYS = ("requests", "decode_threshold", "sm_budget")
_ALLOWED = (
    '{"requests": [[scheduled, computed, prompt_len, cached_tokens], ...]}, '
    "each request a list of 3 or 4 counts or an object of them"
)


def _shape(flag: str, text: str, allowed: str) -> tuple[int, int, int]:
    found = _SHAPE.match(text)
    if not found:
        raise InputError([Problem(flag, None, None, "is no batch", got=text, allowed=allowed)])
    return (
        int(found.group("requests")),
        int(found.group("tokens")),
        int(found.group("computed") or 0),
    )


def from_flags(decode: Sequence[str], prefill: Sequence[str]) -> Batch:
    """Return the batch that ``--decode`` and ``--prefill`` describe together.

    Parameters
    ----------
    decode : sequence of str
        ``REQUESTSxCONTEXT``: each request schedules one token over that many in its KV.
    prefill : sequence of str
        ``REQUESTSxTOKENS`` or ``REQUESTSxTOKENS+COMPUTED``: each request schedules that many
        tokens of its prompt, with so many computed before.

    Returns
    -------
    Batch
        The batch.

    Raises
    ------
    InputError
        When a word is no batch, or none was given.
    """
    requests: list[RequestShape] = []
    try:
        for text in decode:
            count, context, extra = _shape("--decode", text, "REQUESTSxCONTEXT, as in 32x1024")
            context += extra
            requests += [RequestShape(1, context, max(1, context))] * count
        for text in prefill:
            count, tokens, computed = _shape(
                "--prefill", text, "REQUESTSxTOKENS or REQUESTSxTOKENS+COMPUTED, as in 1x512+1024"
            )
            requests += [RequestShape(tokens, computed, tokens + computed)] * count
        return Batch(tuple(requests))
    except InvalidArgument as error:
        raise InputError(
            [
                Problem(
                    "--decode, --prefill",
                    None,
                    None,
                    f"is no batch: {error.field}",
                    got=shown(error.got),
                    allowed=error.allowed,
                )
            ]
        ) from None


def _request(value: Any) -> RequestShape:
    if isinstance(value, Mapping):
        unknown = sorted(set(value) - set(_FIELDS))
        if unknown:
            raise InvalidArgument("request", unknown[0], "the keys " + ", ".join(_FIELDS))
        counts = dict(value)
    elif isinstance(value, list) and 3 <= len(value) <= 4:
        counts = dict(zip(_FIELDS, value, strict=False))
    else:
        raise InvalidArgument("request", value, _ALLOWED)
    for name in _FIELDS[:3]:
        if name not in counts:
            raise InvalidArgument(name, "nothing", "a count of tokens")
    for name, count in counts.items():
        if isinstance(count, bool) or not isinstance(count, int):
            raise InvalidArgument(name, count, "a whole number of tokens")
    return RequestShape(**counts)


def from_data(value: Any, file: str, line: int | None) -> Batch:
    """Return a batch from its JSON form.

    Parameters
    ----------
    value : object
        An object with ``requests`` and, where it is needed, ``decode_threshold`` and
        ``sm_budget``.
    file : str
        Where it comes from.
    line : int or None
        Its line.

    Returns
    -------
    Batch
        The batch.

    Raises
    ------
    InputError
        When it is no batch, with the place.
    """
    try:
        if not isinstance(value, Mapping) or not isinstance(value.get("requests"), list):
            raise InvalidArgument("batch", value, _ALLOWED)
        unknown = sorted(set(value) - set(_KEYS))
        if unknown:
            raise InvalidArgument("batch", unknown[0], "the keys " + ", ".join(_KEYS))
        settings = {name: value[name] for name in _KEYS[1:] if name in value}
        for name, setting in settings.items():
            if isinstance(setting, bool) or not isinstance(setting, int):
                raise InvalidArgument(name, setting, "a whole number")
        return Batch(tuple(_request(item) for item in value["requests"]), **settings)
    except InvalidArgument as error:
        problem = Problem(
            file,
            line,
            None,
            f"is no batch: {error.field}",
            got=shown(error.got),
            allowed=error.allowed,
        )
        raise InputError([problem]) from None
