"""The ``guidellm`` reader: ``benchmarks.json`` of guidellm 0.8.

Every benchmark of the file (one per rate or concurrency) is a run. Requests stand under
``requests.successful`` with their times in ``info.timings``, in seconds of the epoch. A request
begins with ``request_start``, when it was sent; ``scheduled_at`` and ``targeted_start`` are when
it was to be sent, and counting from there would add the client's own lateness. The chunks that
held tokens are ``token_iterations``; where they are fewer than the tokens, several came in one.
Requests under ``errored`` and ``incomplete`` are rejected with ``failed``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernelfit.documents.runs import RunFacts
from kernelfit.logs.columns import ParsedRun
from kernelfit.logs.served import (
    FAILED,
    Row,
    Sheet,
    count_of,
    inside,
    read_json_values,
    real,
    refuse_format,
)
from kernelfit.logs.source import RunSource


class GuidellmReader:
    """Reader of guidellm's reports."""

    name = "guidellm"
    version = 2
    needs_facts = False

    def files(self, source: RunSource) -> tuple[Path, ...]:
        """Return the file; parameters as ``Reader.files``."""
        return (source.path,)

    def read(self, source: RunSource, facts: RunFacts | None) -> tuple[ParsedRun, ...]:
        """Read a report; parameters and errors as ``Reader.read``."""
        del facts
        runs = []
        for _, value in read_json_values(source.path):
            benchmarks = inside(value, "benchmarks")
            if not isinstance(benchmarks, list):
                hint = "an object with a list of benchmarks"
                raise refuse_format(source.path, "a report of guidellm", hint)
            runs += [
                _benchmark(source.path, place, benchmark)
                for place, benchmark in enumerate(benchmarks, start=1)
            ]
        return tuple(runs)


def _benchmark(path: Path, place: int, benchmark: Any) -> ParsedRun:
    sheet = Sheet(path.name)
    groups = inside(benchmark, "requests")
    if not isinstance(groups, Mapping):
        sheet.refuse(place, f"benchmark {place} holds no requests by what became of them")
    for group in ("successful", "errored", "incomplete"):
        entries = inside(groups, group)
        if entries is None:
            continue
        if not isinstance(entries, list):
            sheet.refuse(place, f"benchmark {place}: what stands under {group} is no list")
            continue
        for number, entry in enumerate(entries, start=1):
            if group == "successful":
                _request(sheet, number, entry)
            else:
                sheet.refuse(number, f"{FAILED}: the request stands under {group}")
    return sheet.run("client", "the client's wall clock", {"reader": "guidellm"})


def _request(sheet: Sheet, number: int, entry: Any) -> None:
    timings = inside(entry, "info", "timings")
    if not isinstance(timings, Mapping):
        sheet.refuse(number, "the request has no timings")
        return
    output = _tokens(entry, "output")
    if not output:
        sheet.refuse(number, f"{FAILED}: the request has no output token")
        return
    last = real(timings.get("last_token_iteration"))
    sheet.add(
        Row(
            number,
            arrival_s=real(timings.get("request_start")),
            first_token_s=real(timings.get("first_token_iteration")),
            finish_s=real(timings.get("request_end")) if last != last else last,
            prompt_tokens=_tokens(entry, "prompt"),
            output_tokens=output,
            chunks=count_of(timings.get("token_iterations"), 1),
        )
    )


def _tokens(entry: Any, which: str) -> int | None:
    """Return a count of tokens: stated as such, or by the metrics of either side."""
    side = {"prompt": "input_metrics", "output": "output_metrics"}[which]
    for value in (
        inside(entry, f"{which}_tokens"),
        inside(entry, side, "total_tokens"),
        inside(entry, side, "text_tokens"),
    ):
        found = count_of(value, 1 if which == "prompt" else 0)
        if found is not None:
            return found
    return None
