"""Inputs that a fuzzer starts from: the fixtures of the tests, and small files."""

from __future__ import annotations

import json
from typing import Any

from benchmarks.fuzz.check import Target
from tests.logs.forms import all_forms
from tests.logs.forms.other import ROWS
from tests.logs.recording import small
from tests.logs.request_files import BENCH, GUIDELLM, INFERENCE_PERF, scrape, span, traces
from tests.logs.test_private import _summary

_LATENCY = {"avg_latency": 1.5, "latencies": [1.0, 2.0, 0.0], "percentiles": {"50": 1.5}}
_WHOLE_ONLY = {key: value for key, value in BENCH.items() if not isinstance(value, list)}
_JSON: dict[str, tuple[Any, ...]] = {
    "vllm-bench-serve": (BENCH, _WHOLE_ONLY, BENCH | {"latencies": [0.2, 0.2, 0.3, 0.0]}),
    "vllm-bench-latency": (_LATENCY,),
    "guidellm": (GUIDELLM,),
    "inference-perf": (INFERENCE_PERF,),
}


def seeds(target: Target) -> list[bytes]:
    """Return sound and awkward inputs of a reader.

    Parameters
    ----------
    target : Target
        The reader.

    Returns
    -------
    list of bytes
        At least one.
    """
    found = [form.data() for form in all_forms() if form.reader == target.reader]
    if target.reader in ("dynamo-fpm", "sglang-fpm"):
        found.append("\n".join(ROWS).encode())
    elif target.reader == "otel-steps":
        found.append("\n".join(_summary(k) for k in (1, 2, 3)).encode())
    elif target.reader == "blis-trace":
        rows = (f"r{r},{k},{5000 + 11_000 * (k + r) + r}" for r in range(4) for k in range(3))
        found.append("\n".join(rows).encode())
    elif target.reader == "table":
        found.append(b"10,4,0,0\n11,4,1,20\n,,,\nnan,1,1,1\n")
    elif target.reader == "kernelfit":
        found.append(_recording())
    elif target.reader == "otel-requests":
        found += _request_spans()
    elif target.reader == "prometheus":
        found += _scrapes()
    found += [json.dumps(value).encode() for value in _JSON.get(target.reader, ())]
    return found


def _request_spans() -> list[bytes]:
    times = {"time_in_queue": 0.1, "time_in_model_prefill": 0.15, "time_in_model_decode": 0.7}
    good = [span(k, time_to_first_token=0.3, e2e=1.0, **times) for k in (1, 2)]
    late = span(3, time_to_first_token=0.16, e2e=2.0, time_in_queue=0.4, time_in_model_prefill=0.15)
    fork = {"name": "llm_request", "events": [{"name": "api.ARRIVED"}]}
    return [traces(*good, fork).encode(), traces(late, {"name": "model_loading"}).encode()]


def _scrapes() -> list[bytes]:
    names = ("time_to_first_token_seconds", "request_prompt_tokens")
    each = [scrape(**dict.fromkeys(names, (k * 6.0, k * 8.0))) for k in (1, 2, 3)]
    return ["".join(each).encode(), (each[0] + each[1] + each[0]).encode(), each[2].encode()]


def _recording() -> bytes:
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory() as folder:
        made = small().write(Path(folder) / "run")
        return (made / "engine-10.jsonl").read_bytes()
