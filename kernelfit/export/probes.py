"""Batches at which a target's step time is set beside the kernel's, and how far they are apart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from kernelfit.kernel.basis import Array
from kernelfit.kernel.batch import Batch, RequestShape
from kernelfit.kernel.errors import InvalidArgument
from kernelfit.kernel.fitted import FittedKernel
from kernelfit.kernel.limits import check_batch
from kernelfit.kernel.phase import phase_of
from kernelfit.kernel.tables import table_of

PHASES = ("decode", "mixed", "prefill")

_REQUESTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
_CONTEXTS = (64, 128, 256, 512, 768, 1024, 1536, 2048, 3072, 4096, 8192, 16384)
_CHUNKS = (32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
_BEFORE = (0, 512, 2048, 8192)
_BESIDE = (1, 8, 64)


@dataclass(frozen=True, slots=True)
class Agreement:
    """How far two series of step times are apart.

    Attributes
    ----------
    phase : str
        ``all``, ``decode``, ``mixed`` or ``prefill``.
    batches : int
        Batches behind it.
    median, p90, worst : float
        Of ``|target / kernel - 1|`` [1].
    worst_ratio : float
        ``target / kernel`` of the worst batch [1].
    worst_batch : str
        That batch in words.
    """

    phase: str
    batches: int
    median: float
    p90: float
    worst: float
    worst_ratio: float
    worst_batch: str

    def line(self) -> str:
        """Return the agreement in a line.

        Returns
        -------
        str
            Phase, number of batches and the errors in percent.
        """
        return (
            f"{self.phase}: {self.batches} batches, error median {self.median:.2%}, "
            f"p90 {self.p90:.2%}, worst {self.worst:.2%} "
            f"(ratio {self.worst_ratio:.3f} at {self.worst_batch})"
        )


def probe_batches(kernel: FittedKernel) -> tuple[Batch, ...]:
    """Return batches of every phase over what a kernel may be asked for.

    Parameters
    ----------
    kernel : FittedKernel
        The kernel; its pool's limits hold, and its calibrated domain where it states one.

    Returns
    -------
    tuple of Batch
        Decodes by requests and context, prompts by chunk and what came before, and chunks
        beside decodes; in a fixed order.

    Raises
    ------
    InvalidArgument
        When fewer than 20 of them are allowed: too few to judge by.
    """
    kept = []
    for batch in _candidates():
        totals = kernel.totals(batch)
        try:
            check_batch(kernel.plan, batch, totals)
        except InvalidArgument:
            continue
        if kernel.in_domain(totals):
            kept.append(batch)
    if len(kept) < 20:
        raise InvalidArgument(
            "domain", len(kept), "at least 20 of the probe batches inside the pool and the domain"
        )
    return tuple(kept)


def _candidates() -> Iterator[Batch]:
    for requests in _REQUESTS:
        for context in _CONTEXTS:
            yield Batch.decode(requests, context)
    for chunk in _CHUNKS:
        for before in _BEFORE:
            prompt = RequestShape(chunk, before, before + chunk)
            yield Batch((prompt,))
            if chunk <= 1024:
                yield Batch((prompt,) * 4)
            for beside in _BESIDE:
                for context in (512, 2048):
                    yield Batch((prompt, *Batch.decode(beside, context).requests))


def kernel_times(kernel: FittedKernel, batches: Sequence[Batch]) -> Array:
    """Return the kernel's step times of some batches.

    Parameters
    ----------
    kernel : FittedKernel
        The kernel.
    batches : sequence of Batch
        The batches.

    Returns
    -------
    ndarray, shape (n_batches,)
        Fitted mean step times [s].
    """
    return kernel.mean_step_times(table_of([kernel.totals(batch) for batch in batches]))


def words_of(batch: Batch) -> str:
    """Return a batch in words.

    Parameters
    ----------
    batch : Batch
        The batch.

    Returns
    -------
    str
        Its decodes and its prompts, each with their tokens and context.
    """
    parts = []
    decodes = [r for r in batch.requests if r.computed >= r.prompt_len]
    prompts = [r for r in batch.requests if r.computed < r.prompt_len]
    if decodes:
        parts.append(f"{len(decodes)} decodes at context {decodes[0].computed}")
    if prompts:
        first = prompts[0]
        parts.append(f"{len(prompts)} prompts of {first.scheduled} tokens after {first.computed}")
    return " + ".join(parts)


def agreements(batches: Sequence[Batch], kernel_s: Array, target_s: Array) -> tuple[Agreement, ...]:
    """Return how far a target's step times are from the kernel's, together and by phase.

    Parameters
    ----------
    batches : sequence of Batch
        The batches.
    kernel_s, target_s : ndarray, shape (n_batches,)
        Their step times [s].

    Returns
    -------
    tuple of Agreement
        ``all`` first, then the phases that occur.
    """
    ratio = np.asarray(target_s) / np.asarray(kernel_s)
    phases = np.asarray([phase_of(batch) for batch in batches])
    out = []
    for phase in ("all", *PHASES):
        (chosen,) = np.nonzero(np.ones(len(batches), bool) if phase == "all" else phases == phase)
        if not chosen.size:
            continue
        error = np.abs(ratio[chosen] - 1.0)
        worst = int(chosen[int(np.argmax(error))])
        out.append(
            Agreement(
                phase,
                int(chosen.size),
                float(np.median(error)),
                float(np.quantile(error, 0.9)),
                float(error.max()),
                float(ratio[worst]),
                words_of(batches[worst]),
            )
        )
    return tuple(out)
