"""From what a pool asks for to what will run, with every override and its reason.

The rules are transcribed from vLLM's configuration code (``vllm/config/vllm.py`` and
``vllm/engine/arg_utils.py``, 0.32.0), kept as data where they are lists.
"""

from __future__ import annotations

from kernelfit.kernel.chip import Chip
from kernelfit.kernel.errors import InvalidArgument, Refusal
from kernelfit.kernel.model import Model
from kernelfit.kernel.pool import Pool
from kernelfit.kernel.resolved import Override, Resolution

CUSTOM_ALL_REDUCE_WIDTHS: tuple[int, ...] = (2, 4, 6, 8, 16)
"""Tensor-parallel widths that vLLM's custom all-reduce supports."""

GRAPH_MODES: tuple[str, ...] = (
    "NONE",
    "PIECEWISE",
    "FULL",
    "FULL_DECODE_ONLY",
    "FULL_AND_PIECEWISE",
)
ASYNC_DEFAULT_SINCE = (0, 14)
"""First vLLM version with asynchronous scheduling on by default."""

_GIB = 1 << 30


def parse_version(text: str) -> tuple[int, ...]:
    """Return the leading numbers of a version.

    Parameters
    ----------
    text : str
        For example ``0.32.0`` or ``0.20.1.dev3``.

    Returns
    -------
    tuple of int
        For example ``(0, 32, 0)``; empty where the text starts with no number.
    """
    numbers: list[int] = []
    for part in text.lstrip("v").split("."):
        if not part.isdigit():
            break
        numbers.append(int(part))
    return tuple(numbers)


def default_capture_sizes(largest: int) -> tuple[int, ...]:
    """Return the batch sizes that vLLM captures by default.

    Parameters
    ----------
    largest : int
        Largest captured size [tokens].

    Returns
    -------
    tuple of int
        1, 2, 4, then every 8 below 256, then every 16 [tokens].
    """
    sizes = [1, 2, 4, *range(8, 256, 8), *range(256, largest + 1, 16)]
    return tuple(s for s in sizes if s <= largest)


class _Log:
    """Collects overrides while a pool is resolved."""

    def __init__(self) -> None:
        self.overrides: list[Override] = []

    def override(self, field: str, requested: object, resolved: object, reason: str) -> None:
        asked = "unstated" if requested is None else str(requested)
        self.overrides.append(Override(field, asked, str(resolved), reason))

    def default(self, field: str, resolved: object, reason: str) -> None:
        self.override(field, None, resolved, f"assumed: {reason}")


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
        The engine's version; it decides defaults.

    Returns
    -------
    Resolution
        What will run, with overrides.

    Raises
    ------
    Refusal
        When the pool cannot be priced truthfully.
    InvalidArgument
        When a width is not positive or does not divide the model.
    """
    log = _Log()
    _refuse(pool, model, chip)
    _check_widths(pool, model, chip)
    graph_mode = _graph_mode(pool, chip, log)
    seqs, tokens = _batch_limits(pool, chip, log)
    return Resolution(
        tensor_parallel_width=pool.tp,
        data_parallel_width=pool.dp,
        expert_parallel_width=_expert_width(pool, model, log),
        all_reduce_backend=_all_reduce(pool, chip, log),
        async_scheduling=_async(pool, chip, engine_version, log),
        cascade_attention=_cascade(pool, log),
        sequence_parallel_moe=False,
        graph_mode=graph_mode,
        capture_sizes=_capture_sizes(pool, graph_mode, seqs, log),
        block_size=_block_size(pool, chip, log),
        cache_dtype=_cache_dtype(pool, model, log),
        max_num_seqs=seqs,
        max_num_batched_tokens=tokens,
        gpu_memory_utilization=_memory_share(pool, log),
        overrides=tuple(log.overrides),
    )


def _refuse(pool: Pool, model: Model, chip: Chip) -> None:
    if pool.pp > 1:
        raise Refusal(
            "pp", pool.pp, "micro-batches of pipeline stages are not modelled; pp=1 is accepted"
        )
    if pool.nodes > 1:
        raise Refusal(
            "nodes", pool.nodes, "no law for collectives across nodes yet; nodes=1 is accepted"
        )
    has_experts = any(kind.experts is not None for kind in model.layers)
    if pool.dp > 1 and has_experts:
        raise Refusal(
            "dp",
            pool.dp,
            "data-parallel ranks of a mixture-of-experts model run in lock-step and exchange "
            "tokens all-to-all, which has no law yet; dp=1 is accepted",
        )
    if pool.speculative_method is not None:
        raise Refusal(
            "speculative_method",
            pool.speculative_method,
            "the draft model's own time has no law yet; no speculation is accepted",
        )
    for kind in model.layers:
        if kind.attention.kind != "full":
            raise Refusal(
                "attention.kind",
                kind.attention.kind,
                f"layers '{kind.name}' of {model.name} have no law yet; full attention "
                "(MHA or GQA) is accepted",
            )
    if pool.tp > 1 and chip.nvlink_bytes_per_s <= 0:
        raise Refusal("tp", pool.tp, f"{chip.name} states no link between GPUs; tp=1 is accepted")


def _check_widths(pool: Pool, model: Model, chip: Chip) -> None:
    for field, value in (("tp", pool.tp), ("pp", pool.pp), ("dp", pool.dp), ("nodes", pool.nodes)):
        if value < 1:
            raise InvalidArgument(field, value, ">= 1")
    if pool.tp > chip.gpus_per_node:
        raise InvalidArgument("tp", pool.tp, f"1 to {chip.gpus_per_node} GPUs in one node")
    for kind in model.layers:
        a = kind.attention
        if a.heads % pool.tp:
            raise InvalidArgument("tp", pool.tp, f"a divisor of {a.heads} query heads")
        if a.kv_heads % pool.tp and pool.tp % a.kv_heads:
            raise InvalidArgument(
                "tp", pool.tp, f"a divisor or a multiple of {a.kv_heads} key-value heads"
            )
        widths = [kind.mlp.intermediate] if kind.mlp is not None else []
        if kind.experts is not None:
            if pool.enable_expert_parallel:
                if kind.experts.experts % (pool.tp * pool.dp):
                    raise InvalidArgument(
                        "tp", pool.tp, f"a divisor of {kind.experts.experts} experts"
                    )
            else:
                widths.append(kind.experts.intermediate)
        for width in widths:
            if width % pool.tp:
                raise InvalidArgument("tp", pool.tp, f"a divisor of the MLP width {width}")


def _expert_width(pool: Pool, model: Model, log: _Log) -> int:
    if not pool.enable_expert_parallel:
        return 1
    if all(kind.experts is None for kind in model.layers):
        log.override("enable_expert_parallel", True, 1, f"{model.name} has no experts to spread")
        return 1
    return pool.tp * pool.dp


def _all_reduce(pool: Pool, chip: Chip, log: _Log) -> str:
    if pool.tp == 1:
        return "none"
    if chip.kind == "cpu":
        if pool.disable_custom_all_reduce is False:
            log.override(
                "disable_custom_all_reduce",
                False,
                "shared_memory",
                "ranks on CPUs reduce through shared memory",
            )
        return "shared_memory"
    if pool.disable_custom_all_reduce:
        return "nccl"
    if pool.tp not in CUSTOM_ALL_REDUCE_WIDTHS:
        widths = ", ".join(str(w) for w in CUSTOM_ALL_REDUCE_WIDTHS)
        log.override(
            "all_reduce_backend",
            "custom",
            "nccl",
            f"the custom all-reduce needs a tensor-parallel width in {widths}",
        )
        return "nccl"
    return "custom"


def _async(pool: Pool, chip: Chip, engine_version: str, log: _Log) -> bool:
    # Its other disqualifiers (speculation, pipelines) are refused above.
    asked = pool.async_scheduling
    if asked is False:
        return False
    if asked is None and chip.kind == "cpu":
        log.default("async_scheduling", False, "off by default on the CPU back end")
        return False
    if asked is None:
        on = parse_version(engine_version)[:2] >= ASYNC_DEFAULT_SINCE
        log.default(
            "async_scheduling", on, f"default of engine version {engine_version or 'unstated'}"
        )
        return on
    return True


def _cascade(pool: Pool, log: _Log) -> bool:
    if pool.disable_cascade_attn is False:
        log.override(
            "disable_cascade_attn",
            False,
            True,
            "a batch's counts do not say which prefixes are shared, so none is priced as read once",
        )
    return False


def _graph_mode(pool: Pool, chip: Chip, log: _Log) -> str:
    asked = pool.cudagraph_mode
    if asked is not None and asked not in GRAPH_MODES:
        raise InvalidArgument("cudagraph_mode", asked, ", ".join(GRAPH_MODES))
    if chip.kind == "cpu":
        if asked not in (None, "NONE"):
            log.override("cudagraph_mode", asked, "NONE", "a CPU has no graphs to replay")
        return "NONE"
    if pool.enforce_eager:
        if asked not in (None, "NONE"):
            log.override("cudagraph_mode", asked, "NONE", "enforce_eager switches graphs off")
        return "NONE"
    if asked is None:
        log.default("cudagraph_mode", "FULL_AND_PIECEWISE", "the engine's default")
        return "FULL_AND_PIECEWISE"
    return asked


def _capture_sizes(pool: Pool, graph_mode: str, seqs: int, log: _Log) -> tuple[int, ...]:
    if graph_mode == "NONE":
        return ()
    if pool.cudagraph_capture_sizes:
        return tuple(sorted(pool.cudagraph_capture_sizes))
    largest = min(seqs * 2, 512)
    log.default(
        "cudagraph_capture_sizes",
        f"default list up to {largest}",
        "min(2 x max_num_seqs, 512), 1, 2, 4, every 8, then every 16",
    )
    return default_capture_sizes(largest)


def _block_size(pool: Pool, chip: Chip, log: _Log) -> int:
    if pool.block_size is not None:
        if pool.block_size < 1:
            raise InvalidArgument("block_size", pool.block_size, ">= 1 token")
        return pool.block_size
    size = 128 if chip.kind == "cpu" else 16
    log.default("block_size", size, "the engine's default on this platform")
    return size


def _cache_dtype(pool: Pool, model: Model, log: _Log) -> str:
    names = {"fp8_e4m3": "fp8", "fp8_e5m2": "fp8", "bfloat16": "bf16", "float16": "fp16"}
    if pool.cache_dtype in (None, "auto"):
        if pool.cache_dtype is None:
            log.default("cache_dtype", model.dtype, "the KV cache follows the model's data type")
        return model.dtype
    asked = str(pool.cache_dtype)
    resolved = names.get(asked, asked)
    if resolved not in ("fp8", "bf16", "fp16", "fp32"):
        raise Refusal(
            "cache_dtype", asked, "its page layout has no law; auto, bf16, fp16 or fp8 is accepted"
        )
    return resolved


def _batch_limits(pool: Pool, chip: Chip, log: _Log) -> tuple[int, int]:
    if chip.kind == "cpu":
        seqs, tokens = 128 * pool.tp, 2048 * pool.tp
    elif chip.hbm_bytes >= 160 * _GIB:
        seqs, tokens = 1024, 16384
    elif chip.hbm_bytes >= 70 * _GIB and "a100" not in chip.name.lower():
        seqs, tokens = 1024, 8192
    else:
        seqs, tokens = 256, 2048
    why = "the API server's default for this memory size"
    if pool.max_num_seqs is None:
        log.default("max_num_seqs", seqs, why)
    else:
        seqs = pool.max_num_seqs
    if pool.max_num_batched_tokens is None:
        log.default("max_num_batched_tokens", tokens, why)
    else:
        tokens = pool.max_num_batched_tokens
    for field, value in (("max_num_seqs", seqs), ("max_num_batched_tokens", tokens)):
        if value < 1:
            raise InvalidArgument(field, value, ">= 1")
    return seqs, tokens


def _memory_share(pool: Pool, log: _Log) -> float:
    if pool.gpu_memory_utilization is None:
        log.default("gpu_memory_utilization", 0.9, "the engine's default")
        return 0.9
    if not 0.0 < pool.gpu_memory_utilization <= 1.0:
        raise InvalidArgument(
            "gpu_memory_utilization", pool.gpu_memory_utilization, "above 0, at most 1"
        )
    return pool.gpu_memory_utilization
