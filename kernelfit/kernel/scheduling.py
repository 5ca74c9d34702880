"""How steps are put together: limits, and what the scheduler does while one runs.

After vLLM's ``config/vllm.py``, ``config/scheduler.py``, ``engine/arg_utils.py`` and
``platforms/cpu.py``.
"""

from __future__ import annotations

from kernelfit.kernel.asked import Asked, OverrideLog
from kernelfit.kernel.errors import InvalidArgument, Refusal
from kernelfit.kernel.rules import (
    ASYNC_DEFAULT,
    ASYNC_EXECUTORS,
    ASYNC_OFF_ON_CPU,
    ASYNC_SPECULATION,
    BATCH_LIMITS,
    CASCADE_DEFAULT,
    CPU_BATCH_LIMIT,
    CPU_MEMORY_SHARE,
    MEMORY_SHARE,
    SHORT_EXCHANGES,
    SHORT_TOKENS,
    rule,
)


def async_scheduling(asked: Asked, engine_version: str, log: OverrideLog) -> bool:
    """Decide whether the next step is scheduled while one runs.

    Parameters
    ----------
    asked : Asked
        The pool and what it runs on.
    engine_version : str
        The engine's version, for the reason.
    log : OverrideLog
        Takes the overrides.

    Returns
    -------
    bool
        True when it is.

    Raises
    ------
    Refusal
        When it is asked for and the engine would not start with it.

    Notes
    -----
    The engine switches it off by itself, but refuses to start where it was asked for,
    with speculative methods and executors that it does not go with. Pipelines and
    micro-batches, which are the other cases, are refused before. A CPU switches it off
    even where it was asked for.
    """
    wanted, field = asked.pool.async_scheduling, "async_scheduling"
    if wanted is False:
        return False
    against = _against_async(asked)
    if wanted and against:
        raise Refusal(field, True, f"the engine does not start: {against}; false is accepted")
    if asked.on_cpu and rule(ASYNC_OFF_ON_CPU, asked.version):
        if wanted:
            log.override(field, True, False, "the CPU back end switches it off")
        else:
            log.default(field, False, "off by default on the CPU back end")
        return False
    if wanted:
        return True
    on = rule(ASYNC_DEFAULT, asked.version)
    if on and against:
        log.default(field, False, against)
        return False
    log.default(field, on, f"default of engine version {engine_version or 'unstated'}")
    return on


def _against_async(asked: Asked) -> str:
    """Why a pool's steps cannot be scheduled ahead; empty where they can."""
    method = asked.pool.speculative_method
    if method is not None and method not in rule(ASYNC_SPECULATION, asked.version):
        return f"steps cannot be scheduled ahead with the speculative method {method}"
    executor = asked.pool.distributed_executor_backend
    executors = rule(ASYNC_EXECUTORS, asked.version)
    if executor is not None and executor not in executors:
        return f"the executor {executor} does not take steps ahead; {', '.join(executors)} do"
    return ""


def cascade(asked: Asked, log: OverrideLog) -> bool:
    """Decide whether shared prefixes are read once.

    Parameters
    ----------
    asked : Asked
        The pool.
    log : OverrideLog
        Takes the overrides.

    Returns
    -------
    bool
        False: the counts of a batch do not say what its requests share.
    """
    wanted, field = asked.pool.disable_cascade_attn, "disable_cascade_attn"
    reason = "a batch's counts do not say which prefixes are shared, so none is priced as read once"
    if wanted is False:
        log.override(field, False, True, reason)
    elif wanted is None and rule(CASCADE_DEFAULT, asked.version):
        log.default(field, True, f"{reason}; this release may by default")
    return False


def batch_limits(asked: Asked, exchange: str, log: OverrideLog) -> tuple[int, int]:
    """Return the most requests and the most tokens of a step.

    Parameters
    ----------
    asked : Asked
        The pool and what it runs on.
    exchange : str
        How data-parallel ranks exchange rows.
    log : OverrideLog
        Takes the overrides.

    Returns
    -------
    (int, int)
        Requests, and tokens.

    Raises
    ------
    InvalidArgument
        When a limit is below 1, or there may be more requests than tokens.
    """
    pool = asked.pool
    for name in ("max_num_seqs", "max_num_batched_tokens", "max_model_len"):
        stated = getattr(pool, name)
        if stated is not None and stated < 1:
            raise InvalidArgument(name, stated, ">= 1")
    seqs, tokens = _default_limits(asked)
    why = why_tokens = "the API server's default for this memory size"
    if pool.enable_expert_parallel and exchange in rule(SHORT_EXCHANGES, asked.version):
        tokens, why_tokens = SHORT_TOKENS, f"the buffers of {exchange} are sized for it"
    seqs = seqs if pool.max_num_seqs is None else pool.max_num_seqs
    if pool.max_num_batched_tokens is not None:
        tokens = pool.max_num_batched_tokens
    elif pool.max_model_len is not None and seqs * pool.max_model_len < tokens:
        tokens = seqs * pool.max_model_len
        why_tokens = "no more than max_num_seqs requests of max_model_len hold"
    if seqs > tokens:
        if pool.max_num_seqs is not None:
            least = f">= max_num_seqs = {seqs}"
            raise InvalidArgument("max_num_batched_tokens", tokens, least)
        seqs, why = tokens, "no more than max_num_batched_tokens"
    if pool.max_num_seqs is None:
        log.default("max_num_seqs", seqs, why)
    if pool.max_num_batched_tokens is None:
        log.default("max_num_batched_tokens", tokens, why_tokens)
    return seqs, tokens


def _default_limits(asked: Asked) -> tuple[int, int]:
    if asked.on_cpu:
        limit = CPU_BATCH_LIMIT
        return limit.requests * asked.pool.tp, limit.tokens * asked.pool.tp
    name = asked.chip.name.lower()
    for limit in rule(BATCH_LIMITS, asked.version):
        spared = bool(limit.spared) and limit.spared in name
        if asked.chip.hbm_bytes >= limit.memory_bytes and not spared:
            return limit.requests, limit.tokens
    raise InvalidArgument("hbm_bytes", asked.chip.hbm_bytes, ">= 0 bytes")


def memory_share(asked: Asked, log: OverrideLog) -> float:
    """Return the share of the memory that the engine may use.

    Parameters
    ----------
    asked : Asked
        The pool and what it runs on.
    log : OverrideLog
        Takes the overrides.

    Returns
    -------
    float
        Above 0, at most 1 [1].

    Raises
    ------
    InvalidArgument
        When it is outside that.
    """
    wanted, field = asked.pool.gpu_memory_utilization, "gpu_memory_utilization"
    if wanted is None:
        share = CPU_MEMORY_SHARE if asked.on_cpu else rule(MEMORY_SHARE, asked.version)
        log.default(field, share, "the engine's default")
        return share
    if not 0.0 < wanted <= 1.0:
        raise InvalidArgument(field, wanted, "above 0, at most 1")
    return wanted


def decode_query_tokens(asked: Asked, log: OverrideLog) -> int:
    """Return the tokens that a decoding request schedules.

    Parameters
    ----------
    asked : Asked
        The pool.
    log : OverrideLog
        Takes the overrides.

    Returns
    -------
    int
        1, and those proposed to it [tokens].

    Raises
    ------
    InvalidArgument
        When tokens are proposed without a method, or by a method that is not told how
        many.
    """
    pool, field = asked.pool, "num_speculative_tokens"
    proposed = pool.num_speculative_tokens
    if proposed is not None and proposed < 1:
        raise InvalidArgument(field, proposed, ">= 1 token")
    if pool.speculative_method is None:
        if proposed is not None:
            raise InvalidArgument(field, proposed, "nothing without speculative_method")
        return 1
    if proposed is None:
        allowed = f">= 1 token with speculative_method={pool.speculative_method}"
        raise InvalidArgument(field, None, allowed)
    log.override(
        "speculative_method",
        pool.speculative_method,
        f"{proposed} tokens per request",
        "the host's search for earlier tokens is not charged; its proposals are",
    )
    return 1 + proposed
