"""vLLM's per-step line, taken apart one physical line at a time."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from kernelfit.logs.columns import MAX_TOKENS
from kernelfit.logs.redact import value_shown
from kernelfit.logs.stamps import stamp_s
from kernelfit.logs.vllm_text import Unwrapped, process_of, unwrap

WORD = "Iteration("
_ITERATION = re.compile(
    r"Iteration\((\d{1,12})\): (\d{1,12}) context requests, (\d{1,12}) context tokens, "
    r"(\d{1,12}) generation requests, (\d{1,12}) generation tokens, "
    r"iteration elapsed time: (\d{1,12}(?:\.\d{1,12})?) ms( \(dummy\))?"
    r"(?:, [\w+ ]+? KV cache usage: (\d{1,12}(?:\.\d{1,12})?)%)?"
    r"(?:, encoder inputs: \d+, encoder output embeddings: \d+)?"
)
_LOOSE = re.compile(
    r"Iteration\(([^)]*)\): (\S+) context requests, (\S+) context tokens, "
    r"(\S+) generation requests, (\S+) generation tokens, iteration elapsed time: (\S+) ms"
)
_LOOSE_NAMES = (
    "iteration",
    "context requests",
    "context tokens",
    "generation requests",
    "generation tokens",
    "elapsed time",
)
_ENGINE = re.compile(r"Engine (\d{3}): $")
# What may follow a complete record: later versions' fields, boxes, Ray's repeat note.
TAIL = re.compile(
    r"(?:, (?![^:]*KV cache usage)[\w ./+-]+: [\w.%+-]+(?: \w{1,4})?)*"
    r"[\s│|]*(?:\[repeated \d+x[^\]]*\])?[\s│|]*$"
)
# A prompt or an answer may quote a log line; it is never a step, and never stored.
QUOTED = re.compile(r"Received request|Generated response|prompt: |prompt_token_ids|output: ")


@dataclass(frozen=True, slots=True)
class Printed:
    """One step as a line prints it.

    Attributes
    ----------
    engine : int
        Data-parallel rank.
    pid : int or None
        Process that printed the line.
    index : int
        Iteration.
    context, context_tokens, generation, generation_tokens : int
        Requests and their tokens [tokens].
    elapsed_s : float
        The printed time [s].
    usage : float
        Share of the KV cache in use [1]; NaN where not printed.
    dummy : bool
        Whether the step only kept a data-parallel group in step.
    stamp : str
        What kind of time stands beside the line.
    when : tuple of (float, float) or None
        That time, as ``stamp_s`` returns it.
    alone : bool
        Whether the line holds only this record.
    text : str
        The record, for its form in a rejects file.
    """

    engine: int
    pid: int | None
    index: int
    context: int
    context_tokens: int
    generation: int
    generation_tokens: int
    elapsed_s: float
    usage: float
    dummy: bool
    stamp: str
    when: tuple[float, float] | None
    alone: bool
    text: str

    def complaint(self) -> str | None:
        """Return why counts that are each possible cannot stand together.

        Returns
        -------
        str or None
            None when they can.
        """
        if max(self.context_tokens, self.generation_tokens, self.index) > MAX_TOKENS * 64:
            return "a count is out of range"
        if (
            self.context_tokens < self.context
            or self.generation_tokens < self.generation
            or ((self.context == 0) != (self.context_tokens == 0))
            or ((self.generation == 0) != (self.generation_tokens == 0))
        ):
            return "requests and tokens do not fit: each request has a token"
        if self.usage > 1:
            return "KV cache usage above 100 %"
        return None

    @property
    def idle(self) -> bool:
        """Whether nothing was scheduled."""
        return not (
            self.context or self.context_tokens or self.generation or self.generation_tokens
        )


@dataclass(frozen=True, slots=True)
class Unusable:
    """A record that begins like a step and is none.

    Attributes
    ----------
    reason : str
        What is wrong with it.
    text : str
        The record, for its form in a rejects file.
    """

    reason: str
    text: str


def printed_steps(line: bytes) -> list[Printed | Unusable]:
    """Return the steps that a line prints.

    Parameters
    ----------
    line : bytes
        One physical line with the word ``Iteration(`` in it.

    Returns
    -------
    list of Printed or Unusable
        Usually one; several where records are glued together; none where the words are
        a quotation.
    """
    record = unwrap(line)
    text = record.text
    if record.broken:
        if QUOTED.search(text):
            return []
        at = max(text.find(WORD), 0)
        return [Unusable("the JSON line is cut or damaged", text[at:])]
    found: list[Printed | Unusable] = []
    when = stamp_s(line[: line.find(b"Iteration(")].decode("utf-8", "replace"))
    begin = 0
    while (at := text.find(WORD, begin)) >= 0:
        prefix = text[begin:at]
        if QUOTED.search(prefix) or (prefix and prefix[-1] not in " \t\n])>|:-"):
            break
        match = _ITERATION.match(text, at)
        more = -1 if match is None else text.find(WORD, match.end())
        tail = "" if match is None else text[match.end() : more if more >= 0 else None]
        if match is None or (more < 0 and TAIL.match(tail) is None):
            found.append(Unusable(_why(text[at:]), text[at:]))
            break
        found.append(_printed(match, prefix, record, when, begin == 0 and more < 0))
        begin = match.end()
    return found


def _printed(
    match: re.Match[str],
    prefix: str,
    record: Unwrapped,
    when: tuple[float, float] | None,
    alone: bool,
) -> Printed:
    said = _ENGINE.search(prefix)
    engine, pid = process_of(prefix, record)
    index, context, context_tokens, generation, generation_tokens = (
        int(match.group(k)) for k in range(1, 6)
    )
    return Printed(
        int(said.group(1)) if said else engine or 0,
        pid,
        index,
        context,
        context_tokens,
        generation,
        generation_tokens,
        float(match.group(6)) * 1e-3,
        float(match.group(8)) / 100 if match.group(8) else float("nan"),
        match.group(7) is not None,
        record.stamp,
        when if alone else stamp_s(prefix),
        alone,
        match.group(),
    )


def _why(text: str) -> str:
    """Return what is wrong with a step line that does not parse."""
    loose = _LOOSE.match(text)
    if loose is None:
        return "the step line is cut or not understood"
    for name, value in zip(_LOOSE_NAMES, loose.groups(), strict=True):
        try:
            number = float(value)
        except ValueError:
            return f"{name} is not a number (got {value_shown(value)})"
        if not np.isfinite(number):
            return f"{name} is not a finite number (got {value_shown(value)})"
        if number < 0:
            return f"{name} is negative (got {value_shown(value)})"
        if name != "elapsed time" and not value.isdigit():
            return f"{name} is not a whole number (got {value_shown(value)})"
    return "the step line is cut or followed by something not understood"
