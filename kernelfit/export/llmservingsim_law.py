"""How LLMServingSim reads its profile tables and adds a step up, re-implemented.

Source: casys-kaist/LLMServingSim 2, ``serving/core/trace_generator.py`` (commit 007f472e:
times are whole nanoseconds and at least one; linear interpolation on every axis, linear
beyond the last row, the nearest pair of prompt tokens and decodes where a corner is missing)
and ``profiler/models/llama.yaml`` and ``qwen3.yaml`` (the order of a layer). Without skew and
without the collectives, which the simulator hands to ASTRA-Sim.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from kernelfit.kernel.batch import Batch

PROLOGUE: tuple[str, ...] = ("embedding",)
LAYER: Mapping[str, tuple[str, ...]] = {
    "llama": (
        "layernorm",
        "qkv_proj",
        "rotary_emb",
        "o_proj",
        "layernorm",
        "gate_up_proj",
        "act_fn",
        "down_proj",
    ),
    "qwen3": (
        "layernorm",
        "qkv_proj",
        "qk_norm",
        "rotary_emb",
        "o_proj",
        "layernorm",
        "gate_up_proj",
        "act_fn",
        "down_proj",
    ),
}
"""Operations of a layer by family, attention apart."""
EPILOGUE: tuple[str, ...] = ("final_layernorm",)
HEAD: tuple[str, ...] = ("lm_head", "sampler")
"""Operations by the number of sequences."""

Curve = Mapping[int, int]
"""Nanoseconds by tokens or by sequences."""

Point = tuple[int, int, int, int]
"""Prompt tokens, context before them, decodes, their context."""


@dataclass(frozen=True, slots=True)
class Profile:
    """The tables of one width.

    Attributes
    ----------
    family : str
        ``llama`` or ``qwen3``.
    layers : int
        Layers of the model.
    dense : mapping of str to mapping
        Nanoseconds by tokens, per operation [ns].
    per_sequence : mapping of str to mapping
        Nanoseconds by sequences, per operation [ns].
    attention : mapping
        Nanoseconds by ``Point`` [ns].
    """

    family: str
    layers: int
    dense: Mapping[str, Curve]
    per_sequence: Mapping[str, Curve]
    attention: Mapping[Point, int]

    def step_ns(self, batch: Batch) -> int:
        """Return a step as the simulator adds it up, without its collectives.

        Parameters
        ----------
        batch : Batch
            The batch; contexts of prompts are added up and those of decodes averaged.

        Returns
        -------
        int
            Whole nanoseconds [ns].
        """
        tokens, sequences = batch.tokens(), len(batch.requests)
        layer = sum(along(self.dense[name], tokens) for name in LAYER[self.family])
        layer += self.attention_ns(batch)
        whole = sum(along(self.dense[name], tokens) for name in (*PROLOGUE, *EPILOGUE))
        whole += sum(along(self.per_sequence[name], sequences) for name in HEAD)
        return whole + self.layers * layer

    def attention_ns(self, batch: Batch) -> int:
        """Return one layer's attention.

        Parameters
        ----------
        batch : Batch
            The batch.

        Returns
        -------
        int
            Whole nanoseconds, at least 1 [ns].
        """
        prompts = [r for r in batch.requests if r.computed < r.prompt_len]
        decodes = [r for r in batch.requests if r.computed >= r.prompt_len]
        chunk = sum(r.scheduled for r in prompts)
        before = sum(r.computed for r in prompts)
        mean = sum(r.computed for r in decodes) // len(decodes) if decodes else 0
        return max(1, int(_attention(self.attention, chunk, before, len(decodes), mean)))


def along(curve: Curve, query: int) -> int:
    """Return a value between rows of one axis.

    Parameters
    ----------
    curve : mapping of int to int
        Nanoseconds by tokens or sequences [ns].
    query : int
        Where it is wanted; below the first row that row holds.

    Returns
    -------
    int
        Whole nanoseconds, at least 1 [ns].
    """
    keys = sorted(curve)
    return max(1, int(_blend(keys, query, lambda key: float(curve[key]))))


def _blend(keys: Sequence[int], query: int, value: Callable[[int], float]) -> float:
    if len(keys) == 1 or query <= keys[0]:
        return value(keys[0])
    high = min(bisect_right(keys, query), len(keys) - 1)
    low = high - 1
    part = (query - keys[low]) / (keys[high] - keys[low])
    first = value(keys[low])
    return first + part * (value(keys[high]) - first)


def _attention(
    table: Mapping[Point, int], chunk: int, before: int, decodes: int, context: int
) -> float:
    slices: dict[tuple[int, int], dict[int, dict[int, int]]] = {}
    for (c, b, n, k), time in table.items():
        slices.setdefault((c, n), {}).setdefault(b, {})[k] = time

    def corner(c: int, n: int) -> float:
        rows = slices.get((c, n))
        if rows is None:
            nearest = min(slices, key=lambda pair: (pair[0] - c) ** 2 + (pair[1] - n) ** 2)
            rows = slices[nearest]
        chosen = rows
        return _blend(
            sorted(chosen),
            before,
            lambda b: _blend(sorted(chosen[b]), context, lambda k: float(chosen[b][k])),
        )

    chunks = sorted({pair[0] for pair in slices})
    counts = sorted({pair[1] for pair in slices})
    return _blend(chunks, chunk, lambda c: _blend(counts, decodes, lambda n: corner(c, n)))
