"""The ``prometheus`` reader: scrapes of vLLM's ``/metrics``, at least two.

Counters only grow, so what happened between two scrapes is their difference; one scrape alone
says nothing of a time. A file holds several scrapes one after the other: a new one begins where
a series is met again. Each series is set against itself, and the differences of several engines
and API servers are added up. Where one fell its server was restarted, and the interval is
rejected with ``counter_reset``; where the two scrapes hold other series, a sum over them would
take what a server did before for what it did between, and the interval is rejected too. Where no
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
from kernelfit.logs.lines import TruncatedFile, read_lines
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

_SAMPLE = re.compile(
    r"(vllm:[a-zA-Z0-9_:]+)(\{(?:[^\"}]|\"(?:[^\"\\]|\\.)*\")*\})?\s+(\S+)(?:\s+-?[0-9]+)?(?:\s+#.*)?"
)
_USED = frozenset(f"{PREFIX}{name}_{part}" for name in QUANTITIES for part in ("sum", "count"))
_LARGEST = 2.0**53
"""Largest counter in which one more can be told."""

Scrape = Mapping[str, Mapping[str, float]]
"""Value of each series by its labels, by the name of its metric; NaN where it cannot be read."""


class PrometheusReader:
    """Reader of scrapes."""

    name = "prometheus"
    version = 2
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


def _scrapes(path: Path, sheet: Sheet) -> list[tuple[int, dict[str, dict[str, float]]]]:
    """Return each scrape's first line and its series."""
    scrapes: list[tuple[int, dict[str, dict[str, float]]]] = []
    number = 0
    try:
        for number, raw in read_lines(path):
            line = raw.decode("utf-8", "replace").strip()
            sample = _SAMPLE.fullmatch(line)
            if sample is None:
                if line.startswith(PREFIX):
                    sheet.refuse(number, "a line that begins with vllm: is no sample")
                else:
                    sheet.lines += 1
                continue
            name, labels = sample[1], sample[2] or ""
            value = _value(name, sample[3])
            if value is None:
                # The name may be anything; one of those that are read is known to be none.
                known = name if name in _USED else "a sample"
                sheet.refuse(number, f"the value of {known} is no number that it can have")
            else:
                sheet.lines += 1
            if not scrapes or labels in scrapes[-1][1].get(name, {}):
                scrapes.append((number, {}))
            scrapes[-1][1].setdefault(name, {})[labels] = math.nan if value is None else value
    except TruncatedFile:
        sheet.refuse(number + 1, "the compressed file ends early")
    return scrapes


def _value(name: str, text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if name not in _USED or 0.0 <= value <= _LARGEST else None


def _interval(sheet: Sheet, window: int, line: int, before: Scrape, after: Scrape) -> None:
    grown: dict[str, tuple[float, int]] = {}
    for metric, quantity in QUANTITIES.items():
        both = [
            (before.get(name, {}), after.get(name, {}))
            for name in (f"{PREFIX}{metric}_{part}" for part in ("sum", "count"))
        ]
        if any(old.keys() != new.keys() for old, new in both):
            sheet.refuse(line, f"the series of {PREFIX}{metric} are not those of the scrape before")
            return
        grown_by = [[new[key] - old[key] for key in old] for old, new in both]
        if any(each < 0 for part in grown_by for each in part):
            sheet.refuse(line, f"{RESET}: {PREFIX}{metric} fell since the scrape before")
            return
        total, count = (math.fsum(part) for part in grown_by)
        if not all(new for _, new in both) or math.isnan(total):
            continue
        if count >= 1 and quantity not in grown:
            grown[quantity] = (total, int(count))
    for quantity, (total, count) in grown.items():
        sheet.observe(quantity, "sum", total, count, window)
