"""Files of request-level tools, as they write them, with texts that must not be kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

SECRET = "the quick brown fox"

BENCH: dict[str, Any] = {
    "date": "20260512-075439",
    "endpoint_type": "openai",
    "backend": "openai",
    "label": None,
    "model_id": "kf",
    "tokenizer_id": "kf",
    "num_prompts": 4,
    "request_rate": "inf",
    "burstiness": 1.0,
    "max_concurrency": 1,
    "duration": 10.0,
    "completed": 3,
    "failed": 1,
    "total_input_tokens": 600,
    "total_output_tokens": 11,
    "mean_ttft_ms": 110.0,
    "median_ttft_ms": 100.0,
    "std_ttft_ms": 8.0,
    "p99_ttft_ms": 130.0,
    "mean_itl_ms": 20.0,
    "input_lens": [100, 200, 300, 400],
    "output_lens": [3, 4, 4, 0],
    "ttfts": [0.1, 0.11, 0.13, 0.0],
    "itls": [[0.02, 0.02], [0.02, 0.02, 0.02], [0.04, 0.02], []],
    "start_times": [5.0, 6.0, 7.0, 8.0],
    "generated_texts": [SECRET] * 4,
    "errors": ["", "", "", f"Traceback {SECRET}"],
}
"""Four requests: the third got two tokens in one chunk, the fourth failed."""

GUIDELLM: dict[str, Any] = {
    "metadata": {"version": 1, "guidellm_version": "0.8.1"},
    "benchmarks": [
        {
            "requests": {
                "successful": [
                    {
                        "request_id": "r-1",
                        "request_args": SECRET,
                        "output": SECRET,
                        "prompt_tokens": 256,
                        "output_tokens": 8,
                        "info": {
                            "timings": {
                                "targeted_start": 1.7e9,
                                "scheduled_at": 1.7e9 + 0.01,
                                "request_start": 1.7e9 + 0.5,
                                "first_token_iteration": 1.7e9 + 0.75,
                                "last_token_iteration": 1.7e9 + 1.5,
                                "token_iterations": 7,
                                "request_end": 1.7e9 + 1.6,
                            }
                        },
                    },
                    {
                        "input_metrics": {"text_tokens": 128},
                        "output_metrics": {"text_tokens": 4},
                        "info": {
                            "timings": {
                                "request_start": 1.7e9,
                                "first_token_iteration": 1.7e9 + 0.25,
                                "request_end": 1.7e9 + 1.0,
                            }
                        },
                    },
                ],
                "errored": [{"info": {"error": SECRET}}],
                "incomplete": [{}, {}],
            }
        }
    ],
}

INFERENCE_PERF: list[dict[str, Any]] = [
    {
        "scheduled_time": 99.0,
        "start_time": 100.0,
        "end_time": 101.5,
        "request": json.dumps({"prompt": SECRET}),
        "response": SECRET,
        "info": {
            "input_tokens": 591,
            "output_tokens": 4,
            "output_token_times": [100.5, 100.500004, 100.9, 101.4],
        },
        "error": None,
    },
    {
        "start_time": 101.0,
        "end_time": 102.0,
        "info": {
            "request_metrics": {"text": {"input_tokens": 20}},
            "response_metrics": {"output_tokens": 2, "output_token_times": [101.25, 101.75]},
        },
        "error": None,
    },
    {
        "start_time": 101.0,
        "end_time": 101.1,
        "info": {"input_tokens": 20},
        "error": {"error_type": "Timeout", "error_msg": SECRET},
    },
]


def span(number: int, **latency: float) -> dict[str, Any]:
    """One request span with its times in seconds."""
    attributes = [
        {"key": "gen_ai.request.id", "value": {"stringValue": f"chatcmpl-{number}"}},
        {"key": "gen_ai.usage.prompt_tokens", "value": {"intValue": str(100 * number)}},
        {"key": "gen_ai.usage.completion_tokens", "value": {"intValue": "5"}},
    ]
    attributes += [
        {"key": f"gen_ai.latency.{name}", "value": {"doubleValue": value}}
        for name, value in latency.items()
    ]
    return {
        "name": "llm_request",
        "startTimeUnixNano": str(1_700_000_000_000_000_000 + number * 1_000_000_000),
        "attributes": attributes,
    }


def traces(*spans: dict[str, Any]) -> str:
    """One line of an export of traces."""
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": list(spans)}]}]})


def scrape(**series: tuple[float, float]) -> str:
    """One scrape: the sum and the count of each histogram, on two engines."""
    lines = []
    for name, (total, count) in series.items():
        lines.append(f"# TYPE vllm:{name} histogram")
        for engine, share in ((0, 0.25), (1, 0.75)):
            labels = f'{{engine="{engine}",model_name="kf"}}'
            lines += [
                f"vllm:{name}_sum{labels} {share * total!r}",
                f'vllm:{name}_bucket{{engine="{engine}",le="0.5"}} 1.0',
                f"vllm:{name}_count{labels} {share * count!r}",
            ]
    return "\n".join(lines) + "\n"


def write(folder: Path, name: str, *values: Any) -> Path:
    """Write JSON values one behind the other."""
    path = folder / name
    path.write_text("\n".join(json.dumps(value, indent=1) for value in values), "utf-8")
    return path
