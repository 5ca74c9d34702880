"""The form of a line, without what it says: nothing private enters a rejects file.

A line that no reader understands may hold anything: a prompt, token ids, a host's name,
an address, a key. What a person needs in order to find and judge it is its place, the
reason and its form, so that is what is kept: the words that the engines' own templates
are made of and the punctuation. Every other letter becomes ``x`` and every digit ``0``.
"""

from __future__ import annotations

import re

LONGEST_FORM = 500
"""Characters of a form; a longer one is cut [characters]."""

_TEMPLATE_WORDS = """
    Iteration Engine EngineCore APIServer Worker MainProcess context requests tokens generation
    iteration elapsed time ms dummy GPU CPU KV cache usage encoder inputs output embeddings
    INFO DEBUG WARNING ERROR CRITICAL py loggers core pid nan inf Infinity NaN null true false
    Avg prompt throughput s Running Waiting Swapped Pending Deferred Preemptions Corrupted reqs
    Prefix External MM hit rate Engines Aggregated SpecDecoding Speculative metrics Draft
    acceptance length Mean Accepted Drafted Per position Batchsize forward stats batchsize count
    median_time message log asctime levelname process stream stdout stderr
    Prefill Decode batch new seq token cached running req queue full swa largest len accept
    gen graph cuda input mixed pending
    iter global_rank rank currank_total_requests elapsed_time host_step_time
    prev_device_step_time timestamp num_scheduled_requests states num_ctx_requests
    num_ctx_tokens num_generation_tokens kv_cache_util cached_kv_tokens TRT LLM RANK N A
    t step worker header clock i n sched_ns scheduled computed prompt_len submit_ns
    update_ns resumed preempted drafts in_flight kv_usage cost_ns span_ns gpu_ms
    duration_s start_s timing prefill_requests prefill_tokens prefill_computed_tokens
    decode_requests decode_tokens decode_context_tokens scheduled_tokens counter_id wall_time
    request_id chunk_index timestamp_us None True False
"""
_VOCABULARY = frozenset(_TEMPLATE_WORDS.split())
_WORD = re.compile(r"[^\W\d][\w]*")
_DIGIT = re.compile(r"\d")
_CONTROL = re.compile(r"[^\S ]|[^\x20-\x7e]")
_LETTER = re.compile(r"[A-Za-z]")
_NUMBER = re.compile(
    r"[+-]?(?:[\d.,]{1,20}(?:[eE][+-]?\d{1,4})?|nan|inf|infinity)%?", re.IGNORECASE
)


def form_of(text: str) -> str:
    """Return the form of a text.

    Parameters
    ----------
    text : str
        Anything.

    Returns
    -------
    str
        As long as the text and at most ``LONGEST_FORM`` characters: words of the
        templates and ASCII punctuation as they are, other letters as ``x``, digits as
        ``0`` and what is not ASCII as ``?``. The form of a form is the form itself.
    """
    # What is not printable ASCII is no part of a template, nor of a word of one.
    plain = _CONTROL.sub("?", text[:LONGEST_FORM])
    return _DIGIT.sub("0", _WORD.sub(_word, plain))


def _word(found: re.Match[str]) -> str:
    word = found.group()
    return word if word in _VOCABULARY else _LETTER.sub("x", word)


def value_shown(text: str) -> str:
    """Return a value for a reason: a number as it is written, anything else as its size.

    Parameters
    ----------
    text : str
        What stood where a number belongs.

    Returns
    -------
    str
        The number, or how many characters of text there were.
    """
    if _NUMBER.fullmatch(text):
        return text
    return f"{len(text)} characters of text"


_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")


def error_shown(error: Exception) -> str:
    """Return a decoder's complaint without the values that it quotes.

    Parameters
    ----------
    error : Exception
        An error of a decoder; it may quote a part of the input.

    Returns
    -------
    str
        Its first line; quoted values are replaced by their size.
    """
    first = (str(error).splitlines() or [""])[0]
    return _QUOTED.sub(lambda q: f"({len(q.group()) - 2} characters)", first)[:200]
