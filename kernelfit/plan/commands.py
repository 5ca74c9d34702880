"""A planned run as commands of vLLM's own benchmark."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from kernelfit.documents.workloads import WorkloadRun
from kernelfit.kernel.pool import Pool

_FLAGS: tuple[tuple[str, str], ...] = (
    ("tp", "--tensor-parallel-size"),
    ("pp", "--pipeline-parallel-size"),
    ("dp", "--data-parallel-size"),
    ("max_num_seqs", "--max-num-seqs"),
    ("max_num_batched_tokens", "--max-num-batched-tokens"),
    ("block_size", "--block-size"),
    ("max_model_len", "--max-model-len"),
    ("cache_dtype", "--kv-cache-dtype"),
    ("gpu_memory_utilization", "--gpu-memory-utilization"),
    ("quantization", "--quantization"),
    ("all2all_backend", "--all2all-backend"),
    ("distributed_executor_backend", "--distributed-executor-backend"),
)
_SWITCHES: tuple[tuple[str, str, str], ...] = (
    ("enable_expert_parallel", "--enable-expert-parallel", ""),
    ("enforce_eager", "--enforce-eager", ""),
    ("async_scheduling", "--async-scheduling", "--no-async-scheduling"),
    ("disable_custom_all_reduce", "--disable-custom-all-reduce", ""),
)


def engine_flags(pool: Pool) -> tuple[str, ...]:
    """Return a pool's settings as flags of vLLM.

    Parameters
    ----------
    pool : Pool
        The pool.

    Returns
    -------
    tuple of str
        What it states and vLLM has a flag for; widths of 1 are left out.
    """
    words: list[str] = []
    for name, flag in _FLAGS:
        value = getattr(pool, name)
        if value is not None and (name not in ("tp", "pp", "dp") or value > 1):
            words += [flag, str(value)]
    for name, on, off in _SWITCHES:
        value = getattr(pool, name)
        word = on if value else off if value is False else ""
        if word:
            words.append(word)
    return tuple(words)


def bench_commands(run: WorkloadRun) -> Iterator[str]:
    """Return commands that make an engine run the same steps.

    Parameters
    ----------
    run : WorkloadRun
        The run.

    Yields
    ------
    str
        One ``vllm bench latency`` per episode, with the recorder switched on. Each starts an
        engine of its own and warms it up once; the prompts of an episode that come one by
        one are as many iterations of a batch of one.
    """
    for episode in run.episodes:
        for group in episode.requests:
            batch, times = group.count, episode.repeat
            if episode.one_by_one:
                batch, times = 1, group.count * episode.repeat
            words = [
                "vllm",
                "bench",
                "latency",
                "--model",
                run.model,
                "--load-format",
                "dummy",
                *engine_flags(run.pool),
                "--input-len",
                str(group.prompt_tokens),
                "--output-len",
                str(group.output_tokens),
                "--batch-size",
                str(batch),
                "--num-iters-warmup",
                "1",
                "--num-iters",
                str(times),
            ]
            yield f"KERNELFIT_TRACE_DIR=traces/{shlex.quote(run.name)} {shlex.join(words)}"
