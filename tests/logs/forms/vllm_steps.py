"""vLLM's step lines, bare and in every coat."""

from __future__ import annotations

import json

from tests.logs.forms import Form

OLD = "INFO 01-05 10:00:0{s} [core.py:344] "
NEW = "(APIServer pid=9) INFO 11-30 06:19:1{s} [loggers.py:199] Engine {e:03d}: "
DECODE = "Iteration({i}): 0 context requests, 0 context tokens, 20 generation requests, 20 generation tokens, iteration elapsed time: 10.99 ms"
MIXED = "Iteration({i}): 2 context requests, 511 context tokens, 1 generation requests, 1 generation tokens, iteration elapsed time: 46.68 ms"
PREFILL = "Iteration({i}): 1 context requests, 200 context tokens, 0 generation requests, 0 generation tokens, iteration elapsed time: 30.74 ms"
KV = ", GPU KV cache usage: 12.5%"


def old(text: str, i: int, s: int = 0) -> str:
    return OLD.format(s=s) + text.format(i=i)


def new(text: str, i: int, s: int = 0, e: int = 0, kv: str = KV) -> str:
    return NEW.format(s=s, e=e) + text.format(i=i) + kv


D, M, P = (0, 20, 20, 10.99), (0, 3, 512, 46.68), (0, 1, 200, 30.74)


def decode(i: int, e: int = 0) -> tuple[int, int, int, int, float]:
    return (e, i, 20, 20, 10.99)


def mixed(i: int, e: int = 0) -> tuple[int, int, int, int, float]:
    return (e, i, 3, 512, 46.68)


def prefill(i: int, e: int = 0) -> tuple[int, int, int, int, float]:
    return (e, i, 1, 200, 30.74)


def step(name: str, covers: str, *lines: str | bytes, **more: object) -> Form:
    return Form(name, "vllm-log", (covers,), lines, **more)  # type: ignore[arg-type]


def wrap(name: str, covers: str, *lines: str | bytes, **more: object) -> Form:
    return step(name, covers, *lines, **{"awkward": True, **more})


INIT = (
    "(EngineCore pid=5) INFO 11-30 06:18:47 [core.py:133] Initializing a V1 LLM engine (v0.32.0) "
    "with config: model='models/tiny', dtype=torch.bfloat16, max_seq_len=2048, "
    "tensor_parallel_size={tp}, pipeline_parallel_size=1, enforce_eager=True"
)
REQUEST = (
    "INFO 11-30 06:19:12 [logger.py:43] Received request cmpl-1: prompt: 'what does {q} mean?', "
    "params: SamplingParams(n=1), prompt_token_ids: [128000, 9906], lora_request: None."
)
RECORD = {
    "asctime": "2026-11-30 06:35:56,886",
    "levelname": "INFO",
    "name": "vllm.v1.metrics.loggers",
    "processName": "MainProcess",
    "process": 14,
    "message": "Engine 000: " + DECODE.format(i=3) + KV,
    "vllm_process_name": "APIServer",
}
BOX = "│ {line}      │"

FORMS = (
    step("core-0.14", "step-core", old(PREFILL, 0), old(MIXED, 1), old(DECODE, 2), steps=(prefill(0), mixed(1), decode(2))),
    step(
        "core-prefixed-0.14", "step-core",
        *(f"(EngineCore_DP{e} pid={40 + e}) " + old(DECODE, 7) for e in (0, 1)),
        steps=(decode(7), decode(7, 1)),
    ),
    step("frontend-0.26", "step-frontend", new(PREFILL, 0), new(DECODE, 1), steps=(prefill(0), decode(1))),
    step(
        "device-name-0.30", "step-device", new(DECODE, 4, kv=", CPU KV cache usage: 0.0%"),
        new(DECODE, 5, kv=", ROCm + X KV cache usage: 99.9%"), steps=(decode(4), decode(5)),
    ),
    step(
        "encoder-0.26", "step-encoder",
        new(MIXED, 4, kv=KV + ", encoder inputs: 2, encoder output embeddings: 640"), steps=(mixed(4),),
    ),
    step(
        "later-fields", "step-frontend", new(DECODE, 4, kv=KV + ", result wait time: 9.1 ms, GPU graph: FULL"),
        steps=(decode(4),), awkward=True,
    ),
    step(
        "dummy-0.24", "step-dummy", old(DECODE, 2), old(DECODE, 3) + " (dummy)", old(DECODE, 4),
        steps=(decode(2), decode(4)), recognised=1,
    ),
    step(
        "two-engines-interleaved", "step-frontend",
        *(new(DECODE, i, e=e) for i, e in ((4, 0), (9, 1), (5, 0), (6, 0), (10, 1))),
        steps=(decode(4), decode(9, 1), decode(5), decode(6), decode(10, 1)), awkward=True,
    ),
    wrap(
        "colour-0.14", "step-core",
        f"\x1b[0;36m(EngineCore_DP0 pid=41)\x1b[0;0m \x1b[32mINFO\x1b[0m \x1b[90m01-05 10:00:00\x1b[0m \x1b[90m[core.py:344]\x1b[0m {DECODE.format(i=3)}",
        steps=(decode(3),),
    ),
    wrap(
        "cyan-prefix-0.10", "step-core", f"\x1b[1;36m(EngineCore_0 pid=41)\x1b[0;0m {old(DECODE, 3)}",
        steps=(decode(3),),
    ),
    wrap(
        "json-0.32", "step-frontend", json.dumps(RECORD), "plain words between",
        json.dumps({**RECORD, "message": "Engine 000: " + MIXED.format(i=4) + KV}),
        steps=(decode(3), mixed(4)), recognised=1,
    ),
    wrap("json-cut", "step-frontend", json.dumps(RECORD), json.dumps(RECORD)[:-90], steps=(decode(3),), reasons=("JSON line is cut",)),
    wrap(
        "docker-json-file", "step-frontend",
        *(
            json.dumps({"log": new(DECODE, i) + "\n", "stream": "stdout", "time": f"2026-11-30T06:19:1{i}.4567{i}Z"})
            for i in (3, 4)
        ),
        steps=(decode(3), decode(4)),
    ),
    wrap(
        "container-runtime", "step-frontend",
        f"2026-05-12T07:54:39.312201059Z {new(DECODE, 3)}", f"2026-05-12T07:54:39.4Z stdout F {new(DECODE, 4)}",
        steps=(decode(3), decode(4)),
    ),
    wrap("buildkite", "step-core", f"[2024-09-10T16:54:45Z] {old(DECODE, 3)}", steps=(decode(3),)),
    wrap(
        "compose", "step-frontend", f"vllm_server  | {new(DECODE, 3)}", f"vllm-2 | {new(DECODE, 4)}",
        steps=(decode(3), decode(4)),
    ),
    wrap(
        "ray-repeated", "step-core",
        f"(RayWorkerProc pid=7, ip=10.0.0.1) {old(DECODE, 3)} [repeated 7x across cluster]",
        steps=(decode(3),),
    ),
    wrap(
        "ray-serve-nested", "step-frontend",
        f"(ServeReplica:app:LLM pid=77, ip=10.0.0.2) {new(DECODE, 3)}", steps=(decode(3),),
    ),
    wrap("k9s-box", "step-frontend", BOX.format(line=new(DECODE, 3)), steps=(decode(3),)),
    wrap(
        "user-prefix", "step-core", f"[node-a|replica 3] {old(DECODE, 3)}", f"[node-a|replica 3] {old(DECODE, 4)}",
        steps=(decode(3), decode(4)),
    ),
    wrap(
        "custom-dictconfig", "step-frontend",
        f"2026-02-17 15:54:51,123 INFO vllm.v1.metrics.loggers: Engine 000: {DECODE.format(i=3)}{KV}",
        f"2025-07-08 17:24:00 - vllm.engine.metrics - INFO - Engine 001: {DECODE.format(i=3)}{KV}",
        steps=(decode(3), decode(3, 1)),
    ),
    wrap("debug-path-0.11", "step-core", f"DEBUG 01-05 10:00:00 [v1/.../core.py:344] {DECODE.format(i=3)}", steps=(decode(3),)),
    wrap("windows-ends", "step-frontend", new(DECODE, 3) + "\r", new(DECODE, 4) + "  \r", steps=(decode(3), decode(4))),
    wrap(
        "glued", "step-frontend", new(DECODE, 3) + new(MIXED, 4), new(DECODE, 5) + "tqdm: 40%|####",
        steps=(decode(3), mixed(4)), reasons=("followed by something not understood",),
    ),
    wrap(
        "cut", "step-frontend", new(DECODE, 3), new(DECODE, 4)[:110], new(DECODE, 5)[:-4], new(DECODE, 6),
        steps=(decode(3), decode(6)), reasons=("cut", "cut"),
    ),
    wrap(
        "tqdm-before", "step-core", f"Capturing: 100%|██████| 67/67\r(EngineCore_DP0 pid=41) {old(DECODE, 3)}",
        steps=(decode(3),),
    ),
    wrap("bytes-that-are-no-text", "step-frontend", b"\xff\xfe\x00 garbage", new(DECODE, 3), b"\xc3(", steps=(decode(3),), recognised=2),
    wrap(
        "no-end", "step-frontend", new(DECODE, 3), new(DECODE, 4), steps=(decode(3), decode(4)), no_end=True,
    ),
    wrap(
        "index-falls", "step-frontend", new(DECODE, 8), new(DECODE, 9), new(DECODE, 0), new(DECODE, 1),
        steps=(decode(8), decode(9), decode(0), decode(1)), runs=2,
    ),
    wrap(
        "another-process", "step-frontend", new(DECODE, 8), new(DECODE, 9).replace("pid=9", "pid=31"),
        steps=(decode(8), decode(9)), runs=2,
    ),
    wrap(
        "another-start", "step-frontend", INIT.format(tp=1), new(DECODE, 0), INIT.format(tp=2), new(DECODE, 1),
        steps=(decode(0), decode(1)), runs=2, recognised=2,
    ),
    wrap(
        "clock-back", "step-frontend", new(DECODE, 3), new(DECODE, 4).replace("06:19:10", "05:19:10"),
        steps=(decode(3), decode(4)), runs=2,
    ),
    wrap(
        "new-year", "step-frontend", new(DECODE, 3).replace("11-30 06:19:10", "12-31 23:59:59"),
        new(DECODE, 4).replace("11-30 06:19:10", "01-01 00:00:01"), steps=(decode(3), decode(4)),
    ),
    wrap(
        "late-lines", "step-frontend", new(DECODE, 3, s=9), new(DECODE, 4, s=2), steps=(decode(3), decode(4)),
    ),
    wrap("repeated", "step-frontend", new(DECODE, 3), new(DECODE, 3), steps=(decode(3),), reasons=("iteration 3 of engine 0 is repeated",)),
    wrap(
        "resumed", "step-frontend",
        new(DECODE.replace("20 generation tokens", "801 generation tokens"), 3), new(DECODE, 4),
        steps=((0, 3, 20, 801, 10.99), decode(4)), marks={3: ("resume_or_spec",)},
    ),
    wrap(
        "warm-up", "step-frontend", new(DECODE.replace("10.99", "1039.41"), 0), new(DECODE, 1),
        steps=((0, 0, 20, 20, 1039.41), decode(1)), marks={0: ("warmup",)},
    ),
    wrap(
        "not-numbers", "step-frontend", new(DECODE, 3), new(DECODE.replace("10.99", "nan"), 4),
        new(DECODE.replace("20 generation tokens", "-20 generation tokens"), 5),
        new(DECODE, 6, kv=", GPU KV cache usage: 130.0%"), steps=(decode(3),),
        reasons=("not a finite number", "negative", "above 100 %"),
    ),
    wrap(
        "quoted-in-a-prompt", "request", new(DECODE, 3), REQUEST.format(q=DECODE.format(i=7)),
        "INFO 11-30 06:19:12 [x.py:1] Generated response cmpl-1: output: 'Iteration(4): x', finish_reason: stop",
        steps=(decode(3),), recognised=2,
    ),
    step(
        "requests", "request", new(DECODE, 3), REQUEST.format(q="rain"),
        "INFO 11-30 06:19:12 [logger.py:43] Received request cmpl-2: params: SamplingParams(n=1), lora_request: None.",
        steps=(decode(3),), recognised=2,
    ),
    step(
        "request-ends", "request-end", new(DECODE, 3), "INFO 11-30 06:19:12 [async_llm.py:1] Added request r3-b08f8af7.",
        "INFO 11-30 06:19:12 [a.py:1] Finished request cmpl-1.", "INFO 11-30 06:19:12 [a.py:1] Aborted request(s) a,b.",
        "INFO 11-30 06:19:12 [a.py:1] Request cmpl-1 failed (engine dead).", steps=(decode(3),), recognised=4,
    ),
    step(
        "access", "access", new(DECODE, 3),
        'INFO:     10.0.0.1:5010 - "POST /v1/completions?Iteration HTTP/1.1" 200 OK', steps=(decode(3),), recognised=1,
    ),
)  # fmt: skip
