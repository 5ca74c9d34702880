"""The ``prometheus`` reader: scrapes of vLLM's ``/metrics``, at least two.

Counters only grow, so what happened between two scrapes is their difference; one scrape alone
says nothing of a time. A file holds several scrapes one after the other: a new one begins where
a series is met again. Series of several engines and API servers are added up. Where a counter
fell the server was restarted, and that interval is rejected with ``counter_reset``; where no
request finished in an interval, it is recognised and holds nothing.

Histograms keep no request: a mean per interval is all that they give, and quantiles read off
their buckets are left out, being as wide as the buckets.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

from kernelfit.documents.runs import RunFacts
from kernelfit.logs.columns import ParsedRun
from kernelfit.logs.lines import read_lines
from kernelfit.logs.served import RESET, Sheet, refuse_format
from kernelfit.logs.source import RunSource

PREFIX = "vllm:"
QUANTITIES: dict[str, str] = {
    "time_to_first_token_seconds": "time_to_first_token",
    "e2e_request_latency_seconds": "end_to_end",
    "inter_token_latency_seconds": "inter_token_latency",
    "time_per_output_token_seconds": "inter_token_latency",
    "request_queue_time_seconds": "queue",
    "request_prefill_time_seconds": "prefill",
    "request_decode_time_seconds": "decode",
    "request_inference_time_seconds": "inference",
    "request_prompt_tokens": "prompt_tokens",
    "request_generation_tokens": "output_tokens",
}
"""What a histogram observes; of two with one meaning the later name is older."""

_SAMPLE = re.compile(r"(vllm:[a-zA-Z0-9_]+)(\{[^}]*\})?\s+(\S+)")

Scrape = Mapping[str, float]


class PrometheusReader:
    """Reader of scrapes."""

    name = "prometheus"
    version = 1
    needs_facts = False

    def files(self, source: RunSource) -> tuple[Path, ...]:
        """Return the file; parameters as ``Reader.files``."""
        return (source.path,)

    def read(self, source: RunSource, facts: RunFacts | None) -> tuple[ParsedRun, ...]:
        """Read scrapes; parameters and errors as ``Reader.read``."""
        del facts
        sheet = Sheet(source.path.name)
        scrapes = _scrapes(source.path, sheet)
        if not any(scrape for _, scrape in scrapes):
            hint = "lines that begin with vllm:"
            raise refuse_format(source.path, "a scrape of vLLM's metrics", hint)
        if len(scrapes) < 2:
            hint = "append a second scrape, taken later; a counter alone says nothing of a time"
            raise refuse_format(source.path, "two scrapes", hint)
        for window, ((_, before), (line, after)) in enumerate(pairwise(scrapes)):
            _interval(sheet, window, line, before, after)
        lines = sheet.lines - len(sheet.rejects)
        return (sheet.run("engine", "none: differences of counters", {"reader": self.name}, lines),)


def _scrapes(path: Path, sheet: Sheet) -> list[tuple[int, dict[str, float]]]:
    """Return each scrape's first line and sums over its series."""
    scrapes: list[tuple[int, dict[str, float]]] = []
    seen: set[str] = set()
    for number, raw in read_lines(path):
        line = raw.decode("utf-8", "replace").strip()
        sample = _SAMPLE.match(line)
        if sample is None:
            sheet.lines += 1
            continue
        name, labels, text = sample[1], sample[2] or "", sample[3]
        try:
            value = float(text)
        except ValueError:
            sheet.refuse(number, f"the value of {name} is no number")
            continue
        sheet.lines += 1
        if not scrapes or name + labels in seen:
            scrapes.append((number, {}))
            seen = set()
        seen.add(name + labels)
        held = scrapes[-1][1]
        held[name] = held.get(name, 0.0) + value
    return scrapes


def _interval(sheet: Sheet, window: int, line: int, before: Scrape, after: Scrape) -> None:
    grown: dict[str, tuple[float, int]] = {}
    for metric, quantity in QUANTITIES.items():
        total, count = (
            after.get(f"{PREFIX}{metric}_{part}", math.nan)
            - before.get(f"{PREFIX}{metric}_{part}", math.nan)
            for part in ("sum", "count")
        )
        if total < 0 or count < 0:
            sheet.refuse(line, f"{RESET}: {PREFIX}{metric} fell since the scrape before")
            return
        if count > 0 and quantity not in grown:
            grown[quantity] = (total, int(count))
    for quantity, (total, count) in grown.items():
        sheet.observe(quantity, "sum", total, count, window)
