"""Model documents, and finding the model that a name or a path means."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernelfit.documents.configs import read_config
from kernelfit.documents.dtypes import KNOWN, core_dtype
from kernelfit.documents.library import Entry, find, index
from kernelfit.documents.modelspec import (
    AttentionSpec,
    ExpertsSpec,
    LatentSpec,
    LayerSpec,
    LinearSpec,
    MlpSpec,
    ModelDocument,
    Published,
    PublishedActive,
    PublishedBytes,
)
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
    active_parameter_count,
    parameter_count,
)

# Published totals are rounded, and some count parts that are not layers. Active ones are
# rounded to two digits by most publishers.
PUBLISHED_TOLERANCE = 0.005
ACTIVE_TOLERANCE = 0.02

_CORE: dict[type[Strict], type[Any]] = {
    AttentionSpec: Attention,
    ExpertsSpec: Experts,
    LatentSpec: Latent,
    LayerSpec: LayerKind,
    LinearSpec: LinearState,
    MlpSpec: Mlp,
}


def _core(part: Any) -> Any:
    """Turn a strict part into the core's dataclass of the same fields."""
    kind = _CORE.get(type(part))
    if kind is None:
        return part
    return kind(**{f.name: _core(getattr(part, f.name)) for f in dataclasses.fields(kind)})


def _unlike_published(document: Document, parsed: ModelDocument, model: Model) -> list[Problem]:
    """Compare what the facts add up to with what is published of the model."""
    total, active = parsed.published_parameters, parsed.published_active_parameters
    size = parsed.published_kv_bytes_per_token
    checks: list[tuple[str, int, float, float, str]] = []
    if total is not None:
        count = parameter_count(model)
        checks.append(
            ("published_parameters", count, total.value, PUBLISHED_TOLERANCE, "parameters")
        )
    if active is not None:
        count = active_parameter_count(model, active.embedding)
        words = "parameters that a token uses"
        checks.append(("published_active_parameters", count, active.value, ACTIVE_TOLERANCE, words))
    if size is not None:
        checks.append(
            ("published_kv_bytes_per_token", kv_bytes(model), size.value, 0.0, "bytes per token")
        )
    return [
        problem_at(
            document,
            (key, "value"),
            f"the facts of this document add up to {counted:,} {words}",
            got=f"{stated:,.0f}",
            allowed=f"a difference of {tolerance:.1%}",
            hint="correct the fact that is wrong",
        )
        for key, counted, stated, tolerance, words in checks
        if abs(counted - stated) > tolerance * stated
    ]


def kv_bytes(model: Model) -> int:
    """Return the bytes that one token leaves in the KV cache, unsharded and in 16 bit.

    Parameters
    ----------
    model : Model
        The model.

    Returns
    -------
    int
        All layers together, sliding ones within their window [bytes].
    """
    total = 0
    for kind in model.layers:
        a = kind.attention
        if a.latent is not None:
            total += kind.count * (a.latent.kv_rank + a.latent.rope_head_dim) * 2
        elif a.linear is None:
            total += kind.count * 2 * a.kv_heads * a.head_dim * 2
    return total


def _parsed(path: Path) -> tuple[ModelDocument, Model]:
    document = load_yaml(path)
    parsed = parse_as(document, ModelDocument)
    model = Model(
        name=parsed.name,
        hidden=parsed.hidden,
        vocab=parsed.vocab,
        layers=tuple(_core(layer) for layer in parsed.layers),
        dtype=parsed.dtype,
        weight_dtype=parsed.weight_dtype,
        tied_head=parsed.tied_head,
        scale_bytes=parsed.scale_bytes,
    )
    problems = _unlike_published(document, parsed, model)
    if problems:
        raise InputError(problems)
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


def load_published(
    path: Path,
) -> tuple[Published | None, PublishedActive | None, PublishedBytes | None]:
    """Read what is published of the model of a document.

    Parameters
    ----------
    path : pathlib.Path
        The document.

    Returns
    -------
    tuple
        Parameters, parameters that a token uses, and bytes of a token in the KV cache, each
        with its source; None where nothing is stated.

    Raises
    ------
    InputError
        When the document is not valid.
    """
    parsed, _ = _parsed(path)
    return (
        parsed.published_parameters,
        parsed.published_active_parameters,
        parsed.published_kv_bytes_per_token,
    )


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
    """Move the parts that were left unquantised to another data type."""
    attention, mlp, experts = kind.attention, kind.mlp, kind.experts
    if attention.weight_dtype == old:
        attention = dataclasses.replace(attention, weight_dtype=new)
    if mlp is not None and mlp.weight_dtype == old:
        mlp = dataclasses.replace(mlp, weight_dtype=new)
    if experts is not None and experts.weight_dtype == old:
        experts = dataclasses.replace(experts, weight_dtype=new)
    if experts is not None and experts.shared_weight_dtype == old:
        experts = dataclasses.replace(experts, shared_weight_dtype=new)
    return dataclasses.replace(kind, attention=attention, mlp=mlp, experts=experts)


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
