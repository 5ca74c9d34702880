"""Rows of a recording's front end and of its client, and the decoder that reads them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import msgspec

from kernelfit.logs.columns import Reject
from kernelfit.logs.lines import TruncatedFile, clip, read_lines
from kernelfit.logs.rows import FORMAT_NAME, FORMAT_VERSION, Clock, Header, undecodable

Count = Annotated[int, msgspec.Meta(ge=0, le=2**40)]
Moment = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
Spent = Annotated[int, msgspec.Meta(ge=0, le=2**50)]


class Host(msgspec.Struct, tag_field="t", tag="host", gc=False):
    """What a front end runs on, and classes of the engine that the recorder did not find."""

    cpu: str | None = None
    tokenizer: str | None = None
    missing: list[str] = []


class Admission(msgspec.Struct, tag_field="t", tag="admission", gc=False):
    """One request on its way in, seen from the front end."""

    start_ns: Moment
    end_ns: Moment
    tokens: Count
    text: bool
    req: str
    client: str | None = None
    http_ns: Spent = 0
    render_ns: Spent = 0
    tokenize_ns: Spent | None = None
    process_ns: Spent = 0
    send_ns: Spent = 0

    def own_ns(self) -> int:
        """Return the request's own work in the front end [ns].

        Returns
        -------
        int
            Sum of the parts [ns].
        """
        tokenize_ns = self.tokenize_ns or 0
        return self.http_ns + self.render_ns + tokenize_ns + self.process_ns + self.send_ns


class Accept(msgspec.Struct, tag_field="t", tag="accept", gc=False):
    """One request on its way in, seen from the engine core."""

    start_ns: Moment
    end_ns: Moment
    tokens: Count
    req: str


class Output(msgspec.Struct, tag_field="t", tag="output", gc=False):
    """One call that handles a step's outputs."""

    start_ns: Moment
    end_ns: Moment
    requests: Count
    tokens: Count
    finished: Count = 0
    made_ns: Moment | None = None
    transport_ns: Spent = 0
    stream_ns: Spent = 0
    streamed: Count = 0
    stats_ns: Spent = 0
    cost_ns: Spent = 0

    def own_ns(self) -> int:
        """Return the call's work from the engine core to the connections [ns].

        Returns
        -------
        int
            Transport, call, stream and statistics [ns].
        """
        return self.transport_ns + self.end_ns - self.start_ns + self.stream_ns + self.stats_ns


class Done(msgspec.Struct, tag_field="t", tag="done", gc=False):
    """One request that finished, seen from the front end."""

    start_ns: Moment
    end_ns: Moment
    req: str
    arrival_ns: Moment
    first_ns: Moment
    output: Count
    prompt: Count | None = None
    cached: Count | None = None
    client: str | None = None
    queued_ns: Spent | None = None
    prefill_ns: Spent | None = None
    decode_ns: Spent | None = None
    preemptions: Count | None = None


class ServedRow(msgspec.Struct, tag_field="t", tag="served", gc=False):
    """One request, seen from the client."""

    i: Count
    req: str
    arrival_ns: Moment
    end_ns: Moment
    status: int | None = None
    first_ns: Moment | None = None
    last_ns: Moment | None = None
    prompt: Count | None = None
    output: Count | None = None
    cached: Count | None = None
    chunks: Count = 0
    error: bool = False


_DECODER = msgspec.json.Decoder(
    Header | Clock | Host | Admission | Accept | Output | Done | ServedRow
)


@dataclass(slots=True)
class FrontEndFile:
    """The rows of one file, with the line that each came from.

    Attributes
    ----------
    path : pathlib.Path
        The file.
    headers : list of (int, Header)
        Header rows with their line numbers.
    hosts : list of Host
        What the front end runs on.
    admissions, accepts, outputs, done, served : list of (int, row)
        Rows with their line numbers, in file order.
    rejects : list of Reject
        Lines that are no row.
    lines : int
        Lines read.
    recognised : int
        Lines that are no piece of work: headers, clocks, empty ones.
    """

    path: Path
    headers: list[tuple[int, Header]] = field(default_factory=list)
    hosts: list[Host] = field(default_factory=list)
    admissions: list[tuple[int, Admission]] = field(default_factory=list)
    accepts: list[tuple[int, Accept]] = field(default_factory=list)
    outputs: list[tuple[int, Output]] = field(default_factory=list)
    done: list[tuple[int, Done]] = field(default_factory=list)
    served: list[tuple[int, ServedRow]] = field(default_factory=list)
    rejects: list[Reject] = field(default_factory=list)
    lines: int = 0
    recognised: int = 0

    def take(self, number: int, row: object) -> None:
        """Keep one row.

        Parameters
        ----------
        number : int
            Its line, from 1.
        row : object
            What the decoder made of it.
        """
        match row:
            case Admission():
                self.admissions.append((number, row))
            case Accept():
                self.accepts.append((number, row))
            case Output():
                self.outputs.append((number, row))
            case Done():
                self.done.append((number, row))
            case ServedRow():
                self.served.append((number, row))
            case Header():
                self.headers.append((number, row))
                self.recognised += 1
            case Host():
                self.hosts.append(row)
                self.recognised += 1
            case _:
                self.recognised += 1

    def header_fault(self) -> str | None:
        """Return what is wrong with the headers; None when nothing is.

        Returns
        -------
        str or None
            The fault in words.
        """
        if not self.headers:
            return "not a file of the kernelfit recorder: no header row"
        for _, header in self.headers:
            if header.format != FORMAT_NAME or not 1 <= header.version <= FORMAT_VERSION:
                return f"unknown recorder format (got {header.format} version {header.version})"
        return None


def read_front_end_file(path: Path) -> FrontEndFile:
    """Read one file of the front end or of a client.

    Parameters
    ----------
    path : pathlib.Path
        A ``frontend-*.jsonl`` or ``client-*.jsonl`` file, plain or compressed.

    Returns
    -------
    FrontEndFile
        Every line of it, as a row, as recognised or as a reject.
    """
    found = FrontEndFile(path)
    number = 0
    try:
        for number, line in read_lines(path):
            try:
                row = _DECODER.decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                if line.strip():
                    reason = undecodable(line, error)
                    found.rejects.append(Reject(path.name, number, reason, clip(line)))
                else:
                    found.recognised += 1
                continue
            found.take(number, row)
    except TruncatedFile as error:
        number += 1
        reason = f"the compressed file ends early or is damaged: {error}"
        found.rejects.append(Reject(path.name, number, reason, ""))
    found.lines = number
    return found
