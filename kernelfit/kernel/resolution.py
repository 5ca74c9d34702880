"""From what a pool asks for to what will run, with every override and its reason.

The rules are vLLM's. Those that are lists, and those that changed between releases, are
data in ``rules``; what cannot be priced is data in ``refusals``.
"""

from __future__ import annotations

from kernelfit.kernel.asked import Asked, OverrideLog
from kernelfit.kernel.chip import Chip
from kernelfit.kernel.graphs import GRAPH_MODES, capture_sizes, default_capture_sizes, graph_mode
from kernelfit.kernel.model import Model
from kernelfit.kernel.pages import block_size, cache_dtype, state_dtype, state_mode
from kernelfit.kernel.parallel import (
    all_reduce,
    exchange,
    expert_width,
    imbalance,
    placement,
    redundant_experts,
    sequence_parallel,
)
from kernelfit.kernel.pool import Pool
from kernelfit.kernel.refusals import Choice, accepted, note_assumptions, refuse
from kernelfit.kernel.resolved import Resolution
from kernelfit.kernel.rules import CUSTOM_ALL_REDUCE_WIDTHS, parse_version, rules_for
from kernelfit.kernel.scheduling import (
    async_scheduling,
    batch_limits,
    cascade,
    decode_query_tokens,
    memory_share,
)
from kernelfit.kernel.widths import check_widths

__all__ = [
    "CUSTOM_ALL_REDUCE_WIDTHS",
    "GRAPH_MODES",
    "Choice",
    "accepted",
    "default_capture_sizes",
    "parse_version",
    "resolve",
]


def resolve(pool: Pool, model: Model, chip: Chip, engine_version: str) -> Resolution:
    """Decide what will run.

    Parameters
    ----------
    pool : Pool
        What the deployment asks for.
    model : Model
        The model that it serves.
    chip : Chip
        The GPU type it runs on.
    engine_version : str
        The engine's version; it decides defaults. Where it is unstated, or outside the
        releases whose rules were read, the nearest rules are taken and an override says so.

    Returns
    -------
    Resolution
        What will run, with overrides.

    Raises
    ------
    Refusal
        When the pool cannot be priced truthfully.
    InvalidArgument
        When a value is outside its range, when settings contradict each other, or when a
        width does not divide the model.
    """
    log = OverrideLog()
    version, outside = rules_for(engine_version)
    asked = Asked(pool, model, chip, version)
    if outside:
        taken = ".".join(str(number) for number in version)
        log.override("engine_version", engine_version or None, taken, f"assumed: {outside}")
    refuse(asked)
    check_widths(asked)
    note_assumptions(asked, log)
    spanned, per_node = placement(asked, log)
    width = expert_width(asked, log)
    backend = exchange(asked, log)
    query = decode_query_tokens(asked, log)
    mode = graph_mode(asked, backend, log)
    limits = batch_limits(asked, backend, log)
    cache, state = cache_dtype(asked, log), state_dtype(asked, log)
    return Resolution(
        tensor_parallel_width=pool.tp,
        data_parallel_width=pool.dp,
        expert_parallel_width=width,
        all_reduce_backend=all_reduce(asked, per_node, log),
        async_scheduling=async_scheduling(asked, engine_version, log),
        cascade_attention=cascade(asked, log),
        sequence_parallel_moe=sequence_parallel(asked, backend),
        graph_mode=mode,
        capture_sizes=capture_sizes(asked, mode, limits, query, log),
        block_size=block_size(asked, cache, state, query, log),
        cache_dtype=cache,
        max_num_seqs=limits[0],
        max_num_batched_tokens=limits[1],
        gpu_memory_utilization=memory_share(asked, log),
        nodes_spanned=spanned,
        ranks_per_node=per_node,
        all2all_backend=backend,
        routing_imbalance=imbalance(asked, width, log),
        decode_query_tokens=query,
        launches_run_ahead=not asked.on_cpu,
        state_dtype=state,
        mamba_cache_mode=state_mode(asked, log),
        redundant_experts=redundant_experts(asked, width, log),
        overrides=tuple(log.overrides),
    )
