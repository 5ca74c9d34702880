"""Flags that ask one question and name candidate pools."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from kernelfit.documents.problems import InputError, Problem, shown


def _text(flag: str, metavar: str, help_text: str) -> Any:
    return typer.Option(flag, metavar=metavar, help=help_text)


Questions = Annotated[
    list[Path] | None,
    _text("--questions", "FILE", "Pools, loads, targets and objective to ask about."),
]
OfModel = Annotated[str | None, _text("--model", "NAME", "Ask about this model.")]
OnGpu = Annotated[str | None, _text("--gpu", "NAMES", "Candidate GPU types, with commas.")]
Tps = Annotated[str | None, _text("--tp", "N,N", "Candidate tensor-parallel widths.")]
Dps = Annotated[str | None, _text("--dp", "N,N", "Candidate data-parallel widths.")]
Eps = Annotated[str | None, _text("--ep", "BOOL,BOOL", "Candidate expert parallelism.")]
Set = Annotated[
    list[str] | None,
    _text("--set", "KEY=VALUE", "Engine setting of every candidate; may be repeated."),
]
Version = Annotated[
    str | None, _text("--engine-version", "VERSION", "Engine version of the candidates.")
]
Context = Annotated[str | None, _text("--context", "N,N", "Contexts of a steady decode [tokens].")]
Prompt = Annotated[str | None, _text("--prompt", "N,N", "Lengths of the prompts [tokens].")]
Output = Annotated[str | None, _text("--output", "N,N", "Lengths of the answers [tokens].")]
Hit = Annotated[
    str | None, _text("--prefix-hit", "SHARE", "Share of a prompt that the prefix cache holds.")
]
Concurrency = Annotated[
    str | None, _text("--concurrency", "N,N", "Requests in flight in one engine.")
]
Rate = Annotated[str | None, _text("--rate", "R,R", "Requests a second of the whole pool.")]
TargetFlag = Annotated[
    str | None, _text("--target", "S,S", "Longest time per output token [seconds].")
]
FirstTarget = Annotated[
    str | None, _text("--first-token-target", "S,S", "Longest time to first token [seconds].")
]
Percentile = Annotated[
    float | None, _text("--percentile", "SHARE", "Share of tokens that must meet the targets.")
]
Objective = Annotated[
    str | None,
    _text("--objective", "NAME", "throughput_per_gpu, cost_per_token or fewest_gpus."),
]
Price = Annotated[
    list[str] | None, _text("--price", "GPU=PRICE", "Price of a GPU-hour; may be repeated.")
]
Transfer = Annotated[
    str | None,
    _text("--transfer", "LINK", "Ask whether prefill on engines of its own pays: nvlink or nic."),
]


def numbers(flag: str, text: str | None, kind: Callable[[str], Any]) -> list[Any] | None:
    """Read a list with commas.

    Parameters
    ----------
    flag : str
        The flag, for the complaint.
    text : str or None
        What the user gave.
    kind : callable
        Reads one entry.

    Returns
    -------
    list or None
        The entries; None without the flag.

    Raises
    ------
    InputError
        When an entry is of another kind.
    """
    if text is None:
        return None
    found, problems = [], []
    for part in text.split(","):
        try:
            found.append(kind(part.strip().replace("_", "")))
        except ValueError:
            allowed = {"int": "whole numbers", "float": "numbers"}.get(kind.__name__, "true, false")
            problems.append(
                Problem(flag, None, None, "has a wrong entry", shown(part), f"{allowed}, commas")
            )
    if problems:
        raise InputError(problems)
    return found


def _truth(text: str) -> bool:
    words = {"true": True, "false": False}
    if text.lower() not in words:
        raise ValueError(text)
    return words[text.lower()]


def _pairs(flag: str, entries: Sequence[str] | None) -> dict[str, str]:
    found, problems = {}, []
    for entry in entries or ():
        key, equals, value = entry.partition("=")
        if not equals or not key or not value:
            problems.append(Problem(flag, None, None, "is no pair", shown(entry), "KEY=VALUE"))
        found[key] = value
    if problems:
        raise InputError(problems)
    return found


def _scalar(text: str) -> Any:
    for kind in (_truth, int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def asked_by_flags(**flags: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Turn flags into an entry of a question document, and what stands beside it.

    Parameters
    ----------
    **flags : object
        Values of the flags above, by name.

    Returns
    -------
    dict
        The question; empty where no flag asks one.
    dict
        ``candidates`` and ``prices_per_gpu_hour``; empty where no flag names them.

    Raises
    ------
    InputError
        When a list holds something else than numbers, or a pair is none.
    """
    asked = {
        "context_tokens": numbers("--context", flags["context"], int),
        "prompt_tokens": numbers("--prompt", flags["prompt"], int),
        "output_tokens": numbers("--output", flags["output"], int),
        "prefix_hit_share": numbers("--prefix-hit", flags["prefix_hit"], float),
        "concurrency": numbers("--concurrency", flags["concurrency"], int),
        "rate_per_s": numbers("--rate", flags["rate"], float),
        "target_s": numbers("--target", flags["target"], float),
        "first_token_target_s": numbers("--first-token-target", flags["first_token_target"], float),
        "percentile": flags["percentile"],
        "objective": flags["objective"],
        "transfer": flags["transfer"],
    }
    asked = {key: value for key, value in asked.items() if value is not None}
    rest: dict[str, Any] = {}
    prices = _pairs("--price", flags["price"])
    if prices:
        rest["prices_per_gpu_hour"] = {
            gpu: (numbers("--price", price, float) or [0.0])[0] for gpu, price in prices.items()
        }
    candidate = {
        "tp": numbers("--tp", flags["tp"], int),
        "dp": numbers("--dp", flags["dp"], int),
        "expert_parallel": numbers("--ep", flags["ep"], _truth),
        "settings": {k: _scalar(v) for k, v in _pairs("--set", flags["set"]).items()} or None,
        "engine_version": flags["engine_version"],
        "gpu": None if flags["gpu"] is None else [g.strip() for g in flags["gpu"].split(",")],
    }
    candidate = {key: value for key, value in candidate.items() if value is not None}
    if flags["model"] is not None:
        asked["model"] = flags["model"]
    if candidate:
        missing = [name for name in ("gpu", "model") if flags[name] is None]
        if missing:
            raise InputError(
                [
                    Problem(f"--{name}", None, None, "is needed to name candidate pools")
                    for name in missing
                ]
            )
        rest["candidates"] = [{**candidate, "model": [flags["model"]]}]
    return (asked if set(asked) != {"model"} or rest else {}), rest
