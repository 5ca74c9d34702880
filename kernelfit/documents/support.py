"""Which deployments are priced and which are refused, found out by trying each one.

    python -m kernelfit.documents.support > docs/support.md

Nothing here decides anything. Models come from the model documents, families from the table
of families, settings from the tables that the resolution goes by, and every verdict is what
a ``DatasheetKernel`` of that deployment answers.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from kernelfit.documents.chips import load_chip
from kernelfit.documents.families import FAMILIES, Family
from kernelfit.documents.models import load_model
from kernelfit.kernel import Batch, Chip, DatasheetKernel, KernelError, Model, Pool, Refusal
from kernelfit.kernel.dtypes import DTYPE_BYTES
from kernelfit.kernel.refusals import QUANTIZATION, Choice, accepted
from kernelfit.kernel.rules import NEWEST

VERSION = ".".join(str(part) for part in (*NEWEST, 0))
CHIPS: tuple[str, ...] = ("h100-sxm", "b300")
"""Documents of the GPU types that the tables try."""

WIDTHS: tuple[int, ...] = (1, 2, 4, 8)
SHOWN: tuple[tuple[str, str], ...] = (
    ("dense", "llama-3.1-8b"),
    ("experts", "qwen3-30b-a3b"),
    ("latent attention, experts", "deepseek-v3"),
    ("sliding window, experts", "gpt-oss-120b"),
    ("linear attention, experts", "qwen3.5-35b-a3b"),
)
"""What a model stands for, and its document."""

LAYOUTS: tuple[Pool, ...] = (
    Pool(),
    Pool(tp=8),
    Pool(tp=3),
    Pool(tp=16, nodes=2),
    Pool(tp=8, enable_expert_parallel=True),
    Pool(dp=8),
    Pool(dp=8, enable_expert_parallel=True),
    Pool(tp=4, dp=4, nodes=2, enable_expert_parallel=True),
    Pool(dp=16, nodes=2, enable_expert_parallel=True, all2all_backend="deepep_low_latency"),
    Pool(dp=8, enable_expert_parallel=True, enable_eplb=True, num_redundant_experts=32),
    Pool(tp=2, pp=2),
    Pool(tp=4, pcp=2),
    Pool(tp=8, dcp=2),
)
"""Layouts that every shown model is tried with."""

_BASES: dict[str, tuple[str, Pool]] = {
    "all2all_backend": ("qwen3-30b-a3b", Pool(dp=8, enable_expert_parallel=True)),
    "state_dtype": ("qwen3.5-35b-a3b", Pool()),
    "mamba_cache_mode": ("qwen3.5-35b-a3b", Pool()),
    "enable_dbo": ("qwen3-30b-a3b", Pool(dp=8, enable_expert_parallel=True)),
}
_PLAIN = ("llama-3.1-8b", Pool())
_LATENT_CACHE = "fp8_ds_mla"


def outcome(model: Model, chip: Chip, pool: Pool, field: str = "") -> str:
    """Return what becomes of a deployment.

    Parameters
    ----------
    model : Model
        The model.
    chip : Chip
        The GPU type.
    pool : Pool
        The pool.
    field : str
        A setting; where something else runs than it says, the answer names it.

    Returns
    -------
    str
        ``priced``, with what runs instead and why where that differs, or the refusal.
    """
    try:
        kernel = DatasheetKernel(model, chip, pool, VERSION)
        kernel.step_time(Batch.decode(1, 128))
        kernel.fixed_bytes()
    except Refusal as refusal:
        return f"refused: {refusal.reason}"
    except KernelError as error:
        return f"refused: {error}"
    for override in kernel.resolved().overrides:
        if override.field == field and not override.reason.startswith("assumed"):
            return f"priced as {override.resolved}: {override.reason}"
    return "priced"


def layout(pool: Pool) -> str:
    """Return the settings that a pool states, in a document's words.

    Parameters
    ----------
    pool : Pool
        The pool.

    Returns
    -------
    str
        For example ``tp=2 pp=2``.
    """
    plain = Pool()
    fields = [name for name in Pool.__slots__ if getattr(pool, name) != getattr(plain, name)]
    said = (f"{name}={getattr(pool, name)}".replace("True", "true") for name in fields)
    return " ".join(said) or "one GPU"


def attention(model: Model) -> str:
    """Return a model's attention kinds in words.

    Parameters
    ----------
    model : Model
        The model.

    Returns
    -------
    str
        Kinds of attention with the number of layers.
    """
    counts: dict[str, int] = {}
    for kind in model.layers:
        a = kind.attention
        name = f"{a.kind} ({a.window_tokens})" if a.window_tokens else a.kind
        counts[name] = counts.get(name, 0) + kind.count
    return ", ".join(f"{count} {name}" for name, count in counts.items())


def _table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    heads = tuple(heads)
    lines = [heads, tuple("---" for _ in heads), *(tuple(row) for row in rows)]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "/") for cell in line) + " |" for line in lines
    )


def _answer(model: Model, chips: tuple[Chip, ...], pool: Pool, field: str = "") -> str:
    """Outcome on every chip, said once where they agree."""
    answers = {chip.name: outcome(model, chip, pool, field) for chip in chips}
    if len(set(answers.values())) == 1:
        return answers[chips[0].name]
    return "; ".join(f"{name}: {answer}" for name, answer in answers.items())


def _gathered(rows: Iterable[tuple[str, str, str]]) -> list[tuple[str, str, str]]:
    """Put rows with the same first and last cell together."""
    together: dict[tuple[str, str], list[str]] = {}
    for first, second, last in rows:
        together.setdefault((first, last), []).append(second)
    return [(first, ", ".join(many), last) for (first, last), many in together.items()]


def _widths(model: Model, chip: Chip) -> str:
    """Widths that are priced, and the least of them whose weights leave room for KV."""
    fits, priced = "", []
    for tp in WIDTHS:
        try:
            kernel = DatasheetKernel(model, chip, Pool(tp=tp), VERSION)
        except KernelError:
            continue
        priced.append(str(tp))
        share = kernel.resolved().gpu_memory_utilization
        if not fits and kernel.fixed_bytes().total() < chip.hbm_bytes * share:
            fits = f", fits from {tp}"
    return ", ".join(priced) + (fits or ", needs more than one node")


def _models(models: dict[str, Model], chips: tuple[Chip, ...]) -> str:
    heads = ("model", "attention layers", "experts", "weights", *(f"tp on {c.name}" for c in chips))
    rows = []
    for name, model in models.items():
        experts = {k.experts.experts: k.experts.per_token for k in model.layers if k.experts}
        rows.append(
            (
                name,
                attention(model),
                ", ".join(f"{k} of {n}" for n, k in experts.items()) or "-",
                model.weight_dtype,
                *(_widths(model, chip) for chip in chips),
            )
        )
    return _table(heads, rows)


def _family(family: Family) -> tuple[str, str]:
    kinds = ["mla" if family.latent else "full"]
    if family.window != "none":
        kinds.append("sliding")
    if family.linear:
        kinds.append("linear")
    if family.experts is None:
        return ", ".join(kinds), "-"
    shared = family.experts.shared or family.experts.shared_count
    return ", ".join(kinds), "routed and shared" if shared else "routed"


def _layouts(models: dict[str, Model], chips: tuple[Chip, ...]) -> list[tuple[str, str, str]]:
    rows = [
        (layout(pool), name, _answer(models[name], chips, pool))
        for pool in LAYOUTS
        for _, name in SHOWN
    ]
    everyone = ", ".join(name for _, name in SHOWN)
    return [(a, "all" if b == everyone else b, c) for a, b, c in _gathered(rows)]


def _dtypes(models: dict[str, Model], chips: tuple[Chip, ...]) -> list[tuple[str, str, str]]:
    model, pool = models[_PLAIN[0]], Pool()
    return [
        (
            "weights",
            dtype,
            _answer(replace(model, weight_dtype=dtype), chips, pool, "weight_dtype"),
        )
        for dtype, _ in DTYPE_BYTES
    ]


def _value(text: str) -> object:
    words = {"true": True, "false": False, "none": None, ">1": 2}
    return int(text) if text.isdigit() else words.get(text, text)


def _tried(
    choice: Choice, models: dict[str, Model], chips: tuple[Chip, ...]
) -> list[tuple[str, str, str]]:
    rows = []
    field = choice.setting
    name, base = _BASES.get(field, _PLAIN)
    for word in (*choice.accepted, *(word for word, _ in choice.refused)):
        model = models["deepseek-v3" if word == _LATENT_CACHE else name]
        changes: dict[str, object] = {field: _value(word)}
        if field == "speculative_method" and word != "none":
            changes["num_speculative_tokens"] = 3
        if field == "mamba_cache_mode":
            changes[field] = word
        if field == "quantization":
            model = replace(model, weight_dtype=dict(QUANTIZATION)[word][0])
        pool = replace(base, **changes)  # type: ignore[arg-type]
        rows.append((field, word.replace(">1", "2"), _answer(model, chips, pool, field)))
    return rows


def page(calib: Path) -> str:
    """Return the page.

    Parameters
    ----------
    calib : pathlib.Path
        The folder with ``chips`` and ``models``.

    Returns
    -------
    str
        Markdown.
    """
    chips = tuple(load_chip(calib / "chips" / f"{name}.yaml") for name in CHIPS)
    models = {p.stem: load_model(p) for p in sorted((calib / "models").glob("*.yaml"))}
    names = " and ".join(chip.name for chip in chips)
    settings = [
        row
        for choice in accepted()
        if choice.setting != "attention.kind"
        for row in _tried(choice, models, chips)
    ]
    parts = [
        "# What is priced, and what is refused",
        "Written by `python -m kernelfit.documents.support > docs/support.md`: each line is the "
        f"answer to that deployment, resolved as vLLM {VERSION} would. A refusal says why, and a "
        "setting that the engine would replace is priced as what it puts in its place.",
        "## Models",
        "Models with a document in `calib/models`, the tensor-parallel widths of one node that are "
        "priced, and the least of them whose weights leave room for KV.",
        _models(models, chips),
        "A model's own `config.json` is read where its `model_type` is one of these; any other is "
        "refused, because a guess about biases, gates or windows would be wrong in silence.",
        _table(
            ("`model_type`", "attention", "experts"),
            ((name, *_family(family)) for name, family in FAMILIES.items()),
        ),
        "## Layouts",
        "Tried with " + ", ".join(f"{name} ({what})" for what, name in SHOWN) + f", on {names}.",
        _table(("layout", "models", "answer"), _layouts(models, chips)),
        "## Settings",
        "Each value on its own, on a model that it concerns: "
        + ", ".join(f"`{field}` on {name}" for field, (name, _) in _BASES.items())
        + f", `{_LATENT_CACHE}` on deepseek-v3, others on {_PLAIN[0]}.",
        _table(("setting", "values", "answer"), _gathered([*_dtypes(models, chips), *settings])),
    ]
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    sys.stdout.write(page(Path(__file__).resolve().parents[2] / "calib"))
