"""Latencies for a mock engine (llm-d-inference-sim), and the table that they were drawn from.

The mock waits ``prefill-overhead + n * prefill-time-per-token`` for a prompt of n tokens, then
``inter-token-latency`` for each further token, both stretched by a factor that grows linearly
with the requests that run. Everything here is the kernel's time of steps: what a request waits
for a slot is the mock's own affair, and none of it is in these numbers.
"""

from __future__ import annotations

import csv
import io
import json
from dataclasses import dataclass

import numpy as np

from kernelfit.export.base import (
    ExportedFile,
    ExportOptions,
    Files,
    NotExpressed,
    Setting,
    Target,
    comment,
    integers,
    setting,
)
from kernelfit.export.mock_check import Mock, check_config
from kernelfit.kernel.basis import Array
from kernelfit.kernel.batch import Batch, RequestShape
from kernelfit.kernel.errors import InvalidArgument, Refusal
from kernelfit.kernel.fitted import FittedKernel
from kernelfit.kernel.pool import Placement

_SETTINGS = (
    Setting("context", "1024", "tokens in the KV of each decoding request"),
    Setting("prompts", "64,128,256,512,1024,2048,4096,8192", "lengths of prompts"),
    Setting("max_num_seqs", "", "requests that run at most; the pool's own by default"),
)
_COLUMNS = ("running", "prompt_tokens", "kernel_s", "mock_s", "in_domain")


@dataclass(frozen=True, slots=True)
class Point:
    """One latency of the kernel.

    Attributes
    ----------
    running : int
        Requests that run, this one included.
    prompt_tokens : int
        Length of the prompt whose first token is awaited; 0 for the time between two tokens
        [tokens].
    time_s : float
        The kernel's time [s].
    in_domain : bool
        Whether the calibration has seen the steps behind it.
    """

    running: int
    prompt_tokens: int
    time_s: float
    in_domain: bool


def first_token_s(
    kernel: FittedKernel, prompt_tokens: int, beside: int, context: int
) -> tuple[float, bool]:
    """Return the time to the first token of a prompt that is admitted at once.

    Parameters
    ----------
    kernel : FittedKernel
        The kernel.
    prompt_tokens : int
        Length of the prompt [tokens].
    beside : int
        Requests that decode beside it in every step.
    context : int
        Tokens in the KV of each of them.

    Returns
    -------
    float
        Sum of the steps that the prompt takes, in chunks of what the engine schedules at
        most [s].
    bool
        Whether the calibration has seen all of these steps.
    """
    limit = kernel.plan.resolution.max_num_batched_tokens - beside
    others = Batch.decode(beside, context).requests if beside else ()
    total, seen, computed = 0.0, True, 0
    while computed < prompt_tokens:
        chunk = min(limit, prompt_tokens - computed)
        batch = Batch((*others, RequestShape(chunk, computed, prompt_tokens)))
        totals = kernel.totals(batch)
        total += kernel.mean_step_time(totals)
        seen = seen and kernel.in_domain(totals)
        computed += chunk
    return total, seen


def _loads(kernel: FittedKernel, options: ExportOptions) -> tuple[int, ...]:
    most = _most(kernel, options)
    return tuple(sorted({min(2**k, most) for k in range(most.bit_length() + 1)}))


def _most(kernel: FittedKernel, options: ExportOptions) -> int:
    text = setting(_SETTINGS, options, "max_num_seqs")
    limit = kernel.plan.resolution.max_num_seqs
    if not text:
        return limit
    most = integers("max_num_seqs", text, 1)
    if len(most) != 1 or most[0] > limit:
        raise InvalidArgument("max_num_seqs", text, f"1 to {limit}, the pool's own")
    return most[0]


def latencies(
    kernel: FittedKernel, options: ExportOptions
) -> tuple[tuple[Point, ...], tuple[Point, ...]]:
    """Return the kernel's latencies by load.

    Parameters
    ----------
    kernel : FittedKernel
        The kernel.
    options : ExportOptions
        The options.

    Returns
    -------
    tuple of Point
        Times to the first token by prompt and load.
    tuple of Point
        Times between two tokens by load.

    Raises
    ------
    InvalidArgument
        When a setting is none, or no prompt is as short as the model allows.
    """
    (context,) = integers("context", setting(_SETTINGS, options, "context"), 1)[:1]
    longest = kernel.plan.pool.max_model_len
    asked = integers("prompts", setting(_SETTINGS, options, "prompts"), 1)
    prompts = [n for n in asked if longest is None or n <= longest]
    if len(prompts) < 2:
        raise InvalidArgument("prompts", asked, f"two or more, up to {longest} tokens")
    if longest is not None and context >= longest:
        raise InvalidArgument("context", context, f"less than max_model_len = {longest}")
    loads = _loads(kernel, options)
    firsts = tuple(
        Point(running, n, *first_token_s(kernel, n, running - 1, context))
        for running in loads
        for n in prompts
    )
    nexts = []
    for running in loads:
        totals = kernel.totals(Batch.decode(running, context))
        nexts.append(Point(running, 0, kernel.mean_step_time(totals), kernel.in_domain(totals)))
    return firsts, tuple(nexts)


def fit_mock(firsts: tuple[Point, ...], nexts: tuple[Point, ...], max_num_seqs: int) -> Mock:
    """Return the mock's latencies that come closest to the kernel's.

    Parameters
    ----------
    firsts, nexts : tuple of Point
        From ``latencies``.
    max_num_seqs : int
        Requests that run at most.

    Returns
    -------
    Mock
        By least squares of relative errors, no constant below zero: overhead and time per
        token over the prompts that run alone, time between tokens and factor over all loads.
    """
    alone = [p for p in firsts if p.running == 1]
    overhead, per_token = _line([float(p.prompt_tokens) for p in alone], [p.time_s for p in alone])
    shares = [(p.running - 1) / max(max_num_seqs - 1, 1) for p in nexts]
    between, grown = _line(shares, [p.time_s for p in nexts])
    if not between:
        # A factor has nothing to stretch, so the shortest time stands for all loads.
        between, grown = min(p.time_s for p in nexts), 0.0
    return Mock(max_num_seqs, overhead, per_token, between, 1.0 + grown / between)


def _line(x: list[float], times_s: list[float]) -> tuple[float, float]:
    """Return the line with the least relative errors whose two constants are not negative."""
    weights = 1.0 / np.asarray(times_s)
    return _not_negative(np.stack([weights, np.asarray(x) * weights], axis=1))


def _not_negative(design: Array) -> tuple[float, float]:
    """Solve ``design @ x = 1`` for two values, neither below zero."""
    ones = np.ones(len(design))
    both = np.linalg.lstsq(design, ones, rcond=None)[0]
    if both.min() >= 0.0:
        return float(both[0]), float(both[1])
    first, second = (float(c @ ones / (c @ c)) if c.any() else 0.0 for c in design.T)
    errors = [np.square(design[:, k] * x - 1.0).sum() for k, x in enumerate((first, second))]
    return (first, 0.0) if errors[0] < errors[1] else (0.0, second)


def _go(time_s: float) -> str:
    """Write a time as a Go duration; Go keeps whole nanoseconds."""
    return f"{round(time_s * 1e9)}ns" if time_s < 1e-3 else f"{round(time_s * 1e9) / 1e6:.6f}ms"


def _transfer_s(kernel: FittedKernel, prompt_tokens: int) -> float | None:
    """Return the time per token of moving a prompt's KV to another node, where it has a price."""
    try:
        whole = kernel.pd_transfer_time(prompt_tokens, Placement(0, 0), Placement(1, 0))
    except Refusal:
        return None
    return whole / prompt_tokens


def _export(kernel: FittedKernel, options: ExportOptions) -> Files:
    firsts, nexts = latencies(kernel, options)
    mock = fit_mock(firsts, nexts, _most(kernel, options))
    lines = [
        "engine: vllm",
        f"model: {json.dumps(kernel.plan.model.name)}",
        f"max-num-seqs: {mock.max_num_seqs}",
    ]
    if kernel.plan.pool.max_model_len is not None:
        lines.append(f"max-model-len: {kernel.plan.pool.max_model_len}")
    lines += [
        "latency-calculator: per-token",
        "latencies:",
        f"  prefill-overhead: {_go(mock.overhead_s)}",
        f"  prefill-time-per-token: {_go(mock.per_token_s)}",
        f"  inter-token-latency: {_go(mock.inter_token_s)}",
        f"  time-factor-under-load: {mock.factor:.6f}",
    ]
    transfer_s = _transfer_s(kernel, firsts[-1].prompt_tokens)
    if transfer_s is not None:
        lines.append(f"  kv-cache-transfer-time-per-token: {_go(transfer_s)}")
    text = comment("mock", kernel, options) + "\n".join(lines) + "\n"
    return (
        ExportedFile(f"{options.stem}.mock.yaml", text),
        ExportedFile(f"{options.stem}.mock.csv", _table(Mock.read(text), firsts, nexts)),
    )


def _table(mock: Mock, firsts: tuple[Point, ...], nexts: tuple[Point, ...]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for p in (*firsts, *nexts):
        said = (
            mock.first_token_s(p.prompt_tokens, p.running)
            if p.prompt_tokens
            else mock.next_token_s(p.running)
        )
        row = (p.running, p.prompt_tokens, repr(p.time_s), repr(said), str(p.in_domain).lower())
        writer.writerow(row)
    return out.getvalue()


def _check(files: Files) -> tuple[str, ...]:
    return tuple(
        f"{file.path}: {problem}"
        for file in files
        if file.path.endswith(".yaml")
        for problem in check_config(file.content.decode("utf-8"))
    )


def _missing(kernel: FittedKernel, options: ExportOptions) -> tuple[NotExpressed, ...]:
    out = [
        NotExpressed("context", "the mock's time between tokens does not grow with the context"),
        NotExpressed("load", "one factor, linear in the running requests, stretches both phases"),
        NotExpressed("jitter", "held-out errors are not the spread of steps, so none is stated"),
        NotExpressed("bounds", "the mock knows one time, the fitted mean"),
    ]
    if _transfer_s(kernel, 1024) is None:
        why = "the chip states no link that a prompt's KV would take to another node"
        out.append(NotExpressed("kv-cache-transfer", why))
    firsts, nexts = latencies(kernel, options)
    outside = sum(not p.in_domain for p in (*firsts, *nexts))
    if outside:
        why = f"{outside} of {len(firsts) + len(nexts)} latencies lie outside what was calibrated"
        out.append(NotExpressed("domain", why))
    return tuple(out)


TARGET = Target(
    name="mock",
    title="latencies for the mock engine llm-d-inference-sim, with the table behind them",
    holds=(
        "time to the first token, linear in the prompt",
        "time between tokens, linear in the load",
        "transfer of a prompt's KV per token",
    ),
    lacks=(
        "growth with the context",
        "a load factor for each phase",
        "jitter",
        "graphs and their steps",
        "queueing, which is the mock's own",
    ),
    source="llm-d-inference-sim, docs/configuration.md and docs/latency-simulation.md at 05ea24a",
    export=_export,
    check=_check,
    missing=_missing,
    settings=_SETTINGS,
)
"""The mock target."""
