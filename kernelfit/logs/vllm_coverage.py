"""What the ``vllm-log`` reader covers, by version."""

from __future__ import annotations

from kernelfit.logs.coverage import Coverage, LogForm, TimingRule

_V0 = "0.6-0.10 (V0)"


def _form(form: str, versions: str, becomes: str, what: str) -> LogForm:
    return LogForm(form, "vllm", versions, becomes, what)


COVERAGE = Coverage(
    "vllm-log",
    "text log of vLLM; steps need `--enable-logging-iteration-details` (0.14 and later)",
    (
        _form("step-core", "0.14-0.24", "steps", "`Iteration(N): …` from the engine's process"),
        _form("step-frontend", ">=0.26", "steps", "`Engine 000: Iteration(N): …, GPU KV cache …`"),
        _form("step-device", ">=0.30", "steps", "the same with another device's name"),
        _form("step-encoder", ">=0.26", "steps", "`…, encoder inputs: N, …`"),
        _form("step-dummy", ">=0.24", "recognised", "`… ms (dummy)`, a data-parallel peer's"),
        _form("stats-v0", _V0, "intervals", "`Avg prompt throughput: …, Swapped: …, Pending: …`"),
        _form("stats-v1", "0.7 (V1)", "intervals", "`…, Running: …, Waiting: …, GPU KV cache …`"),
        _form("stats", ">=0.8", "intervals", "`Engine 000: Avg prompt throughput: …`"),
        _form("stats-aggregated", ">=0.12", "intervals", "`N Engines Aggregated: …`"),
        _form("stats-more", ">=0.12", "intervals", "`Preemptions`, `Corrupted`, `Deferred`, …"),
        _form("cache-v0", _V0, "intervals", "`Prefix cache hit rate: GPU: …%, CPU: …%`"),
        _form("spec-v0", _V0, "intervals", "`Speculative metrics: …`"),
        _form("spec-0.8", "0.8.3", "intervals", "`SpecDecoding metrics: Draft acceptance rate: …`"),
        _form("spec-0.9", "0.9-0.10", "intervals", "`…, Per-position acceptance rate: …`"),
        _form("spec", ">=0.10.2", "intervals", "`SpecDecoding metrics: Mean acceptance length…`"),
        _form("mfu", ">=0.14", "intervals", "`MFU: … TF/s/device … GB/s/device`"),
        _form("padding", ">=0.13", "intervals", "a row of the table of CUDA graphs"),
        _form("batch-size", ">=0.6.5", "intervals", "`Batchsize forward time stats …: […]`"),
        _form("engine-config", "all", "facts", "`Initializing a V1 LLM engine (v…) with …`"),
        _form("arguments", ">=0.8", "facts", "`non-default args: {…}`"),
        _form("budget", "all", "facts", "`Chunked prefill is enabled with max_num_…=`"),
        _form("kv-blocks", "0.6-0.7", "facts", "`# GPU blocks: …, # CPU blocks: …`"),
        _form("kv-tokens", ">=0.8", "facts", "`GPU KV cache size: … tokens`"),
        _form("kv-count", ">=0.9", "facts", "`… num_gpu_blocks is: …`"),
        _form("kv-memory", ">=0.8", "facts", "`Available KV cache memory: … GiB`"),
        _form("weights-0.6", "0.6-0.7", "facts", "`Loading model weights took … GB`"),
        _form("weights", ">=0.8", "facts", "`Model loading took … GiB …`"),
        _form("graphs", "all", "facts", "`Graph capturing finished in … secs, took … GiB`"),
        _form("async", "0.14-0.27", "facts", "`Asynchronous scheduling is enabled.`"),
        _form("attention", "0.8-0.11", "facts", "`Using … backend on V1 engine.`"),
        _form("attention-0.12", ">=0.12", "facts", "`Using … attention backend out of …`"),
        _form("all-reduce", "all", "facts", "`Custom allreduce is disabled because …`"),
        _form("init", ">=0.8", "facts", "`init engine (profile, …) took … seconds`"),
        _form("request", "all", "recognised", "`Received request …`: its text is never kept"),
        _form("request-end", "all", "recognised", "`Added`, `Finished`, `Aborted request …`"),
        _form("access", "all", "recognised", "access lines of the web server"),
    ),
    (
        TimingRule(
            "vllm", ">=0.14", "asynchronous scheduling (the default on GPUs)", "wait", False,
            "only the wait for the oldest of several steps in flight",
        ),
        TimingRule(
            "vllm", ">=0.14", "pipeline parallelism", "wait", False,
            "only the wait for the oldest of several steps in flight",
        ),
        TimingRule(
            "vllm", ">=0.14", "synchronous", "wait", False,
            "scheduling, submission (the whole step with an in-process executor) and the "
            "update are left out",
        ),
        TimingRule(
            "vllm", "0.6-0.13", "all", "wait", False,
            "no step is printed at all, only averages over seconds",
        ),
    ),
)  # fmt: skip
