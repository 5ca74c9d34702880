"""The ``otel-requests`` reader: vLLM's own OpenTelemetry span ``llm_request``.

JSON lines of an export of traces (``resourceSpans``, ``scopeSpans``, ``spans``). A span is one
request: its start is the arrival at the front end, its attributes hold token counts and times in
seconds. The time to the first token counts from the arrival, those in queue, prefill and decode
are the engine core's; what is left is the front end's. Spans of the inference-sim fork with the
same name carry events and no such attributes; they are recognised and left alone.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from kernelfit.documents.runs import RunFacts
from kernelfit.logs.columns import ParsedRun
from kernelfit.logs.lines import TruncatedFile, read_lines
from kernelfit.logs.served import FAILED, Row, Sheet, all_nan, count_of, inside, real, refuse_format
from kernelfit.logs.source import RunSource

SPAN = "llm_request"
_LATENCY = "gen_ai.latency."
_USAGE = "gen_ai.usage."
_WRITTEN = re.compile(r"-?[0-9]{1,30}(?:\.[0-9]{1,30})?(?:[eE][-+]?[0-9]{1,3})?")


class OtelRequestsReader:
    """Reader of request spans."""

    name = "otel-requests"
    version = 2
    needs_facts = False

    def files(self, source: RunSource) -> tuple[Path, ...]:
        """Return the file; parameters as ``Reader.files``."""
        return (source.path,)

    def read(self, source: RunSource, facts: RunFacts | None) -> tuple[ParsedRun, ...]:
        """Read spans; parameters and errors as ``Reader.read``."""
        del facts
        sheet = Sheet(source.path.name)
        number = known = 0
        try:
            for number, line in read_lines(source.path):
                if not line.strip():
                    sheet.lines += 1
                    continue
                try:
                    value = msgspec.json.decode(line)
                except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                    sheet.refuse(number, "not a line of JSON")
                    continue
                spans = list(_spans(value))
                known += bool(inside(value, "resourceSpans"))
                sheet.lines += not spans
                for span in spans:
                    _request(sheet, number, span)
        except TruncatedFile:
            sheet.refuse(number + 1, "the compressed file ends early")
        if not known:
            hint = "JSON lines with resourceSpans"
            raise refuse_format(source.path, "an OpenTelemetry export of traces", hint)
        return (sheet.run("engine", "the front end's wall clock", {"reader": self.name}),)


def _items(value: Any, key: str) -> Iterator[Any]:
    found = inside(value, key)
    yield from found if isinstance(found, list) else ()


def _spans(value: Any) -> Iterator[Any]:
    for resource in _items(value, "resourceSpans"):
        for scope in _items(resource, "scopeSpans"):
            yield from _items(scope, "spans")


def _request(sheet: Sheet, number: int, span: Any) -> None:
    if not isinstance(span, Mapping):
        sheet.refuse(number, "a span is no object")
        return
    attributes = {
        str(inside(item, "key")): _number(inside(item, "value"))
        for item in _items(span, "attributes")
    }

    def seconds(name: str) -> float:
        return attributes.get(f"{_LATENCY}{name}", math.nan)

    first, whole = seconds("time_to_first_token"), seconds("e2e")
    if inside(span, "name") != SPAN or all_nan((first, whole)):
        sheet.lines += 1
        return
    output = count_of(attributes.get(f"{_USAGE}completion_tokens"))
    if not output:
        sheet.refuse(number, f"{FAILED}: the request has no output token")
        return
    arrival = _number({"intValue": inside(span, "startTimeUnixNano")}) * 1e-9
    if math.isnan(arrival):
        # On a clock of all requests it would pass for one of 1970.
        sheet.refuse(number, "the span states no start")
        return
    sheet.add(
        Row(
            number,
            arrival_s=arrival,
            first_token_s=arrival + first,
            finish_s=arrival + whole,
            prompt_tokens=count_of(attributes.get(f"{_USAGE}prompt_tokens"), 1),
            output_tokens=output,
            queue_s=seconds("time_in_queue"),
            prefill_s=seconds("time_in_model_prefill"),
            decode_s=seconds("time_in_model_decode"),
        )
    )


def _number(value: Any) -> float:
    """Return a number of the wire form, in which a 64-bit integer is text."""
    stated = inside(value, "intValue")
    if stated is None:
        stated = inside(value, "doubleValue")
    if isinstance(stated, str):
        if not _WRITTEN.fullmatch(stated):
            return math.nan
        stated = float(stated)
    return real(stated)
