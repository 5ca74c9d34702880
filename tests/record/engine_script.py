"""Run in the engine's own Python: one small workload in one of the engine's modes.

Usage: ``engine_script.py MODE MODEL_FOLDER``. Only token ids go in; weights are random. It prints
one line, ``requests: {...}``, with what the requests asked for and got, so that the recording can
be held against it.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

VOCABULARY = 4000
MODES: dict[str, dict[str, Any]] = {
    "sync": {},
    "async": {"async_scheduling": True},
    "tp2": {"tensor_parallel_size": 2},
    "tp2-async": {"tensor_parallel_size": 2, "async_scheduling": True},
    "pp2": {"pipeline_parallel_size": 2, "enforce_eager": False},
    "spec": {
        "speculative_config": {
            "method": "ngram",
            "num_speculative_tokens": 3,
            "prompt_lookup_max": 4,
            "prompt_lookup_min": 2,
        }
    },
    "preempt": {"num_gpu_blocks_override": 10, "max_model_len": 512, "max_num_seqs": 8},
    "preempt-async": {
        "num_gpu_blocks_override": 10,
        "max_model_len": 512,
        "max_num_seqs": 8,
        "async_scheduling": True,
    },
    "abort": {},
    "abort-async": {"async_scheduling": True},
    "structured": {"skip_tokenizer_init": False},
    "structured-async": {"skip_tokenizer_init": False, "async_scheduling": True},
    "kill": {"async_scheduling": True},
    "graphs": {"enforce_eager": False},
    "in-process": {},
}


def force_async() -> None:
    """Keep asynchronous scheduling on where the CPU platform would switch it off."""
    from vllm.platforms.cpu import CpuPlatform

    checked = CpuPlatform.check_and_update_config.__func__

    def check(cls: Any, config: Any) -> None:
        checked(cls, config)
        config.scheduler_config.async_scheduling = True

    CpuPlatform.check_and_update_config = classmethod(check)


def engine_of(mode: str, folder: str) -> Any:
    """Return a vLLM engine in a mode."""
    from vllm import LLM

    if MODES[mode].get("async_scheduling"):
        force_async()

    settings: dict[str, Any] = {
        "model": folder,
        "load_format": "dummy",
        "skip_tokenizer_init": True,
        "dtype": "float32",
        "enforce_eager": True,
        "max_model_len": 1024,
        "max_num_seqs": 16,
        "max_num_batched_tokens": 256,
        "enable_prefix_caching": True,
        "async_scheduling": False,
        "disable_log_stats": False,
        "enable_logging_iteration_details": True,
        "seed": 1,
    }
    return LLM(**{**settings, **MODES[mode]}).llm_engine


def make_tokenizer(folder: str) -> None:
    """Put a tokenizer of single letters and filling words beside the model."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = ["<unk>", "<s>", "</s>", *(chr(97 + n) for n in range(26)), " "]
    words += [f"w{n}" for n in range(VOCABULARY - len(words))]
    made = Tokenizer(models.WordLevel({w: n for n, w in enumerate(words)}, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    PreTrainedTokenizerFast(
        tokenizer_object=made, unk_token="<unk>", bos_token="<s>", eos_token="</s>"
    ).save_pretrained(folder)


def make_tokenizer_in(python: str, folder: str) -> None:
    """Make the tokenizer with another Python, which has the libraries."""
    words = [python, "-c", "import sys, engine_script as s; s.make_tokenizer(sys.argv[1])", folder]
    subprocess.run(words, cwd=Path(__file__).resolve().parent, check=True, timeout=300)


def tokens(rng: random.Random, count: int) -> list[int]:
    """Return random token ids; within a small set, so that n-grams come again."""
    return [rng.randrange(10, VOCABULARY) for _ in range(count)]


def workload(mode: str) -> list[tuple[int, list[int], int]]:
    """Return requests: steps before it is sent, prompt, output tokens."""
    rng = random.Random(7)
    shared = tokens(rng, 300)
    requests = []
    for number in range(8):
        prompt = tokens(rng, rng.randrange(20, 400))
        if number % 3 == 2:
            prompt = shared[: rng.randrange(200, 300)] + tokens(rng, 40)
        if mode == "spec":
            prompt = tokens(rng, 6) * 12
        if mode.startswith("preempt"):
            # A page of 128 tokens each, and a second one soon: sixteen where there are ten.
            prompt = tokens(rng, 110)
        requests.append((number // 2 * 3, prompt, rng.randrange(20, 40)))
    return requests


def main(mode: str, folder: str) -> int:
    """Run the workload and say what became of it."""
    from vllm import SamplingParams

    structured = mode.startswith("structured")
    if mode == "in-process":
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    if structured:
        make_tokenizer(folder)
    engine = engine_of(mode, folder)
    waiting = workload(mode)
    got: dict[str, dict[str, Any]] = {}
    step = 0
    while waiting or engine.has_unfinished_requests():
        while waiting and waiting[0][0] <= step:
            _, prompt, output = waiting.pop(0)
            name = f"r{len(got)}"
            extra = {}
            if structured and len(got) % 2 == 0:
                from vllm.sampling_params import StructuredOutputsParams

                extra["structured_outputs"] = StructuredOutputsParams(regex="[a-z ]{200}")
            params = SamplingParams(
                max_tokens=output, ignore_eos=True, temperature=0.0, detokenize=False, **extra
            )
            got[name] = {"prompt": len(prompt), "wanted": output, "output": 0, "aborted": False}
            engine.add_request(name, {"prompt_token_ids": prompt}, params)
        for out in engine.step():
            got[out.request_id]["output"] = len(out.outputs[0].token_ids)
        step += 1
        if mode.startswith("abort") and step in (6, 11, 17):
            live = [n for n, r in got.items() if not r["aborted"] and r["output"] < r["wanted"]]
            for name in live[:2]:
                got[name]["aborted"] = True
            engine.abort_request(live[:2])
        if mode == "kill" and step == 30:
            print("killed:", time.monotonic_ns(), flush=True)
            kill_engines()
            return 0
        if mode.startswith("preempt") and step == 400:
            break
    time.sleep(0.5)
    print("requests:", json.dumps(got), flush=True)
    return 0


def kill_engines() -> None:
    """Kill every child of this process outright."""
    children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children")
    for pid in children.read_text(encoding="ascii").split():
        os.kill(int(pid), signal.SIGKILL)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1], sys.argv[2]))
