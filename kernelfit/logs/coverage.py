"""What a reader says about itself: the forms it reads, and what their durations mean."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LogForm:
    """One form of log lines that a reader covers.

    Attributes
    ----------
    form : str
        Short name, unique among the forms of its reader.
    engine : str
        The engine that writes it.
    versions : str
        Versions of the engine that write it, as a range for people.
    becomes : str
        ``steps``, ``requests``, ``intervals``, ``facts`` or ``recognised``: where the
        line's content goes.
    what : str
        What the line looks like, without values.
    """

    form: str
    engine: str
    versions: str
    becomes: str
    what: str


@dataclass(frozen=True, slots=True)
class TimingRule:
    """What durations of a reader's steps mean in one mode of an engine.

    Attributes
    ----------
    engine : str
        The engine.
    versions : str
        Its versions, as a range for people.
    mode : str
        When the rule applies.
    timing : str
        A name from ``kernelfit.logs.columns.TIMINGS``.
    fitted : bool
        Whether a fit takes the durations.
    why : str
        What is measured, and why a fit refuses it where it does.
    """

    engine: str
    versions: str
    mode: str
    timing: str
    fitted: bool
    why: str


@dataclass(frozen=True, slots=True)
class Coverage:
    """What one reader covers.

    Attributes
    ----------
    reader : str
        Its name in the registry.
    source : str
        What kind of file it reads.
    forms : tuple of LogForm
        The forms of lines.
    timing : tuple of TimingRule
        What the durations mean, by engine, version and mode.
    """

    reader: str
    source: str
    forms: tuple[LogForm, ...]
    timing: tuple[TimingRule, ...]


_SERVED = TimingRule(
    "any",
    "any",
    "seen by the client or the front end",
    "request",
    False,
    "whole requests: they hold no step",
)

OWN_COVERAGES: dict[str, Coverage] = {
    "kernelfit": Coverage(
        "kernelfit",
        "folder of the recorder: `engine-*.jsonl` and `worker-*.jsonl`",
        (
            LogForm("engine", "vllm", "0.10-0.33", "steps", "a row a step, with every request"),
            LogForm("worker", "vllm", "0.10-0.33", "recognised", "a span, joined to its step"),
            LogForm("clock", "vllm", "0.10-0.33", "recognised", "header and clock rows"),
        ),
        (
            TimingRule(
                "vllm",
                "0.10-0.33",
                "workers recorded",
                "device",
                True,
                "GPU events where CUDA is present, else the worker's own span",
            ),
            TimingRule(
                "vllm",
                "0.10-0.33",
                "no worker recorded",
                "step or cycle",
                True,
                "schedule to output with one step in flight; done to done with several",
            ),
        ),
    ),
    "otel-steps": Coverage(
        "otel-steps",
        "step summaries of the inference-sim fork: OpenTelemetry JSON lines or Parquet",
        (
            LogForm("otlp", "vllm fork", "2026", "steps", "`step.BATCH_SUMMARY` events"),
            LogForm("parquet", "vllm fork", "2026", "steps", "the same attributes as columns"),
        ),
        (
            TimingRule(
                "vllm fork",
                "2026",
                "consecutive steps sampled",
                "cycle",
                True,
                "start of the next step less the start of this one",
            ),
            TimingRule(
                "vllm fork",
                "2026",
                "timing: dispatch in run.yaml",
                "dispatch",
                False,
                "step.duration_us is the time to submit the step",
            ),
        ),
    ),
    "table": Coverage(
        "table",
        "any CSV, TSV or Parquet file through the mapping of `run.yaml`",
        (LogForm("row", "any", "any", "steps", "what the mapping says"),),
        (
            TimingRule(
                "any",
                "any",
                "timing in run.yaml",
                "as stated",
                True,
                "the document must say; `wait` and `dispatch` are refused",
            ),
        ),
    ),
    "vllm-bench-serve": Coverage(
        "vllm-bench-serve",
        "result of `vllm bench serve --save-result`",
        (
            LogForm(
                "statistics",
                "vllm",
                "0.10-0.33",
                "requests",
                "observed statistics of the whole run",
            ),
            LogForm(
                "detailed",
                "vllm",
                "0.10-0.33",
                "requests",
                "the lists of `--save-detailed`, an entry a request",
            ),
        ),
        (_SERVED,),
    ),
    "vllm-bench-latency": Coverage(
        "vllm-bench-latency",
        "result of `vllm bench latency`",
        (LogForm("latencies", "vllm", "0.10-0.33", "requests", "seconds per batch"),),
        (_SERVED,),
    ),
    "guidellm": Coverage(
        "guidellm",
        "`benchmarks.json` of guidellm 0.8",
        (LogForm("benchmark", "any", "any", "requests", "a benchmark with its requests"),),
        (_SERVED,),
    ),
    "inference-perf": Coverage(
        "inference-perf",
        "`per_request_lifecycle_metrics.json` of inference-perf 0.7",
        (LogForm("request", "any", "any", "requests", "a request with the time of every chunk"),),
        (_SERVED,),
    ),
    "prometheus": Coverage(
        "prometheus",
        "scrapes of vLLM's `/metrics`, at least two",
        (
            LogForm(
                "scrape",
                "vllm",
                "0.10-0.33",
                "requests",
                "counters and histograms between two scrapes",
            ),
        ),
        (_SERVED,),
    ),
    "otel-requests": Coverage(
        "otel-requests",
        "JSON lines of vLLM's span `llm_request`",
        (
            LogForm(
                "span", "vllm", "0.10-0.33", "requests", "a request with its token counts and times"
            ),
        ),
        (_SERVED,),
    ),
}
"""Readers whose coverage stands here, because their forms are the project's own words."""
