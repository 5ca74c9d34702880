"""The published rules of llm-d-inference-sim's configuration, applied strictly, and its formulas.

Rules and names as in that project's ``docs/configuration.md`` and ``docs/latency-simulation.md``
at commit 05ea24a, where latencies are nested under ``latencies`` (the flat keys go in v0.13.0).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

CALCULATORS = ("constant", "per-token")
DURATIONS = (
    "time-to-first-token",
    "time-to-first-token-std-dev",
    "inter-token-latency",
    "inter-token-latency-std-dev",
    "kv-cache-transfer-latency",
    "kv-cache-transfer-latency-std-dev",
    "prefill-overhead",
    "prefill-time-per-token",
    "prefill-time-std-dev",
    "kv-cache-transfer-time-per-token",
    "kv-cache-transfer-time-std-dev",
    "time-to-generate-image",
    "time-to-generate-image-std-dev",
)
FACTOR = "time-factor-under-load"
_LIMITED = (
    ("inter-token-latency-std-dev", "inter-token-latency"),
    ("time-to-first-token-std-dev", "time-to-first-token"),
    ("kv-cache-transfer-latency-std-dev", "kv-cache-transfer-latency"),
    ("time-to-generate-image-std-dev", "time-to-generate-image"),
)
_TOP = ("engine", "port", "model", "served-model-name", "max-num-seqs", "max-model-len", "mode")
_COUNTS = (("max-num-seqs", 1), ("max-model-len", 1), ("port", 1))
# Of Go's ParseDuration: decimal numbers, each with a unit.
_PART = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)")
_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


def duration_s(text: object) -> float | None:
    """Read a duration of Go's.

    Parameters
    ----------
    text : object
        For example ``12.5ms`` or ``1m30s``; ``0`` needs no unit.

    Returns
    -------
    float or None
        Its length [s], rounded to a nanosecond as Go keeps it; None where it is no duration.
    """
    if text in (0, "0"):
        return 0.0
    if not isinstance(text, str):
        return None
    sign = -1.0 if text.startswith("-") else 1.0
    rest = text.removeprefix("-").removeprefix("+")
    parts = _PART.findall(rest)
    if not parts or "".join(number + unit for number, unit in parts) != rest:
        return None
    return sign * round(sum(float(n) * _SECONDS[u] for n, u in parts) * 1e9) / 1e9


def check_config(text: str) -> tuple[str, ...]:
    """Check a configuration as the simulator does when it starts, and that no key is misspelt.

    Parameters
    ----------
    text : str
        The YAML text.

    Returns
    -------
    tuple of str
        What is wrong, each with its key; empty for one that starts.

    Notes
    -----
    The simulator passes over keys that it does not know, so a misspelt one is silently
    without effect; here every key is a problem that is not about the model, the number of
    requests or a latency.
    """
    try:
        data = YAML(typ="safe", pure=True).load(text)
    except YAMLError as error:
        return (f"not readable as YAML: {' '.join(str(error).split())}",)
    if not isinstance(data, dict):
        return ("a configuration is a mapping",)
    nested = data.get("latencies", {})
    if not isinstance(nested, dict):
        return ("latencies: is no mapping",)
    problems = [
        f"{key}: unknown key"
        for key in data
        if key not in (*_TOP, "latency-calculator", "latencies", *DURATIONS, FACTOR)
    ]
    flat = [key for key in (*DURATIONS, FACTOR) if key in data]
    if flat and nested:
        problems.append(f"{flat[0]}: stands beside the nested latencies; use only one layout")
    problems += _top_problems(data)
    problems += _latency_problems(nested or {key: data[key] for key in flat})
    return tuple(problems)


def _top_problems(data: Mapping[str, Any]) -> list[str]:
    problems = []
    if not isinstance(data.get("model"), str) or not data["model"]:
        problems.append("model: is empty")
    if data.get("engine", "vllm") != "vllm":
        problems.append(f"engine: {data['engine']!r}; only vllm")
    if data.get("mode", "random") not in ("random", "echo"):
        problems.append(f"mode: {data['mode']!r}; random or echo")
    calculator = data.get("latency-calculator", "")
    if calculator not in ("", *CALCULATORS):
        problems.append(f"latency-calculator: {calculator!r}; {', '.join(CALCULATORS)}")
    for key, least in _COUNTS:
        value = data.get(key, least)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            problems.append(f"{key}: {value!r}; a whole number from {least} on")
    return problems


def _latency_problems(given: Mapping[str, Any]) -> list[str]:
    problems = [f"latencies.{key}: unknown key" for key in given if key not in (*DURATIONS, FACTOR)]
    times: dict[str, float] = {}
    for key in DURATIONS:
        if key not in given:
            continue
        time = duration_s(given[key])
        if time is None:
            problems.append(f"latencies.{key}: {given[key]!r} is no duration, as in 12.5ms")
        elif time < 0:
            problems.append(f"latencies.{key}: {given[key]!r} is negative")
        else:
            times[key] = time
    for key, of in _LIMITED:
        if times.get(key, 0.0) > 0.3 * times.get(of, 0.0):
            problems.append(f"latencies.{key}: is more than 30 % of {of}")
    factor = given.get(FACTOR, 1.0)
    number = isinstance(factor, (int, float)) and not isinstance(factor, bool)
    if not number or not 1.0 <= factor < math.inf:
        problems.append(f"latencies.{FACTOR}: {factor!r}; a number from 1 on")
    return problems


@dataclass(frozen=True, slots=True)
class Mock:
    """What a configuration makes the simulator wait, by its published formulas.

    Attributes
    ----------
    max_num_seqs : int
        Requests that run at the same time at most.
    overhead_s, per_token_s : float
        Of the prefill of a prompt [s].
    inter_token_s : float
        Between two tokens of a request that runs alone [s].
    factor : float
        What both are stretched by where ``max_num_seqs`` requests run [1].
    """

    max_num_seqs: int
    overhead_s: float
    per_token_s: float
    inter_token_s: float
    factor: float

    @staticmethod
    def read(text: str) -> Mock:
        """Read a configuration of the per-token calculator.

        Parameters
        ----------
        text : str
            The YAML text.

        Returns
        -------
        Mock
            Its latencies.

        Raises
        ------
        ValueError
            When the simulator would not start with it, or it names another calculator.
        """
        problems = check_config(text)
        if problems:
            raise ValueError("; ".join(problems))
        data = YAML(typ="safe", pure=True).load(text)
        if data.get("latency-calculator") != "per-token":
            raise ValueError("latency-calculator: only per-token scales with the prompt")
        given = data.get("latencies") or data

        def time(key: str) -> float:
            return duration_s(given.get(key, 0)) or 0.0

        return Mock(
            data.get("max-num-seqs", 5),
            time("prefill-overhead"),
            time("prefill-time-per-token"),
            time("inter-token-latency"),
            float(given.get(FACTOR, 1.0)),
        )

    def stretch(self, running: int) -> float:
        """Return what latencies are stretched by under load.

        Parameters
        ----------
        running : int
            Requests that run.

        Returns
        -------
        float
            ``1 + (factor - 1) (running - 1) / (max_num_seqs - 1)`` [1].
        """
        if self.max_num_seqs <= 1:
            return 1.0
        return 1.0 + (self.factor - 1.0) * (running - 1) / (self.max_num_seqs - 1)

    def first_token_s(self, prompt_tokens: int, running: int = 1) -> float:
        """Return the time to the first token, waiting for a free slot not counted.

        Parameters
        ----------
        prompt_tokens : int
            Tokens of the prompt that are not cached [tokens].
        running : int
            Requests that run, this one included.

        Returns
        -------
        float
            Time [s].
        """
        return (self.overhead_s + prompt_tokens * self.per_token_s) * self.stretch(running)

    def next_token_s(self, running: int = 1) -> float:
        """Return the time from one token of a request to its next.

        Parameters
        ----------
        running : int
            Requests that run, this one included.

        Returns
        -------
        float
            Time [s].
        """
        return self.inter_token_s * self.stretch(running)
