"""Typed rows of the recorder's files, and the decoder that reads them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from kernelfit.logs.columns import MAX_REASON_CHARACTERS, Reject
from kernelfit.logs.lines import TruncatedFile, clip, read_lines

FORMAT_NAME = "kernelfit"
FORMAT_VERSION = 1


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

    i: int
    n: int
    sched_ns: tuple[int, int]
    scheduled: list[int]
    computed: list[int | None]
    prompt_len: list[int | None]
    cached: list[int | None]
    submit_ns: tuple[int, int] | None = None
    update_ns: tuple[int, int] | None = None
    resumed: int = 0
    preempted: int = 0
    drafts: int = 0
    in_flight: int = 1
    kv_usage: float | None = None
    cost_ns: int = 0


class WorkerRow(msgspec.Struct, tag_field="t", tag="worker", gc=False):
    """One forward pass, seen from a worker's process."""

    i: int
    rank: int
    n: int
    span_ns: tuple[int, int]
    gpu_ms: float | None = None


_DECODER = msgspec.json.Decoder(Header | Clock | StepRow | WorkerRow)


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
        Rows, in file order.
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
    decode = _DECODER.decode
    number = 0
    try:
        for number, line in read_lines(path):
            try:
                row = decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                if line.strip():
                    found.rejects.append(_undecodable(path, number, line, error))
                else:
                    found.recognised += 1
                continue
            if type(row) is StepRow:
                found.steps.append(row)
                found.step_lines.append(number)
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


def _undecodable(path: Path, number: int, line: bytes, error: Exception) -> Reject:
    if isinstance(error, msgspec.ValidationError):
        reason = f"not a row of the recorder: {error}"
    elif b"NaN" in line or b"Infinity" in line:
        reason = "a value is not a number (NaN or infinity)"
    elif line.lstrip().startswith(b"{") and not line.rstrip().endswith(b"}"):
        reason = "the line is cut short"
    else:
        reason = f"not JSON: {error}"
    return Reject(path.name, number, reason[:MAX_REASON_CHARACTERS], clip(line))
