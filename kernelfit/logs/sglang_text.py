"""Lines of SGLang's text logs: batches as printed, and facts of the start."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field

HEADER = re.compile(
    r"\[(?:\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d(?:\.\d{3})?((?: (?:DP|TP|EP|PP|CP|ATTN_\w+?)\d+)*)"
    r"(?: [\w.]+\.py:\d+)?\] "
    r"|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:,\d{3})? [A-Z]+ \d+ \[([^\]]*)\] "
)
START = "server_args=ServerArgs("
BATCH = re.compile(
    r"(?P<prefill>Prefill batch)|(?P<decode>Decode batch)|(?P<fill>new fill batch\.)"
    r"|(?P<old>(?<=\] )#running-req: )"
)
_RANK = re.compile(r"\b(DP|TP|PP|ATTN_TP)(\d+)")
_MIXED = re.compile(r"(?: ?\(mixed #running-req: (\d+)\))")
_INDEX = re.compile(r" ?\[(\d{1,12})\]")
# A value ends at a comma, or in the oldest form at a full stop and a space.
_PAIR = re.compile(r"\s*(#?[A-Za-z][\w ()/#.-]*?)(?:: |=)([^,\s]+?)(?:,|\.(?=\s|$)|(?=\s*$))\s*")
_END = re.compile(r"[\s│|]*(?:\[repeated \d+x[^\]]*\])?[\s│|]*$")


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch line, taken apart.

    Attributes
    ----------
    kind : str
        ``prefill`` or ``decode``.
    index : int or None
        The iteration that some versions print.
    mixed : int
        Decoding requests that run with the prompts [1].
    values : dict of str to str
        Every ``key: value`` of the line, unknown ones too, as printed.
    dp_rank, tp_rank, pp_rank : int
        Ranks that the header states; 0 where it does not.
    """

    kind: str
    index: int | None
    mixed: int
    values: dict[str, str] = field(default_factory=dict)
    dp_rank: int = 0
    tp_rank: int = 0
    pp_rank: int = 0

    def count(self, *keys: str) -> int | None:
        """Return a count.

        Parameters
        ----------
        *keys : str
            Names that versions give it.

        Returns
        -------
        int or None
            The first that is printed; None where none is, or it is no count.
        """
        for key in keys:
            text = self.values.get(key)
            if text is not None:
                return int(text) if text.isascii() and text.isdigit() and len(text) < 13 else None
        return None

    def number(self, *keys: str) -> float | None:
        """Return a number.

        Parameters
        ----------
        *keys : str
            Names that versions give it.

        Returns
        -------
        float or None
            The first that is printed; None where none is, or it is not finite.
        """
        for key in keys:
            text = self.values.get(key)
            if text is not None:
                try:
                    value = float(text.rstrip("%"))
                except ValueError:
                    return None
                return value if math.isfinite(value) else None
        return None


def split_batches(text: str) -> list[tuple[int, int, re.Match[str]]]:
    """Return where the batch records of a line are; two may be glued together.

    Parameters
    ----------
    text : str
        A line without colours.

    Returns
    -------
    list of (int, int, re.Match)
        Begin and end of each record, from its header on, and its first words.
    """
    found = list(BATCH.finditer(text))
    records: list[tuple[int, int, re.Match[str]]] = []
    for place, match in enumerate(found):
        last = found[place + 1].start() if place + 1 < len(found) else len(text)
        begin = records[-1][1] if records else 0
        if place + 1 < len(found):
            heads = [h.start() for h in HEADER.finditer(text, match.end(), last)]
            last = heads[-1] if heads else last
        records.append((begin, last, match))
    return records


def batch_of(text: str, match: re.Match[str], end: int, begin: int = 0) -> Batch | str:
    """Take a batch record apart.

    Parameters
    ----------
    text : str
        The line.
    match : re.Match
        Its first words, as ``split_batches`` returns them.
    end, begin : int
        The record's end and its begin.

    Returns
    -------
    Batch or str
        The batch, or what is wrong with it.
    """
    kind = "prefill" if match.lastgroup in ("prefill", "fill") else "decode"
    at = match.start() if match.lastgroup == "old" else match.end()
    mixed = index = None
    for _ in range(2):
        if mixed is None and (said := _MIXED.match(text, at, end)):
            mixed, at = int(said.group(1)[:12]), said.end()
        if index is None and (said := _INDEX.match(text, at, end)):
            index, at = int(said.group(1)), said.end()
    while at < end and text[at] in ".,: ":
        at += 1
    values: dict[str, str] = {}
    while at < end and (pair := _PAIR.match(text, at, end)):
        key = pair.group(1)
        if key in values:
            return f"{key} stands twice in the line"
        values[key] = pair.group(2)
        at = pair.end()
    if _END.match(text, at, end) is None or not values:
        return "the batch line is cut or not understood"
    head = text[begin : match.start()]
    ranks = {name: int(number[:6]) for name, number in _RANK.findall(head)}
    return Batch(
        kind,
        index,
        mixed or 0,
        values,
        ranks.get("DP", 0),
        ranks.get("ATTN_TP", ranks.get("TP", 0)),
        ranks.get("PP", 0),
    )


def _flag(word: str) -> bool:
    return word == "True"


def _not(word: str) -> bool:
    return word != "True"


_ARGUMENTS: tuple[tuple[str, str, Callable[[str], object]], ...] = (
    ("pp", r"\bpp_size=(\d+)", int),
    ("max_model_len", r"\bcontext_length=(\d+)", int),
    ("max_num_seqs", r"\bmax_running_requests=(\d+)", int),
    ("block_size", r"\bpage_size=(\d+)", int),
    ("quantization", r"\bquantization='([\w.-]+)'", str),
    ("cache_dtype", r"\bkv_cache_dtype='(\w+)'", str),
    ("dtype", r"\bdtype='(?!auto)(\w+)'", str),
    ("enable_prefix_caching", r"\bdisable_radix_cache=(True|False)", _not),
    ("async_scheduling", r"\bdisable_overlap_schedule=(True|False)", _not),
    ("enforce_eager", r"\bdisable_cuda_graph=(True|False)", _flag),
    ("disable_custom_all_reduce", r"\bdisable_custom_all_reduce=(True|False)", _flag),
    ("speculative_method", r"\bspeculative_algorithm='(\w+)'", str),
    # Only the last part of a path: folders may carry a person's name.
    ("model_name", r"\bmodel_path='(?:[^']*/)?([^'/]+)/?'", str),
)
_WIDTHS = re.compile(r"\b(tp|dp)_size=(\d+)")
_SHARED_ATTENTION = "enable_dp_attention=True"
_INTERVAL = re.compile(r"\bdecode_log_interval=(\d{1,6})")
_POOL = re.compile(r"\bmax_total_num_tokens=(\d{1,12})")
FACT_LINE = re.compile(rb"server_args=ServerArgs\(|max_total_num_tokens=")


def facts_of(text: str) -> tuple[dict[str, object], dict[str, object]]:
    """Return the facts that a start-up line states.

    Parameters
    ----------
    text : str
        The line.

    Returns
    -------
    tuple of (dict, dict)
        Facts by the names of the run document, and others: ``kv_cache_tokens``
        [tokens] and ``decode_log_interval_steps``.
    """
    facts: dict[str, object] = {}
    other: dict[str, object] = {}
    if START in text:
        for name, pattern, convert in _ARGUMENTS:
            found = re.search(pattern, text)
            if found:
                facts[name] = convert(found.group(1))
        if _SHARED_ATTENTION not in text:
            # With data-parallel attention the two widths share the same GPUs.
            facts |= {name: int(number) for name, number in _WIDTHS.findall(text)}
        every = _INTERVAL.search(text)
        if every:
            other["decode_log_interval_steps"] = int(every.group(1))
    pool = _POOL.search(text)
    if pool:
        other["kv_cache_tokens"] = int(pool.group(1))
    return facts, other
