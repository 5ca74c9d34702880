"""vLLM's lines about stretches of time, by version."""

from __future__ import annotations

from tests.logs.forms import Form
from tests.logs.forms.vllm_steps import DECODE, decode, new

V0 = "INFO 09-10 16:54:45 metrics.py:351] "
V1 = "(APIServer pid=9) INFO 11-30 06:19:12 [loggers.py:271] "
BASE = "Avg prompt throughput: 120.5 tokens/s, Avg generation throughput: 810.0 tokens/s, Running: 20 reqs, "
SPEC = (
    "SpecDecoding metrics: Mean acceptance length: 2.50, Accepted throughput: 30.00 tokens/s, "
    "Drafted throughput: 40.00 tokens/s, Accepted: 300 tokens, Drafted: 400 tokens, "
    "Per-position acceptance rate: 0.900, 0.600, Avg Draft acceptance rate: 75.0%"
)


def averages(name: str, covers: str, *lines: str, **more: object) -> Form:
    return Form(name, "vllm-log", (covers,), lines, recognised=len(lines), **more)  # type: ignore[arg-type]


def throughput(**more: object) -> dict[str, object]:
    return {
        "kind": "throughput",
        "prompt_tokens_per_s": 120.5,
        "generation_tokens_per_s": 810.0,
        "running_requests": 20,
        **more,
    }


FORMS = (
    averages(
        "stats-0.6", "stats-v0",
        f"{V0}{BASE}Swapped: 1 reqs, Pending: 3 reqs, GPU KV cache usage: 12.5%, CPU KV cache usage: 2.0%.",
        intervals=(throughput(swapped_requests=1, waiting_requests=3, kv_usage=0.125, cpu_kv_usage=0.02, engine=0),),
    ),
    averages(
        "stats-0.4-no-dot", "stats-v0",
        f"{V0}{BASE}Swapped: 0 reqs, Pending: 0 reqs, GPU KV cache usage: 12.5%, CPU KV cache usage: 0.0%",
        intervals=(throughput(swapped_requests=0, waiting_requests=0, cpu_kv_usage=0.0),), awkward=True,
    ),
    averages(
        "cache-0.6", "cache-v0",
        f"{V0}{BASE}Swapped: 0 reqs, Pending: 0 reqs, GPU KV cache usage: 12.5%, CPU KV cache usage: 0.0%.",
        f"{V0}Prefix cache hit rate: GPU: 45.50%, CPU: 0.00%",
        intervals=(throughput(), {"kind": "prefix_cache", "prefix_hit_rate": 0.455, "cpu_prefix_hit_rate": 0.0}),
    ),
    averages(
        "spec-0.6", "spec-v0",
        f"{V0}Speculative metrics: Draft acceptance rate: 0.750, System efficiency: 0.500, Number of speculative "
        "tokens: 4, Number of accepted tokens: 300, Number of draft tokens: 400, Number of emitted tokens: 320.",
        intervals=(
            {
                "kind": "speculation", "acceptance_rate": 0.75, "system_efficiency": 0.5,
                "accepted_tokens": 300, "drafted_tokens": 400, "emitted_tokens": 320,
            },
        ),
    ),
    averages(
        "stats-0.7-v1", "stats-v1",
        f"INFO 02-01 10:00:00 loggers.py:78] {BASE}Waiting: 3 reqs, GPU KV cache usage: 12.5%, Prefix cache hit rate: 40.0%",
        intervals=(throughput(waiting_requests=3, kv_usage=0.125, prefix_hit_rate=0.4, engine=0, engines=1),),
    ),
    averages(
        "stats-0.8", "stats",
        f"{V1}Engine 001: {BASE}Waiting: 3 reqs, GPU KV cache usage: 12.5%, Prefix cache hit rate: 40.0%",
        intervals=(throughput(engine=1, waiting_requests=3),),
    ),
    averages(
        "stats-no-queries-0.32", "stats", f"{V1}Engine 000: {BASE}Waiting: 0 reqs, CPU KV cache usage: 0.0%",
        intervals=(throughput(prefix_hit_rate=None, kv_usage=0.0, cpu_kv_usage=None),), awkward=True,
    ),
    averages(
        "stats-aggregated-0.12", "stats-aggregated",
        f"{V1}8 Engines Aggregated: {BASE}Waiting: 3 reqs, GPU KV cache usage: 12.5%, Prefix cache hit rate: 40.0%",
        intervals=(throughput(engine=None, engines=8),),
    ),
    averages(
        "stats-everything-0.32", "stats-more",
        f"{V1}Engine 000: {BASE}Waiting: 3 reqs, Deferred: 2 reqs, Preemptions: 7, Corrupted: 1 reqs, KV fetch: 3 "
        "pending 1 done, GPU KV cache usage: 12.5%, Prefix cache hit rate: 40.0%, External prefix cache hit rate: "
        "20.0%, MM cache hit rate: 10.0%",
        intervals=(
            throughput(
                deferred_requests=2, preemptions=7, corrupted_requests=1, prefix_hit_rate=0.4,
                external_hit_rate=0.2, multimodal_hit_rate=0.1, kv_usage=0.125,
            ),
        ), awkward=True,
    ),
    averages(
        "spec-0.8", "spec-0.8", f"{V1}SpecDecoding metrics: Draft acceptance rate: 100.0%, Accepted: 66 tokens, Drafted: 66 tokens",
        intervals=({"kind": "speculation", "acceptance_rate": 1.0, "accepted_tokens": 66, "drafted_tokens": 66},),
    ),
    averages(
        "spec-0.9", "spec-0.9",
        f"{V1}SpecDecoding metrics: Draft acceptance rate: 75.0%, Mean acceptance length: 2.50, Accepted: 66 tokens, "
        "Drafted: 88 tokens, Per-position acceptance rate: 0.900, 0.600",
        intervals=({"acceptance_rate": 0.75, "mean_acceptance_length_tokens": 2.5, "acceptance_by_position": (0.9, 0.6)},),
    ),
    averages(
        "spec-0.11", "spec", f"{V1}{SPEC}",
        intervals=(
            {
                "kind": "speculation", "mean_acceptance_length_tokens": 2.5, "accepted_tokens_per_s": 30.0,
                "drafted_tokens_per_s": 40.0, "accepted_tokens": 300, "drafted_tokens": 400,
                "acceptance_rate": 0.75, "acceptance_by_position": (0.9, 0.6),
            },
        ),
    ),
    averages(
        "spec-nan", "spec",
        f"{V1}SpecDecoding metrics: Mean acceptance length: nan, Accepted throughput: 0.00 tokens/s, Drafted throughput: "
        "0.00 tokens/s, Accepted: 0 tokens, Drafted: 0 tokens, Per-position acceptance rate: nan, Avg Draft acceptance rate: nan%",
        intervals=({"mean_acceptance_length_tokens": None, "acceptance_rate": None, "acceptance_by_position": (None,), "accepted_tokens": 0},),
        awkward=True,
    ),
    averages(
        "mfu-0.14", "mfu", f"{V1}Engine 000: {BASE}Waiting: 0 reqs, GPU KV cache usage: 12.5%, MFU: 250.0 TF/s/device 1500.0 GB/s/device",
        f"{V1}MFU: 100.0 TF/s/device 900.0 GB/s/device",
        intervals=(throughput(flop_per_s=2.5e14, bytes_per_s=1.5e12), {"kind": "utilisation", "flop_per_s": 1e14, "bytes_per_s": 9e11}),
    ),
    averages(
        "padding-0.13", "padding", f"{V1}| Unpadded Tokens | Padded Tokens | Num Paddings | Runtime Mode | Count |",
        f"{V1}|-----------------|---------------|--------------|--------------|-------|",
        f"{V1}| 13              | 16            | 3            | FULL         | 120   |",
        intervals=({"kind": "graph_padding", "unpadded_tokens": 13, "padded_tokens": 16, "count": 120, "graph_mode": "FULL"},),
    ),
    averages(
        "batch-size-0.6.5", "batch-size",
        "INFO 01-05 10:00:00 [forward_context.py:1] Batchsize forward time stats (batchsize, count, median_time(ms)): [(1, 120, 7.21), (8, 33, 7.9)]",
        intervals=(
            {"kind": "batch_size", "padded_tokens": 1, "count": 120, "forward_s": 7.21e-3},
            {"kind": "batch_size", "padded_tokens": 8, "count": 33, "forward_s": 7.9e-3},
        ),
    ),
    Form(
        "stats-cut", "vllm-log", ("stats",),
        (
            new(DECODE, 3), f"{V1}Engine 000: {BASE}Waiting: 3 reqs, GPU KV cache us",
            f"{V1}Engine 000: {BASE[:60]}", f"{V1}{SPEC[:-8]}", f"{V1}Engine 000: {BASE}Waiting: 0 reqs, GPU KV cache usage: 12.5%",
        ),
        steps=(decode(3),), intervals=(throughput(after_step=3),), recognised=1, reasons=("cut", "cut", "cut"), awkward=True,
    ),
    Form(
        "stats-between-steps", "vllm-log", ("stats",),
        (
            f"{V1}Engine 000: {BASE}Waiting: 0 reqs, GPU KV cache usage: 12.5%", new(DECODE, 3), new(DECODE, 7, e=1),
            f"{V1}Engine 000: {BASE}Waiting: 0 reqs, GPU KV cache usage: 12.5%",
            f"{V1}Engine 001: {BASE}Waiting: 0 reqs, GPU KV cache usage: 12.5%", new(DECODE, 4),
        ),
        steps=(decode(3), decode(7, 1), decode(4)), recognised=3, awkward=True,
        intervals=(throughput(engine=0, after_step=None), throughput(engine=0, after_step=3), throughput(engine=1, after_step=7)),
    ),
)  # fmt: skip
