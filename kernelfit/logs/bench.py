"""The ``vllm-bench-serve`` and ``vllm-bench-latency`` readers.

``vllm bench serve --save-result`` writes one JSON object with means and percentiles in
milliseconds; ``--save-detailed`` adds a list per quantity with one entry per request, in
seconds; ``--append-result`` writes further objects behind the first. A request that failed
leaves 0.0 as its time to the first token and an empty list of gaps, which would pass for a very
quick one: it is rejected with ``failed``. The gaps are between chunks, not tokens, so their
number is kept beside the tokens. Start times (since 0.16) are on the client's own counter.

``vllm bench latency`` writes seconds per *batch*, and neither the batch nor its lengths: what it
says can be compared, and nothing can be fitted from it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernelfit.documents.runs import RunFacts
from kernelfit.logs.columns import ParsedRun
from kernelfit.logs.served import (
    FAILED,
    ORDER,
    Row,
    Sheet,
    count_of,
    numbers,
    read_json_values,
    real,
    refuse_format,
)
from kernelfit.logs.source import RunSource

_MS = 1e-3
_STATISTIC = re.compile(
    r"(mean|median|std|p(?:100|[0-9]{1,2}(?:\.[0-9]{1,4})?))_(ttft|tpot|itl|e2el)_ms"
)
_QUANTITIES = {
    "ttft": "time_to_first_token",
    "tpot": "time_per_output_token",
    "itl": "inter_token_latency",
    "e2el": "end_to_end",
}
_SUMS = (
    ("total_input_tokens", "prompt_tokens"),
    ("total_output_tokens", "output_tokens"),
)
OWN_ARRIVAL = "each request's own arrival"
"""Clock of a result without start times: it does not say which requests met."""

DETAILS: tuple[str, ...] = ("input_lens", "output_lens", "ttfts", "itls")
_MORE_DETAILS = ("errors", "start_times", "latencies")


class BenchServeReader:
    """Reader of ``vllm bench serve`` results."""

    name = "vllm-bench-serve"
    version = 2
    needs_facts = False

    def files(self, source: RunSource) -> tuple[Path, ...]:
        """Return the file; parameters as ``Reader.files``."""
        return (source.path,)

    def read(self, source: RunSource, facts: RunFacts | None) -> tuple[ParsedRun, ...]:
        """Read results; parameters and errors as ``Reader.read``."""
        del facts
        return tuple(
            _serve(source.path, line, value)
            for line, value in read_json_values(source.path)
            if _is_serve(source.path, value)
        )


def _is_serve(path: Path, value: Any) -> bool:
    if isinstance(value, Mapping) and "completed" in value and "duration" in value:
        return True
    hint = "an object with completed, duration and times such as mean_ttft_ms"
    raise refuse_format(path, "a result of vllm bench serve", hint)


def _serve(path: Path, line: int, result: Mapping[str, Any]) -> ParsedRun:
    sheet = Sheet(path.name)
    completed = count_of(result.get("completed")) or 0
    for key, value in result.items():
        match = _STATISTIC.fullmatch(str(key))
        if match and completed:
            quantity = _QUANTITIES[match[2]]
            sheet.observe(quantity, match[1], real(value) * _MS, completed)
    for key, quantity in _SUMS:
        if completed:
            sheet.observe(quantity, "sum", real(result.get(key)), completed)
    limit = count_of(result.get("max_concurrency"), 1)
    if limit is not None:
        sheet.observe("max_concurrency", "setting", float(limit), 1)
    lists = [result.get(name) for name in DETAILS]
    others = [result.get(name) for name in _MORE_DETAILS]
    sizes = {len(each) for each in (*lists, *others) if isinstance(each, list)}
    if not all(isinstance(each, list) for each in lists):
        sheet.lines += 1
    elif len(sizes) != 1:
        sheet.refuse(line, "the lists of the requests are not all as long")
    else:
        _requests(sheet, line, result)
    stamped = isinstance(result.get("start_times"), list)
    clock = "the client's own counter" if stamped else OWN_ARRIVAL
    return sheet.run("client", clock, {"reader": "vllm-bench-serve"})


def _requests(sheet: Sheet, line: int, result: Mapping[str, Any]) -> None:
    count = len(result["ttfts"])
    given = [result.get(name) for name in _MORE_DETAILS]
    stamped = isinstance(given[1], list)
    errors, starts, ends = (each if isinstance(each, list) else [None] * count for each in given)
    for number in range(count):
        first = real(result["ttfts"][number])
        gaps = numbers(result["itls"][number])
        output = count_of(result["output_lens"][number])
        if errors[number] or first == 0.0 or not output:
            why = "an error is noted" if errors[number] else "no first token came"
            sheet.refuse(line, f"{FAILED}: request {number + 1}: {why}")
            continue
        # On a clock of all requests, one without its start would pass for the very first.
        start = real(starts[number]) if stamped else 0.0
        if math.isnan(first) or math.isnan(start) or gaps is None:
            sheet.refuse(line, f"request {number + 1}: its times are no numbers")
            continue
        if any(gap < 0 for gap in gaps):
            sheet.refuse(line, f"{ORDER}: request {number + 1}: a chunk comes before another")
            continue
        whole = real(ends[number])
        sheet.add(
            Row(
                line,
                arrival_s=start,
                first_token_s=start + first,
                finish_s=start + (first + sum(gaps) if math.isnan(whole) else whole),
                prompt_tokens=count_of(result["input_lens"][number], 1),
                output_tokens=output,
                chunks=1 + len(gaps),
            )
        )


class BenchLatencyReader:
    """Reader of ``vllm bench latency`` results."""

    name = "vllm-bench-latency"
    version = 1
    needs_facts = False

    def files(self, source: RunSource) -> tuple[Path, ...]:
        """Return the file; parameters as ``Reader.files``."""
        return (source.path,)

    def read(self, source: RunSource, facts: RunFacts | None) -> tuple[ParsedRun, ...]:
        """Read a result; parameters and errors as ``Reader.read``."""
        del facts
        sheet = Sheet(source.path.name)
        for window, (line, value) in enumerate(read_json_values(source.path)):
            each = value.get("latencies") if isinstance(value, Mapping) else None
            if not isinstance(each, list) or "avg_latency" not in value:
                hint = "an object with avg_latency, latencies and percentiles"
                raise refuse_format(source.path, "a result of vllm bench latency", hint)
            for entry in each:
                seconds = real(entry)
                if not seconds > 0.0:
                    sheet.refuse(line, "the latency of a batch is no number above zero")
                    continue
                sheet.lines += 1
                sheet.observe("batch_latency", "each", seconds, 1, window)
        return (sheet.run("client", "none: durations alone", {"reader": self.name}),)
