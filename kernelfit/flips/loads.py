"""Steady decode loads: what a pool can hold, and the words for a load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kernelfit.fit.steps import pool_label
from kernelfit.kernel.errors import InvalidArgument
from kernelfit.kernel.fitted import FittedKernel
from kernelfit.kernel.memory import kv_room_bytes
from kernelfit.kernel.tables import alike_windows

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A pool that a question is asked about.

    Attributes
    ----------
    kernel : FittedKernel
        Its kernel.
    label : str
        Its name, unique among the pools of the same model and GPU type.
    """

    kernel: FittedKernel
    label: str

    @property
    def model(self) -> str:
        """Name of the model."""
        return self.kernel.plan.model.name

    @property
    def gpu(self) -> str:
        """Name of the GPU type."""
        return self.kernel.plan.chip.name


@dataclass(frozen=True, slots=True)
class Limit:
    """How many requests of one length a pool can decode together, and what sets it.

    Attributes
    ----------
    requests : int
        The most requests of one engine; 0 when not even one fits.
    reason : str
        The setting that binds, with its value, or ``memory``.
    """

    requests: int
    reason: str


def candidates(
    kernels: Sequence[FittedKernel], names: Sequence[str] | None = None
) -> tuple[Candidate, ...]:
    """Name the pools.

    Parameters
    ----------
    kernels : sequence of FittedKernel
        One per pool.
    names : sequence of str, optional
        Their names; without, the widths of each pool.

    Returns
    -------
    tuple of Candidate
        In the same order; a number follows a name that the same model and GPU type
        already has.

    Raises
    ------
    InvalidArgument
        When there is not one name per kernel.
    """
    given = [pool_label(k.plan.pool) for k in kernels] if names is None else list(names)
    if len(given) != len(kernels):
        raise InvalidArgument("names", f"{len(given)} names", f"{len(kernels)}, one per kernel")
    taken: set[tuple[str, str, str]] = set()
    found = []
    for kernel, name in zip(kernels, given, strict=True):
        where = (kernel.plan.chip.name, kernel.plan.model.name)
        label, number = name, 2
        while (*where, label) in taken:
            label, number = f"{name} ({number})", number + 1
        taken.add((*where, label))
        found.append(Candidate(kernel, label))
    return tuple(found)


def limit_of(kernel: FittedKernel, context_tokens: int, longest_tokens: int | None = None) -> Limit:
    """Return how many requests of one length decode together.

    Parameters
    ----------
    kernel : FittedKernel
        The pool's kernel.
    context_tokens : int
        Tokens in the KV cache of every request before the step [tokens].
    longest_tokens : int, optional
        Length that every request grows to [tokens]; one token more than the context where
        not given.

    Returns
    -------
    Limit
        The smallest of the scheduler's limits and of what memory holds beside weights and
        buffers, each request with the token that the step adds.
    """
    resolution = kernel.resolved()
    longest = kernel.plan.pool.max_model_len
    if longest is not None and (longest_tokens or context_tokens + 1) > longest:
        return Limit(0, f"max_model_len = {longest}")
    one_bytes = kernel.sequence_fixed_bytes() + kernel.sequence_variable_bytes(context_tokens + 1)
    limits = (
        Limit(resolution.max_num_seqs, f"max_num_seqs = {resolution.max_num_seqs}"),
        Limit(
            resolution.max_num_batched_tokens,
            f"max_num_batched_tokens = {resolution.max_num_batched_tokens}",
        ),
        Limit(max(0, kv_room_bytes(kernel.plan) // one_bytes), "memory"),
    )
    return min(limits, key=lambda limit: limit.requests)


def decode_columns(
    requests: npt.ArrayLike, context_tokens: npt.ArrayLike, windows: Sequence[int] = ()
) -> Mapping[str, Floats]:
    """Return the totals of uniform decode batches.

    Parameters
    ----------
    requests : array_like, shape (n_batches,)
        Requests of each batch, each scheduling one token.
    context_tokens : array_like, shape (n_batches,)
        Tokens in the KV cache of every request before the step [tokens].
    windows : sequence of int
        Sliding windows of the model [tokens].

    Returns
    -------
    mapping of str to ndarray, shape (n_batches,)
        One column per field of ``BatchTotals``, and per total of each window: each request
        reads its context and its own new token, and is one query against as many keys.
    """
    count = np.asarray(requests, dtype=np.float64)
    keys = count * (np.asarray(context_tokens, dtype=np.float64) + 1.0)
    none = np.zeros_like(count)
    columns = {
        "requests": count,
        "tokens": count,
        "decode_requests": count,
        "decode_context_tokens": keys,
        "decode_pairs": keys,
        "prefill_context_tokens": none,
        "prefill_pairs": none,
    }
    return columns | alike_windows(columns, windows)


def in_domain(kernel: FittedKernel, row: Mapping[str, float]) -> bool:
    """Return whether the calibration has seen batches like one.

    Parameters
    ----------
    kernel : FittedKernel
        The pool's kernel.
    row : mapping of str to float
        Totals of the batch; means of counts are as good.

    Returns
    -------
    bool
        Whether every total, and every width of the deployment, lies within the range seen.
    """
    resolution = kernel.resolved()
    return all(
        entry.low <= value <= entry.high
        for entry in kernel.fitted.domain
        for value in (row.get(entry.quantity, getattr(resolution, entry.quantity, entry.low)),)
    )


def load_text(
    load: str, requests: int | None, *targets_s: float | None, rate_per_s: float | None = None
) -> str:
    """Return the words for a load with its targets.

    Parameters
    ----------
    load : str
        The load in words, ``Load.text``.
    requests : int or None
        Requests in flight; None when they are what is asked for.
    *targets_s : float or None
        Targets per output token and to first token [s]; None where the conclusion does not
        depend on one.
    rate_per_s : float, optional
        Requests a second [1/s].

    Returns
    -------
    str
        For example ``32 x 2,048 tokens, target 50 ms``.
    """
    text = load if requests is None else f"{requests:,d} x {load}"
    if rate_per_s is not None:
        text += f", {rate_per_s:g} requests/s"
    stated = [target for target in targets_s if target is not None]
    if not stated:
        return text
    return f"{text}, target {' and '.join(time_text(target) for target in stated)}"


def time_text(time_s: float) -> str:
    """Return a time in the unit that reads best.

    Parameters
    ----------
    time_s : float
        The time [s].

    Returns
    -------
    str
        Such as ``50 ms``, with at most six digits.
    """
    for unit, scale in (("s", 1.0), ("ms", 1e3)):
        if time_s * scale >= 1.0:
            return f"{time_s * scale:g} {unit}"
    return f"{time_s * 1e6:g} us"
