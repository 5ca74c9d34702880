"""From a line of an engine's log to its message: wraps, colours and prefixes.

The same record reaches a file in many coats: as printed, coloured, as one JSON
object, or inside the container runtime's own JSON. The coats are taken off in that
order, at most three deep.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import msgspec

_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_PROCESS = re.compile(r"\(([A-Za-z][^()=]*?) pid=(\d{1,10})(?:, ip=[^()]*)?\)")
_ENGINE_PROCESS = re.compile(r"EngineCore_(?:DP)?(\d{1,6})")
_HEADER = re.compile(
    r"(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) +\d\d-\d\d \d\d:\d\d:\d\d "
    r"|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\S* .{0,60}?vllm\.[\w.]+"
)
_DEPTH = 3
_MESSAGE_KEYS = ("message", "log", "msg")


@dataclass(frozen=True, slots=True)
class Unwrapped:
    """A record without its coats.

    Attributes
    ----------
    text : str
        The record as printed, without colours.
    stamp : str
        What kind of time stands beside it: ``dated_ms`` (a JSON record),
        ``container`` (the runtime's stamp) or ``printed`` (month, day and second).
    process : str
        Name of the process, where a JSON record states it.
    pid : int or None
        Process id that a JSON record states.
    broken : bool
        Whether the line began as JSON and could not be decoded.
    """

    text: str
    stamp: str = "printed"
    process: str = ""
    pid: int | None = None
    broken: bool = False


def unwrap(line: bytes) -> Unwrapped:
    """Take the coats off a line.

    Parameters
    ----------
    line : bytes
        One physical line.

    Returns
    -------
    Unwrapped
        Its record.
    """
    text = line.decode("utf-8", "replace")
    stamp, process, pid = "printed", "", None
    for _ in range(_DEPTH):
        text = _ANSI.sub("", text).strip()
        if not text.startswith("{"):
            return Unwrapped(text, stamp, process, pid)
        try:
            record = msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError):
            return Unwrapped(text, stamp, process, pid, broken=True)
        inner = next((record[k] for k in _MESSAGE_KEYS if isinstance(record.get(k), str)), None)
        if inner is None:
            return Unwrapped(text, stamp, process, pid)
        if "asctime" in record:
            stamp = "dated_ms"
        elif "time" in record:
            stamp = "container"
        process = str(record.get("vllm_process_name") or process)
        number = record.get("process")
        pid = number if isinstance(number, int) else pid
        text = inner
    return Unwrapped(_ANSI.sub("", text).strip(), stamp, process, pid)


def is_header(line: bytes) -> bool:
    """Whether a line is a log record of vLLM.

    Parameters
    ----------
    line : bytes
        One physical line.

    Returns
    -------
    bool
        True for a printed header, and for a JSON record of one of its loggers.
    """
    head = line[:2000]
    if b'"levelname"' in head and b"vllm" in head:
        return True
    return _HEADER.search(_ANSI.sub("", head.decode("utf-8", "replace"))) is not None


def process_of(prefix: str, record: Unwrapped) -> tuple[int | None, int | None]:
    """Return the engine index and the process id that a prefix states.

    Parameters
    ----------
    prefix : str
        Text before the message.
    record : Unwrapped
        The record, whose JSON coat may state them too.

    Returns
    -------
    tuple of (int or None, int or None)
        Engine (data-parallel rank) and process id; None where not stated.
    """
    name, pid = record.process, record.pid
    stated = _PROCESS.findall(prefix)
    if stated:
        name, pid = stated[-1][0], int(stated[-1][1])
    engine = _ENGINE_PROCESS.search(name)
    return (int(engine.group(1)) if engine else None, pid)
