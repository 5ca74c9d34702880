"""Forms of engine logs, as lines built from the engines' own templates.

What each becomes was derived from the template's meaning by hand, never from a reader.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

Step = tuple[int, int, int | None, int, float | None]
"""Engine, step index, requests, scheduled tokens, duration [ms]; None where not stated."""


@dataclass(frozen=True)
class Form:
    """A few lines and what they become.

    ``recognised`` counts lines that are known and are no step; ``reasons`` are words of
    the reasons of rejected lines, in order. The line counts of all must add up.
    """

    name: str
    reader: str
    covers: tuple[str, ...]
    lines: tuple[str | bytes, ...]
    steps: tuple[Step, ...] = ()
    intervals: tuple[Mapping[str, object], ...] = ()
    stated: Mapping[str, object] = field(default_factory=dict)
    startup: Mapping[str, object] = field(default_factory=dict)
    recognised: int = 0
    reasons: tuple[str, ...] = ()
    runs: int = 1
    marks: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    awkward: bool = False
    said: Mapping[str, object] = field(default_factory=dict)
    timing: str = "wait"
    suffix: str = ".log"
    no_end: bool = False

    def data(self) -> bytes:
        lines = [line if isinstance(line, bytes) else line.encode() for line in self.lines]
        return b"\n".join(lines) + (b"" if self.no_end else b"\n")


def all_forms() -> tuple[Form, ...]:
    from tests.logs.forms import other, sglang, trtllm, vllm_averages, vllm_start, vllm_steps

    modules = (vllm_steps, vllm_averages, vllm_start, sglang, trtllm, other)
    return tuple(form for module in modules for form in module.FORMS)
