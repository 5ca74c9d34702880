"""Batches in short form and as JSON."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelfit.cli.batches import from_data, from_flags
from kernelfit.documents.problems import InputError
from kernelfit.kernel.batch import RequestShape
from kernelfit.kernel.totals import BatchTotals


def test_the_short_form_says_what_it_means() -> None:
    batch = from_flags(["2x1024"], ["1x512+1024", "1x16"])
    assert batch.requests == (
        RequestShape(1, 1024, 1024),
        RequestShape(1, 1024, 1024),
        RequestShape(512, 1024, 1536),
        RequestShape(16, 0, 16),
    )


@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(0, 5000)), min_size=1, max_size=4),
)
def test_decode_batches_count_their_context(parts: list[tuple[int, int]]) -> None:
    batch = from_flags([f"{n}x{c}" for n, c in parts], [])
    totals = BatchTotals.of(batch.requests)
    assert totals.requests == totals.tokens == sum(n for n, _ in parts)
    assert totals.decode_context_tokens == sum(n * (c + 1) for n, c in parts)


@pytest.mark.parametrize(
    ("decode", "prefill", "said"),
    [
        (["32"], [], "--decode: is no batch (got 32); allowed REQUESTSxCONTEXT"),
        (["0x10"], [], "requests"),
        ([], ["1x0"], "scheduled"),
        ([], ["ax5"], "--prefill: is no batch (got ax5)"),
        (["-1x5"], [], "is no batch"),
    ],
)
def test_what_is_no_batch_is_refused(decode: list[str], prefill: list[str], said: str) -> None:
    with pytest.raises(InputError) as caught:
        from_flags(decode, prefill)
    assert said in str(caught.value)
    # The nearest that is one.
    assert from_flags(["1x10"], ["1x1"]).tokens() == 2


def test_the_json_form_takes_lists_and_objects() -> None:
    data = {
        "requests": [
            [1, 100, 90],
            {"scheduled": 8, "computed": 16, "prompt_len": 40, "cached_tokens": 16},
        ],
        "decode_threshold": 4,
    }
    batch = from_data(data, "b.jsonl", 1)
    assert batch.requests == (RequestShape(1, 100, 90), RequestShape(8, 16, 40, 16))
    assert batch.decode_threshold == 4


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ([], "is no batch"),
        ({"requests": []}, "at least one request"),
        ({"requests": [[1, 2]]}, "3 or 4 counts"),
        ({"requests": [[1, 2, 3.0]]}, "prompt_len (got 3.0); allowed a whole number"),
        ({"requests": [[1, -2, 3]]}, "computed (got -2)"),
        ({"requests": [[1, 2, 3, 9]]}, "cached_tokens (got 9)"),
        ({"requests": [[True, 2, 3]]}, "scheduled (got True)"),
        ({"requests": [{"scheduled": 1, "computed": 2}]}, "prompt_len"),
        ({"requests": [[1, 2, 3]], "threshold": 1}, "decode_threshold"),
        ({"requests": [[1, 2, 3]], "sm_budget": "all"}, "sm_budget"),
    ],
)
def test_what_is_no_batch_names_file_and_line(data: Any, said: str) -> None:
    with pytest.raises(InputError) as caught:
        from_data(data, "b.jsonl", 7)
    text = str(caught.value)
    assert text.startswith("b.jsonl:7: is no batch")
    assert said in text
