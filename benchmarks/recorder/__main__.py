"""What recording costs: microseconds per step, and the engine's speed with and without it.

Run with the Python of an environment that holds vLLM (its CPU build is enough), from the
repository's root::

    python -m benchmarks.recorder [--pairs 5] [--requests 8 64 256] [--json FILE]

One real vLLM runs in this process: the scheduler, the executor, the worker and the recorder's
writer share one interpreter, which is harder on the engine than its usual processes are. A round
decodes a batch of equal requests to its end, once with the hooks installed and once with the
engine's own methods in their place, in alternating order. Rounds of a pair follow each other, so
that a change of the machine's speed meets both.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

VOCABULARY = 4000
PROMPT_TOKENS = 32
MODEL = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "head_dim": 64,
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-6,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "torch_dtype": "float32",
    "vocab_size": VOCABULARY,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
HOOKED = (
    ("vllm.v1.core.sched.scheduler", "Scheduler", ("schedule", "update_from_output")),
    ("vllm.v1.executor.uniproc_executor", "UniProcExecutor", ("execute_model",)),
    ("vllm.v1.worker.gpu_worker", "Worker", ("execute_model", "sample_tokens")),
    ("vllm.v1.engine.core", "EngineCore", ("step",)),
)


@dataclass(frozen=True)
class Round:
    """One batch, decoded to its end."""

    steps: int
    seconds: float
    step_us: tuple[float, ...]


class Hooks:
    """The engine's own methods and the recorder's, to be put in each other's place."""

    def __init__(self) -> None:
        import importlib

        self.places = []
        for module, name, methods in HOOKED:
            owner = getattr(importlib.import_module(module), name)
            self.places += [(owner, method, vars(owner)[method]) for method in methods]
        self.hooked: list[Any] = []

    def learn(self) -> None:
        """Remember what the plug-in put there."""
        self.hooked = [vars(owner)[method] for owner, method, _ in self.places]
        for (_, method, own), put in zip(self.places, self.hooked, strict=True):
            assert put is not own, f"{method} has no hook"

    def switch(self, core: Any, *, on: bool) -> None:
        """Put the hooks in place, or the engine's own methods."""
        for (owner, method, own), put in zip(self.places, self.hooked, strict=True):
            setattr(owner, method, put if on else own)
        core.step_fn = core.step


def decode(engine: Any, name: str, requests: int, tokens: int) -> Round:
    """Decode a batch of requests to its end; only steps after the prompts are timed."""
    from vllm import SamplingParams

    rng = random.Random(requests)
    params = SamplingParams(max_tokens=tokens, ignore_eos=True, temperature=0.0, detokenize=False)
    for number in range(requests):
        prompt = [rng.randrange(10, VOCABULARY) for _ in range(PROMPT_TOKENS)]
        engine.add_request(f"{name}-{number}", {"prompt_token_ids": prompt}, params)
    emitted = 0
    while emitted < requests:  # every prompt is computed
        emitted = sum(1 for _ in engine.step())
    took = []
    begin = time.perf_counter()
    last = begin
    while engine.has_unfinished_requests():
        engine.step()
        now = time.perf_counter()
        took.append((now - last) * 1e6)
        last = now
    return Round(len(took), last - begin, tuple(took))


def rows_since(folder: Path, seen: dict[str, int]) -> Iterator[dict[str, Any]]:
    """Yield the rows that were written since the last call."""
    for path in sorted(folder.glob("*.jsonl")):
        lines = path.read_text(encoding="utf-8").splitlines()
        fresh = lines[seen.get(path.name, 0) :]
        seen[path.name] = len(lines)
        yield from map(json.loads, fresh)


def quantile(values: list[float], share: float) -> float:
    """Return a value that a share of the others does not exceed."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def measure(
    engine: Any, hooks: Hooks, recorder: Any, folder: Path, requests: int, options: Any
) -> dict[str, Any]:
    """Return the figures at one batch size."""
    core = engine.engine_core.engine_core
    seen: dict[str, int] = {}
    hooks.switch(core, on=True)
    decode(engine, f"warm-{requests}", requests, 12)
    time.sleep(0.3)
    list(rows_since(folder, seen))
    writers = [recorder.writer(role) for role in ("engine", "worker")]
    ratios, with_us, without_us = [], [], []
    hooked_steps = 0
    busy_ns = sum(w.busy_ns for w in writers)
    for pair in range(options.pairs):
        rounds: dict[bool, Round] = {}
        for on in (True, False) if pair % 2 else (False, True):
            hooks.switch(core, on=on)
            rounds[on] = decode(engine, f"{requests}-{pair}-{on}", requests, options.tokens)
            time.sleep(0.25)  # what is queued is written within its own round
        hooked_steps += rounds[True].steps
        ratios.append(rounds[False].seconds / rounds[True].seconds)
        with_us.append(statistics.median(rounds[True].step_us))
        without_us.append(statistics.median(rounds[False].step_us))
    writer_us = (sum(w.busy_ns for w in writers) - busy_ns) / hooked_steps / 1e3
    rows = list(rows_since(folder, seen))
    cost = {
        kind: [r["cost_ns"] / 1e3 for r in rows if r["t"] == kind and r["n"] == requests]
        for kind in ("step", "worker")
    }
    return {
        "requests": requests,
        "pairs": options.pairs,
        "steps": hooked_steps,
        "step_us_without": statistics.median(without_us),
        "step_us_with": statistics.median(with_us),
        "engine_hooks_us": statistics.median(cost["step"]),
        "engine_hooks_p95_us": quantile(cost["step"], 0.95),
        "worker_hooks_us": statistics.median(cost["worker"]),
        "writer_us": writer_us,
        "throughput_ratios": ratios,
        "throughput_ratio": statistics.median(ratios),
    }


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=120, help="output tokens of every request")
    parser.add_argument("--requests", type=int, nargs="+", default=[8, 64, 256])
    parser.add_argument("--json", type=Path, help="also write the figures there")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        model, folder = Path(place) / "model", Path(place) / "run"
        model.mkdir()
        (model / "config.json").write_text(json.dumps(MODEL), encoding="utf-8")
        os.environ["KERNELFIT_TRACE_DIR"] = str(folder)
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
        os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "2")
        os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
        import vllm

        hooks = Hooks()
        engine = vllm.LLM(
            model=str(model),
            load_format="dummy",
            skip_tokenizer_init=True,
            dtype="float32",
            enforce_eager=True,
            max_model_len=1024,
            max_num_seqs=max(options.requests),
            max_num_batched_tokens=8192,
            async_scheduling=False,
            seed=1,
        ).llm_engine
        hooks.learn()
        recorder = vars(vllm)["_kernelfit_recorder"]
        found = [
            measure(engine, hooks, recorder, folder, requests, options)
            for requests in options.requests
        ]
        assert recorder.alive
    show(found)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return 0


def show(found: list[dict[str, Any]]) -> None:
    """Print the figures as a table."""
    print(
        f"{'requests':>8} {'step us':>9} {'engine us':>10} {'p95':>6} {'worker us':>10} "
        f"{'writer us':>10} {'hooks':>7} {'throughput with / without: median (all pairs)'}"
    )
    for row in found:
        share = (row["engine_hooks_us"] + row["worker_hooks_us"]) / row["step_us_without"]
        pairs = " ".join(f"{ratio:.3f}" for ratio in row["throughput_ratios"])
        print(
            f"{row['requests']:>8} {row['step_us_without']:>9.0f} {row['engine_hooks_us']:>10.1f} "
            f"{row['engine_hooks_p95_us']:>6.0f} {row['worker_hooks_us']:>10.1f} "
            f"{row['writer_us']:>10.1f} {share:>7.2%} {row['throughput_ratio']:.4f} ({pairs})"
        )


if __name__ == "__main__":
    raise SystemExit(main())
