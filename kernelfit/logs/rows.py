"""Typed rows of the recorder's files, and the decoder that reads them."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import msgspec

from kernelfit.logs.columns import MAX_REASON_CHARACTERS, MAX_TOKENS, UNKNOWN, Reject
from kernelfit.logs.lines import TruncatedFile, clip, read_lines

FORMAT_NAME = "kernelfit"
FORMAT_VERSION = 1


# Ranges are checked while decoding, where they cost next to nothing.
Count = Annotated[int, msgspec.Meta(ge=0, le=2**40)]
Scheduled = Annotated[int, msgspec.Meta(ge=1, le=MAX_TOKENS)]
Tokens = Annotated[int, msgspec.Meta(ge=0, le=MAX_TOKENS)]
Moment = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]


class Header(msgspec.Struct, tag_field="t", tag="header", gc=False):
    """The first row of a file."""

    format: str
    version: int
    role: str
    engine_version: str | None = None


class Clock(msgspec.Struct, tag_field="t", tag="clock", gc=False):
    """A pairing of the wall clock and the monotonic clock."""

    wall_ns: int
    mono_ns: int


class StepRow(msgspec.Struct, tag_field="t", tag="step", gc=False):
    """One step, seen from the engine's process."""

    i: Count
    n: Count
    sched_ns: tuple[Moment, Moment]
    scheduled: list[Scheduled]
    computed: list[Tokens | None]
    prompt_len: list[Tokens | None]
    cached: list[Tokens | None]
    submit_ns: tuple[Moment, Moment] | None = None
    update_ns: tuple[Moment, Moment] | None = None
    resumed: Count = 0
    preempted: Count = 0
    drafts: Count = 0
    in_flight: Count = 1
    kv_usage: Share | None = None
    cost_ns: Moment = 0


class WorkerRow(msgspec.Struct, tag_field="t", tag="worker", gc=False):
    """One forward pass, seen from a worker's process."""

    i: Count
    rank: Count
    n: Count
    span_ns: tuple[Moment, Moment]
    gpu_ms: float | None = None
    probe_ns: Moment | None = None


_DECODER = msgspec.json.Decoder(Header | Clock | StepRow | WorkerRow)


@dataclass(slots=True)
class FlatCounts:
    """The counts of every request, step after step.

    Attributes
    ----------
    ends : array of int
        Where each step's requests end.
    scheduled, computed, prompt_len, cached : array of int
        The four counts [tokens]; ``UNKNOWN`` where the recorder wrote null.
    """

    ends: array[int] = field(default_factory=lambda: array("q"))
    scheduled: array[int] = field(default_factory=lambda: array("q"))
    computed: array[int] = field(default_factory=lambda: array("q"))
    prompt_len: array[int] = field(default_factory=lambda: array("q"))
    cached: array[int] = field(default_factory=lambda: array("q"))

    def take(self, row: StepRow) -> bool:
        """Move a step's lists here, so that they do not live on as objects.

        Parameters
        ----------
        row : StepRow
            The step; its lists are empty afterwards.

        Returns
        -------
        bool
            False when the lists differ in length; nothing is then moved.
        """
        size = len(row.scheduled)
        if not size == len(row.computed) == len(row.prompt_len) == len(row.cached):
            return False
        self.scheduled.fromlist(row.scheduled)
        _extend(self.computed, row.computed)
        _extend(self.prompt_len, row.prompt_len)
        _extend(self.cached, row.cached)
        self.ends.append(len(self.scheduled))
        row.scheduled = _NO_COUNTS
        row.computed = row.prompt_len = row.cached = _NO_OPTIONAL_COUNTS
        return True


_NO_COUNTS: list[int] = []
_NO_OPTIONAL_COUNTS: list[int | None] = []


def _extend(values: array[int], more: Sequence[int | None]) -> None:
    try:
        values.fromlist(more)  # type: ignore[arg-type]
    except TypeError:  # a null; the array is then unchanged
        values.extend(UNKNOWN if item is None else item for item in more)


@dataclass(slots=True)
class RecorderFile:
    """The rows of one file, with the line that each came from.

    Attributes
    ----------
    path : pathlib.Path
        The file.
    headers : list of (int, Header)
        Header rows with their line numbers.
    steps, workers : list
        Rows, in file order; the steps' lists are in ``counts``.
    counts : FlatCounts
        The four counts of every request.
    step_lines, worker_lines : list of int
        Line number of each row, from 1.
    rejects : list of Reject
        Lines that are no row.
    lines : int
        Lines read.
    recognised : int
        Header, clock and empty lines.
    """

    path: Path
    headers: list[tuple[int, Header]] = field(default_factory=list)
    steps: list[StepRow] = field(default_factory=list)
    counts: FlatCounts = field(default_factory=FlatCounts)
    step_lines: list[int] = field(default_factory=list)
    workers: list[WorkerRow] = field(default_factory=list)
    worker_lines: list[int] = field(default_factory=list)
    rejects: list[Reject] = field(default_factory=list)
    lines: int = 0
    recognised: int = 0


def read_recorder_file(path: Path) -> RecorderFile:
    """Read one file of the recorder.

    Parameters
    ----------
    path : pathlib.Path
        An ``engine-*.jsonl`` or ``worker-*.jsonl`` file, plain or compressed.

    Returns
    -------
    RecorderFile
        Every line of it, as a row, as recognised or as a reject.
    """
    found = RecorderFile(path)
    decode, take = _DECODER.decode, found.counts.take
    number = 0
    try:
        for number, line in read_lines(path):
            try:
                row = decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                if line.strip():
                    found.rejects.append(undecodable(path, number, line, error))
                else:
                    found.recognised += 1
                continue
            if type(row) is StepRow:
                if take(row):
                    found.steps.append(row)
                    found.step_lines.append(number)
                else:
                    reason = "the lists of counts differ in length"
                    found.rejects.append(Reject(path.name, number, reason, clip(line)))
            elif type(row) is WorkerRow:
                found.workers.append(row)
                found.worker_lines.append(number)
            else:
                found.recognised += 1
                if type(row) is Header:
                    found.headers.append((number, row))
    except TruncatedFile as error:
        number += 1
        found.rejects.append(
            Reject(path.name, number, f"the compressed file ends early or is damaged: {error}", "")
        )
    found.lines = number
    return found


def undecodable(path: Path, number: int, line: bytes, error: Exception) -> Reject:
    """Return the reject of a line that is no row.

    Parameters
    ----------
    path : pathlib.Path
        The file.
    number : int
        The line, from 1.
    line : bytes
        The line itself.
    error : Exception
        What the decoder said.

    Returns
    -------
    Reject
        With the reason in plain words.
    """
    if isinstance(error, msgspec.ValidationError):
        reason = f"not a row of the recorder: {error}"
    elif b"NaN" in line or b"Infinity" in line:
        reason = "a value is not a number (NaN or infinity)"
    elif line.lstrip().startswith(b"{") and not line.rstrip().endswith(b"}"):
        reason = "the line is cut short"
    else:
        reason = f"not JSON: {error}"
    return Reject(path.name, number, reason[:MAX_REASON_CHARACTERS], clip(line))
