"""An account of request-level sources of its own, and damage that keeps JSON readable."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np

from kernelfit.logs.columns import MAX_REASON_CHARACTERS, MAX_TOKENS, ParsedRun
from kernelfit.logs.hostwork import OBSERVERS

REQUEST_READERS: tuple[str, ...] = (
    "vllm-bench-serve",
    "vllm-bench-latency",
    "guidellm",
    "inference-perf",
    "prometheus",
    "otel-requests",
)

AWKWARD: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 0.0, -0.5, 1e308, -1e308, 10**400, 2**63, float("nan"),
    float("inf"), "", "x", "inf", "nan", "1_0", "\ud800", [], [[]], {}, {"": []}, [1e308, 1e308],
)  # fmt: skip
"""Values that a sound file holds nowhere."""

_SAMPLES = ("NaN", "+Inf", "-Inf", "-1", "1e300", "1e19", "1_0", "x", "", "0.5", "9" * 400)


def entries(reader: str, data: bytes, runs: tuple[ParsedRun, ...]) -> int:
    """Return how many entries the runs of a source must account for.

    Parameters
    ----------
    reader : str
        A request-level reader.
    data : bytes
        What it read without refusing it.
    runs : tuple of ParsedRun
        What it made of that: scrapes have entries for intervals besides the lines.

    Returns
    -------
    int
        Entries.
    """
    if reader == "prometheus":
        between = sum("the scrape before" in r.reason for run in runs for r in run.rejects)
        return _lines(data) + between
    if reader == "otel-requests":
        return sum(max(_spans(line), 1) for line in data.split(b"\n")) - data.endswith(b"\n")
    return sum(_SIZES[reader](value) for value in json_values(data))


def json_values(data: bytes) -> list[Any]:
    """Return the JSON values that stand one behind the other, up to the first damage.

    Parameters
    ----------
    data : bytes
        Any bytes.

    Returns
    -------
    list
        The values.
    """
    text = data.decode("utf-8", "replace")
    found, place = [], 0
    decoder = json.JSONDecoder()
    while text := text[place:].lstrip(" \t\r\n"):
        try:
            value, place = decoder.raw_decode(text)
        except (ValueError, RecursionError):
            break
        found.append(value)
    return found


def _lines(data: bytes) -> int:
    return data.count(b"\n") + (not data.endswith(b"\n")) if data else 0


def _spans(line: bytes) -> int:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return 0
    spans = 0
    for resource in _list(value, "resourceSpans"):
        for scope in _list(resource, "scopeSpans"):
            spans += len(_list(scope, "spans"))
    return spans


def _list(value: Any, key: str) -> list[Any]:
    found = value.get(key) if isinstance(value, dict) else None
    return found if isinstance(found, list) else []


def _serve(result: Any) -> int:
    lists = [result.get(name) for name in ("input_lens", "output_lens", "ttfts", "itls")]
    lists += [result.get(name) for name in ("errors", "start_times", "latencies")]
    if not all(isinstance(each, list) for each in lists[:4]):
        return 1
    sizes = {len(each) for each in lists if isinstance(each, list)}
    return len(result["ttfts"]) if len(sizes) == 1 else 1


def _guidellm(report: Any) -> int:
    count = 0
    for benchmark in report["benchmarks"]:
        groups = benchmark.get("requests") if isinstance(benchmark, dict) else None
        if not isinstance(groups, dict):
            count += 1
            continue
        for name in ("successful", "errored", "incomplete"):
            group = groups.get(name)
            count += len(group) if isinstance(group, list) else group is not None
    return count


_SIZES = {
    "vllm-bench-serve": _serve,
    "vllm-bench-latency": lambda value: len(value["latencies"]),
    "guidellm": _guidellm,
    "inference-perf": len,
}


def check_served(run: ParsedRun) -> None:
    """Check that what is kept of requests can be believed.

    Parameters
    ----------
    run : ParsedRun
        A run of a request-level reader.

    Raises
    ------
    AssertionError
        When a row or a statistic is impossible, or a reject says more than its reason.
    """
    served, seen = run.served, run.observed
    times = (served.arrival_s, served.first_token_s, served.finish_s)
    inner = (served.queue_s, served.prefill_s, served.decode_s)
    assert not any(np.isinf(each).any() for each in (*times, *inner))
    assert ((served.prompt_tokens >= 1) & (served.prompt_tokens <= MAX_TOKENS)).all()
    assert ((served.output_tokens >= 1) & (served.output_tokens <= MAX_TOKENS)).all()
    assert not (served.first_token_s < served.arrival_s).any()
    assert not (served.finish_s < served.arrival_s).any()
    assert not any((each < 0).any() for each in inner)
    assert ((served.observer >= 0) & (served.observer < len(OBSERVERS))).all()
    assert np.isfinite(seen.value).all()
    assert (seen.count >= 1).all()
    assert served.request.size <= run.counts.recognised
    for reject in run.rejects:
        assert reject.text == ""
        assert reject.reason.isascii()
        assert 0 < len(reject.reason) <= MAX_REASON_CHARACTERS


def damaged(rng: random.Random, reader: str, data: bytes) -> bytes:
    """Damage what a source says, and not its syntax, so that a reader gets past the latter.

    Parameters
    ----------
    rng : random.Random
        Where chance comes from.
    reader : str
        A request-level reader.
    data : bytes
        A source.

    Returns
    -------
    bytes
        A source of the same syntax; the data itself where that has none.
    """
    if reader == "prometheus":
        lines = data.split(b"\n")
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(lines))
            left = lines[at].rsplit(b" ", 1)[0]
            value = rng.choice(_SAMPLES).encode()
            other = rng.choice(lines)
            lines[at] = rng.choice((left + b" " + value, lines[at][: rng.randrange(60)], other))
        return b"\n".join(lines)
    values = json_values(data)
    for _ in range(rng.randint(1, 3) if values else 0):
        _damage(rng, values)
    try:
        return "\n".join(json.dumps(value) for value in values).encode() if values else data
    except ValueError:  # an integer of more digits than Python writes
        return data


def _damage(rng: random.Random, inside: Any) -> None:
    """Change one place within a list or a mapping."""
    while True:
        places = list(inside) if isinstance(inside, dict) else list(range(len(inside)))
        if not places:
            return
        place = rng.choice(places)
        held = inside[place]
        if not (isinstance(held, list | dict) and held) or rng.random() < 0.15:
            break
        inside = held
    kind = rng.randrange(8)
    if kind == 0:
        del inside[place]
    elif kind == 1 and isinstance(inside, list):
        inside.insert(place, held)
    else:
        inside[place] = rng.choice(AWKWARD)
