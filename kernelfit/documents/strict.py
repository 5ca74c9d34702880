"""Strict models of documents: what pydantic finds, told with the place in the file."""

from __future__ import annotations

import types
import typing
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from kernelfit.documents.problems import InputError, Problem, did_you_mean, shown
from kernelfit.documents.yamldoc import Document, Keys

M = TypeVar("M", bound=BaseModel)


class Strict(BaseModel):
    """Base of every document model: nothing unknown, nothing converted, nothing infinite."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)


def _model_at(model: type[BaseModel], path: Keys) -> type[BaseModel] | None:
    """Follow a path through the annotations to the model that holds its last part."""
    here: Any = model
    for part in path:
        if isinstance(here, type) and issubclass(here, BaseModel) and isinstance(part, str):
            info = here.model_fields.get(part)
            here = info.annotation if info is not None else None
        else:
            here = _item(here)
        here = _bare(here)
    return here if isinstance(here, type) and issubclass(here, BaseModel) else None


def _bare(annotation: Any) -> Any:
    """Strip ``| None`` and ``Annotated``."""
    if typing.get_origin(annotation) is typing.Annotated:
        annotation = typing.get_args(annotation)[0]
    if isinstance(annotation, types.UnionType) or typing.get_origin(annotation) is typing.Union:
        rest = [a for a in typing.get_args(annotation) if a is not type(None)]
        return _bare(rest[0]) if len(rest) == 1 else None
    return annotation


def _item(annotation: Any) -> Any:
    """Return what a list or dict annotation holds."""
    args = typing.get_args(annotation)
    return args[-1] if args else None


_TYPES = {
    "int_type": "a whole number",
    "float_type": "a number",
    "string_type": "text",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "finite_number": "a finite number",
}


def _describe(error: Any, model: type[BaseModel], document: Document) -> Problem:
    """Turn one pydantic error into a problem."""
    path: Keys = tuple(error["loc"])
    kind, got, context = error["type"], error["input"], error.get("ctx", {})
    name = path[-1] if path else "document"
    if kind == "missing":
        return Problem.at(document.place(path[:-1]), f"required key {name} is missing")
    if kind == "extra_forbidden":
        holder = _model_at(model, path[:-1])
        known = sorted(holder.model_fields) if holder is not None else []
        return Problem.at(
            document.place(path, key=True),
            f"unknown key {name}",
            allowed=", ".join(known) or None,
            hint=did_you_mean(str(name), known),
        )
    place = document.place(path)
    if name == "[key]":
        # The key of a mapping is at fault, not what it holds.
        path = path[:-1]
        place = document.place(path, key=True)
    label = ".".join(str(part) for part in path)
    hint = None
    if kind in _TYPES:
        allowed = _TYPES[kind]
        if kind in ("int_type", "float_type") and isinstance(got, str):
            hint = "write the number without quotes and without a unit"
        if kind == "string_type" and isinstance(got, int | float):
            hint = "put it in quotes"
        return Problem.at(
            place, f"{label} has the wrong type", got=shown(got), allowed=allowed, hint=hint
        )
    if kind == "literal_error":
        allowed = context["expected"].replace("'", "")
        if isinstance(got, str):
            hint = did_you_mean(got, allowed.replace(" or ", ", ").split(", "))
        return Problem.at(
            place, f"{label} is not in the vocabulary", got=shown(got), allowed=allowed, hint=hint
        )
    if kind == "value_error":
        return Problem.at(place, f"{label}: {context['error']}" if label else str(context["error"]))
    bounds = {
        "greater_than": ("above", "gt"),
        "greater_than_equal": ("at least", "ge"),
        "less_than": ("below", "lt"),
        "less_than_equal": ("at most", "le"),
    }
    if kind in bounds:
        word, key = bounds[kind]
        return Problem.at(
            place, f"{label} is out of range", got=shown(got), allowed=f"{word} {context[key]}"
        )
    if kind in ("string_too_short", "too_short"):
        least = context["min_length"]
        message = f"{label} is empty" if least == 1 else f"{label} says too little"
        return Problem.at(place, message, got=shown(got))
    return Problem.at(place, f"{label}: {error['msg']}", got=shown(got))


def parse_as(document: Document, model: type[M]) -> M:
    """Validate a document against a strict model.

    Parameters
    ----------
    document : Document
        The parsed document.
    model : type
        A subclass of :class:`Strict`.

    Returns
    -------
    object
        The validated model.

    Raises
    ------
    InputError
        With one problem per error, each at its line and column.
    """
    try:
        return model.model_validate(document.data)
    except ValidationError as error:
        problems = [_describe(item, model, document) for item in error.errors()]
        raise InputError(problems) from None
