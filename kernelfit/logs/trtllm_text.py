"""The iteration line of TensorRT-LLM, by version."""

from __future__ import annotations

import ast
import math
import re
from dataclasses import dataclass, field

WORD = "iter = "
ITERATION = re.compile(
    r"\biter = (\d{1,12}), global_rank = (\d{1,6}), rank = (\d{1,6}), "
    r"(?P<fields>[^{}]*?)states = \{(?P<states>[^{}]*)\}(?P<tail>(?:, \w+ = [^,\s]+)*)"
)
HEADER = re.compile(
    r"\[\d\d/\d\d/\d{4}-\d\d:\d\d:\d\d\] \[TRT-LLM\] \[[A-Z]\]"
    r"|\[TensorRT-LLM\]\[[A-Z]+\]|TensorRT-LLM version: "
)
_PAIR = re.compile(r"(\w+)(?: = |: )((?:\[[^\]]*\])|[^,]+?)(?:, |$)")
_TENSOR = re.compile(r"tensor\(\s*(-?\d+)\s*(?:,[^()]*)?\)")
_TIME = re.compile(r"(-?[\d.]+(?:[eE][+-]?\d+)?)(ms|s|us)")
_SCALE = {"s": 1.0, "ms": 1e-3, "us": 1e-6}
_END = re.compile(r"[\s│|]*$")
_NOT_KNOWN = ("N/A", "nan", "inf", "None")


@dataclass(frozen=True, slots=True)
class Iteration:
    """An iteration line, taken apart; None where the version does not print it.

    Attributes
    ----------
    index, global_rank, rank : int
        Number of the loop, and the process that printed it.
    context_requests, context_tokens, generation_tokens : int
        What was scheduled, padding of captured graphs included [tokens].
    scheduled_requests : int or None
        Requests of the iteration.
    cached_tokens : int or None
        KV tokens that the scheduled requests had before [tokens].
    elapsed_s, host_s, previous_device_s : float or None
        Time of the loop, the same in later versions, and the device time of the loop
        before [s].
    kv_usage : float or None
        Share of the KV cache in use [1].
    stamp : str or None
        The time that the line states.
    """

    index: int
    global_rank: int
    rank: int
    context_requests: int
    context_tokens: int
    generation_tokens: int
    scheduled_requests: int | None = None
    cached_tokens: int | None = None
    elapsed_s: float | None = None
    host_s: float | None = None
    previous_device_s: float | None = None
    kv_usage: float | None = None
    stamp: str | None = None


@dataclass(slots=True)
class _Fields:
    """The ``key = value`` pairs of a line."""

    values: dict[str, str] = field(default_factory=dict)

    def count(self, key: str) -> int | None:
        text = self.values.get(key)
        if text is None or text in _NOT_KNOWN:
            return None
        if not (text.isascii() and text.isdigit() and len(text) < 13):
            raise ValueError(f"{key} is not a count")
        return int(text)

    def seconds(self, key: str) -> float | None:
        text = self.values.get(key)
        if text is None or text in _NOT_KNOWN:
            return None
        found = _TIME.fullmatch(text)
        value = float(found.group(1)) * _SCALE[found.group(2)] if found else math.nan
        if not math.isfinite(value):
            raise ValueError(f"{key} is not a time")
        if value < 0:
            raise ValueError(f"{key} is negative")
        return value

    def share(self, key: str) -> float | None:
        text = self.values.get(key)
        if text is None or text in _NOT_KNOWN:
            return None
        value = float(text.rstrip("%")) / (100.0 if text.endswith("%") else 1.0)
        if not 0.0 <= value <= 1.0:
            raise ValueError(f"{key} is not a share")
        return value


def iteration_of(text: str, at: int = 0) -> tuple[Iteration, int] | str:
    """Take an iteration line apart.

    Parameters
    ----------
    text : str
        A line without colours.
    at : int
        Where to look from.

    Returns
    -------
    tuple of (Iteration, int) or str
        The iteration and the end of its record, or what is wrong with it.
    """
    found = ITERATION.search(text, at)
    if found is None:
        return "the iteration line is cut or not understood"
    fields = _Fields(
        dict(_PAIR.findall(found.group("fields").rstrip(", ")))
        | dict(_PAIR.findall(found.group("tail").lstrip(", ")))
    )
    try:
        states = ast.literal_eval("{" + _TENSOR.sub(r"\1", found.group("states")) + "}")
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        return "states is not understood"
    if not isinstance(states, dict):
        return "states is not understood"
    counts: dict[str, int] = {}
    for key in ("num_ctx_requests", "num_ctx_tokens", "num_generation_tokens"):
        value = states.get(key)
        if type(value) is not int or not 0 <= value < 2**40:
            return f"{key} is missing or no count"
        counts[key] = value
    cached = states.get("cached_kv_tokens")
    if cached is not None and (type(cached) is not int or cached < 0):
        return "cached_kv_tokens is no count"
    try:
        if cached is None:
            cached = fields.count("cached_kv_len")
        done = Iteration(
            int(found.group(1)),
            int(found.group(2)),
            int(found.group(3)),
            counts["num_ctx_requests"],
            counts["num_ctx_tokens"],
            counts["num_generation_tokens"],
            fields.count("num_scheduled_requests"),
            cached,
            fields.seconds("elapsed_time"),
            fields.seconds("host_step_time"),
            fields.seconds("prev_device_step_time"),
            fields.share("kv_cache_util"),
            fields.values.get("timestamp"),
        )
    except ValueError as error:
        reason = str(error)
        return reason if "could not convert" not in reason else "a value is not a number"
    return done, found.end()


def ends_clean(text: str, end: int) -> bool:
    """Whether nothing but a box follows a record.

    Parameters
    ----------
    text : str
        The line.
    end : int
        End of the record.

    Returns
    -------
    bool
        False where something else follows, so that the record may be cut.
    """
    return _END.match(text, end) is not None
