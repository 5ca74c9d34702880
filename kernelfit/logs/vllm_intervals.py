"""vLLM's lines about a stretch of time, by version."""

from __future__ import annotations

import math
import re

from kernelfit.logs.intervals import Interval

WORDS = (
    "Avg prompt throughput: ",
    "Prefix cache hit rate: GPU: ",
    "Speculative metrics: ",
    "SpecDecoding metrics: ",
    "MFU: ",
    "Batchsize forward time stats",
)
"""One of these stands in every interval line, but for the rows of the padding table."""

PADDING_ROW = re.compile(
    r"\| *(\d{1,9}) *\| *(\d{1,9}) *\| *(\d{1,9}) *\| *([A-Z_]{4,24}) *\| *(\d{1,12}) *\|"
)
_GRAPH_MODES = frozenset(("NONE", "PIECEWISE", "FULL", "FULL_DECODE_ONLY", "FULL_AND_PIECEWISE"))

_N = r"(\d{1,15}(?:\.\d{1,12})?|nan|inf)"
_STATS = re.compile(
    rf"(?:Engine (?P<engine>\d{{3}}): |(?P<engines>\d{{1,5}}) Engines Aggregated: )?"
    rf"Avg prompt throughput: (?P<prompt>{_N[1:-1]}) tokens/s, "
    rf"Avg generation throughput: (?P<generation>{_N[1:-1]}) tokens/s, "
    rf"Running: (?P<running>\d{{1,9}}) reqs, "
    rf"(?:Swapped: (?P<swapped>\d{{1,9}}) reqs, Pending|Waiting): (?P<waiting>\d{{1,9}}) reqs"
)
_KV = re.compile(rf", ([\w+ ]+?) KV cache usage: {_N}%\.?")
_MORE: tuple[tuple[str, re.Pattern[str], float], ...] = (
    ("deferred_requests", re.compile(r", Deferred: (\d{1,9}) reqs"), 1),
    ("preemptions", re.compile(r", Preemptions: (\d{1,12})(?=,)"), 1),
    ("corrupted_requests", re.compile(r", Corrupted: (\d{1,9}) reqs"), 1),
    ("external_hit_rate", re.compile(rf", External prefix cache hit rate: {_N}%"), 100),
    ("prefix_hit_rate", re.compile(rf", Prefix cache hit rate: {_N}%"), 100),
    ("multimodal_hit_rate", re.compile(rf", MM cache hit rate: {_N}%"), 100),
)
_INTS = frozenset(("deferred_requests", "preemptions", "corrupted_requests"))
_FETCH = re.compile(r", KV fetch: [^,%]*")
_REST = re.compile(r"(?:, [\w +]+: [\d.]+%)*[\s│|]*(?:\[repeated \d+x[^\]]*\])?[\s│|]*$")
_CACHE_V0 = re.compile(rf"Prefix cache hit rate: GPU: {_N}%, CPU: {_N}%")
_SPEC_V0 = re.compile(
    rf"Speculative metrics: Draft acceptance rate: {_N}, System efficiency: {_N}, "
    r"Number of speculative tokens: (\d{1,6}), Number of accepted tokens: (\d{1,15}), "
    r"Number of draft tokens: (\d{1,15}), Number of emitted tokens: (\d{1,15})\."
)
_SPEC = re.compile(
    r"SpecDecoding metrics: "
    rf"(?:Draft acceptance rate: {_N}%, )?(?:Mean acceptance length: {_N}, )?"
    rf"(?:Accepted throughput: {_N} tokens/s, Drafted throughput: {_N} tokens/s, )?"
    r"Accepted: (\d{1,15}) tokens, Drafted: (\d{1,15}) tokens"
    rf"(?:, Per-position acceptance rate: ((?:{_N}(?:, )?)+))?"
    rf"(?:,? ?Avg Draft acceptance rate: {_N}%)?"
)
_MFU = re.compile(rf"MFU: {_N} TF/s/device {_N} GB/s/device")
_HISTOGRAM = re.compile(
    r"Batchsize forward time stats \(batchsize, count, median_time\(ms\)\): \[(.*)\]"
)
_ENTRY = re.compile(rf"\((\d{{1,9}}), (\d{{1,12}}), {_N}\)")
_ENTRIES = re.compile(rf"(?:\(\d{{1,9}}, \d{{1,12}}, {_N}\)(?:, |$))*")
_CUT = "the interval line is cut or not understood"


def _real(text: str | None, scale: float = 1.0) -> float | None:
    """Return a printed number; None where it is missing, nan or infinite."""
    if text is None:
        return None
    value = float(text)
    return value / scale if math.isfinite(value) else None


def _whole(text: str | None) -> int | None:
    return None if text is None else int(text)


def intervals_of(text: str, number: int, engine: int) -> tuple[Interval, ...] | str:
    """Return what an interval line says.

    Parameters
    ----------
    text : str
        The record, without colours.
    number : int
        Its line number.
    engine : int
        The engine whose process printed it, where the line itself does not say.

    Returns
    -------
    tuple of Interval or str
        One per entry of the line, or what is wrong with it; none where the words are
        somebody else's.
    """
    if WORDS[0] in text:
        return _stats(text, number, engine)
    if "SpecDecoding metrics: " in text:
        return _spec(text, number, engine)
    if "Speculative metrics: " in text:
        found = _SPEC_V0.search(text)
        if found is None:
            return _CUT
        rate, efficiency, _, accepted, drafted, emitted = found.groups()
        return (
            Interval(
                "speculation",
                number,
                engine=engine,
                acceptance_rate=_real(rate),
                system_efficiency=_real(efficiency),
                accepted_tokens=_whole(accepted),
                drafted_tokens=_whole(drafted),
                emitted_tokens=_whole(emitted),
            ),
        )
    if WORDS[1] in text:
        found = _CACHE_V0.search(text)
        if found is None:
            return _CUT
        return (
            Interval(
                "prefix_cache",
                number,
                engine=engine,
                prefix_hit_rate=_real(found.group(1), 100),
                cpu_prefix_hit_rate=_real(found.group(2), 100),
            ),
        )
    if WORDS[5] in text:
        return _histogram(text, number, engine)
    if "MFU: " in text:
        found = _MFU.search(text)
        if found is None:
            return ()
        flop, traffic = _real(found.group(1), 1e-12), _real(found.group(2), 1e-9)
        return (
            Interval("utilisation", number, engine=engine, flop_per_s=flop, bytes_per_s=traffic),
        )
    row = PADDING_ROW.search(text)
    if row is None or row.group(4) not in _GRAPH_MODES:
        return ()
    return (
        Interval(
            "graph_padding",
            number,
            engine=engine,
            unpadded_tokens=int(row.group(1)),
            padded_tokens=int(row.group(2)),
            count=int(row.group(5)),
            graph_mode=row.group(4),
        ),
    )


def _stats(text: str, number: int, engine: int) -> tuple[Interval, ...] | str:
    found = _STATS.search(text)
    if found is None:
        return _CUT
    rest = text[found.end() :]
    values: dict[str, float | int | None] = {}
    usages = _KV.findall(rest)
    rest = _KV.sub("", rest)
    utilisation = _MFU.search(rest)
    if utilisation is not None:
        values["flop_per_s"] = _real(utilisation.group(1), 1e-12)
        values["bytes_per_s"] = _real(utilisation.group(2), 1e-9)
        rest = (rest[: utilisation.start()].rstrip(", ")) + rest[utilisation.end() :]
    for name, pattern, scale in _MORE:
        said = pattern.search(rest)
        if said is not None:
            whole = name in _INTS
            values[name] = int(said.group(1)) if whole else _real(said.group(1), scale)
            rest = rest[: said.start()] + rest[said.end() :]
    rest = _FETCH.sub("", rest)
    if not usages or _REST.match(rest) is None:
        return _CUT
    device = [share for name, share in usages if name != "CPU" or len(usages) == 1]
    swap = [share for name, share in usages if name == "CPU" and len(usages) > 1]
    shares = [_real(share, 100) for share in (*device[:1], *swap[:1])]
    if any(share is not None and share > 1 for share in shares):
        return "KV cache usage above 100 %"
    several = found.group("engines")
    stated = found.group("engine")
    return (
        Interval(
            "throughput",
            number,
            engine=None if several else int(stated) if stated else engine,
            engines=int(several) if several else 1,
            prompt_tokens_per_s=_real(found.group("prompt")),
            generation_tokens_per_s=_real(found.group("generation")),
            running_requests=_whole(found.group("running")),
            waiting_requests=_whole(found.group("waiting")),
            swapped_requests=_whole(found.group("swapped")),
            kv_usage=shares[0],
            cpu_kv_usage=shares[1] if len(shares) > 1 else None,
            **values,  # type: ignore[arg-type]
        ),
    )


def _spec(text: str, number: int, engine: int) -> tuple[Interval, ...] | str:
    found = _SPEC.search(text)
    if found is None:
        return _CUT
    rest = text[found.end() :]
    # A list that was cut ends in the middle of a number.
    if _REST.match(rest) is None:
        return _CUT
    first, length, accepted_rate, drafted_rate, accepted, drafted, listed = found.groups()[:7]
    last = found.group(9)
    if last is None and (accepted_rate is not None or (listed or "").endswith(", ")):
        return _CUT
    # Its words say that an engine stands before it, as in every line of the interval.
    said = re.search(r"Engine (\d{3}): $", text[: found.start()])
    positions = tuple(_real(word) for word in (listed or "").split(", ") if word)
    return (
        Interval(
            "speculation",
            number,
            engine=int(said.group(1)) if said else engine,
            mean_acceptance_length_tokens=_real(length),
            accepted_tokens_per_s=_real(accepted_rate),
            drafted_tokens_per_s=_real(drafted_rate),
            accepted_tokens=int(accepted),
            drafted_tokens=int(drafted),
            acceptance_rate=_real(last if last is not None else first, 100),
            acceptance_by_position=positions,
        ),
    )


def _histogram(text: str, number: int, engine: int) -> tuple[Interval, ...] | str:
    found = _HISTOGRAM.search(text)
    if found is None or _ENTRIES.fullmatch(found.group(1)) is None:
        return _CUT
    return tuple(
        Interval(
            "batch_size",
            number,
            engine=engine,
            padded_tokens=int(size),
            count=int(count),
            forward_s=_real(time, 1e3),
        )
        for size, count, time in _ENTRY.findall(found.group(1))
    )
