"""Questions that follow from the kernels themselves, for when nobody asked any."""

from __future__ import annotations

import math
from collections.abc import Sequence

from kernelfit.documents.questions import Question
from kernelfit.flips.loads import decode_columns, limit_of
from kernelfit.kernel.fitted import FittedKernel

CONTEXTS: tuple[int, ...] = (256, 1024, 4096)
"""Contexts asked about where the model may be that long [tokens]."""

CONCURRENCY: tuple[int, ...] = (1, 8, 32)
"""Requests that decode together, up to what a pool holds."""

ANCHOR = 8
"""Concurrency whose fitted step time places the target."""


def round_above(time_s: float) -> float:
    """Return the next round number of seconds.

    Parameters
    ----------
    time_s : float
        A time above 0 [s].

    Returns
    -------
    float
        The smallest of 1, 2 and 5 times a power of ten that is not below it [s].
    """
    power = math.floor(math.log10(time_s)) - 1
    steps = (float(f"{digit}e{power + up}") for up in range(3) for digit in (1, 2, 5))
    return next(step for step in steps if step >= time_s)


def default_questions(kernels: Sequence[FittedKernel]) -> tuple[Question, ...]:
    """Ask about round loads and round targets near what the pools can do.

    Parameters
    ----------
    kernels : sequence of FittedKernel
        Every pool that is compared.

    Returns
    -------
    tuple of Question
        For each model, contexts of 256, 1,024 and 4,096 tokens below ``max_model_len`` and
        1, 8 and 32 requests, as far as a pool of the model holds them. Each pool places a
        target, and every pool of the model is asked about it: the round number of seconds
        (1, 2 or 5 times a power of ten) next above the fitted step time of 8 requests. No
        measurement places it, and it is near enough for the bounds to matter.
    """
    by_model: dict[str, list[FittedKernel]] = {}
    for kernel in kernels:
        by_model.setdefault(kernel.plan.model.name, []).append(kernel)
    questions: list[Question] = []
    for model, pools in by_model.items():
        for context in CONTEXTS:
            held = [limit_of(pool, context).requests for pool in pools]
            targets_s = {
                round_above(
                    float(
                        pool.mean_step_times(
                            decode_columns([min(ANCHOR, most)], [context], pool.plan.basis.windows)
                        )[0]
                    )
                )
                for pool, most in zip(pools, held, strict=True)
                if most > 0
            }
            concurrency = tuple(n for n in CONCURRENCY if n <= max(held))
            questions += [
                Question(context, target_s, concurrency, model) for target_s in sorted(targets_s)
            ]
    return tuple(questions)
