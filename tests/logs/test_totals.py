"""Totals of whole logs must mean exactly what the kernel's totals mean."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kernelfit.kernel.batch import RequestShape
from kernelfit.kernel.totals import BatchTotals
from kernelfit.logs.columns import UNKNOWN
from kernelfit.logs.totals import request_totals

shape = st.builds(
    lambda s, c, p: RequestShape(scheduled=s, computed=c, prompt_len=p),
    st.one_of(st.just(1), st.integers(1, 2**24)),
    st.integers(0, 2**24),
    st.integers(1, 2**24),
)


def arrays(steps: list[list[RequestShape]]) -> dict[str, np.ndarray]:
    flat = [r for step in steps for r in step]
    offsets = np.cumsum([0, *(len(step) for step in steps)])
    return request_totals(
        offsets,
        np.array([r.scheduled for r in flat], dtype=np.int64),
        np.array([r.computed for r in flat], dtype=np.int64),
        np.array([r.prompt_len for r in flat], dtype=np.int64),
    )


@given(st.lists(st.lists(shape, min_size=1, max_size=8), min_size=1, max_size=6))
def test_totals_are_the_kernels(steps: list[list[RequestShape]]) -> None:
    got = arrays(steps)
    for place, step in enumerate(steps):
        want = BatchTotals.of(step)
        assert got["requests"][place] == want.requests
        assert got["scheduled_tokens"][place] == want.tokens
        for name in (
            "decode_requests",
            "decode_context_tokens",
            "decode_pairs",
            "prefill_context_tokens",
            "prefill_pairs",
        ):
            assert got[name][place] == getattr(want, name), name
        assert (
            got["context_tokens"][place] == want.decode_context_tokens + want.prefill_context_tokens
        )


@given(st.lists(st.lists(shape, min_size=1, max_size=8), min_size=1, max_size=6))
def test_prompt_counts_split_the_step(steps: list[list[RequestShape]]) -> None:
    got = arrays(steps)
    for place, step in enumerate(steps):
        past = [r for r in step if r.computed >= r.prompt_len]
        assert got["past_prompt_requests"][place] == len(past)
        assert got["past_prompt_tokens"][place] == sum(r.scheduled for r in past)
        assert got["in_prompt_requests"][place] == len(step) - len(past)
        assert got["in_prompt_tokens"][place] == sum(
            r.scheduled for r in step if r.computed < r.prompt_len
        )


def test_by_hand() -> None:
    # One decode at context 10 (11 tokens read, 11 pairs) and a chunk of 3 after 2:
    # the chunk's tokens see 3, 4 and 5 keys, which is 12 pairs over 5 tokens of KV.
    got = request_totals(np.array([0, 2]), np.array([1, 3]), np.array([10, 2]), np.array([10, 5]))
    assert got["decode_context_tokens"].tolist() == [11]
    assert got["decode_pairs"].tolist() == [11]
    assert got["prefill_context_tokens"].tolist() == [5]
    assert got["prefill_pairs"].tolist() == [12]
    assert got["past_prompt_requests"].tolist() == [1]


def test_unknown_stays_unknown_and_stays_in_its_step() -> None:
    got = request_totals(
        np.array([0, 2, 3, 4]),
        np.array([1, 5, 7, 1]),
        np.array([UNKNOWN, 2, 3, 4]),
        np.array([4, 9, UNKNOWN, 4]),
    )
    assert got["context_tokens"].tolist() == [UNKNOWN, 10, 5]
    assert got["prefill_pairs"].tolist() == [UNKNOWN, 7 * 3 + 28, 0]
    assert got["past_prompt_requests"].tolist() == [UNKNOWN, UNKNOWN, 1]
    # What does not depend on the unknown count is still stated.
    assert got["decode_requests"].tolist() == [1, 0, 1]
    assert got["scheduled_tokens"].tolist() == [6, 7, 1]
