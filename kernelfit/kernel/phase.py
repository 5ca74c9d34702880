"""The phase of a batch, which only reports and noise ask about."""

from __future__ import annotations

from kernelfit.kernel.batch import Batch

PHASES: tuple[str, ...] = ("decode", "mixed", "prefill")


def phase_of(batch: Batch) -> str:
    """Return the phase of a batch, for reports and noise.

    Parameters
    ----------
    batch : Batch
        The batch.

    Returns
    -------
    str
        ``decode`` when every request is past its prompt, ``prefill`` when none is, else
        ``mixed``.
    """
    past = sum(request.computed >= request.prompt_len for request in batch.requests)
    if past == len(batch.requests):
        return "decode"
    return "mixed" if past else "prefill"
