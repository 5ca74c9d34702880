"""Model documents, and finding the model that a name or a path means."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from kernelfit.documents.configs import read_config
from kernelfit.documents.dtypes import KNOWN, core_dtype
from kernelfit.documents.library import Entry, find, index
from kernelfit.documents.problems import InputError, Place, Problem, shown
from kernelfit.documents.strict import Strict, parse_as
from kernelfit.documents.yamldoc import Document, load_json, load_yaml, problem_at
from kernelfit.kernel.model import (
    Attention,
    Experts,
    Latent,
    LayerKind,
    LinearState,
    Mlp,
    Model,
    parameter_count,
)

Count = Annotated[int, Field(ge=1)]
Whole = Annotated[int, Field(ge=0)]
Word = Annotated[str, Field(min_length=1)]
Dtype = Literal["fp32", "bf16", "fp16", "fp8", "int8", "int4", "fp4"]

# Published totals are rounded, and some count parts that are not layers.
PUBLISHED_TOLERANCE = 0.005


class _Latent(Strict):
    query_rank: Whole
    kv_rank: Count
    nope_head_dim: Count
    rope_head_dim: Count
    value_head_dim: Count


class _Linear(Strict):
    key_heads: Count
    value_heads: Count
    key_head_dim: Count
    value_head_dim: Count
    conv_kernel: Count
    state_dtype: Dtype


class _Attention(Strict):
    kind: Literal["full", "sliding", "mla", "linear"]
    heads: Count
    kv_heads: Count
    head_dim: Count
    window_tokens: Whole = 0
    bias: bool = False
    qk_norm: bool = False
    output_bias: bool = False
    output_gate: bool = False
    sinks: bool = False
    weight_dtype: Dtype | None = None
    latent: _Latent | None = None
    linear: _Linear | None = None

    @model_validator(mode="after")
    def _facts_fit_kind(self) -> _Attention:
        for kind, key in (("mla", "latent"), ("linear", "linear")):
            if (self.kind == kind) != (getattr(self, key) is not None):
                raise ValueError(f"{key} belongs to kind {kind} and to no other")
        if (self.kind == "sliding") != (self.window_tokens > 0):
            raise ValueError("window_tokens belongs to kind sliding and to no other")
        if self.kind in ("full", "sliding") and self.heads % self.kv_heads:
            raise ValueError("heads must be a multiple of kv_heads")
        return self


class _Mlp(Strict):
    intermediate: Count
    gated: bool
    bias: bool = False


class _Experts(Strict):
    experts: Count
    per_token: Count
    intermediate: Count
    gated: bool
    shared_intermediate: Whole = 0
    bias: bool = False

    @model_validator(mode="after")
    def _enough_experts(self) -> _Experts:
        if self.per_token > self.experts:
            raise ValueError("per_token cannot exceed experts")
        return self


class _Layer(Strict):
    name: Word
    count: Count
    attention: _Attention
    mlp: _Mlp | None = None
    experts: _Experts | None = None

    @model_validator(mode="after")
    def _one_feed_forward(self) -> _Layer:
        if (self.mlp is None) == (self.experts is None):
            raise ValueError("a layer has either mlp or experts")
        return self


class _Published(Strict):
    value: Annotated[float, Field(gt=0)]
    unit: Literal["count"]
    source: Annotated[str, Field(min_length=8)]


class _ModelDocument(Strict):
    kind: Literal["Model"]
    schema_version: Literal[1]
    name: Word
    aliases: list[Word] = Field(default_factory=list)
    source: Annotated[str, Field(min_length=8)]
    published_parameters: _Published | None = None
    hidden: Count
    vocab: Count
    dtype: Dtype
    weight_dtype: Dtype
    tied_head: bool
    layers: Annotated[list[_Layer], Field(min_length=1)]


_CORE: dict[type[Strict], type[Any]] = {
    _Attention: Attention,
    _Experts: Experts,
    _Latent: Latent,
    _Layer: LayerKind,
    _Linear: LinearState,
    _Mlp: Mlp,
}


def _core(part: Any) -> Any:
    """Turn a strict part into the core's dataclass of the same fields."""
    kind = _CORE.get(type(part))
    if kind is None:
        return part
    return kind(**{f.name: _core(getattr(part, f.name)) for f in dataclasses.fields(kind)})


def _parsed(path: Path) -> tuple[_ModelDocument, Model]:
    document = load_yaml(path)
    parsed = parse_as(document, _ModelDocument)
    model = Model(
        name=parsed.name,
        hidden=parsed.hidden,
        vocab=parsed.vocab,
        layers=tuple(_core(layer) for layer in parsed.layers),
        dtype=parsed.dtype,
        weight_dtype=parsed.weight_dtype,
        tied_head=parsed.tied_head,
    )
    published = parsed.published_parameters
    if published is not None:
        counted = parameter_count(model)
        if abs(counted / published.value - 1) > PUBLISHED_TOLERANCE:
            raise InputError(
                [
                    problem_at(
                        document,
                        ("published_parameters", "value"),
                        f"the facts of this document add up to {counted:,} parameters",
                        got=f"{published.value:,.0f}",
                        allowed=f"a difference of {PUBLISHED_TOLERANCE:.1%}",
                        hint="correct the fact that is wrong",
                    )
                ]
            )
    return parsed, model


def load_model(path: Path, dtype: str | None = None) -> Model:
    """Read a model document, or a checkpoint's ``config.json``.

    Parameters
    ----------
    path : pathlib.Path
        A file; ``.json`` is read as a config, named after its folder.
    dtype : str, optional
        Data type that the engine runs with; by default the document's.

    Returns
    -------
    Model
        The model.

    Raises
    ------
    InputError
        With every problem: unknown, repeated or missing facts, wrong types, facts that
        do not add up to the published number of parameters.
    """
    if path.suffix == ".json":
        generic = path.name in ("config.json", "model.config.json")
        name = path.resolve().parent.name if generic else path.name.removesuffix(".json")
        return read_config(load_json(path), name.removesuffix(".config"), dtype)
    return with_dtype(_parsed(path)[1], dtype, Place(str(path)))


def with_dtype(model: Model, dtype: str | None, place: Place) -> Model:
    """Return a model as an engine runs it with a data type.

    Parameters
    ----------
    model : Model
        The model.
    dtype : str or None
        An engine's word or the core's; None and ``auto`` keep the model's.
    place : Place
        Where the data type was stated.

    Returns
    -------
    Model
        The model; weights that are quantised keep their data type.

    Raises
    ------
    InputError
        When the data type is not known.
    """
    if dtype is None or dtype == "auto":
        return model
    word = core_dtype(dtype)
    if word is None:
        allowed = ", ".join(KNOWN)
        raise InputError([Problem.at(place, "unknown dtype", got=shown(dtype), allowed=allowed)])
    follows = model.weight_dtype == model.dtype
    weight = word if follows else model.weight_dtype
    return dataclasses.replace(
        model,
        dtype=word,
        weight_dtype=weight,
        layers=tuple(_with_weights(kind, model.dtype, word) for kind in model.layers),
    )


def _with_weights(kind: LayerKind, old: str, new: str) -> LayerKind:
    if kind.attention.weight_dtype != old:
        return kind
    attention = dataclasses.replace(kind.attention, weight_dtype=new)
    return dataclasses.replace(kind, attention=attention)


def model_from_config(
    config: Mapping[str, Any], name: str, where: str, dtype: str | None = None
) -> Model:
    """Build a model from the facts of a ``config.json`` that is already in memory.

    Parameters
    ----------
    config : mapping
        The parsed config; a nested ``text_config`` is followed.
    name : str
        The model's name.
    where : str
        The file's name, for complaints.
    dtype : str, optional
        Data type that the engine runs with; by default the config's.

    Returns
    -------
    Model
        The model.

    Raises
    ------
    InputError
        With every problem: missing or unusable fields, an unknown family, data type or
        quantisation.
    """
    return read_config(Document(where, dict(config)), name, dtype)


def model_entries(folder: Path) -> tuple[Entry, ...]:
    """Return the names and aliases of the model documents of a folder.

    Parameters
    ----------
    folder : pathlib.Path
        The folder, for example ``calib/models``.

    Returns
    -------
    tuple of Entry
        One per document, by file name.

    Raises
    ------
    InputError
        When the folder is missing, a document is not valid, or two share a name.
    """

    def names(path: Path) -> tuple[str, ...]:
        parsed, _ = _parsed(path)
        return (parsed.name, *parsed.aliases)

    return index(folder, "model", names)


def find_model(
    name: str, folder: Path, place: Place | None = None, dtype: str | None = None
) -> Model:
    """Find a model document by name or alias.

    Parameters
    ----------
    name : str
        The name or an alias; case does not matter.
    folder : pathlib.Path
        The folder of model documents.
    place : Place, optional
        Where the name was stated, for the complaint; by default the folder.
    dtype : str, optional
        Data type that the engine runs with; by default the document's.

    Returns
    -------
    Model
        The model.

    Raises
    ------
    InputError
        When no document has the name; it lists the known names and the nearest one.
    """
    at = place or Place(str(folder))
    return load_model(find(name, model_entries(folder), "model", at), dtype)


def model_document(model: Model, source: str, aliases: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return a model in the shape of a model document.

    Parameters
    ----------
    model : Model
        The model.
    source : str
        Where its facts come from.
    aliases : tuple of str
        Other names.

    Returns
    -------
    dict
        What :func:`load_model` reads back into the same model; facts at their defaults
        are left out.
    """
    head: dict[str, Any] = {"kind": "Model", "schema_version": 1, "name": model.name}
    if aliases:
        head["aliases"] = list(aliases)
    body = _plain(model)
    return head | {"source": source} | {k: v for k, v in body.items() if k != "name"}


def _plain(part: Any) -> Any:
    if isinstance(part, tuple):
        return [_plain(item) for item in part]
    if not dataclasses.is_dataclass(part):
        return part
    values = {}
    for item in dataclasses.fields(part):
        value = getattr(part, item.name)
        if item.name == "gated" or value != item.default:
            values[item.name] = _plain(value)
    return values
