"""The ``inference-perf`` reader: ``per_request_lifecycle_metrics.json`` of inference-perf 0.7.

A list of requests with ``start_time``, ``end_time`` and, in ``info``, token counts and the time
of every chunk, all on the client's monotonic clock. ``scheduled_time`` is when a request was to
be sent; times count from ``start_time``. Tokens that arrive in one chunk carry one time each, a
few microseconds apart, so times closer than 50 us are one chunk. The prompt and the answer stand
in ``request`` and ``response``; neither is kept.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
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
    inside,
    numbers,
    read_json_values,
    real,
    refuse_format,
)
from kernelfit.logs.source import RunSource

SAME_CHUNK_S = 50e-6
"""Time between two tokens up to which they came in one chunk [s]: no step is as short."""


class InferencePerfReader:
    """Reader of inference-perf's requests."""

    name = "inference-perf"
    version = 2
    needs_facts = False

    def files(self, source: RunSource) -> tuple[Path, ...]:
        """Return the file; parameters as ``Reader.files``."""
        return (source.path,)

    def read(self, source: RunSource, facts: RunFacts | None) -> tuple[ParsedRun, ...]:
        """Read requests; parameters and errors as ``Reader.read``."""
        del facts
        sheet = Sheet(source.path.name)
        for _, value in read_json_values(source.path):
            if not isinstance(value, list):
                hint = "a list of requests with start_time, end_time and info"
                raise refuse_format(source.path, "a per-request file of inference-perf", hint)
            for number, entry in enumerate(value, start=1):
                _request(sheet, number, entry)
        return (sheet.run("client", "the client's monotonic clock", {"reader": self.name}),)


def _request(sheet: Sheet, number: int, entry: Any) -> None:
    if inside(entry, "error") is not None:
        sheet.refuse(number, f"{FAILED}: an error is noted")
        return
    info = inside(entry, "info")
    response = inside(info, "response_metrics")
    output = count_of(inside(info, "output_tokens"))
    if output is None:
        output = count_of(inside(response, "output_tokens"))
    listed = inside(info, "output_token_times")
    times = numbers(listed if listed is not None else inside(response, "output_token_times"))
    if not output:
        sheet.refuse(number, f"{FAILED}: the request has no output token")
        return
    if times is None and (listed is not None or inside(response, "output_token_times")):
        sheet.refuse(number, "the times of its tokens are no numbers")
        return
    if times and any(after < before for before, after in pairwise(times)):
        sheet.refuse(number, f"{ORDER}: a token comes before the one that precedes it")
        return
    prompt = count_of(inside(info, "input_tokens"), 1)
    if prompt is None:
        prompt = count_of(inside(info, "request_metrics", "text", "input_tokens"), 1)
    sheet.add(
        Row(
            number,
            arrival_s=real(inside(entry, "start_time")),
            first_token_s=times[0] if times else math.nan,
            finish_s=times[-1] if times else real(inside(entry, "end_time")),
            prompt_tokens=prompt,
            output_tokens=output,
            chunks=chunks(times) if times else None,
        )
    )


def chunks(times_s: Sequence[float]) -> int:
    """Return in how many chunks tokens arrived.

    Parameters
    ----------
    times_s : sequence of float
        Time of each token, ascending [s].

    Returns
    -------
    int
        Tokens less those that came with the one before.
    """
    pairs = pairwise(times_s)
    return 1 + sum(after - before > SAME_CHUNK_S for before, after in pairs) if times_s else 0
