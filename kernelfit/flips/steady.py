"""The steady state of a load: which batches an engine runs, and how often each.

N requests are in flight and spread evenly over their lifetimes. Each computes its prompt
in c chunks, then decodes D = output - 1 steps (its first token comes with the last chunk),
so that every c + D steps hold N c chunks. As long as those are fewer than the steps, a
chunk has a step of its own, beside N - 1 that decode; beyond, every step holds several. No
arrivals are assumed: what depends on when a request comes is a simulator's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from kernelfit.documents.questions import Question
from kernelfit.flips.loads import Floats
from kernelfit.kernel.tables import alike_windows


@dataclass(frozen=True, slots=True)
class Load:
    """What every request is like.

    Attributes
    ----------
    context_tokens : int
        Tokens in the KV cache of a request before a decode step, on average [tokens].
    prompt_tokens, output_tokens : int
        Length of prompt and answer [tokens]; 0 for decoding alone.
    prefix_hit_share : float
        Share of the prompt that the prefix cache holds [1].
    """

    context_tokens: int
    prompt_tokens: int = 0
    output_tokens: int = 0
    prefix_hit_share: float = 0.0

    @staticmethod
    def of(question: Question) -> Load:
        """Return the load of a question.

        Parameters
        ----------
        question : Question
            The question.

        Returns
        -------
        Load
            Its load, without pools, targets and counts.
        """
        return Load(
            question.context_tokens,
            question.prompt_tokens,
            question.output_tokens,
            question.prefix_hit_share,
        )

    @property
    def new_tokens(self) -> int:
        """Tokens of the prompt that are computed, at least the last [tokens]."""
        held = int(self.prompt_tokens * self.prefix_hit_share)
        return max(self.prompt_tokens - held, min(1, self.prompt_tokens))

    @property
    def decode_steps(self) -> int:
        """Decode steps of a request; 0 where it decodes for ever."""
        return max(self.output_tokens - 1, 0)

    @property
    def longest_tokens(self) -> int:
        """Length that a request grows to, with the token of its last step [tokens]."""
        if not self.prompt_tokens:
            return self.context_tokens + 1
        return self.prompt_tokens + self.output_tokens

    @property
    def text(self) -> str:
        """The load in words, such as ``1,024 + 256 tokens, 25 % cached``."""
        if not self.prompt_tokens:
            return f"{self.context_tokens:,d} tokens"
        text = f"{self.prompt_tokens:,d} + {self.output_tokens:,d} tokens"
        if self.prefix_hit_share:
            text += f", {100.0 * self.prefix_hit_share:.3g} % cached"
        return text


@dataclass(frozen=True, slots=True, eq=False)
class Steady:
    """The batches of a load for N = 1, 2, 3, ... requests in flight.

    Attributes
    ----------
    columns : mapping of str to ndarray
        Totals: of the decode batches of every N, then, with prompts, of the batches that
        hold a chunk.
    decode_share, chunk_share : ndarray, shape (n_batches,)
        Time per output token is this share of the decode step, and of the step with a
        chunk [1]; they add up to 1.
    chunks : ndarray, shape (n_batches,)
        Steps of one prompt; 0 without prompts.
    """

    columns: Mapping[str, Floats]
    decode_share: Floats
    chunk_share: Floats
    chunks: Floats

    @property
    def size(self) -> int:
        """Number of batch sizes."""
        return int(self.decode_share.size)


def steady(
    load: Load, most: int, max_num_batched_tokens: int, windows: tuple[int, ...] = ()
) -> Steady:
    """Return the batches that a load makes.

    Parameters
    ----------
    load : Load
        What every request is like.
    most : int
        Requests in flight, up to which the batches are wanted.
    max_num_batched_tokens : int
        Most tokens in a step [tokens]; at least ``most``.
    windows : tuple of int
        Sliding windows of the model [tokens].

    Returns
    -------
    Steady
        For each number of requests.

    Notes
    -----
    With B tokens a step at most, s new tokens a prompt and N - 1 others that decode, a
    prompt takes ``c = ceil(s / (B - N + 1))`` chunks, or, where prompts share their steps,
    ``N (s + D) / B - D`` if that is more: N requests bring N (s + D) tokens every c + D
    steps, and a step holds B. A chunk is priced at the mean of its prompt's chunks; the
    laws are linear in it. Pages of equal prefixes are read and held per request.
    """
    count = np.arange(1, most + 1, dtype=np.float64)
    decode = _columns(count, count, count * (load.context_tokens + 1.0), count)
    if not load.prompt_tokens:
        columns = decode | alike_windows(decode, windows)
        none = np.zeros_like(count)
        return Steady(columns, np.ones_like(count), none, none)
    new, steps = float(load.new_tokens), float(load.decode_steps)
    before = load.prompt_tokens - new
    chunks = np.ceil(new / (max_num_batched_tokens - count + 1.0))
    chunks = np.maximum(chunks, np.ceil(count * (new + steps) / max_num_batched_tokens - steps))
    cycle = chunks + steps
    shared = count * chunks > cycle
    at_once = np.where(shared, count * chunks / cycle, 1.0)
    size = new / chunks
    decoding = count - at_once
    context = at_once * (before + size * (chunks + 1.0) / 2.0)
    pairs = at_once * size * (before + size * (chunks - 1.0) / 2.0 + (size + 1.0) / 2.0)
    mixed = _columns(
        count,
        decoding + at_once * size,
        decoding * (load.context_tokens + 1.0),
        decoding,
        context,
        pairs,
    )
    columns = {name: np.concatenate([decode[name], mixed[name]]) for name in decode}
    chunk_share = np.where(shared, 1.0, (count - 1.0) * chunks / steps)
    return Steady(columns | alike_windows(columns, windows), 1.0 - chunk_share, chunk_share, chunks)


def busiest(load: Load, requests: int, max_num_batched_tokens: int) -> Mapping[str, Floats]:
    """Return the totals of a step no longer than which any step of a load is.

    Parameters
    ----------
    load : Load
        What every request is like, with a prompt.
    requests : int
        Requests in flight.
    max_num_batched_tokens : int
        Most tokens in a step [tokens].

    Returns
    -------
    mapping of str to ndarray, shape (1,)
        Every other request decodes at its longest, and the step's remaining tokens are the
        last ones of prompts.
    """
    new = float(load.new_tokens)
    decoding = requests - 1.0
    tokens = min(max_num_batched_tokens - decoding, requests * new)
    prompts = max(1.0, np.ceil(tokens / new))
    columns = _columns(
        np.asarray([decoding + prompts]),
        np.asarray([decoding + tokens]),
        np.asarray([decoding * load.longest_tokens]),
        np.asarray([decoding]),
        np.asarray([prompts * load.prompt_tokens]),
        np.asarray([tokens * load.prompt_tokens]),
    )
    return dict(columns)


def _columns(
    requests: Floats,
    tokens: Floats,
    decode_keys: Floats,
    decoding: Floats,
    prefill_context: Floats | None = None,
    prefill_pairs: Floats | None = None,
) -> dict[str, Floats]:
    none = np.zeros_like(requests)
    return {
        "requests": requests,
        "tokens": tokens,
        "decode_requests": decoding,
        "decode_context_tokens": decode_keys,
        "decode_pairs": decode_keys,
        "prefill_context_tokens": none if prefill_context is None else prefill_context,
        "prefill_pairs": none if prefill_pairs is None else prefill_pairs,
    }
