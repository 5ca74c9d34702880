"""What a recording's front end and its client saw, as host work and requests served."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from kernelfit.documents.problems import Problem
from kernelfit.logs.arrays import UNKNOWN
from kernelfit.logs.columns import Reject
from kernelfit.logs.feed import recorder_files
from kernelfit.logs.frontend_rows import (
    Accept,
    Admission,
    Done,
    FrontEndFile,
    ServedRow,
    read_front_end_file,
)
from kernelfit.logs.hostwork import (
    EVENT_KINDS,
    OBSERVERS,
    Events,
    Served,
    make_events,
    make_served,
)
from kernelfit.logs.lines import line_texts

ROLES = ("frontend", "client")


def front_end_files(folder: Path) -> tuple[Path, ...]:
    """Return the files of the front end and of clients in a recording.

    Parameters
    ----------
    folder : pathlib.Path
        The recording.

    Returns
    -------
    tuple of pathlib.Path
        ``frontend-*`` before ``client-*``, each sorted by name; plain or compressed.
    """
    return tuple(path for role in ROLES for path in recorder_files(folder, role))


@dataclass(frozen=True, slots=True)
class HostSide:
    """The host's side of a recording.

    Attributes
    ----------
    events : Events
        Host work outside steps, in order of start.
    served : Served
        Requests, as clients and the front end saw them, in order of arrival.
    rejects : tuple of Reject
        Lines that are no row, or no complete piece of work.
    lines, recognised : int
        Lines read, and those that were used or are known to be no work of their own.
    problems : tuple of Problem
        Files that are none of the recorder's.
    cpu, tokenizer : str or None
        What the front end ran on and tokenised with; None where it is not said.
    """

    events: Events
    served: Served
    rejects: tuple[Reject, ...]
    lines: int
    recognised: int
    problems: tuple[Problem, ...]
    cpu: str | None = None
    tokenizer: str | None = None

    @staticmethod
    def none() -> HostSide:
        """Return the host's side of a recording that has none.

        Returns
        -------
        HostSide
            Empty.
        """
        return HostSide(Events.none(), Served.none(), (), 0, 0, ())

    def within(self, first_ns: int, last_ns: int) -> HostSide:
        """Return what began in a span of time, without the account of lines.

        Parameters
        ----------
        first_ns, last_ns : int
            Monotonic clock, the end not included [ns].

        Returns
        -------
        HostSide
            Events and requests of the span.
        """
        start_s, arrival_s = self.events.start_s, self.served.arrival_s
        events = (start_s >= first_ns * 1e-9) & (start_s < last_ns * 1e-9)
        served = (arrival_s >= first_ns * 1e-9) & (arrival_s < last_ns * 1e-9)
        return HostSide(
            make_events(int(events.sum()), _taken(self.events, events)),
            make_served(int(served.sum()), _taken(self.served, served)),
            (),
            0,
            0,
            (),
            self.cpu,
            self.tokenizer,
        )


def read_host_side(folder: Path) -> HostSide:
    """Read the host's side of a recording.

    Parameters
    ----------
    folder : pathlib.Path
        The recording; without such files nothing is found.

    Returns
    -------
    HostSide
        Events, requests and the account of every line.
    """
    files = [read_front_end_file(path) for path in front_end_files(folder)]
    problems = tuple(
        Problem(str(file.path), 1, None, fault)
        for file in files
        if file.lines and (fault := file.header_fault()) is not None
    )
    numbers = _numbers(files)
    used: list[_Work] = []
    faulty: list[Reject] = []
    servers = [file for file in files if file.admissions or file.outputs or file.done]
    accepts = {row.req: row for file in files for _, row in file.accepts}
    for process, file in enumerate(servers):
        found, reasons = _work_of(file, process, accepts, numbers)
        used += found
        faulty += _rejected(file, reasons)
    served: list[dict[str, float]] = []
    for file in files:
        reasons = {}
        for line, row in file.served:
            if (fault := _not_served(row)) is None:
                served.append(_by_client(row, numbers[row.req]))
            else:
                reasons[line] = fault
        served += [_by_engine(row, numbers[row.client or row.req]) for _, row in file.done]
        faulty += _rejected(file, reasons)
    rejects = [reject for file in files for reject in file.rejects] + faulty
    lines = sum(file.lines for file in files)
    used.sort(key=lambda work: (work["start_s"], work["kind"], work["request"]))
    served.sort(key=lambda row: (row["arrival_s"], row["observer"]))
    return HostSide(
        make_events(len(used), _columns(used)),
        make_served(len(served), _columns(served)),
        tuple(rejects),
        lines,
        lines - len(rejects),
        problems,
        _only(host.cpu for file in files for host in file.hosts),
        _only(host.tokenizer for file in files for host in file.hosts),
    )


def _only(names: Iterable[str | None]) -> str | None:
    """Return what all say alike; None where they differ or nothing is said."""
    said = {name for name in names if name}
    return said.pop() if len(said) == 1 else None


_Work = dict[str, float]


def _work_of(
    file: FrontEndFile,
    process: int,
    accepts: Mapping[str, Accept],
    numbers: Mapping[str, int],
) -> tuple[list[_Work], dict[int, str]]:
    """Return one API server's pieces of work, and the lines that are none."""
    found: list[_Work] = []
    reasons: dict[int, str] = {}
    for line, row in file.admissions:
        accept = accepts.get(row.req)
        fault = _incomplete(row, accept is None and bool(accepts))
        if fault is not None:
            reasons[line] = fault
            continue
        own_ns = row.own_ns()
        if accept is not None:
            own_ns += max(0, accept.end_ns - row.end_ns)
        number = numbers[row.client or row.req]
        found.append(_work("admission", row.start_ns, own_ns, row.tokens, 1, process, number))
    # Without a stream (a library's own loop) a call is only a part of an output's work.
    if any(row.streamed for _, row in file.outputs):
        for _, out in file.outputs:
            found.append(
                _work(
                    "output",
                    out.start_ns,
                    out.own_ns(),
                    out.tokens,
                    out.requests,
                    process,
                    UNKNOWN,
                )
            )
    for line, done in file.done:
        if done.end_ns < done.start_ns:
            reasons[line] = "the response was closed before its last token was sent"
            continue
        spent = done.end_ns - done.start_ns
        number = numbers[done.client or done.req]
        found.append(_work("completion", done.start_ns, spent, done.output, 1, process, number))
    return found, reasons


def _work(
    kind: str, start_ns: int, spent_ns: int, tokens: int, requests: int, process: int, request: int
) -> _Work:
    return {
        "kind": EVENT_KINDS.index(kind),
        "start_s": start_ns * 1e-9,
        "duration_s": spent_ns * 1e-9,
        "tokens": tokens,
        "requests": requests,
        "process": process,
        "request": request,
    }


def _incomplete(row: Admission, lost: bool) -> str | None:
    if row.end_ns < row.start_ns:
        return "the admission ends before it starts"
    if row.text and row.tokenize_ns is None:
        return "the prompt was tokenised where the recorder did not see it"
    if lost:
        return "the engine core's part of the admission is missing"
    return None


def _not_served(row: ServedRow) -> str | None:
    if row.status != 200 or row.error:
        return f"the request was not served (status {row.status})"
    if row.first_ns is None or row.last_ns is None:
        return "no token of the answer arrived"
    if not row.arrival_ns <= row.first_ns <= row.last_ns:
        return "the times of the request are out of order"
    if row.prompt is None or row.output is None:
        return "the answer ended without the server's token counts"
    return None


def _by_client(row: ServedRow, number: int) -> dict[str, float]:
    return {
        "request": number,
        "arrival_s": row.arrival_ns * 1e-9,
        "first_token_s": (row.first_ns or 0) * 1e-9,
        "finish_s": (row.last_ns or 0) * 1e-9,
        "prompt_tokens": _known(row.prompt),
        "output_tokens": _known(row.output),
        "cached_tokens": _known(row.cached),
        "chunks": row.chunks,
        "queue_s": np.nan,
        "prefill_s": np.nan,
        "decode_s": np.nan,
        "observer": OBSERVERS.index("client"),
    }


def _by_engine(row: Done, number: int) -> dict[str, float]:
    return {
        "request": number,
        "arrival_s": row.arrival_ns * 1e-9,
        "first_token_s": row.first_ns * 1e-9,
        "finish_s": row.start_ns * 1e-9,
        "prompt_tokens": _known(row.prompt),
        "output_tokens": row.output,
        "cached_tokens": _known(row.cached),
        "chunks": UNKNOWN,
        "queue_s": _seconds(row.queued_ns),
        "prefill_s": _seconds(row.prefill_ns),
        "decode_s": _seconds(row.decode_ns),
        "observer": OBSERVERS.index("engine"),
    }


def _known(count: int | None) -> int:
    return UNKNOWN if count is None else count


def _seconds(spent_ns: int | None) -> float:
    return np.nan if spent_ns is None else spent_ns * 1e-9


def _numbers(files: Sequence[FrontEndFile]) -> dict[str, int]:
    """Return the number of every request, by arrival, under the client's id or the engine's."""
    first: dict[str, int] = {}
    for file in files:
        for _, served in file.served:
            first[served.req] = min(served.arrival_ns, first.get(served.req, 1 << 62))
        for _, row in file.admissions:
            key = row.client or row.req
            first[key] = min(row.start_ns, first.get(key, 1 << 62))
        for _, done in file.done:
            key = done.client or done.req
            first[key] = min(done.arrival_ns, first.get(key, 1 << 62))
    order = sorted(first, key=lambda key: (first[key], key))
    return {key: number for number, key in enumerate(order)}


def _columns(rows: Sequence[Mapping[str, float]]) -> dict[str, np.ndarray]:
    return {name: np.array([row[name] for row in rows]) for name in rows[0]} if rows else {}


def _taken(columns: Events | Served, keep: np.ndarray) -> dict[str, np.ndarray]:
    return {name: getattr(columns, name)[keep] for name in columns.__slots__}


def _rejected(file: FrontEndFile, reasons: Mapping[int, str]) -> list[Reject]:
    texts = line_texts(file.path, list(reasons))
    return [
        Reject(file.path.name, line, reason, texts.get(line, ""))
        for line, reason in sorted(reasons.items())
    ]
