"""Request-level sources whose every text, and many a key, is a secret."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from typing import Any

from tests.logs.request_files import BENCH, GUIDELLM, INFERENCE_PERF, scrape, span, traces

WORD = "quixotic-zebra"
TOKENS = "128009, 90060, 77031"
HOST = "gpu-node-17.corp.example"
ADDRESS = "10.77.31.4"
KEY = "sk-canary-4242"
CANARIES = (WORD, "zebra", "128009", "77031", HOST, "corp", ADDRESS, KEY)
SECRET = f"{WORD} [{TOKENS}] {HOST} {ADDRESS}:8000 {KEY}"

IDS = [128009, 90060, 77031]
_NAMES = ("time_to_first_token_seconds", "request_prompt_tokens")


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place within a value, the outermost first."""
    if path:
        yield path
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from places(value[key], (*path, key))


def put(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """A copy with another value at a place."""
    changed = copy.deepcopy(value)
    inner = changed
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = new
    return changed


def _more(entry: dict[str, Any]) -> dict[str, Any]:
    """Secrets under keys that nobody knows, and as keys."""
    ids = {"prompt_token_ids": IDS, "token_ids": IDS}
    return entry | ids | {"prompt": SECRET, SECRET: SECRET, "host": HOST, "api_key": KEY}


def bench_serve() -> str:
    named = {f"p{''.join(map(str, IDS))}_ttft_ms": 1.0, f"{WORD}_ttft_ms": 1.0}
    good = _more(BENCH) | named | {"model_id": WORD, "base_url": f"http://{ADDRESS}:8000"}
    good |= {"errors": ["", "", "", SECRET], "generated_texts": [SECRET] * 4}
    told = ("completed", "duration")
    damaged = [
        put(BENCH, path, SECRET)
        for path in places(BENCH)
        if path[0] not in told and isinstance(BENCH[path[0]], list) and path[-1] in (path[0], 1)
    ]
    return "\n".join(json.dumps(each) for each in [good, *damaged])


def bench_latency() -> str:
    good = _more({"avg_latency": 1.5, "latencies": [1.0, 2.0, SECRET, {SECRET: IDS}]})
    return json.dumps(good | {"percentiles": {SECRET: 1.0}, "avg_latency": SECRET})


def guidellm() -> str:
    benchmark = copy.deepcopy(GUIDELLM["benchmarks"][0])
    entry = _more(benchmark["requests"]["successful"][0])
    benchmark["requests"]["successful"] += [entry, SECRET, IDS]
    benchmark["requests"]["successful"] += [put(entry, p, SECRET) for p in places(entry)]
    benchmark["requests"]["errored"] += [entry, SECRET, {"info": {"error": SECRET}}]
    odd = [SECRET, {"requests": SECRET}, {"requests": {"errored": SECRET, "successful": KEY}}]
    return json.dumps(_more({"benchmarks": [_more(benchmark), *odd], "metadata": _more({})}))


def inference_perf() -> str:
    entry = _more(INFERENCE_PERF[0]) | {"request": SECRET, "response": SECRET}
    bad = [put(entry, p, new) for p in places(entry) for new in (SECRET, {SECRET: IDS})]
    failed = entry | {"error": {"error_type": WORD, "error_msg": SECRET}}
    return json.dumps([entry, *bad, failed, SECRET, IDS])


def prometheus() -> str:
    each = [scrape(**dict.fromkeys(_NAMES, (k * 6.0, k * 8.0))) for k in (1, 2, 3)]
    label = f'{{model_name="{WORD}",instance="{ADDRESS}:8000",host="{HOST}"}}'
    odd = [
        f"# HELP vllm:secret {SECRET}",
        SECRET,
        f"vllm:zebra{label} {KEY}",
        f"vllm:zebra_128009{label} 5",
        f"vllm:{SECRET}",
        f"vllm:request_prompt_tokens_sum{label} {SECRET}",
        f"vllm:request_prompt_tokens_count{label} {TOKENS}",
        f"vllm:request_prompt_tokens_count{label} {WORD}",
    ]
    fallen = scrape(request_generation_tokens=(1.0, 1.0)).replace('"kf"', f'"{HOST}"')
    more = scrape(request_generation_tokens=(5.0, 5.0)).replace('"kf"', f'"{HOST}"')
    return "".join(each) + "\n".join(odd) + "\n" + more + each[2] + fallen


def otel_requests() -> str:
    one = span(1, time_to_first_token=0.3, e2e=1.0, time_in_queue=0.1)
    told = [{"key": k, "value": {"stringValue": SECRET}} for k in (SECRET, "gen_ai.prompt")]
    told.append({"key": "gen_ai.request.id", "value": {"stringValue": KEY}})
    good = _more({**one, "attributes": one["attributes"] + told})
    bad = [put(good, p, SECRET) for p in places(good)]
    resource = {"attributes": [{"key": "host.name", "value": {"stringValue": HOST}}]}
    whole = {"resource": resource, "scopeSpans": [{"spans": [good, SECRET, IDS, *bad]}]}
    lines = [traces(one), json.dumps({"resourceSpans": [whole, SECRET]}), SECRET]
    return "\n".join([*lines, lines[1][:-40], json.dumps(SECRET), json.dumps({SECRET: IDS})]) + "\n"


SOURCES: dict[str, tuple[str, Callable[[], str]]] = {
    "vllm-bench-serve": ("x.json", bench_serve),
    "vllm-bench-latency": ("x.json", bench_latency),
    "guidellm": ("benchmarks.json", guidellm),
    "inference-perf": ("per_request_lifecycle_metrics.json", inference_perf),
    "prometheus": ("x.prom", prometheus),
    "otel-requests": ("x.jsonl", otel_requests),
}
"""Name of the file and its text, by reader."""
