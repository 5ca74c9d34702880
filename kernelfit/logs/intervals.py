"""What an engine prints now and then about a stretch of time, not about one step."""

from __future__ import annotations

from dataclasses import dataclass

INTERVAL_KINDS: tuple[str, ...] = (
    "throughput",
    "prefix_cache",
    "speculation",
    "utilisation",
    "batch_size",
    "graph_padding",
)
"""Kinds of interval lines: averages of the last seconds, hit rates, accepted drafts,
share of the peaks, forward times by batch size, and padding of captured graphs."""


@dataclass(frozen=True, slots=True)
class Interval:
    """One interval line; None where the line does not say.

    Attributes
    ----------
    kind : str
        A name from ``INTERVAL_KINDS``.
    line : int
        Line number in the log, from 1.
    engine : int or None
        The engine; None where the line is about several.
    engines : int
        How many engines the line is about.
    after_step : int or None
        Index of the engine's last step before the line; None before the first.
    prompt_tokens_per_s, generation_tokens_per_s : float or None
        Throughput since the line before [tokens/s].
    running_requests, waiting_requests, swapped_requests, deferred_requests : int or None
        Requests when the line was printed.
    preemptions, corrupted_requests : int or None
        Counts that later versions print.
    kv_tokens : int or None
        KV tokens in use [tokens].
    kv_usage, cpu_kv_usage : float or None
        Share of the KV cache in use, on the device and of the swap space [1].
    prefix_hit_rate, cpu_prefix_hit_rate, external_hit_rate, multimodal_hit_rate : float or None
        Shares of cache hits, over about the last thousand requests [1].
    mean_acceptance_length_tokens : float or None
        Tokens that a verification emits on average, the bonus token among them [tokens].
    accepted_tokens_per_s, drafted_tokens_per_s : float or None
        Throughput of drafts [tokens/s].
    accepted_tokens, drafted_tokens, emitted_tokens : int or None
        Drafts since the line before [tokens].
    acceptance_rate, system_efficiency : float or None
        Accepted by drafted tokens, and emitted by the most that could be emitted [1].
    acceptance_by_position : tuple of float
        Share of accepted drafts at each position [1]; empty where not printed.
    flop_per_s, bytes_per_s : float or None
        Estimated by the engine, per device [FLOP/s] and [bytes/s].
    padded_tokens, unpadded_tokens, count : int or None
        A row of a histogram: tokens of the batch [tokens] and how often it ran since the
        engine started.
    forward_s : float or None
        Median time of the forward pass of such a batch, with a device synchronisation
        that the histogram itself adds, without sampling [s].
    graph_mode : str or None
        How the batch was run, for a row of padding.
    step_s : float or None
        Mean time of a decode step over the interval, where the lines allow it [s].
    """

    kind: str
    line: int
    engine: int | None = None
    engines: int = 1
    after_step: int | None = None
    prompt_tokens_per_s: float | None = None
    generation_tokens_per_s: float | None = None
    running_requests: int | None = None
    waiting_requests: int | None = None
    swapped_requests: int | None = None
    deferred_requests: int | None = None
    preemptions: int | None = None
    corrupted_requests: int | None = None
    kv_tokens: int | None = None
    kv_usage: float | None = None
    cpu_kv_usage: float | None = None
    prefix_hit_rate: float | None = None
    cpu_prefix_hit_rate: float | None = None
    external_hit_rate: float | None = None
    multimodal_hit_rate: float | None = None
    mean_acceptance_length_tokens: float | None = None
    accepted_tokens_per_s: float | None = None
    drafted_tokens_per_s: float | None = None
    accepted_tokens: int | None = None
    drafted_tokens: int | None = None
    emitted_tokens: int | None = None
    acceptance_rate: float | None = None
    system_efficiency: float | None = None
    acceptance_by_position: tuple[float | None, ...] = ()
    flop_per_s: float | None = None
    bytes_per_s: float | None = None
    padded_tokens: int | None = None
    unpadded_tokens: int | None = None
    count: int | None = None
    forward_s: float | None = None
    graph_mode: str | None = None
    step_s: float | None = None
