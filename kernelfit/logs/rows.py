"""Typed rows of the recorder's files, and the decoder that checks each line by itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import msgspec

from kernelfit.logs.columns import MAX_REASON_CHARACTERS, MAX_TOKENS
from kernelfit.logs.redact import error_shown

FORMAT_NAME = "kernelfit"
FORMAT_VERSION = 2


# Ranges are checked while decoding, where they cost next to nothing.
Count = Annotated[int, msgspec.Meta(ge=0, le=2**40)]
Scheduled = Annotated[int, msgspec.Meta(ge=1, le=MAX_TOKENS)]
Tokens = Annotated[int, msgspec.Meta(ge=0, le=MAX_TOKENS)]
Moment = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]

MOST_MOMENT_NS = 2**62
"""Largest believable moment [ns]; differences of two still fit 64 bits."""


class Header(msgspec.Struct, tag_field="t", tag="header", gc=False):
    """The first row of a file."""

    format: str
    version: int
    role: str
    engine_version: str | None = None
    pid: int | None = None
    ppid: int | None = None
    boot: str | None = None
    rank: int | None = None
    tp: int | None = None
    pp: int | None = None
    dp: int | None = None


class Clock(msgspec.Struct, tag_field="t", tag="clock", gc=False):
    """A pairing of the wall clock and the monotonic clock."""

    wall_ns: int
    mono_ns: int


class StepScalars(msgspec.Struct, tag_field="t", tag="step", gc=False, kw_only=True):
    """What a step's row holds beside its lists."""

    i: Count
    n: Count
    resumed: Count = 0
    preempted: Count = 0
    drafts: Count = 0
    in_flight: Count = 1
    kv_usage: Share | None = None
    cost_ns: Moment = 0


class StepRow(StepScalars, tag_field="t", tag="step", gc=False, kw_only=True):
    """One step, seen from the engine's process."""

    sched_ns: tuple[Moment, Moment]
    scheduled: list[Scheduled]
    computed: list[Tokens | None]
    prompt_len: list[Tokens | None]
    cached: list[Tokens | None]
    submit_ns: tuple[Moment, Moment] | None = None
    update_ns: tuple[Moment, Moment] | None = None


NOT_GIVEN = msgspec.Raw(b"null")


class PackedStepRow(StepScalars, tag_field="t", tag="step", gc=False, kw_only=True):
    """The same row with its lists as they are written, for decoding many lines at once."""

    sched_ns: msgspec.Raw
    scheduled: msgspec.Raw
    computed: msgspec.Raw
    prompt_len: msgspec.Raw
    cached: msgspec.Raw
    submit_ns: msgspec.Raw = NOT_GIVEN
    update_ns: msgspec.Raw = NOT_GIVEN


class WorkerRow(msgspec.Struct, tag_field="t", tag="worker", gc=False):
    """One forward pass, seen from a worker's process."""

    i: Count
    rank: Count
    n: Count
    span_ns: tuple[Moment, Moment]
    gap_ns: Moment = 0
    cost_ns: Moment = 0
    gpu_ms: float | None = None
    probe_ns: Moment | None = None


class DummyRow(msgspec.Struct, tag_field="t", tag="dummy", gc=False):
    """A pass over nothing, made so that data-parallel ranks keep step."""

    i: Count
    run_ns: tuple[Moment, Moment]
    rank: Count = 0
    wave: Count | None = None
    counter: Count | None = None


Row = Header | Clock | StepRow | WorkerRow | DummyRow
PackedRow = Header | Clock | PackedStepRow | WorkerRow | DummyRow

_DECODER = msgspec.json.Decoder(Row)


@dataclass(frozen=True, slots=True)
class Cut:
    """The beginning of a row at the end of its file, as a killed process leaves it."""


def decode_line(line: bytes) -> Row | Cut | str | None:
    """Decode one line with every check.

    Parameters
    ----------
    line : bytes
        The line.

    Returns
    -------
    Header or Clock or StepRow or WorkerRow or DummyRow or Cut or str or None
        The row, or what is wrong with the line; None for a blank line.
    """
    try:
        row = _DECODER.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        if not line.endswith(b"\n") and line.startswith(b"{"):
            return Cut()
        return undecodable(line, error) if line.strip() else None
    if type(row) is StepRow:
        size = len(row.scheduled)
        if not size == len(row.computed) == len(row.prompt_len) == len(row.cached):
            return "the lists of counts differ in length"
    return row


def undecodable(line: bytes, error: Exception) -> str:
    """Say why a line is no row.

    Parameters
    ----------
    line : bytes
        The line.
    error : Exception
        What the decoder said.

    Returns
    -------
    str
        The reason in plain words.
    """
    if isinstance(error, msgspec.ValidationError):
        reason = f"not a row of the recorder: {error_shown(error)}"
    elif b"NaN" in line or b"Infinity" in line:
        reason = "a value is not a number (NaN or infinity)"
    elif line.lstrip().startswith(b"{") and not line.rstrip().endswith(b"}"):
        reason = "the line is cut short"
    else:
        reason = f"not JSON: {error_shown(error)}"
    return reason[:MAX_REASON_CHARACTERS]
