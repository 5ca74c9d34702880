"""SGLang's batch lines, by version."""

from __future__ import annotations

from tests.logs.forms import Form

H = "[2026-03-01 10:00:0{s} TP0] "
PRE = "Prefill batch. #new-seq: {n}, #new-token: {t}, #cached-token: 16, {more}#running-req: 0, #queue-req: 0"
DEC = "Decode batch. #running-req: {n}, #token: {t}, token usage: 0.12, {more}gen throughput (token/s): {g}, #queue-req: 0"


def pre(n: int, t: int, s: int = 0, more: str = "token usage: 0.25, ", tail: str = "") -> str:
    return H.format(s=s) + PRE.format(n=n, t=t, more=more) + tail


def dec(n: int, t: int, g: float, s: int = 0, more: str = "", tail: str = "") -> str:
    return H.format(s=s) + DEC.format(n=n, t=t, g=g, more=more) + tail


def form(name: str, covers: str, *lines: str | bytes, **more: object) -> Form:
    return Form(name, "sglang-log", tuple(covers.split()), lines, **more)  # type: ignore[arg-type]


ARGS = (
    "[2026-03-01 10:00:00] server_args=ServerArgs(model_path='/data/of/somebody/Qwen3-8B', host='10.1.2.3', api_key='sk-canary', "
    "dtype='bfloat16', context_length=40960, tp_size=2, dp_size=1, pp_size=1, max_running_requests=64, page_size=1, "
    "disable_radix_cache=False, disable_overlap_schedule=True, disable_cuda_graph=False, speculative_algorithm=None, "
    "enable_dp_attention=False, decode_log_interval={every})"
)

FORMS = (
    form(
        "fill-0.2", "prefill-0.2",
        "[gpu=0] [2024-07-01 10:00:00] new fill batch. #seq: 2. #cached_token: 757. #new_token: 100. #remaining_req: 4. #running_req: 2. tree_cache_hit_rate: 80.83%.",
        steps=((0, 0, 2, 100, None),), awkward=True,
    ),
    form(
        "decode-0.2", "decode-0.2", "[2024-07-01 10:00:00] #running-req: 5, #token: 1938, token usage: 0.24, #queue-req: 0",
        steps=((0, 0, 5, 5, None),), intervals=({"kind": "throughput", "running_requests": 5, "kv_tokens": 1938, "kv_usage": 0.24},),
    ),
    form(
        "prefill-0.3", "prefill-0.3",
        "[10:00:00 TP0] Prefill batch. #new-seq: 1, #new-token: 48, #cached-token: 0, cache hit rate: 0.00%, token usage: 0.00, #running-req: 0, #queue-req: 0",
        steps=((0, 0, 1, 48, None),),
    ),
    form(
        "decode-0.3", "decode-0.3",
        "[10:00:00 TP0] Decode batch. #running-req: 8, #token: 62531, token usage: 0.12, gen throughput (token/s): 186.64, #queue-req: 0",
        steps=((0, 0, 8, 8, None),), intervals=({"generation_tokens_per_s": 186.64, "kv_tokens": 62531, "step_s": None},),
    ),
    form("prefill-0.4", "prefill", pre(3, 700, tail=", "), steps=((0, 0, 3, 700, None),)),
    form(
        "prefill-mixed", "prefill-mixed",
        H.format(s=0) + "Prefill batch(mixed #running-req: 7). #new-seq: 1, #new-token: 48, #cached-token: 0, token usage: 0.00, #running-req: 7, #queue-req: 0",
        steps=((0, 0, 8, 55, None),),
    ),
    form(
        "prefill-pd-0.4.6", "prefill-pd",
        H.format(s=0) + "Prefill batch. #new-seq: 1, #new-token: 48, #cached-token: 0, token usage: 0.00, #unbootstrapped-req: 0, #queue-req: 0, #transferring-req: 1, input throughput (token/s): 14.54, ",
        steps=((0, 0, 1, 48, None),),
    ),
    form(
        "indexed-0.5.4", "prefill-index decode-index",
        "[2026-03-01 10:00:00 DP1 TP0] Prefill batch [123], #new-seq: 1, #new-token: 48, #cached-token: 0, token usage: 0.00, #running-req: 0, #queue-req: 0, #prealloc-req: 0, #inflight-req: 0",
        "[2026-03-01 10:00:00 DP1 TP0] Decode batch [163], #running-req: 1, #token: 88, token usage: 0.00, cuda graph: True, gen throughput (token/s): 90.00, #queue-req: 0, ",
        steps=((1, 123, 1, 48, None), (1, 163, 1, 1, None)), intervals=({"engine": 1, "after_step": 123},),
    ),
    form(
        "decode-graph-0.4.6", "decode", dec(6, 1000, 300.0, more="cuda graph: True, "), dec(6, 1240, 300.0, s=1, more="cuda graph: True, "),
        # 240 tokens more are 40 steps of 6 requests: 6 requests / 300 tokens/s.
        steps=((0, 0, 6, 6, None), (0, 1, 6, 6, None)), intervals=({"step_s": None}, {"step_s": 0.02}),
    ),
    form(
        "decode-window-with-prefill", "decode", dec(6, 1000, 300.0), pre(1, 20), dec(6, 1240, 300.0, s=1),
        steps=((0, 0, 6, 6, None), (0, 1, 1, 20, None), (0, 2, 6, 6, None)), intervals=({"step_s": None}, {"step_s": None}), awkward=True,
    ),
    form(
        "decode-after-idle", "decode", dec(1, 100, 90.0), dec(1, 300, 1.06, s=9),
        steps=((0, 0, 1, 1, None), (0, 1, 1, 1, None)), intervals=({"step_s": None}, {"step_s": None, "generation_tokens_per_s": 1.06}), awkward=True,
    ),
    form(
        "decode-interval-of-10", "decode", ARGS.format(every=10), dec(6, 1000, 300.0), dec(6, 1060, 300.0, s=1),
        steps=((0, 0, 6, 6, None), (0, 1, 6, 6, None)), intervals=({}, {"step_s": 0.02}), recognised=1,
        startup={"decode_log_interval_steps": 10}, awkward=True,
    ),
    form(
        "decode-spec", "decode-spec", dec(6, 1000, 300.0, more="accept len: 2.50, cuda graph: True, "), pre(1, 48),
        steps=((0, 1, 1, 48, None),), recognised=1, intervals=({"mean_acceptance_length_tokens": 2.5, "step_s": None},),
    ),
    form(
        "decode-hybrid-0.5.1", "decode-hybrid",
        H.format(s=0) + "Decode batch. #running-req: 2, #full token: 800, full token usage: 0.01, #swa token: 600, swa token usage: 0.02, cuda graph: True, gen throughput (token/s): 90.00, #queue-req: 0, ",
        steps=((0, 0, 2, 2, None),), intervals=({"kv_tokens": 800, "kv_usage": 0.01, "step_s": None},),
    ),
    form(
        "decode-new-keys-0.5.23", "decode",
        H.format(s=0) + "Decode batch [9], #running-req: 2, #token: 800, token usage: 0.01, npu graph: True, fwd occupancy: 0.97, cap len: 3, gen throughput (token/s): 90.00, #queue-req: 0, #pending-token: 5, est. TFLOPS: 12.5",
        steps=((0, 9, 2, 2, None),), intervals=({"kv_tokens": 800},), awkward=True,
    ),
    form(
        "custom-header", "custom-header",
        "2025-10-20 03:02:22 INFO 31223 [DP3 TP3 EP3 scheduler_metrics_mixin.py:222] " + PRE.format(n=1, t=48, more="token usage: 0.00, "),
        "2025-10-20 03:02:22 INFO 31220 [DP3 TP0 EP0 scheduler_metrics_mixin.py:222] " + PRE.format(n=1, t=48, more="token usage: 0.00, "),
        # The first is the same batch, seen by another tensor-parallel rank.
        steps=((3, 0, 1, 48, None),), recognised=1, awkward=True,
    ),
    form(
        "cut-lines", "prefill", pre(3, 700), pre(3, 700)[:80], pre(3, 700)[:100], dec(6, 1000, 300.0)[:90], dec(6, 1000, 300.0),
        steps=((0, 0, 3, 700, None), (0, 1, 6, 6, None)), intervals=({},), reasons=("cut", "cut", "cut"), awkward=True,
    ),
    form(
        "last-line-without-end", "prefill", pre(3, 700), pre(3, 701), steps=((0, 0, 3, 700, None),), reasons=("no end",),
        awkward=True, no_end=True,
    ),
    form(
        "glued-lines", "prefill", pre(3, 700) + pre(2, 50, s=1), steps=((0, 0, 3, 700, None), (0, 1, 2, 50, None)), awkward=True,
    ),
    form(
        "milliseconds-and-colour", "prefill", "\x1b[32m[2026-03-01 10:00:00.123 TP0]\x1b[0m " + PRE.format(n=1, t=9, more=""),
        steps=((0, 0, 1, 9, None),), awkward=True,
    ),
    form(
        "container-and-compose", "prefill", *("2026-05-12T07:54:39.312201059Z sglang-1  | " + pre(1, n) for n in (9, 10)),
        steps=((0, 0, 1, 9, None), (0, 1, 1, 10, None)), awkward=True,
    ),
    form(
        "not-counts", "prefill", pre(3, 700).replace("700", "nan"), pre(3, 2), pre(1, 5), steps=((0, 0, 1, 5, None),),
        reasons=("#new-token is not a count (got nan)", "each request has a token"), awkward=True,
    ),
    form(
        "requests-are-not-kept", "prefill", pre(1, 5),
        "[2026-03-01 10:00:00] Receive: obj=GenerateReqInput(rid='1', text='Prefill batch. #new-seq: 1', input_ids=[128000, 9906])",
        "[2026-03-01 10:00:00] Finish: obj=GenerateReqInput(rid='1'), out={'text': 'Decode batch. #running-req: 1'}",
        steps=((0, 0, 1, 5, None),), recognised=2, awkward=True,
    ),
    form(
        "restart", "server-args", ARGS.format(every=40), "[2026-03-01 10:00:01 TP0] max_total_num_tokens=441000, chunked_prefill_size=8192",
        "[2026-03-01 10:00:01 TP1] max_total_num_tokens=440990, chunked_prefill_size=8192", pre(1, 5), ARGS.format(every=40), pre(1, 6),
        steps=((0, 0, 1, 5, None), (0, 0, 1, 6, None)), recognised=4, runs=2, startup={"kv_cache_tokens": 440990, "decode_log_interval_steps": 40},
        stated={
            "tp": 2, "dp": 1, "pp": 1, "max_model_len": 40960, "max_num_seqs": 64, "model_name": "Qwen3-8B", "dtype": "bfloat16",
            "enable_prefix_caching": True, "async_scheduling": False, "enforce_eager": False,
        }, awkward=True,
    ),
    form("pool-size", "pool", "[2026-03-01 10:00:01 TP0] max_total_num_tokens=441000", pre(1, 5), steps=((0, 0, 1, 5, None),), recognised=1, startup={"kv_cache_tokens": 441000}),
    form(
        "clock-back", "prefill", pre(1, 5).replace("10:00:00", "10:30:00"), pre(1, 6), steps=((0, 0, 1, 5, None), (0, 0, 1, 6, None)),
        runs=2, awkward=True,
    ),
)  # fmt: skip
