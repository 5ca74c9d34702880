"""What vLLM prints of its start, by version."""

from __future__ import annotations

from tests.logs.forms import Form
from tests.logs.forms.vllm_steps import DECODE, decode, new

CORE = "(EngineCore_DP0 pid=5) INFO 11-30 06:18:47 [core.py:133] "
V0 = "INFO 09-10 16:54:45 llm_engine.py:223] "
CONFIG = (
    "with config: model='/data/of/somebody/Qwen3-8B', speculative_config={spec}, tokenizer='x', dtype=torch.bfloat16, "
    "max_seq_len=40960, tensor_parallel_size=2, pipeline_parallel_size=1, data_parallel_size=1, "
    "disable_custom_all_reduce=False, quantization={q}, enforce_eager=False, kv_cache_dtype=auto, "
    "device_config=cuda, seed=0, enable_prefix_caching=True, enable_chunked_prefill=True, compilation_config={{"
    "'cudagraph_mode': <CUDAGraphMode.FULL_AND_PIECEWISE: (2, 1)>, 'cudagraph_capture_sizes': [1, 2, 4]}}"
)


def start(name: str, covers: str, *lines: str, **more: object) -> Form:
    known = {"recognised": len(lines), **more}
    return Form(name, "vllm-log", (covers,), (*lines, new(DECODE, 3)), steps=(decode(3),), **known)  # type: ignore[arg-type]


FORMS = (
    start(
        "config-v1-0.32", "engine-config",
        f"{CORE}Initializing a V1 LLM engine (v0.32.0) {CONFIG.format(spec='None', q='None')}",
        stated={
            "engine_version": "0.32.0", "model_name": "Qwen3-8B", "dtype": "bfloat16", "max_model_len": 40960,
            "tp": 2, "pp": 1, "dp": 1, "disable_custom_all_reduce": False, "enforce_eager": False,
            "cache_dtype": "auto", "enable_prefix_caching": True, "cudagraph_mode": "FULL_AND_PIECEWISE",
            "cudagraph_capture_sizes": [1, 2, 4],
        },
    ),
    start(
        "config-v0-0.6", "engine-config",
        f"{V0}Initializing an LLM engine (v0.6.0) with config: model='facebook/opt-125m', speculative_config=None, "
        "dtype=torch.float16, max_seq_len=2048, tensor_parallel_size=1, pipeline_parallel_size=1, quantization=awq, "
        "enforce_eager=True, kv_cache_dtype=fp8",
        stated={"engine_version": "0.6.0", "model_name": "opt-125m", "dtype": "float16", "quantization": "awq", "cache_dtype": "fp8"},
    ),
    start(
        "config-spec", "engine-config",
        f"{CORE}Initializing a V1 LLM engine (v0.20.0) {CONFIG.format(spec='SpeculativeConfig(method=' + repr('ngram') + ', model=None)', q='fp8')}",
        stated={"speculative_method": "ngram", "quantization": "fp8"},
    ),
    start(
        "arguments-0.8", "arguments",
        "(APIServer pid=9) INFO 11-30 06:18:30 [utils.py:233] non-default args: {'model': 'x', 'api_key': ['sk-canary'], "
        "'max_num_seqs': 64, 'block_size': 16, 'max_num_batched_tokens': 2048, 'async_scheduling': False, 'enable_expert_parallel': True}",
        stated={
            "max_num_seqs": 64, "block_size": 16, "max_num_batched_tokens": 2048, "async_scheduling": False,
            "enable_expert_parallel": True,
        },
    ),
    start(
        "budget", "budget", f"{CORE}Chunked prefill is enabled with max_num_batched_tokens=8192.",
        stated={"max_num_batched_tokens": 8192},
    ),
    start(
        "kv-0.6", "kv-blocks", "INFO 09-10 16:54:45 gpu_executor.py:122] # GPU blocks: 27898, # CPU blocks: 2048",
        startup={"kv_blocks": 27898, "cpu_kv_blocks": 2048},
    ),
    start(
        "kv-v0-0.8", "kv-blocks", "INFO 03-10 16:54:45 [executor_base.py:111] # cuda blocks: 27898, # cpu blocks: 2048",
        startup={"kv_blocks": 27898, "cpu_kv_blocks": 2048},
    ),
    start(
        "kv-0.8", "kv-tokens", f"{CORE}GPU KV cache size: 251,920 tokens",
        f"{CORE}Maximum concurrency for 40,960 tokens per request: 6.15x",
        startup={"kv_cache_tokens": 251920, "max_concurrency": 6.15},
    ),
    start(
        "kv-one-line-0.30", "kv-tokens",
        f"{CORE}CPU KV cache size: 524,288 tokens, Maximum concurrency for 2,048 tokens per request: 256.00x",
        startup={"kv_cache_tokens": 524288, "max_concurrency": 256.0},
    ),
    start(
        "kv-of-each-worker", "kv-tokens",
        *(
            f"(RayWorkerWrapper pid={p}, ip=10.0.0.{p}) INFO 11-30 06:18:47 [x.py:1] GPU KV cache size: {n} tokens"
            for p, n in ((1, "251,936"), (2, "251,920"), (3, "251,952"))
        ),
        startup={"kv_cache_tokens": 251920}, awkward=True,
    ),
    start(
        "kv-count-0.9", "kv-count",
        f"{CORE}vllm cache_config_info with initialization after num_gpu_blocks is: 15745", startup={"kv_blocks": 15745},
    ),
    start("kv-memory", "kv-memory", f"{CORE}Available KV cache memory: 26.91 GiB", startup={"kv_cache_bytes": 26.91 * 2**30}),
    start("weights-0.6", "weights-0.6", f"{V0}Loading model weights took 14.9888 GB", startup={"weights_bytes": 14.9888 * 2**30}),
    start(
        "weights-0.8", "weights", f"{CORE}Model loading took 14.9888 GiB and 3.214567 seconds",
        startup={"weights_bytes": 14.9888 * 2**30, "weights_load_s": 3.214567},
    ),
    start(
        "weights-0.12", "weights",
        "(Worker_TP0 pid=7) INFO 11-30 06:18:47 [gpu_model_runner.py:1] Model loading took 14.99 GiB memory and 3.21 seconds",
        "(Worker_TP1 pid=8) INFO 11-30 06:18:47 [gpu_model_runner.py:1] Model loading took 14.99 GiB memory and 3.40 seconds [repeated 3x across cluster]",
        startup={"weights_bytes": 14.99 * 2**30, "weights_load_s": 3.21}, awkward=True,
    ),
    start(
        "graphs", "graphs", f"{CORE}Graph capturing finished in 23 secs, took -0.25 GiB",
        startup={"graph_capture_s": 23.0, "graph_bytes": -0.25 * 2**30}, awkward=True,
    ),
    start("async-0.14", "async", f"{CORE}Asynchronous scheduling is enabled.", stated={"async_scheduling": True}),
    start("sync-0.14", "async", f"{CORE}Asynchronous scheduling is disabled.", stated={"async_scheduling": False}),
    start("attention-0.9", "attention", f"{CORE}Using Flash Attention backend on V1 engine.", startup={"attention_backend": "Flash Attention"}),
    start(
        "attention-0.12", "attention-0.12", f"{CORE}Using FLASH_ATTN attention backend out of potential backends: ['FLASH_ATTN', 'FLASHINFER']",
        startup={"attention_backend": "FLASH_ATTN"},
    ),
    start(
        "all-reduce", "all-reduce", f"{CORE}Custom allreduce is disabled because it's not supported on more than two PCIe-only GPUs.",
        startup={"custom_all_reduce": False},
    ),
    start(
        "init", "init", f"{CORE}init engine (profile, create kv cache, warmup model) took 44.51 seconds", startup={"init_s": 44.51},
    ),
    start("init-0.32", "init", f"{CORE}init engine (profile, create kv cache, warmup model) took 4.94 s", startup={"init_s": 4.94}),
    start(
        "two-lines-of-one-message", "engine-config",
        "INFO 11-30 06:18:47 [core.py:133] Chunked prefill is enabled with max_num_batched_tokens=8192.\r",
        "INFO 11-30 06:18:47 [core.py:133]   and a second line of the same message",
        stated={"max_num_batched_tokens": 8192}, awkward=True,
    ),
)  # fmt: skip
