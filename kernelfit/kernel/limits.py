"""What a pool's engine would never run, and totals that no batch has."""

from __future__ import annotations

from kernelfit.kernel.batch import Batch
from kernelfit.kernel.errors import InvalidArgument
from kernelfit.kernel.plan import Plan
from kernelfit.kernel.totals import TOTAL_FIELDS, BatchTotals, window_column


def check_batch(plan: Plan, batch: Batch, totals: BatchTotals) -> None:
    """Refuse a batch that the pool's engine would never run.

    Parameters
    ----------
    plan : Plan
        The plan.
    batch : Batch
        The batch.
    totals : BatchTotals
        Its totals.

    Raises
    ------
    InvalidArgument
        When it exceeds ``max_num_seqs`` or ``max_num_batched_tokens``, or when a
        request is longer than ``max_model_len`` where that is stated.
    """
    check_limits(plan, totals)
    longest = plan.pool.max_model_len
    if longest is not None:
        for request in batch.requests:
            if request.computed + request.scheduled > longest:
                raise InvalidArgument(
                    "computed + scheduled",
                    request.computed + request.scheduled,
                    f"at most max_model_len = {longest}",
                )
    check_budget(plan, batch.sm_budget)


def check_budget(plan: Plan, sm_budget: int) -> None:
    """Refuse a budget of SMs that the chip does not have.

    Parameters
    ----------
    plan : Plan
        The plan.
    sm_budget : int
        SMs that the step may use; 0 means all of them.

    Raises
    ------
    InvalidArgument
        When it is negative or exceeds the chip's SMs.
    """
    if not 0 <= sm_budget <= plan.chip.sm_count:
        raise InvalidArgument(
            "sm_budget", sm_budget, f"0 to {plan.chip.sm_count} SMs of {plan.chip.name}"
        )


def check_limits(plan: Plan, totals: BatchTotals) -> None:
    """Refuse totals beyond the pool's limits.

    Parameters
    ----------
    plan : Plan
        The plan.
    totals : BatchTotals
        The totals.

    Raises
    ------
    InvalidArgument
        When there are more requests or tokens than the engine schedules in a step.
    """
    limits = plan.resolution
    if not 1 <= totals.requests <= limits.max_num_seqs:
        raise InvalidArgument(
            "requests", totals.requests, f"1 to max_num_seqs = {limits.max_num_seqs}"
        )
    if not totals.requests <= totals.tokens <= limits.max_num_batched_tokens:
        raise InvalidArgument(
            "tokens",
            totals.tokens,
            "at least one per request, at most max_num_batched_tokens = "
            f"{limits.max_num_batched_tokens}",
        )


def check_totals(plan: Plan, totals: BatchTotals) -> None:
    """Refuse totals that no batch of the pool has.

    Parameters
    ----------
    plan : Plan
        The plan.
    totals : BatchTotals
        The totals.

    Raises
    ------
    InvalidArgument
        When a total is negative, when there is no request or a request without a token,
        when a path has context without requests, or when the pool's limits are exceeded.
    """
    check_limits(plan, totals)
    decoding = totals.decode_requests
    prefilling = totals.requests - decoding
    context, prefill = totals.decode_context_tokens, totals.prefill_context_tokens
    if (
        0 <= decoding <= totals.requests
        and decoding <= context <= totals.decode_pairs
        and prefilling <= prefill <= totals.prefill_pairs
        and (decoding or not totals.decode_pairs)
        and (prefilling or not totals.prefill_pairs)
    ):
        return
    for name in TOTAL_FIELDS:
        if getattr(totals, name) < 0:
            raise InvalidArgument(name, getattr(totals, name), ">= 0")
    if decoding > totals.requests:
        raise InvalidArgument("decode_requests", decoding, f"at most {totals.requests} requests")
    for path, count, read, pairs in (
        ("decode", decoding, context, totals.decode_pairs),
        ("prefill", prefilling, prefill, totals.prefill_pairs),
    ):
        if read < count or (not count and read):
            allowed = f"at least one per {path} request, of which there are {count}"
            raise InvalidArgument(f"{path}_context_tokens", read, allowed)
        if pairs < read or (not count and pairs):
            allowed = f"at least one per context token of the {path} path"
            raise InvalidArgument(f"{path}_pairs", pairs, allowed)


def check_windows(totals: BatchTotals) -> None:
    """Refuse totals of sliding windows that no batch has.

    Parameters
    ----------
    totals : BatchTotals
        The totals; those without windows were checked before.

    Raises
    ------
    InvalidArgument
        When a window reads or multiplies more than there is, or less than one token per
        request and one pair per token.
    """
    decoding = totals.decode_requests
    prefilling = totals.requests - decoding
    for window in totals.windows:
        if (
            decoding <= window.decode_context_tokens <= totals.decode_context_tokens
            and window.decode_context_tokens <= window.decode_pairs <= totals.decode_pairs
            and prefilling <= window.prefill_context_tokens <= totals.prefill_context_tokens
            and window.prefill_context_tokens <= window.prefill_pairs <= totals.prefill_pairs
        ):
            continue
        for path, count, read, pairs, context, most in (
            (
                "decode",
                decoding,
                window.decode_context_tokens,
                window.decode_pairs,
                totals.decode_context_tokens,
                totals.decode_pairs,
            ),
            (
                "prefill",
                prefilling,
                window.prefill_context_tokens,
                window.prefill_pairs,
                totals.prefill_context_tokens,
                totals.prefill_pairs,
            ),
        ):
            if not count <= read <= context:
                name = window_column(window.window_tokens, f"{path}_context_tokens")
                raise InvalidArgument(name, read, f"{count} to {context}, those of the batch")
            if not read <= pairs <= most:
                name = window_column(window.window_tokens, f"{path}_pairs")
                raise InvalidArgument(name, pairs, f"{read} to {most}, those of the batch")
